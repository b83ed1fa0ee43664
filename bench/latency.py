"""How late a copy comes and how late the mirror is: one Job at a time, and under a steady load.

Dispatch: from the answer to a Job's creation until its copy is seen on a worker. Mirror: from a change seen on a worker
until the same is seen on the management cluster. Both ends are watched from here, by one clock.

References of the same run: a client that does nothing but the writes themselves, one after the other (assign and
create; status), and watches as we do. That is the least that anybody could take. The load is Jobs at a steady rate, a
third of what this fleet takes directly at full speed.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from bench.frame.fleets import RealFleet, real_fleet
from bench.frame.generator import MANAGEMENT, NAMESPACE, Lives, a_job, create_all, delete_all, pace
from bench.frame.meters import Asked, settled
from bench.frame.parts import Part
from bench.frame.results import Recorder, percentile
from multimirror.kube.resources import JOBS

_NOBODY: Final = "bench.multimirror.dev/nobody"
_SECONDS: Final = 20
_FULL: Final = 100
_ASIDE: Final = ("events", "workerclusters", "mirrorqueues")


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """One fleet for all sizes."""
    async with real_fleet() as fleet:
        recorder.say("the fleet is up")
        lives = Lives()
        async with lives.following(fleet.clients):
            await _one_by_one(fleet, lives, "warm-up", 10)
            for size in sizes:
                await _idle(recorder, fleet, lives, size)
                await _loaded(recorder, fleet, lives, size)


async def _idle(recorder: Recorder, fleet: RealFleet, lives: Lives, size: int) -> None:
    dispatched, mirrored = await _bare(fleet, lives, size)
    recorder.percentiles("the bare writes of a dispatch", size, dispatched)
    recorder.percentiles("a bare status write", size, mirrored)
    lives.forget()
    await fleet.set_queue(placement="Ordered")  # all on the first worker: what the others are asked for is too much
    begun = fleet.meter.mark()
    names = await _one_by_one(fleet, lives, "idle", size)
    _requests(recorder, fleet, size, (await settled(fleet.meter, begun)).asked())
    await fleet.set_queue(placement="Spread")
    ours, late = lives.dispatch_seconds(names), lives.mirror_seconds()
    recorder.percentiles("dispatch, idle", size, ours)
    recorder.percentiles("mirror, idle", size, late)
    recorder.ratio("dispatch, idle p50 : bare writes", size, percentile(ours, 50) / percentile(dispatched, 50))
    recorder.ratio("mirror, idle p50 : bare write", size, percentile(late, 50) / percentile(mirrored, 50))


def _requests(recorder: Recorder, fleet: RealFleet, size: int, asked: dict[Asked, int]) -> None:
    """For one Job that comes alone: events, and the status of our own objects, aside."""
    first, *others = fleet.workers
    roles = {MANAGEMENT: "management", first: "chosen worker", **dict.fromkeys(others, "other workers")}
    counts = dict.fromkeys(roles.values(), 0)
    for key, count in asked.items():
        if key.resource.partition("/")[0] not in _ASIDE:
            counts[roles[key.cluster]] += count
    for role, count in counts.items():
        recorder.ratio(f"our requests for a Job, {role}", size, count / size)
    rows = [(roles[key.cluster], key.verb, key.resource, count / size) for key, count in sorted(asked.items())]
    recorder.table("Our API requests for a Job that comes alone", ("cluster", "verb", "resource", "requests"), rows)


async def _loaded(recorder: Recorder, fleet: RealFleet, lives: Lives, size: int) -> None:
    rate = await _direct_rate(fleet, lives) / 3
    lives.forget()
    count = max(size, round(rate * _SECONDS))
    recorder.say(f"{count} Jobs at {rate:.1f} a second")

    async def one(number: int) -> None:
        name = f"load-{number}"
        await fleet.management.create(JOBS, a_job(name), NAMESPACE)
        lives.note_made(name)

    await pace(count, rate, one)
    await lives.until(lambda: len(lives.ended[MANAGEMENT]) >= count, "all Jobs are mirrored")
    ours, late = lives.dispatch_seconds(f"load-{number}" for number in range(count)), lives.mirror_seconds()
    recorder.figure("load", size, rate, "Jobs/s")
    recorder.percentiles("dispatch, under load", size, ours)
    recorder.percentiles("mirror, under load", size, late)


async def _one_by_one(fleet: RealFleet, lives: Lives, prefix: str, size: int) -> list[str]:
    names = [f"{prefix}-{number}" for number in range(size)]
    for name in names:
        await fleet.management.create(JOBS, a_job(name), NAMESPACE)
        lives.note_made(name)
        await lives.until(lambda name=name: name in lives.ended[MANAGEMENT], f"{name} is mirrored")  # type: ignore[misc]
    await lives.until(lambda: all(name in lives.gone for name in names), "all copies are gone")
    return names


async def _bare(fleet: RealFleet, lives: Lives, size: int) -> tuple[list[float], list[float]]:
    """Seconds of a patch of the Job and a create on a worker, and of a patch of its status, each until it is seen."""
    management, worker = fleet.management, next(iter(fleet.workers.values()))
    dispatched, mirrored = [], []
    for number in range(size):
        name = f"bare-{number}"
        job = a_job(name)
        job["spec"]["managedBy"] = _NOBODY
        await management.create(JOBS, job, NAMESPACE)
        started = time.perf_counter()
        body = {"metadata": {"annotations": {"bench/cluster": "worker-1"}}, "spec": {"suspend": False}}
        await management.patch(JOBS, name, body, NAMESPACE)
        await worker.create(JOBS, job, NAMESPACE)
        await lives.until(lambda name=name: name in lives.copied, f"{name} is seen")  # type: ignore[misc]
        dispatched.append(lives.copied[name] - started)
        started = time.perf_counter()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {"status": {"startTime": now, "active": 1}}
        await management.patch(JOBS, name, status, NAMESPACE, subresource="status")
        await lives.until(lambda name=name: name in lives.running[MANAGEMENT], f"{name} is seen")  # type: ignore[misc]
        mirrored.append(lives.running[MANAGEMENT][name] - started)
    for client in (management, worker):
        await delete_all(client)
    await asyncio.sleep(1)
    return dispatched, mirrored


async def _direct_rate(fleet: RealFleet, lives: Lives) -> float:
    """How many Jobs a second this fleet takes directly."""
    workers = fleet.workers
    lives.forget()
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for client in workers.values():
            jobs = [
                a_job(f"direct-{client.cluster}-{number}", managed=False) for number in range(_FULL // len(workers))
            ]
            group.create_task(create_all(client, jobs))
    await lives.until(lambda: sum(len(lives.ended[name]) for name in workers) >= _FULL, "all direct Jobs are Complete")
    seconds = time.perf_counter() - started
    for client in workers.values():
        await delete_all(client)
    await lives.until(lambda: len(lives.gone) >= _FULL, "all direct Jobs are gone")
    return _FULL / seconds


PART: Final = Part(
    name="latency",
    about="how late copies and mirrored changes come, idle and under load; beside the bare writes",
    unit="Jobs one by one",
    sizes=(100,),
    fleet="local",
    seconds=lambda sizes: 40 + sum(25 + 1.2 * size for size in sizes),
    measure=measure,
)

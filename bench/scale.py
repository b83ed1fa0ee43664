"""What a Job costs the dispatcher when many others run: CPU time of its process, memory, restart, and the cost of rest.

Embedded clusters in a process of their own, two workers. Live Jobs are put there as a dispatcher would have left them,
on both sides, while none runs; so its start at each size is a restart. Then the same probe at each size: a few hundred
Jobs through their full lives, beside all those that run (a stand-in writes the statuses of their copies). The reference
of a size is the smallest one, in the same run.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from bench.frame.fleets import DISPATCHER, EmbeddedFleet, embedded_fleet
from bench.frame.generator import JOBS, MANAGEMENT, NAMESPACE, Lives, a_job, create_all, delete_one
from bench.frame.meters import OURS, Asked, cpu_seconds, resident_bytes
from bench.frame.parts import Part
from bench.frame.results import Recorder
from bench.frame.standin import running_copies, statuses
from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION
from multimirror.batch import make_copy
from multimirror.workers import identity_of

_PROBE: Final = 400
_PROBES: Final = 3
_IDLE_SECONDS: Final = 20.0
_CHUNK: Final = 500
_WRITES: Final = ("create", "update", "patch", "delete")


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """Fill, start, rest, probe."""
    sizes = sorted(sizes)
    async with embedded_fleet(workers=2) as fleet:
        lives = Lives()
        async with lives.following(fleet.clients):
            await _probe(fleet, lives, "warm-up")
            costs: dict[int, float] = {}
            for before, size in zip((0, *sizes), sizes, strict=False):
                await fleet.dispatcher.stop()
                await _fill(recorder, fleet, before, size)
                await _restart(recorder, fleet, size)
                await _idle(recorder, fleet, size)
                memory = resident_bytes(fleet.dispatcher.pid)
                recorder.figure("memory of the dispatcher", size, memory / 1e6, "MB")
                probes = [await _probe(fleet, lives, f"probe-{size}-{number}") for number in range(_PROBES)]
                costs[size] = min(probes)  # whatever else the machine does only adds to it
                recorder.figure("CPU seconds for 1,000 Jobs", size, costs[size] * 1000, "s")
                recorder.ratio("cost of a Job : that with the fewest", size, costs[size] / costs[sizes[0]])


async def _fill(recorder: Recorder, fleet: EmbeddedFleet, before: int, size: int) -> None:
    """More Jobs that run for ever: assigned, copied, and mirrored as running."""
    origin = await identity_of(fleet.management)
    workers = list(fleet.workers)
    running, _ = statuses()

    async def one(number: int) -> None:
        job, name, worker = a_job(f"live-{number}"), f"live-{number}", workers[number % len(workers)]
        job["spec"]["suspend"] = False
        job["metadata"]["annotations"] = {CLUSTER_ANNOTATION: worker, ATTEMPT_ANNOTATION: "1"}
        made = await fleet.management.create(JOBS, job, NAMESPACE)
        there = fleet.workers[worker]
        await there.create(JOBS, make_copy(made, origin=origin, attempt=1), NAMESPACE)
        for client in (there, fleet.management):
            await client.patch(JOBS, name, {"status": running}, NAMESPACE, subresource="status")

    for first in range(before, size, _CHUNK):
        async with asyncio.TaskGroup() as group:
            for number in range(first, min(size, first + _CHUNK)):
                group.create_task(one(number))
        if first and first % 5000 == 0:
            recorder.say(f"{first:,} of {size:,} are there")


async def _probe(fleet: EmbeddedFleet, lives: Lives, prefix: str) -> float:
    """CPU seconds of the dispatcher for one full life."""
    names = [f"{prefix}-{number}" for number in range(_PROBE)]
    async with running_copies(fleet.workers):
        before = fleet.meter.mark()
        await create_all(fleet.management, [a_job(name) for name in names])
        ended, gone = lives.ended[MANAGEMENT], lives.gone
        await lives.until(lambda: all(name in ended and name in gone for name in names), "the probe's copies are gone")
        await _quiet(fleet)
    cost = fleet.meter.since(before).cpu[DISPATCHER] / _PROBE
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(delete_one(fleet.management, name))
    await _quiet(fleet)
    return cost


async def _quiet(fleet: EmbeddedFleet) -> None:
    """Until we ask for nothing more: events, and the status of our own objects, are written behind the work."""
    before: dict[Asked, int] = {}
    while _work(_difference(before, after := await fleet.servers.requests())):
        before = after
        await asyncio.sleep(1.5)


async def _idle(recorder: Recorder, fleet: EmbeddedFleet, size: int) -> None:
    """What is asked for when nothing happens."""
    await asyncio.sleep(6)  # the numbers in the status of our own objects are written every few seconds
    await _quiet(fleet)
    before, spent = await fleet.servers.requests(), cpu_seconds(fleet.dispatcher.pid)
    await asyncio.sleep(_IDLE_SECONDS)
    after = await fleet.servers.requests()
    spent = cpu_seconds(fleet.dispatcher.pid) - spent
    asked = _difference(before, after)
    recorder.ratio("idle: requests beyond upkeep", size, sum(_work(asked).values()))
    recorder.figure("idle: all requests", size, sum(asked.values()) / _IDLE_SECONDS, "/s")
    recorder.figure("idle: CPU time", size, spent / _IDLE_SECONDS * 1000, "ms/s")
    rows = [(key.cluster, key.verb, key.resource, count / _IDLE_SECONDS) for key, count in sorted(asked.items())]
    title = f"Our requests a second while {size:,} Jobs run and nothing happens"
    recorder.table(title, ("cluster", "verb", "resource", "a second"), rows)


def _work(asked: dict[Asked, int]) -> dict[Asked, int]:
    """Without upkeep, and without a WorkerCluster's lastContact: a heartbeat for people, about once a minute."""
    contact = ("patch", "workerclusters/status")
    return {key: n for key, n in asked.items() if not key.is_upkeep and (key.verb, key.resource) != contact}


async def _restart(recorder: Recorder, fleet: EmbeddedFleet, size: int) -> None:
    """From the start of the process until it has looked at every Job."""
    before = await fleet.servers.requests()
    started = time.perf_counter()
    await fleet.dispatcher.start()
    async with asyncio.timeout(300):
        while not await _looked_at_all(fleet, size):
            await asyncio.sleep(0.25)
    recorder.figure("restart, until every Job was looked at", size, time.perf_counter() - started, "s")
    recorder.figure("restart, CPU seconds", size, cpu_seconds(fleet.dispatcher.pid), "s")
    await asyncio.sleep(2)
    asked = _difference(before, await fleet.servers.requests())
    writes = sum(n for key, n in asked.items() if key.verb in _WRITES and key.resource.partition("/")[0] == "jobs")
    recorder.ratio("restart: writes to Jobs", size, writes)


async def _looked_at_all(fleet: EmbeddedFleet, size: int) -> bool:
    found = await fleet.dispatcher.metrics()
    looked = sum(value for name, value in found.items() if name.startswith("controller_runtime_reconcile_total")
                 and 'controller="management"' in name)  # fmt: skip
    return looked >= size and not found.get('workqueue_depth{name="management"}', 1.0)


def _difference(before: dict[Asked, int], after: dict[Asked, int]) -> dict[Asked, int]:
    grown = {key: count - before.get(key, 0) for key, count in after.items() if key.who == OURS}
    return {key: count for key, count in grown.items() if count}


PART: Final = Part(
    name="scale",
    about="CPU time for a Job, memory, rest and restart of the dispatcher with many live Jobs; beside the fewest",
    unit="live Jobs",
    sizes=(1000, 5000, 20000),
    fleet="embedded",
    seconds=lambda sizes: 25 + 75 * len(sizes) + max(sizes) * 0.006,
    measure=measure,
)

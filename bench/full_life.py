"""Full life: N Jobs created at once, until every one of them is mirrored Complete, and until every copy is gone.

References of the same run: the same Jobs created directly on the workers, half on each; and the rate at which the
management cluster's API server takes the bare writes that such a life needs there, from a client that does nothing
else. As all share the cores, nobody could be faster than one after the other: the least possible time for a Job is that
of its direct life plus that of those writes. Ways take turns, because a shared machine is not always as fast.

Finished copies stay until all Jobs are mirrored, and are then removed, on both ways: first one clock, then the other.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from bench.frame.fleets import DISPATCHER, RealFleet, real_fleet
from bench.frame.generator import MANAGEMENT, NAMESPACE, Json, Lives, a_job, create_all, delete_all
from bench.frame.meters import Asked, Spent, settled, total
from bench.frame.parts import Part
from bench.frame.results import Recorder
from multimirror.kube.resources import JOBS

_ROUNDS: Final = 2
_NOBODY: Final = "bench.multimirror.dev/nobody"


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """One fleet for all sizes."""
    async with real_fleet() as fleet:
        recorder.say("the fleet is up")
        lives = Lives()
        async with lives.following(fleet.clients):
            warm_up = _Way(fleet, lives, recorder, 60, "warm-up")
            for way in (warm_up.through, warm_up.direct):
                await way()
                await _emptied(fleet, lives)
            for size in sizes:
                await _size(recorder, fleet, lives, size)


async def _size(recorder: Recorder, fleet: RealFleet, lives: Lives, size: int) -> None:
    direct: list[tuple[Spent, float]] = []
    through: list[tuple[Spent, float]] = []
    asked: list[Spent] = []
    for number in range(_ROUNDS):
        way = _Way(fleet, lives, recorder, size, f"round {number + 1} of {_ROUNDS}")
        for turn in ("direct", "through") if number % 2 == 0 else ("through", "direct"):
            begun = fleet.meter.mark()
            if turn == "direct":
                direct.append(await way.direct())
            else:
                through.append(await way.through())
                asked.append(await settled(fleet.meter, begun))
            await _emptied(fleet, lives)
    ours = total(asked).asked()
    statuses = sum(count for key, count in ours.items() if key.resource == "jobs/status") / size / _ROUNDS
    writes = 2 + round(statuses)
    recorder.say(f"bare writes: {writes} for each of {size:,} Jobs")
    bare = await _bare(fleet, size, writes - 2)
    await _emptied(fleet, lives)
    _rates(recorder, size, direct, through, bare)
    recorder.figure("bare writes a second", size, size * writes / bare, "/s")
    _costs(recorder, size, [spent for spent, _ in direct], [spent for spent, _ in through])
    _requests(recorder, size, ours, total(asked), size * _ROUNDS)


class _Way:
    """The ways of N Jobs through their lives."""

    def __init__(self, fleet: RealFleet, lives: Lives, recorder: Recorder, size: int, label: str) -> None:
        self._fleet, self._lives, self._recorder, self._size, self._label = fleet, lives, recorder, size, label

    async def direct(self) -> tuple[Spent, float]:
        """Created on the workers: what it cost until all were Complete, and the seconds until all were gone."""
        workers = self._fleet.workers
        shares = {name: [f"direct-{n}" for n in range(at, self._size, len(workers))] for at, name in enumerate(workers)}
        begun = self._fleet.meter.mark()
        async with asyncio.TaskGroup() as group:
            for name, client in workers.items():
                group.create_task(create_all(client, [a_job(job, managed=False) for job in shares[name]]))
        await self._finished("directly", list(workers))
        spent = self._fleet.meter.since(begun)
        started = time.perf_counter()
        for client in workers.values():
            await delete_all(client)
        return spent, await self._gone(started)

    async def through(self) -> tuple[Spent, float]:
        """Created on the management cluster, the same."""
        await self._fleet.set_queue(retention="1h")
        begun = self._fleet.meter.mark()
        await create_all(self._fleet.management, [a_job(f"through-{n}") for n in range(self._size)])
        await self._finished("through us", [MANAGEMENT])
        spent = self._fleet.meter.since(begun)
        started = time.perf_counter()
        await self._fleet.set_queue(retention="0s")
        return spent, await self._gone(started)

    async def _finished(self, how: str, clusters: list[str]) -> None:
        lives, size = self._lives, self._size

        def all_are() -> bool:
            return sum(len(lives.ended[cluster]) for cluster in clusters) >= size

        started = time.perf_counter()
        await _told(
            self._recorder, lambda: f"{sum(len(lives.ended[each]) for each in clusters):,}", lives, all_are, how
        )
        seconds = time.perf_counter() - started
        self._recorder.say(f"{size:,} Jobs {how} ({self._label}): the last was Complete {seconds:.1f} s after creation")

    async def _gone(self, started: float) -> float:
        lives = self._lives
        return await lives.until(lambda: len(lives.gone) >= self._size, "all copies are gone") - started


async def _told(
    recorder: Recorder, count: Callable[[], str], lives: Lives, condition: Callable[[], bool], what: str
) -> None:
    """Wait with a word now and then."""
    waiting = asyncio.ensure_future(lives.until(condition, f"all Jobs {what} are Complete", 900))
    while not (await asyncio.wait([waiting], timeout=10))[0]:
        recorder.say(f"{count()} {what} are Complete")
    waiting.result()


async def _emptied(fleet: RealFleet, lives: Lives) -> None:
    """The next one finds what this one found: no Jobs, no pods, nobody busy."""
    for client in fleet.clients.values():
        await delete_all(client)
    pods = "/api/v1/namespaces/default/pods"
    for client in fleet.workers.values():
        await client.request("DELETE", pods, {"gracePeriodSeconds": 0}, timeout=120)
        while (await client.request("GET", pods, {"limit": 1})).body.find(b'"items":[]') < 0:
            await asyncio.sleep(0.5)
    for client in fleet.clients.values():
        while (await client.list(JOBS, NAMESPACE)).items:
            await asyncio.sleep(0.2)
        await client.request("DELETE", "/api/v1/namespaces/default/events", {"gracePeriodSeconds": 0}, timeout=120)
    await asyncio.sleep(1)
    lives.forget()


async def _bare(fleet: RealFleet, size: int, statuses: int) -> float:
    """Seconds for the management cluster's writes alone: create, assign, and that many statuses of each Job."""
    client = fleet.management

    async def one(number: int) -> None:
        name = f"bare-{number}"
        job = a_job(name)
        job["spec"]["managedBy"] = _NOBODY
        await client.create(JOBS, job, NAMESPACE)
        assigned = {"metadata": {"annotations": {"bench/cluster": "worker-1"}}, "spec": {"suspend": False}}
        await client.patch(JOBS, name, assigned, NAMESPACE)
        for status in _statuses(statuses):
            await client.patch(JOBS, name, {"status": status}, NAMESPACE, subresource="status")

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(size):
            group.create_task(one(number))
    return time.perf_counter() - started


def _statuses(count: int) -> list[Json]:
    """Statuses that differ, the last of them Complete."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    common: Json = {"startTime": now, "terminating": 0, "uncountedTerminatedPods": {}}
    moment = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    steps: list[Json] = [{**common, "active": 1, "ready": 0}, {**common, "active": 1, "ready": 1}]
    last = {
        **common,
        "completionTime": now,
        "active": None,
        "ready": 0,
        "succeeded": 1,
        "conditions": [{"type": kind, **moment} for kind in ("SuccessCriteriaMet", "Complete")],
    }
    return [*steps[: max(0, count - 1)], last]


def _rates(
    recorder: Recorder, size: int, direct: list[tuple[Spent, float]], through: list[tuple[Spent, float]], bare: float
) -> None:
    jobs = size * len(direct)
    plain, ours = (sum(spent.wall for spent, _ in each) for each in (direct, through))
    plain_gone, ours_gone = (sum(gone for _, gone in each) for each in (direct, through))
    recorder.figure("direct, to Complete", size, jobs / plain, "Jobs/s")
    recorder.figure("through us, to mirrored Complete", size, jobs / ours, "Jobs/s")
    recorder.figure("bare writes of the management cluster", size, size / bare, "Jobs/s")
    recorder.figure("direct, to gone", size, jobs / (plain + plain_gone), "Jobs/s")
    recorder.figure("through us, to copy gone", size, jobs / (ours + ours_gone), "Jobs/s")
    recorder.ratio("through us : direct, to Complete", size, plain / ours)
    recorder.ratio("through us : direct, to gone", size, (plain + plain_gone) / (ours + ours_gone))
    least = plain / jobs + bare / size
    recorder.ratio("through us : the most that the API servers allow", size, least / (ours / jobs))


def _costs(recorder: Recorder, size: int, direct: list[Spent], through: list[Spent]) -> None:
    plain, ours = total(direct), total(through)
    jobs = size * len(direct)
    recorder.ratio("our share of all CPU time", size, ours.share(DISPATCHER))
    recorder.figure("our CPU time for a Job", size, ours.cpu[DISPATCHER] / jobs * 1000, "ms")
    recorder.figure("all CPU time for a Job, direct", size, sum(plain.cpu.values()) / jobs * 1000, "ms")
    recorder.figure("all CPU time for a Job, through us", size, sum(ours.cpu.values()) / jobs * 1000, "ms")
    rows = [
        (name, plain.cpu[name] / jobs * 1000, ours.cpu[name] / jobs * 1000, f"{ours.share(name):.0%}")
        for name in sorted(ours.cpu, key=lambda name: -ours.cpu[name])
    ]
    title = f"CPU time for one of {size:,} Jobs, ms"
    recorder.table(title, ("process", "direct", "through us", "share"), rows)


def _requests(recorder: Recorder, size: int, ours: dict[Asked, int], spent: Spent, jobs: int) -> None:
    recorder.ratio("our API requests for a Job", size, sum(ours.values()) / jobs)
    rows = [(key.cluster, key.verb, key.resource, count / jobs) for key, count in sorted(ours.items())]
    title = f"Our API requests for one of {size:,} Jobs (watches, leases and heartbeats aside)"
    recorder.table(title, ("cluster", "verb", "resource", "requests"), rows)
    others: Counter[str] = Counter()
    for key, count in spent.requests.items():
        if not key.is_upkeep:
            others[key.who] += count
    title = f"API requests for one of {size:,} Jobs by who asks, over all clusters"
    recorder.table(title, ("client", "requests"), [(who, count / jobs) for who, count in others.most_common(8)])


PART: Final = Part(
    name="full-life",
    about="N Jobs at once, to mirrored Complete and to copy gone; beside the same Jobs on the workers, and bare writes",
    unit="Jobs",
    sizes=(200, 1000),
    fleet="local",
    seconds=lambda sizes: 35 + sum(45 + _ROUNDS * size * 0.12 for size in sizes),
    measure=measure,
)

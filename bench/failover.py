"""A worker is killed while n Jobs run on it: when it is noticed, when the first and the last Job runs elsewhere.

All its processes get SIGKILL at once. Noticed: its WorkerCluster says that it is not connected. Moved: the Job's pod
runs on the other worker. The queue lets Jobs move a few seconds after contact was lost.

References: what is promised (a worker that is gone is noticed within 12 s), what the queue says, and the time in which
the same n Jobs were dispatched for the first time, in the same run.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from bench.frame.fleets import RealFleet, real_fleet
from bench.frame.generator import MANAGEMENT, Lives, a_job, create_all
from bench.frame.parts import Part
from bench.frame.results import Recorder
from clusters.local.cluster import LocalCluster
from multimirror.api import WORKER_CLUSTERS

_AFTER: Final = 5.0
_PROMISE: Final = 12.0
_LOST: Final = "worker-1"
_OTHER: Final = "worker-2"


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """A fleet for each size: one of its workers does not come back."""
    for size in sizes:
        async with real_fleet() as fleet:
            recorder.say("the fleet is up")
            lives = Lives()
            async with lives.following({MANAGEMENT: fleet.management, _OTHER: fleet.workers[_OTHER]}):
                await _one(recorder, fleet, lives, size)


async def _one(recorder: Recorder, fleet: RealFleet, lives: Lives, size: int) -> None:
    await fleet.set_queue(onWorkerLost={"after": f"{_AFTER:g}s", "action": "Redispatch"})
    await _cordoned(fleet, _OTHER, cordoned=True)
    started = time.perf_counter()
    await create_all(fleet.management, [a_job(f"running-{number}", forever=True) for number in range(size)])
    first_time = await lives.until(lambda: len(lives.running[MANAGEMENT]) >= size, "all run") - started
    recorder.figure("dispatched for the first time, to the last that runs", size, first_time, "s")
    await _cordoned(fleet, _OTHER, cordoned=False)
    await asyncio.sleep(5)
    killed = time.perf_counter()
    await _kill(fleet.local.workers[_LOST])
    recorder.say(f"{_LOST} was killed with {size} running Jobs")
    while await fleet.is_ready(_LOST, "Connected"):
        await asyncio.sleep(0.05)
    noticed = time.perf_counter()
    moved = lives.running[_OTHER]
    await lives.until(lambda: len(moved) >= size, "all Jobs run elsewhere")
    first, last = min(moved.values()), max(moved.values())
    recorder.figure("noticed", size, noticed - killed, "s")
    recorder.figure("first Job runs elsewhere", size, first - killed, "s")
    recorder.figure("last Job runs elsewhere", size, last - killed, "s")
    recorder.ratio("noticed : promised", size, (noticed - killed) / _PROMISE)
    recorder.ratio("moving all : dispatching them first", size, (last - noticed - _AFTER) / first_time)


async def _cordoned(fleet: RealFleet, worker: str, *, cordoned: bool) -> None:
    await fleet.management.patch(WORKER_CLUSTERS, worker, {"spec": {"cordoned": cordoned}})
    await asyncio.sleep(1)


async def _kill(cluster: LocalCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for process in cluster.processes.values():
            group.create_task(process.kill())


PART: Final = Part(
    name="failover",
    about="a worker is killed under n running Jobs: noticed, first and last moved; beside their first dispatch",
    unit="running Jobs",
    sizes=(100,),
    fleet="local",
    seconds=lambda sizes: sum(40 + 0.15 * size for size in sizes),
    measure=measure,
)

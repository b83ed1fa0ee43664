"""What a Job costs the dispatcher when many others run: CPU time of its process, memory, restart, and the cost of rest.

Embedded clusters, two workers, a fleet for each size. Live Jobs are put there as a dispatcher would have left them, on
both sides, while none runs; so its start is a restart. Then the same probe on each: a few hundred Jobs through their
full lives, beside all those that run (a stand-in writes the statuses of their copies). All fleets are up by then and
take turns, so that a slow moment of the machine hits all. The reference of a size is the smallest one, in the same run.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from bench.frame.filling import State, fill
from bench.frame.fleets import DISPATCHER, EmbeddedFleet, embedded_fleet
from bench.frame.generator import MANAGEMENT, Lives, a_job, create_all, delete_one
from bench.frame.meters import cpu_seconds, resident_bytes
from bench.frame.parts import Part
from bench.frame.resting import difference, looked_at, quiet, work
from bench.frame.results import Recorder
from bench.frame.standin import running_copies

_PROBE: Final = 400
_PROBES: Final = 3
_IDLE_SECONDS: Final = 20.0


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """Fill, start, rest; then probe, in turns."""
    sizes = sorted(sizes)
    async with AsyncExitStack() as stack:
        fleets: dict[int, tuple[EmbeddedFleet, Lives]] = {}
        for size in sizes:
            fleet, lives = await stack.enter_async_context(embedded_fleet(workers=2)), Lives()
            await stack.enter_async_context(lives.following(fleet.clients))
            await fleet.dispatcher.stop()
            await fill(recorder, fleet, size, lambda _: State.RUNNING)
            await _restart(recorder, fleet, size)
            await _idle(recorder, fleet, size)
            await _probe(fleet, lives, "warm-up")
            recorder.figure("memory of the dispatcher", size, resident_bytes(fleet.dispatcher.pid) / 1e6, "MB")
            fleets[size] = fleet, lives
        costs: dict[int, list[float]] = {size: [] for size in sizes}
        for number in range(_PROBES):
            for size in sizes if number % 2 == 0 else reversed(sizes):
                costs[size].append(await _probe(*fleets[size], f"probe-{number}"))
            recorder.say(f"probe {number + 1} of {_PROBES} is over")
    for size in sizes:
        least = min(costs[size])  # whatever else the machine does only adds to it
        recorder.figure("CPU seconds for 1,000 Jobs", size, least * 1000, "s")
        recorder.ratio("cost of a Job : that with the fewest", size, least / min(costs[sizes[0]]))


async def _probe(fleet: EmbeddedFleet, lives: Lives, prefix: str) -> float:
    """CPU seconds of the dispatcher for one full life."""
    names = [f"{prefix}-{number}" for number in range(_PROBE)]
    async with running_copies(fleet.workers):
        before = fleet.meter.mark()
        await create_all(fleet.management, [a_job(name) for name in names])
        ended, gone = lives.ended[MANAGEMENT], lives.gone
        await lives.until(lambda: all(name in ended and name in gone for name in names), "the probe's copies are gone")
        await quiet(fleet)
    cost = fleet.meter.since(before).cpu[DISPATCHER] / _PROBE
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(delete_one(fleet.management, name))
    await quiet(fleet)
    return cost


async def _idle(recorder: Recorder, fleet: EmbeddedFleet, size: int) -> None:
    """What is asked for when nothing happens."""
    await asyncio.sleep(6)  # the numbers in the status of our own objects are written every few seconds
    await quiet(fleet)
    before, spent = await fleet.servers.requests(), cpu_seconds(fleet.dispatcher.pid)
    await asyncio.sleep(_IDLE_SECONDS)
    after = await fleet.servers.requests()
    spent = cpu_seconds(fleet.dispatcher.pid) - spent
    asked = difference(before, after)
    recorder.ratio("idle: requests beyond upkeep", size, sum(work(asked).values()))
    recorder.figure("idle: all requests", size, sum(asked.values()) / _IDLE_SECONDS, "/s")
    recorder.figure("idle: CPU time", size, spent / _IDLE_SECONDS * 1000, "ms/s")
    rows = [(key.cluster, key.verb, key.resource, count / _IDLE_SECONDS) for key, count in sorted(asked.items())]
    title = f"Our requests a second while {size:,} Jobs run and nothing happens"
    recorder.table(title, ("cluster", "verb", "resource", "a second"), rows)


async def _restart(recorder: Recorder, fleet: EmbeddedFleet, size: int) -> None:
    """From the start of the process until it has looked at every Job."""
    before = await fleet.servers.requests()
    started = time.perf_counter()
    await fleet.dispatcher.start()
    await looked_at(fleet, size)
    recorder.figure("restart, until every Job was looked at", size, time.perf_counter() - started, "s")
    recorder.figure("restart, CPU seconds", size, cpu_seconds(fleet.dispatcher.pid), "s")
    await asyncio.sleep(2)
    asked = difference(before, await fleet.servers.requests())
    writes = sum(n for key, n in asked.items() if key.is_write and key.resource.partition("/")[0] == "jobs")
    recorder.ratio("restart: writes to Jobs", size, writes)


PART: Final = Part(
    name="scale",
    about="CPU time for a Job, memory, rest and restart of the dispatcher with many live Jobs; beside the fewest",
    unit="live Jobs",
    sizes=(1000, 5000, 20000),
    fleet="embedded",
    seconds=lambda sizes: 20 + 60 * len(sizes) + max(sizes) * 0.004,
    measure=measure,
)

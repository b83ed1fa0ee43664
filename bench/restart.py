"""A restart with many Jobs in all states: how soon the dispatcher works again, and what it writes that nobody needs.

Embedded clusters in a process of their own, two workers. Of the Jobs a tenth runs, a tenth waits (the queue is full),
and the rest has finished; of those one in eight still has its copy (the queue's retention). They are put there as a
dispatcher would have left them, while none runs, but for what it says to those who wait: one is started, and stopped
when all has been said. The next one is measured, and has nothing to write at all.
"""

import time
from collections.abc import Sequence
from typing import Final

from bench.frame.filling import State, fill
from bench.frame.fleets import EmbeddedFleet, embedded_fleet
from bench.frame.meters import cpu_seconds, resident_bytes
from bench.frame.parts import Part
from bench.frame.resting import difference, looked_at, quiet, work
from bench.frame.results import Recorder

_PROMISED: Final = 15.0


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """A fleet for each size."""
    for size in sizes:
        async with embedded_fleet(workers=2) as fleet:
            await fleet.dispatcher.stop()
            await fleet.set_queue(quota={"jobs": size // 10}, retention="1h")
            await fill(recorder, fleet, size, _state_of)
            await fleet.dispatcher.start()
            await looked_at(fleet, size)
            await quiet(fleet)
            await fleet.dispatcher.stop()
            await _restart(recorder, fleet, size)


async def _restart(recorder: Recorder, fleet: EmbeddedFleet, size: int) -> None:
    before, started = await fleet.servers.requests(), time.perf_counter()
    await fleet.dispatcher.start()
    await looked_at(fleet, size)
    seconds = time.perf_counter() - started
    recorder.figure("restart, until every Job was looked at", size, seconds, "s")
    recorder.ratio("restart : promised", size, seconds / _PROMISED)
    recorder.figure("restart, CPU seconds", size, cpu_seconds(fleet.dispatcher.pid), "s")
    recorder.figure("memory of the dispatcher", size, resident_bytes(fleet.dispatcher.pid) / 1e6, "MB")
    await quiet(fleet)
    asked = difference(before, await fleet.servers.requests())
    recorder.ratio("writes that were not needed", size, sum(n for key, n in work(asked).items() if key.is_write))
    rows = [(key.cluster, key.verb, key.resource, count) for key, count in sorted(asked.items())]
    recorder.table(f"Our requests in a restart with {size:,} Jobs", ("cluster", "verb", "resource", "requests"), rows)


def _state_of(number: int) -> State:
    return {0: State.RUNNING, 1: State.WAITING, 2: State.KEPT}.get(number % 10, State.FINISHED)


PART: Final = Part(
    name="restart",
    about="a restart with Jobs in all states: how soon it works again, and what it writes; beside what is promised",
    unit="Jobs",
    sizes=(20000,),
    fleet="embedded",
    seconds=lambda sizes: sum(25 + size * 0.004 for size in sizes),
    measure=measure,
)

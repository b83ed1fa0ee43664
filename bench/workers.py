"""How many workers matter: dispatch latency and CPU time of the dispatcher with 1, 10 and 50 of them.

Embedded clusters, a process for each fleet; a stand-in writes the copies' statuses. The same Jobs come at the same
steady rate, whatever the number of workers. All fleets are up from beginning to end and take turns, so that a slow
moment of the machine hits all. The reference is the smallest number, in the same run.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from bench.frame.fleets import DISPATCHER, EmbeddedFleet, embedded_fleet
from bench.frame.generator import MANAGEMENT, NAMESPACE, Lives, a_job, pace
from bench.frame.parts import Part
from bench.frame.results import Recorder, percentile
from bench.frame.standin import running_copies
from multimirror.kube.resources import JOBS

_ROUNDS: Final = 4
_JOBS: Final = 250
_RATE: Final = 25.0


class _Turn:
    """One fleet, and what its turns have found."""

    def __init__(self, fleet: EmbeddedFleet, lives: Lives) -> None:
        self._fleet, self._lives = fleet, lives
        self.late: list[float] = []
        self.cpu = 0.0

    async def take(self, prefix: str, count: int) -> None:
        """Jobs at a steady rate, until all are mirrored Complete."""
        lives, before = self._lives, self._fleet.meter.mark()

        async def one(number: int) -> None:
            name = f"{prefix}-{number}"
            await self._fleet.management.create(JOBS, a_job(name), NAMESPACE)
            lives.note_made(name)

        await pace(count, _RATE, one)
        await lives.until(lambda: len(lives.ended[MANAGEMENT]) >= count, "all are mirrored")
        await lives.until(lambda: len(lives.gone) >= count, "all copies are gone")
        self.cpu += self._fleet.meter.since(before).cpu[DISPATCHER]
        self.late += lives.dispatch_seconds(f"{prefix}-{number}" for number in range(count))
        lives.forget()


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """A fleet for each size."""
    sizes = sorted(sizes)
    async with AsyncExitStack() as stack:
        turns: dict[int, _Turn] = {}
        for size in sizes:
            fleet, lives = await stack.enter_async_context(embedded_fleet(size)), Lives()
            await stack.enter_async_context(lives.following(fleet.clients))
            await stack.enter_async_context(running_copies(fleet.workers))
            recorder.say(f"{size} workers are connected")
            turns[size] = _Turn(fleet, lives)
            await turns[size].take("warm-up", 50)
            turns[size].late, turns[size].cpu = [], 0.0
        for number in range(_ROUNDS):
            for size in sizes if number % 2 == 0 else reversed(sizes):
                await turns[size].take(f"round-{number}", _JOBS)
            recorder.say(f"round {number + 1} of {_ROUNDS} is over")
    first = turns[sizes[0]]
    for size, turn in turns.items():
        recorder.percentiles("dispatch", size, turn.late)
        recorder.figure("our CPU time for a Job", size, turn.cpu / _ROUNDS / _JOBS * 1000, "ms")
        for percent in (50, 99):
            ratio = percentile(turn.late, percent) / percentile(first.late, percent)
            recorder.ratio(f"dispatch p{percent} : that with the fewest", size, ratio)
        recorder.ratio("cost of a Job : that with the fewest", size, turn.cpu / first.cpu)


PART: Final = Part(
    name="workers",
    about="dispatch latency and CPU time for a Job with many worker clusters; beside the fewest",
    unit="workers",
    sizes=(1, 10, 50),
    fleet="embedded",
    seconds=lambda sizes: sum(5 + _ROUNDS * (_JOBS / _RATE + 0.5) + 0.1 * size for size in sizes),
    measure=measure,
)

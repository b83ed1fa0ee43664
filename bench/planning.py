"""What it costs to plan: a pass over many waiting Jobs, each of a shape of its own, over 1,000 queues and 100 workers.

No fleet: the pass is a pure function, and is given what a dispatcher would have in its caches. Nothing fits, and every
worker has to be looked at to find that out: one half lacks cpu, the other memory. The reference is the same question
for 1,000 equal Jobs, which is answered once. Then the same pass in slices, as a scheduler runs it on an event loop,
with a heartbeat beside it: how late is it? And a pass in which everything is placed.

CPU time of this thread is counted, so that other work on the machine does not; a heartbeat is late by the clock on
the wall, and the event loop is blocked for the CPU time of the longest slice.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench._passes import QUEUES, WORKERS, candidate, cpu_seconds, fill_up, fleet, longest_step
from bench.frame.parts import Part
from bench.frame.results import Recorder
from multimirror.api import MirrorQueueSpec
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.decisions import Placed, Step
from multimirror.scheduling.plan import plan
from multimirror.scheduling.usage import UsageCache
from multimirror.scheduling.waiting import Waiting

_NAMESPACES: Final = 50
_EQUAL: Final = 1000
_ROUNDS: Final = 5
_SLICE: Final = 0.005
"""Seconds of planning at a stretch, when others wait."""
_BEAT: Final = 0.01
_ALLOWED: Final = 0.05
"""Seconds that the event loop may be blocked."""


@dataclass(slots=True)
class _Scene:
    """What a pass is given."""

    waiting: Waiting
    queues: dict[str, MirrorQueueSpec]
    workers: dict[str, WorkerSnapshot]
    usage: UsageCache
    costs: list[float] = field(default_factory=list)
    """CPU seconds of whole passes."""
    longest: float = 0.0
    """CPU seconds of the longest step of the best pass."""

    def steps(self) -> Iterator[Step | None]:
        return plan(self.waiting.snapshot(), self.queues, self.workers, self.usage.snapshot())

    def measure(self) -> None:
        """One pass; then one more for its longest step, since looking at the clock takes time, too."""
        self.costs.append(cpu_seconds(self.steps()))
        longest = longest_step(self.steps())
        self.longest = min(self.longest or longest, longest)

    @property
    def cost(self) -> float:
        """CPU seconds for a Job; whatever disturbs only adds to it."""
        return min(self.costs) / len(self.waiting)


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """All sizes take turns, with the reference."""
    equal = _scene(_EQUAL, shapes=1, queues=1)
    different = {size: _scene(size, shapes=size) for size in sorted(sizes)}
    for number in range(_ROUNDS):
        for scene in (equal, *different.values()):
            scene.measure()
        recorder.say(f"round {number + 1} of {_ROUNDS} is over")
    fewest = different[min(different)]
    for size, scene in different.items():
        recorder.figure("a Job of its own shape", size, scene.cost * 1e6, "µs")
        recorder.figure("one of 1,000 equal Jobs", size, equal.cost * 1e6, "µs")
        recorder.ratio("a Job of its own shape : one of 1,000 equal", size, scene.cost / equal.cost)
        recorder.ratio("a Job of its own shape : that with the fewest", size, scene.cost / fewest.cost)
        recorder.figure("longest step", size, scene.longest * 1000, "ms")
        free = _scene(size, shapes=size, free=True)
        started, placed = time.thread_time(), _placed(free.steps())
        recorder.figure("a placement", size, (time.thread_time() - started) / placed * 1e6, "µs")
        late, blocked = await _late(scene)
        recorder.percentiles("a heartbeat is late by", size, late)
        recorder.ratio("event loop blocked, longest : allowed", size, blocked / _ALLOWED)


def _placed(steps: Iterable[Step | None]) -> int:
    return sum(isinstance(step, Placed) for step in steps)


async def _late(scene: _Scene) -> tuple[list[float], float]:
    """Passes in slices: by how much each beat beside them was late, and the longest slice."""
    late: list[float] = []

    async def beat() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_BEAT)
            late.append(max(0.0, time.perf_counter() - began - _BEAT))

    heart = asyncio.ensure_future(beat())
    await asyncio.sleep(_BEAT)
    longest = 0.0
    for _ in range(3):
        began, spent = time.perf_counter(), time.thread_time()
        for _ in scene.steps():
            if time.perf_counter() > began + _SLICE:
                longest = max(longest, time.thread_time() - spent)
                await asyncio.sleep(0)
                began, spent = time.perf_counter(), time.thread_time()
    await asyncio.sleep(2 * _BEAT)
    heart.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await heart
    return late, longest


def _scene(jobs: int, *, shapes: int, queues: int = QUEUES, free: bool = False) -> _Scene:
    usage, workers = UsageCache(), fleet(WORKERS, cpu=10_000_000 if free else 1000, namespaces=_NAMESPACES)
    if not free:
        fill_up(usage, workers)
    waiting = Waiting(_candidate(number, number % shapes, queues) for number in range(jobs))
    return _Scene(waiting, {f"queue-{number}": MirrorQueueSpec() for number in range(queues)}, workers, usage)


def _candidate(number: int, shape: int, queues: int) -> Candidate:
    requests = {"cpu": nanos(2) + shape * 1_000_000, "memory": nanos(2**30 + shape), "pods": nanos(1)}
    return candidate(number, f"team-{number % _NAMESPACES}", f"queue-{number % queues}", requests)


PART: Final = Part(
    name="planning",
    about="a pass over waiting Jobs of different shapes, 1,000 queues and 100 workers; beside 1,000 equal Jobs",
    unit="waiting Jobs",
    sizes=(1000, 20_000),
    fleet="embedded",
    seconds=lambda sizes: 1 + sum(0.001 * size for size in sizes),
    measure=measure,
)

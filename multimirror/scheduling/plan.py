"""Which Jobs go next: a whole pass over everything that waits, as a pure function.

In each queue: higher priority first; within a priority the namespaces take turns, those that hold less first, then
those that were given something longest ago; within a namespace the oldest first. A Job that does not fit lets those
behind it pass, unless its queue is strict. In one pass room only shrinks, so that what did not fit once is not asked
again for Jobs of the same shape: a pass over thousands of equal Jobs costs little.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from multimirror.api import QUEUE_LABEL, MirrorQueueSpec, QueueingStrategy
from multimirror.scheduling.candidates import Candidate, WorkerView
from multimirror.scheduling.filters import Explanation, place
from multimirror.scheduling.usage import Holding, Ledger

_HOPELESS: Final = frozenset({"NeverFits", "Invalid"})
"""Who waits for these reasons holds nobody up: it would be for ever."""
_NO_QUEUE: Final = f"it names no queue; give it the label {QUEUE_LABEL}"
_Shape = tuple[str, str, frozenset[str] | None, tuple[tuple[str, object], ...], tuple[tuple[str, str], ...], str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the pass decided about one Job."""

    job: Candidate
    explanation: Explanation


def plan(
    waiting: Iterable[Candidate],
    queues: Mapping[str, MirrorQueueSpec],
    workers: Mapping[str, WorkerView],
    ledger: Ledger,
) -> list[Outcome]:
    """Decide about every Job that waits, in order. What is placed is put into the ledger on the way."""
    by_queue: dict[str, list[Candidate]] = defaultdict(list)
    for job in waiting:
        by_queue[job.queue].append(job)
    outcomes: list[Outcome] = []
    for name in sorted(by_queue):
        queue = queues.get(name)
        if queue is None:
            why = f"there is no MirrorQueue {name}" if name else _NO_QUEUE
            missing = Explanation(None, reason="QueueMissing", why=why)
            outcomes += [Outcome(job, missing) for job in by_queue[name]]
        else:
            outcomes += _queue(by_queue[name], name, queue, workers, ledger)
    return outcomes


def _queue(
    jobs: list[Candidate], name: str, queue: MirrorQueueSpec, workers: Mapping[str, WorkerView], ledger: Ledger
) -> Iterator[Outcome]:
    hopeless: dict[_Shape, Explanation] = {}
    held_up: Explanation | None = None
    strict = queue.queueing_strategy is QueueingStrategy.STRICT_FIFO
    turns = _Turns(jobs, dict(ledger.namespaces(name)), ledger.turns(name), strict=strict)
    for job in turns:
        if held_up is not None:
            yield Outcome(job, held_up)
            continue
        shape = _shape(job)
        explanation = hopeless.get(shape)
        if explanation is None:
            explanation = place(job, name, queue, workers, ledger)
        yield Outcome(job, explanation)
        if explanation.chosen is None:
            hopeless[shape] = explanation
            if strict and explanation.reason not in _HOPELESS:
                why = f"queue {name} is strictly first in, first out, and {job.namespace}/{job.name} is first"
                held_up = Explanation(None, reason="HeldUp", why=why)
        else:
            ledger.put(job.uid, Holding(name, job.namespace, explanation.chosen, job.requests))
            turns.placed(job)


class _Turns:
    """The order of a queue, which depends on what has been placed before."""

    def __init__(self, jobs: list[Candidate], held: dict[str, int], last: Mapping[str, int], *, strict: bool) -> None:
        """`last` is told of each Job that is placed before `placed` is."""
        self._held, self._last = held, last
        self._lines: dict[tuple[int, str], list[Candidate]] = defaultdict(list)
        for job in jobs:
            self._lines[-job.priority, "" if strict else job.namespace].append(job)
        for line in self._lines.values():
            line.sort(key=_age, reverse=True)

    def placed(self, job: Candidate) -> None:
        """One more for its namespace."""
        self._held[job.namespace] = self._held.get(job.namespace, 0) + 1

    def __iter__(self) -> Iterator[Candidate]:
        for priority in sorted({priority for priority, _ in self._lines}):
            heap = [self._entry(key) for key in self._lines if key[0] == priority]
            heapq.heapify(heap)
            while heap:
                held, _, _, _, key = heapq.heappop(heap)
                if held != self._held.get(key[1], 0):
                    heapq.heappush(heap, self._entry(key))
                    continue
                line = self._lines[key]
                yield line.pop()
                if line:
                    heapq.heappush(heap, self._entry(key))

    def _entry(self, key: tuple[int, str]) -> tuple[int, int, str, str, tuple[int, str]]:
        oldest = self._lines[key][-1]
        return (self._held.get(key[1], 0), self._last.get(key[1], 0), oldest.created, oldest.uid, key)


def _age(job: Candidate) -> tuple[str, str, str]:
    return (job.created, job.namespace, job.name)


def _shape(job: Candidate) -> _Shape:
    """All that a verdict depends on, the room that is left aside."""
    return (
        job.queue,
        job.namespace,
        job.clusters,
        tuple(sorted(job.requests.items())),
        tuple(sorted(job.avoid.items())),
        job.problem,
    )

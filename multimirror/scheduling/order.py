"""Who is next: everything that waits, and the order in which one pass comes to it.

Queues compete in one order: of the first candidates of all queues, the one with the highest priority goes next, then
the oldest. So a backlog in one queue never keeps those of another waiting that are older, whatever the queues are
called. Who is first in its own queue: higher priority first; within a priority the namespaces take turns, those that
have less first, then those that were given something longest ago; within a namespace the oldest. In a strict queue
namespaces do not take turns: only priority and age count.

`Waiting` is kept in order as candidates come and go, for sorting tens of thousands anew in each pass would block the
event loop. A pass works on a snapshot of it, which costs a shallow copy of one table: lines are copied when they are
changed while a snapshot may still show them.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from multimirror.kinds.kind import Ref
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.usage import UsageSums

_LINES_PER_CHECKPOINT: Final = 256

Asked = tuple[tuple[str, int], ...]
"""What is asked for, by resource, in the order of their names; nothing of which nothing is asked."""


class Waiter(NamedTuple):
    """A candidate in line, with what a pass needs again and again. Sorts by age; no two of one Ref ever meet."""

    created: str
    namespace: str
    name: str
    ref: Ref
    candidate: Candidate
    asked: Asked
    shape: tuple[object, ...]
    """All that a decision depends on, its queue and what is free aside: one of equal shape gets the same answer."""


_Key = tuple[int, str]
"""Of a line: the priority, negative, and the namespace."""


class _Line:
    """Those of one queue, priority and namespace; the oldest first."""

    __slots__ = ("owner", "waiters")

    def __init__(self, owner: object, waiters: Iterable[Waiter] = ()) -> None:
        self.owner, self.waiters = owner, list(waiters)


class _Queue:
    """The lines of one queue."""

    __slots__ = ("count", "growing", "lines", "owner")

    def __init__(self, owner: object, before: "_Queue | None") -> None:
        self.owner = owner
        self.lines: dict[_Key, _Line] = dict(before.lines) if before is not None else {}
        self.count: int = before.count if before is not None else 0
        self.growing: int = before.growing if before is not None else 0
        """Of them, those that have a worker."""


@dataclass(frozen=True, slots=True)
class WaitingSnapshot:
    """What waited at one moment."""

    queues: Mapping[str, _Queue]


class Waiting:
    """All candidates that wait, by queue, in line."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._owner = object()
        self._queues: dict[str, _Queue] = {}
        self._waiters: dict[Ref, Waiter] = {}
        for candidate in candidates:
            self.put(candidate)

    def put(self, candidate: Candidate) -> bool:
        """This one waits, as it is now. Whether that is news."""
        before = self._waiters.get(candidate.ref)
        if before is not None:
            if before.candidate == candidate:
                return False
            self.remove(candidate.ref)
        waiter = self._waiters[candidate.ref] = _waiter(candidate)
        queue = self._own(candidate.queue)
        insort(self._own_line(queue, _key(candidate)).waiters, waiter)
        queue.count += 1
        queue.growing += candidate.growth is not None
        return True

    def remove(self, ref: Ref) -> Candidate | None:
        """This one waits no longer. Gives it, if it did."""
        waiter = self._waiters.pop(ref, None)
        if waiter is None:
            return None
        candidate = waiter.candidate
        queue, key = self._own(candidate.queue), _key(candidate)
        line = self._own_line(queue, key)
        del line.waiters[bisect_left(line.waiters, waiter)]
        if not line.waiters:
            del queue.lines[key]
        queue.count -= 1
        queue.growing -= candidate.growth is not None
        if not queue.count:
            del self._queues[candidate.queue]
        return candidate

    def get(self, ref: Ref) -> Candidate | None:
        waiter = self._waiters.get(ref)
        return waiter.candidate if waiter is not None else None

    def count(self, queue: str) -> int:
        """How many wait in a queue for a worker."""
        found = self._queues.get(queue)
        return found.count - found.growing if found is not None else 0

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Candidate]:
        """In no order."""
        return (waiter.candidate for waiter in tuple(self._waiters.values()))

    def snapshot(self) -> WaitingSnapshot:
        """What waits now; who comes or goes later does not change it."""
        self._owner = object()
        return WaitingSnapshot(dict(self._queues))

    def _own(self, name: str) -> _Queue:
        """The queue, to be changed: a copy where a snapshot may show it."""
        queue = self._queues.get(name)
        if queue is None or queue.owner is not self._owner:
            queue = self._queues[name] = _Queue(self._owner, queue)
        return queue

    def _own_line(self, queue: _Queue, key: _Key) -> _Line:
        line = queue.lines.get(key)
        if line is None or line.owner is not self._owner:
            line = queue.lines[key] = _Line(self._owner, line.waiters if line is not None else ())
        return line


def in_order(waiting: WaitingSnapshot, usage: UsageSums, is_strict: Callable[[str], bool]) -> Iterator[Waiter | None]:
    """Everybody, one after the other; None is a checkpoint, when there was work and nobody is found yet.

    The order depends on who was placed before: `usage` has to have the reservation of one that was placed when the
    next one is asked for. Reservations may be added meanwhile, not removed.
    """
    heads: list[tuple[int, Waiter, Iterator[Waiter | None]]] = []
    for name, queue in waiting.queues.items():
        yield from _advance(heads, _turns(queue, usage, name, strict=is_strict(name)))
        yield None
    while heads:
        yield heads[0][1]
        yield from _advance(heads, heapq.heappop(heads)[2])


def _advance(
    heads: list[tuple[int, Waiter, Iterator[Waiter | None]]], turns: Iterator[Waiter | None]
) -> Iterator[None]:
    """The next one of a queue comes to compete with those of the others."""
    for waiter in turns:
        if waiter is not None:
            heapq.heappush(heads, (-waiter.candidate.priority, waiter, turns))
            return
        yield None


def _turns(queue: _Queue, usage: UsageSums, name: str, *, strict: bool) -> Iterator[Waiter | None]:
    """One queue in its own order."""

    def standing(namespace: str) -> tuple[int, int]:
        if strict:
            return 0, 0
        return usage.by_namespace(name).get(namespace, 0), usage.turns(name).get(namespace, 0)

    heap: list[tuple[int, tuple[int, int], Waiter, int, list[Waiter]]] = []
    for number, ((priority, namespace), line) in enumerate(queue.lines.items(), 1):
        waiters = line.waiters
        heapq.heappush(heap, (priority, standing(namespace), waiters[0], 0, waiters))
        if number % _LINES_PER_CHECKPOINT == 0:
            yield None
    while heap:
        priority, stood, waiter, place, waiters = heap[0]
        stands = standing(waiter.namespace)
        if stands != stood:  # it was given something since, at a higher priority: it goes further back, never forward
            heapq.heapreplace(heap, (priority, stands, waiter, place, waiters))
            yield None
            continue
        yield waiter
        place += 1
        if place < len(waiters):
            heapq.heapreplace(heap, (priority, standing(waiter.namespace), waiters[place], place, waiters))
        else:
            heapq.heappop(heap)


def _key(candidate: Candidate) -> _Key:
    return -candidate.priority, candidate.namespace


def _waiter(candidate: Candidate) -> Waiter:
    asked = tuple(sorted((name, amount) for name, amount in candidate.requests.items() if amount))
    avoid = tuple(sorted(candidate.avoid.items()))
    grows = candidate.growth.shape if candidate.growth is not None else None
    return Waiter(
        candidate.created,
        candidate.namespace,
        candidate.name,
        candidate.ref,
        candidate,
        asked,
        (candidate.ref.kind, candidate.namespace, candidate.clusters, asked, avoid, candidate.problem, grows),
    )

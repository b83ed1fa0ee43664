"""Who is next: everything that waits, and the order in which one pass comes to it.

Queues compete in one order: of the first candidates of all queues, the one with the highest priority goes next; then
those of namespaces go first that have fewer assignments on their way to the API server, so that a burst in one queue
does not make those of another wait for all of its writes; then the oldest. So a backlog in one queue never keeps those
of another waiting that are older, whatever the queues are called. Who is first in its own queue: higher priority first;
within a priority the namespaces take turns, those that have less first, then those that were given something longest
ago; within a namespace the oldest. In a strict queue namespaces do not take turns: only priority and age count.

Queues that share (`heads`) compete inside their tree first, by what they have of what is shared; the best of all trees
competes with the queues that share with nobody.

Anybody may write any priority on a Job. So a queue says up to which one they count (`maxPriority`); those above count
as that one, and in a queue that does not say, all count as 0: then priorities are about the order of a namespace's own
candidates, and nobody else's.

A pass that decides about tens of thousands takes seconds, and a namespace must not make others wait for that. So one of
which `QUANTUM` candidates were refused comes after those of which fewer were, and a pass that was broken off can be
taken up again: of a namespace that had `FRONT` refusals in this pass, those are left out that the passes before came to
(`Progress.resume`). In a strict queue nobody is left out, and only `FRONT` that hold up nobody make a namespace come
after others.

`Waiting` is kept in order as candidates come and go, for sorting tens of thousands anew in each pass would block the
event loop. A pass works on a snapshot of it, which costs a shallow copy of one table: lines are copied when they are
changed while a snapshot may still show them.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from multimirror.kinds.kind import Ref
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.heads import Head, HeadOrder, Precedence
from multimirror.scheduling.usage import UsageSums

_LINES_PER_CHECKPOINT: Final = 256
QUANTUM: Final = 16
FRONT: Final = 64
"""So many refused candidates of each namespace are looked at again in every pass."""

Asked = tuple[tuple[str, int], ...]
"""What is asked for, by resource, in the order of their names; nothing of which nothing is asked."""


Age = tuple[str, str, str, Ref]
"""When it was created, and what tells it from others that were created then. No two of one Ref ever meet."""


class Waiter(NamedTuple):
    """A candidate in line, with what a pass needs again and again. Sorts by priority and age."""

    rank: int
    """The priority, negative."""
    age: Age
    candidate: Candidate
    asked: Asked
    shape: tuple[object, ...]
    """All that a decision depends on, its queue and what is free aside: one of equal shape gets the same answer."""

    @property
    def namespace(self) -> str:
        return self.candidate.namespace

    @property
    def name(self) -> str:
        return self.candidate.name


class _Line:
    """Those of one queue and namespace, in their order."""

    __slots__ = ("owner", "waiters")

    def __init__(self, owner: object, waiters: Iterable[Waiter] = ()) -> None:
        self.owner, self.waiters = owner, list(waiters)


class _Queue:
    """The lines of one queue."""

    __slots__ = ("count", "growing", "lines", "owner")

    def __init__(self, owner: object, before: "_Queue | None") -> None:
        self.owner = owner
        self.lines: dict[str, _Line] = dict(before.lines) if before is not None else {}
        self.count: int = before.count if before is not None else 0
        self.growing: int = before.growing if before is not None else 0
        """Of them, those that have a worker."""


@dataclass(frozen=True, slots=True)
class WaitingSnapshot:
    """What waited at one moment."""

    queues: Mapping[str, _Queue]

    def end_of(self, line: "Line") -> "Position | None":
        """The last one of a line; None: there is nobody."""
        queue = self.queues.get(line[0])
        found = queue.lines.get(line[1]) if queue is not None else None
        return _position(found.waiters[-1]) if found is not None else None

    def find(self, candidate: Candidate) -> Waiter | None:
        """A candidate in its line; None: it does not wait, or is another one."""
        queue = self.queues.get(candidate.queue)
        line = queue.lines.get(candidate.namespace) if queue is not None else None
        if line is None:
            return None
        place = bisect_left(line.waiters, position_of(candidate), key=_position)
        waiter = line.waiters[place] if place < len(line.waiters) else None
        return waiter if waiter is not None and waiter.candidate.ref == candidate.ref else None


class Waiting:
    """All candidates that wait, by queue, in line."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._owner = object()
        self._queues: dict[str, _Queue] = {}
        self._waiters: dict[Ref, Waiter] = {}
        for candidate in candidates:
            self.put(candidate)

    def put(self, candidate: Candidate) -> bool:
        """This one waits, as it is now. Whether that is news: that it has another version is not, for whether there is
        room for it does not depend on that (we write that it waits, and that is one)."""
        before, news = self._waiters.get(candidate.ref), True
        if before is not None:
            if before.candidate == candidate:
                return False
            news = replace(before.candidate, version=candidate.version) != candidate
            self.remove(candidate.ref)
        waiter = self._waiters[candidate.ref] = _waiter(candidate)
        queue = self._own(candidate.queue)
        insort(self._own_line(queue, candidate.namespace).waiters, waiter)
        queue.count += 1
        queue.growing += candidate.growth is not None
        return news

    def remove(self, ref: Ref) -> Candidate | None:
        """This one waits no longer. Gives it, if it did."""
        waiter = self._waiters.pop(ref, None)
        if waiter is None:
            return None
        candidate = waiter.candidate
        queue = self._own(candidate.queue)
        line = self._own_line(queue, candidate.namespace)
        del line.waiters[bisect_left(line.waiters, waiter)]
        if not line.waiters:
            del queue.lines[candidate.namespace]
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

    def _own_line(self, queue: _Queue, namespace: str) -> _Line:
        line = queue.lines.get(namespace)
        if line is None or line.owner is not self._owner:
            line = queue.lines[namespace] = _Line(self._owner, line.waiters if line is not None else ())
        return line


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """How the candidates of a queue are put in order."""

    strict: bool = False
    max_priority: int = 0
    """Up to this one priorities count for others."""


Line = tuple[str, str]
"""A queue and a namespace."""
Position = tuple[int, Age]
"""Of a waiter in its line."""


@dataclass(slots=True)
class Progress:
    """What one pass has done so far, by namespace. Numbers only grow."""

    in_flight: Counter[str] = field(default_factory=Counter)
    """Placements that are not written yet, of this pass and those before."""
    refused: Counter[str] = field(default_factory=Counter)
    """Candidates that do not fit, in this pass."""
    resume: Mapping[Line, Position] = field(default_factory=dict)
    """How far the passes before came that were broken off."""
    ahead: Mapping[str, Sequence[Waiter]] = field(default_factory=dict)
    """By queue: those that go before all others of it, because others are being stopped for them."""

    def standing(self, namespace: str) -> int:
        return self.in_flight[namespace] + self.refused[namespace] // QUANTUM


_Heads = list[tuple[int, int, Age, Waiter, Iterator[Waiter | None]]]


def in_order(
    waiting: WaitingSnapshot,
    usage: UsageSums,
    order_of: Callable[[str], QueueOrder],
    progress: Progress | None = None,
    shared: HeadOrder | None = None,
) -> Iterator[Waiter | None]:
    """Everybody, one after the other; None is a checkpoint, when there was work and nobody is found yet.

    The order depends on who was placed before: `usage` has to have the reservation of one that was placed when the
    next one is asked for, and `progress` has to know of it. Reservations may be added meanwhile, not removed.

    `shared`: the order of those queues that share, with nobody in it yet. It, too, has to know of placements.
    """
    progress = progress or Progress()
    heads: _Heads = []
    sharing: dict[str, Iterator[Waiter | None]] = {}
    for name, queue in waiting.queues.items():
        order = order_of(name)
        turns = _turns(queue, usage, name, order, progress)
        if shared is not None and name in shared:
            sharing[name] = turns
            yield from _enter(shared, name, turns, order, progress)
        else:
            yield from _advance(heads, turns, order, progress)
        yield None
    while True:
        head = shared.best() if shared is not None else None
        if head is None and not heads:
            return
        if _moved_back(heads, shared, head, order_of, progress):
            yield None
        elif shared is None or head is None or (heads and heads[0][:3] < _between(head)):
            yield from _next_alone(heads, order_of, progress)
        else:
            yield head.job
            yield from _enter(shared, head.queue, sharing[head.queue], order_of(head.queue), progress)


def _moved_back(
    heads: _Heads,
    shared: HeadOrder | None,
    head: Head | None,
    order_of: Callable[[str], QueueOrder],
    progress: Progress,
) -> bool:
    """Something was decided about the namespace of one that would be next: it goes further back."""
    if heads:
        rank, stood, age, waiter, turns = heads[0]
        stands = progress.standing(waiter.namespace)
        if stands != stood:
            heapq.heapreplace(heads, (rank, stands, age, waiter, turns))
            return True
    if shared is None or head is None:
        return False
    place = _head(head.queue, head.job, order_of(head.queue), progress)
    if place.refused != head.refused:
        shared.put(head.queue, place)
    elif place.between != head.between:
        shared.move(head, place)
    else:
        return False
    return True


def _between(head: Head) -> tuple[object, ...]:
    return head.between or head.order


def _next_alone(heads: _Heads, order_of: Callable[[str], QueueOrder], progress: Progress) -> Iterator[Waiter | None]:
    """The first of the queues that share with nobody."""
    *_, waiter, turns = heads[0]
    yield waiter
    heapq.heappop(heads)
    yield from _advance(heads, turns, order_of(waiter.candidate.queue), progress)


def _advance(heads: _Heads, turns: Iterator[Waiter | None], order: QueueOrder, progress: Progress) -> Iterator[None]:
    """The next one of a queue comes to compete with those of the others."""
    for waiter in turns:
        if waiter is not None:
            rank, stands = _rank(waiter, order), progress.standing(waiter.namespace)
            heapq.heappush(heads, (rank, stands, waiter.age, waiter, turns))
            return
        yield None


def _enter(
    shared: HeadOrder, name: str, turns: Iterator[Waiter | None], order: QueueOrder, progress: Progress
) -> Iterator[None]:
    """The next one of a queue that shares comes to compete with those of its tree."""
    for waiter in turns:
        if waiter is not None:
            shared.put(name, _head(name, waiter, order, progress))
            return
        yield None
    shared.put(name, None)


def _head(name: str, waiter: Waiter, order: QueueOrder, progress: Progress) -> Head:
    namespace, rank = waiter.namespace, _rank(waiter, order)
    return Head(
        name,
        waiter.candidate.requests,
        (rank, waiter.age),
        Precedence.WAITS_FOR_VICTIMS if waiter in progress.ahead.get(name, ()) else Precedence.NONE,
        waiter,
        refused=progress.refused[namespace] // QUANTUM,
        between=(rank, progress.standing(namespace), waiter.age),
    )


_Standing = tuple[int, int, int]


def _turns(
    queue: _Queue, usage: UsageSums, name: str, order: QueueOrder, progress: Progress
) -> Iterator[Waiter | None]:
    """One queue in its own order."""
    refused, resume = progress.refused, progress.resume

    hopeless: Counter[str] = Counter()  # refused, and those behind did not have to wait for them

    def standing(namespace: str) -> _Standing:
        if order.strict:
            return int(hopeless[namespace] >= FRONT), 0, 0
        given, turn = usage.by_namespace(name).get(namespace, 0), usage.turns(name).get(namespace, 0)
        return refused[namespace] // QUANTUM, given, turn

    def next_place(namespace: str, place: int, waiters: list[Waiter]) -> int:
        """From there on, the first that is to be looked at."""
        if order.strict or refused[namespace] < FRONT or (name, namespace) not in resume:
            return place
        return max(place, bisect_right(waiters, resume[name, namespace], key=_position))

    ahead = progress.ahead.get(name, ())
    yield from ahead
    passed = {waiter.candidate.ref for waiter in ahead}
    heap: list[tuple[int, _Standing, Age, int, list[Waiter]]] = []
    for number, (namespace, line) in enumerate(queue.lines.items(), 1):
        waiters = line.waiters
        heapq.heappush(heap, (_rank(waiters[0], order), standing(namespace), waiters[0].age, 0, waiters))
        if number % _LINES_PER_CHECKPOINT == 0:
            yield None
    while heap:
        rank, stood, age, place, waiters = heap[0]
        waiter = waiters[place]
        namespace = waiter.namespace
        stands, reached = standing(namespace), next_place(namespace, place, waiters)
        if passed and waiter.candidate.ref in passed:
            reached = next_place(namespace, place + 1, waiters)
        elif reached == place and stands == stood:
            before = refused[namespace]
            yield waiter
            hopeless[namespace] += refused[namespace] - before
            reached = next_place(namespace, place + 1, waiters)
        elif reached == place:  # something was decided about it since, in another queue's turn: it goes further back
            heapq.heapreplace(heap, (rank, stands, age, place, waiters))
            yield None
            continue
        if reached < len(waiters):
            waiter = waiters[reached]
            heapq.heapreplace(heap, (_rank(waiter, order), standing(namespace), waiter.age, reached, waiters))
        else:
            heapq.heappop(heap)


def position_of(candidate: Candidate) -> Position:
    """Where a candidate is in its line."""
    return -candidate.priority, (candidate.created, candidate.namespace, candidate.name, candidate.ref)


def _position(waiter: Waiter) -> Position:
    return waiter.rank, waiter.age


def _rank(waiter: Waiter, order: QueueOrder) -> int:
    """The priority as it counts for others, negative."""
    return max(waiter.rank, -order.max_priority)


def _waiter(candidate: Candidate) -> Waiter:
    asked = tuple(sorted((name, amount) for name, amount in candidate.requests.items() if amount))
    avoid = tuple(sorted(candidate.avoid.items()))
    grows = candidate.growth.shape if candidate.growth is not None else None
    stops = candidate.preemptions if candidate.preemptible else None
    return Waiter(
        *position_of(candidate),
        candidate,
        asked,
        (candidate.ref.kind, candidate.namespace, candidate.clusters, asked, avoid, candidate.problem, grows, stops),
    )

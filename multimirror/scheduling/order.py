"""Who is next: the order in which one pass comes to everything that waits.

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

In a tree, only those count that were refused in it: there, what waits elsewhere is nobody's concern, and trees that are
left out of a pass (`parking`) change nothing for others.

In a queue that shares, many know their answer: those that ask for the same as one that did not fit, and others for whom
there is nothing, and nobody to stop. They do not compete in its tree, but come right after the one before them, as long
as their namespace does not have to go further back.
"""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from multimirror.scheduling.heads import Head, HeadOrder, Precedence
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.waiting import (
    Age,
    Line,
    Position,
    QueueLines,
    Shape,
    Waiter,
    WaitingSnapshot,
    place_of,
)

_LINES_PER_CHECKPOINT: Final = 256
QUANTUM: Final = 16
FRONT: Final = 64
"""So many refused candidates of each namespace are looked at again in every pass."""


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """How the candidates of a queue are put in order."""

    strict: bool = False
    max_priority: int = 0
    """Up to this one priorities count for others."""


def is_next(waiting: WaitingSnapshot, waiter: Waiter, order: QueueOrder) -> bool:
    """It is the first of its namespace, and nobody in its queue has a higher priority that counts; in a strict queue,
    nobody of the same is older."""
    queue = waiting.queues[waiter.candidate.queue]
    if queue.lines[waiter.namespace].waiters[0] is not waiter:
        return False
    place = rank_of(waiter, order), waiter.age
    firsts = ((rank_of(line.waiters[0], order), line.waiters[0].age) for line in queue.lines.values())
    return all(place <= each if order.strict else place[0] <= each[0] for each in firsts)


@dataclass(slots=True)
class Progress:
    """What one pass has done so far, by namespace. Numbers only grow."""

    in_flight: Counter[str] = field(default_factory=Counter)
    """Placements that are not written yet, of this pass and those before."""
    refused: Counter[str] = field(default_factory=Counter)
    """Candidates that do not fit, in this pass."""
    refused_in: dict[int, Counter[str]] = field(default_factory=dict)
    """The same by tree, for queues that share."""
    resume: Mapping[Line, Position] = field(default_factory=dict)
    """How far the passes before came that were broken off."""
    ahead: Mapping[str, Sequence[Waiter]] = field(default_factory=dict)
    """By queue: those that go before all others of it, because others are being stopped for them."""
    claimants: Mapping[str, Waiter] = field(default_factory=dict)
    """By queue: the one that goes next, because room is kept for it."""
    is_answered: Callable[[Waiter], bool] = lambda waiter: False
    """Whether it is known that it does not fit, and that nobody has to wait for that answer."""
    known: Callable[[str], Container[Shape]] = lambda queue: ()
    """By queue: the shapes of which that was found before."""

    def may_ride(self, queue: str) -> bool:
        """Nobody of the queue has to compete before others of it do."""
        return queue not in self.ahead and queue not in self.claimants

    def standing(self, namespace: str) -> int:
        return self.in_flight.get(namespace, 0) + self.refused.get(namespace, 0) // QUANTUM


@dataclass(frozen=True, slots=True)
class _Sharing:
    """A queue that shares, in a pass."""

    name: str
    order: QueueOrder
    turns: Iterator[Waiter | None]
    progress: Progress
    refused: Counter[str]
    """In its tree, by namespace."""

    def enter(self, shared: HeadOrder) -> Iterator[Waiter | None]:
        """The next one comes to compete with those of its tree."""
        may_ride, is_answered = self.progress.may_ride(self.name), self.progress.is_answered
        known, refused = self.progress.known(self.name), self.refused
        for waiter in self.turns:
            if waiter is None:
                yield None
                continue
            namespace = waiter.candidate.namespace
            rides = may_ride and refused[namespace] % QUANTUM > 0
            if not rides or not (waiter.shape in known or is_answered(waiter)):
                shared.put(self.name, self.head(waiter))
                return
            yield waiter
            refused[namespace] += 1
        shared.put(self.name, None)

    def begin(self, shared: HeadOrder) -> Iterator[None]:
        """The first one; nobody was refused yet."""
        for waiter in self.turns:
            if waiter is not None:
                shared.begin(self.name, self.head(waiter))
                return
            yield None

    def decide(self, waiter: Waiter) -> Iterator[Waiter]:
        """It is the next of all."""
        namespace, refused = waiter.candidate.namespace, self.progress.refused
        before = refused.get(namespace, 0)
        yield waiter
        self.refused[namespace] += refused.get(namespace, 0) - before

    def head(self, waiter: Waiter) -> Head:
        name, progress = self.name, self.progress
        rank, namespace = rank_of(waiter, self.order), waiter.candidate.namespace
        refused = self.refused[namespace] // QUANTUM
        return Head(
            name,
            waiter.candidate.requests,
            (rank, waiter.age),
            _precedence(name, waiter, progress),
            waiter,
            refused,
            (rank, progress.in_flight.get(namespace, 0) + refused, waiter.age),
            waiter.asked,
        )

    def has_moved_back(self, shared: HeadOrder, head: Head) -> bool:
        """Something was decided about the namespace of one that would be next."""
        namespace = head.job.candidate.namespace
        refused, between = self.refused[namespace] // QUANTUM, head.between
        if refused != head.refused:
            shared.put(self.name, self.head(head.job))
        elif between is None or between[1] != self.progress.in_flight.get(namespace, 0) + refused:
            shared.move(head, self.head(head.job))
        else:
            return False
        return True


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
    sharing: dict[str, _Sharing] = {}
    for name, queue in waiting.queues.items():
        order = order_of(name)
        alone = len(queue.lines) == 1 and name not in progress.ahead and not order.strict
        turns = _line(queue, name, progress) if alone else _turns(queue, usage, name, order, progress)
        if shared is not None and name in shared:
            refused = progress.refused_in.setdefault(shared.tree_of(name), Counter())
            sharing[name] = _Sharing(name, order, turns, progress, refused)
            yield from sharing[name].begin(shared)
        else:
            yield from _advance(heads, turns, order, progress)
        yield None
    if shared is not None:
        yield from shared.settle()
    while True:
        head = shared.best() if shared is not None else None
        if head is None and not heads:
            return
        if _has_moved_back(heads, progress):
            yield None
        elif shared is None or head is None or (heads and heads[0][:3] < _between(head)):
            yield from _next_alone(heads, order_of, progress)
        elif sharing[head.queue].has_moved_back(shared, head):
            yield None
        else:
            yield from sharing[head.queue].decide(head.job)
            yield from sharing[head.queue].enter(shared)


def _has_moved_back(heads: _Heads, progress: Progress) -> bool:
    """Something was decided about the namespace of one that would be next: it goes further back."""
    if not heads:
        return False
    rank, stood, age, waiter, turns = heads[0]
    stands = progress.standing(waiter.namespace)
    if stands != stood:
        heapq.heapreplace(heads, (rank, stands, age, waiter, turns))
    return stands != stood


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
            rank, stands = rank_of(waiter, order), progress.standing(waiter.namespace)
            heapq.heappush(heads, (rank, stands, waiter.age, waiter, turns))
            return
        yield None


def _precedence(name: str, waiter: Waiter, progress: Progress) -> Precedence:
    if waiter in progress.ahead.get(name, ()):
        return Precedence.WAITS_FOR_VICTIMS
    return Precedence.HAS_CLAIM if progress.claimants.get(name) is waiter else Precedence.NONE


def _line(queue: QueueLines, name: str, progress: Progress) -> Iterator[Waiter | None]:
    """A queue of one namespace: nobody takes turns, and most queues are like that."""
    ((namespace, line),) = queue.lines.items()
    waiters = line.waiters
    resume, place = progress.resume.get((name, namespace)), 0
    while place < len(waiters):
        if resume is not None and progress.refused.get(namespace, 0) >= FRONT:
            place, resume = max(place, bisect_right(waiters, resume, key=place_of)), None
            continue
        yield waiters[place]
        place += 1


_Standing = tuple[int, int, int]


def _turns(
    queue: QueueLines, usage: UsageSums, name: str, order: QueueOrder, progress: Progress
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
        return max(place, bisect_right(waiters, resume[name, namespace], key=place_of))

    claimant = progress.claimants.get(name)
    ahead = (*progress.ahead.get(name, ()), *((claimant,) if claimant is not None else ()))
    yield from ahead
    passed = {waiter.candidate.ref for waiter in ahead}
    heap: list[tuple[int, _Standing, Age, int, list[Waiter]]] = []
    for number, (namespace, line) in enumerate(queue.lines.items(), 1):
        waiters = line.waiters
        heapq.heappush(heap, (rank_of(waiters[0], order), standing(namespace), waiters[0].age, 0, waiters))
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
            heapq.heapreplace(heap, (rank_of(waiter, order), standing(namespace), waiter.age, reached, waiters))
        else:
            heapq.heappop(heap)


def rank_of(waiter: Waiter, order: QueueOrder) -> int:
    """The priority as it counts for others, negative."""
    return max(waiter.rank, -order.max_priority)

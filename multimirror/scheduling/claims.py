"""Room that is kept for a Job that has waited long, in one pass: who has a claim, on which worker, who may pass it.

The first Job of a queue that waits for room, has waited `headWait`, and could run on an empty fleet, gets a claim: on
one worker, where what becomes free is kept for it, and on quota, as far as that is due to its queue. A queue has one
claim at a time. It is written down (`Candidate.claim`), so that it stays where it is: it moves no sooner than
`headWait` after it was made, and only to where the Job will surely start earlier, or away from a worker that takes
nothing. So the Job waits no longer than `headWait` and the longest run time on its worker. It is placed wherever it
fits before that.

Nobody gets what is kept, but (EASY) those that are surely gone when the Job can start, by the deadlines of what runs
there and their own, and those that come before it in order: by priority, or, in its tree, because they do not borrow
and it does. All claims together take no more than half of what a tree has, nor than half of what the workers have, but
one there may be always, or a large Job would have none.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from multimirror.api.placement import Claim
from multimirror.batch.times import seconds_of
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.free_room import FreeRoom
from multimirror.scheduling.preempting import RunningState
from multimirror.scheduling.quota import Node, QuotaUsage
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.usage import NOTHING, Usage, UsageSums
from multimirror.scheduling.waiting import Waiter

MOST_ROOMS: Final = 8
"""Workers that are compared, those with most room first."""
_MOST_KNOWN: Final = 64
START_SECONDS: Final = 10.0
"""So long a Job may take from its placement until its deadline begins to run."""


class Room(Protocol):
    """A worker as a place for one Job, as it will be when those are gone who are being stopped."""

    @property
    def worker(self) -> str: ...
    @property
    def full(self) -> bool: ...
    @property
    def shortage(self) -> float: ...
    def lacking(self, gone: Sequence[RunningJob]) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Held:
    """A claim as it counts in a pass."""

    waiter: Waiter
    rank: int
    """Its priority, as it counts for others, negative."""
    since: float
    """It has waited since then."""
    claim: Claim
    worker: str | None
    """Where room is kept; None: its worker takes nothing now."""
    starts: float | None
    """Then there is room and quota for it at the latest; None: nobody knows."""
    quota: Amounts = field(default_factory=dict)
    """What is kept for it of the quota of its tree."""
    root: int | None = None
    """Its tree; None: its queue shares with nobody."""
    borrows: bool = False

    @property
    def candidate(self) -> Candidate:
        return self.waiter.candidate


class Claims:
    """Those that count now. Changed as the pass goes on."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._held: dict[str, Held] = {}
        self._kept_in: dict[tuple[str, ...], tuple[FreeRoom, FreeRoom]] = {}
        """What is left on a worker beside these, and of what: claims are lifted and kept again for everybody who waits,
        and to find the places of one costs a look at all pods there."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(tuple(self._held.values()))

    def of(self, queue: str) -> Held | None:
        return self._held.get(queue)

    def put(self, held: Held) -> None:
        self._held[held.candidate.queue] = held

    def remove(self, held: Held) -> None:
        del self._held[held.candidate.queue]

    def kept_on(self, worker: str) -> Usage:
        """What nobody else gets there."""
        kept = NOTHING
        for held in self._held.values():
            if held.worker == worker:
                kept = kept.plus(held.candidate.requests)
        return kept

    def kept_in(self, worker: str, free: FreeRoom | None) -> FreeRoom | None:
        """What everybody else sees of the room on its nodes: without those where the Jobs would be if nothing else ran
        there. Always the same nodes, so that what becomes free on them adds up."""
        there = (held for held in self._held.values() if held.worker == worker)
        kept = tuple(sorted(there, key=lambda held: (held.claim.since, held.candidate.ref)))
        if free is None or not kept:
            return free
        key = worker, *(held.candidate.ref.uid for held in kept)
        known = self._kept_in.get(key)
        if known is not None and known[0] is free:
            return known[1]
        if len(self._kept_in) >= _MOST_KNOWN:
            self._kept_in.clear()
        left = free
        for held in kept:
            left = left.keep(held.candidate.gang, (*free.seen, *free.unseen))
        self._kept_in[key] = free, left
        return left

    def passed_by(
        self, candidate: Candidate, rank: int, root: int | None, is_within_own: Callable[[], bool]
    ) -> list[Held]:
        """Those that do not bind this one: it is gone before, or it comes first."""
        ends = self.now + START_SECONDS + candidate.run_seconds if candidate.run_seconds is not None else None
        return [
            held
            for held in self._held.values()
            if (ends is not None and held.starts is not None and ends <= held.starts)
            or self._comes_first(candidate, rank, root, held, is_within_own)
        ]

    def _comes_first(
        self, candidate: Candidate, rank: int, root: int | None, held: Held, is_within_own: Callable[[], bool]
    ) -> bool:
        if root is None or root != held.root or candidate.queue == held.candidate.queue:
            return rank < held.rank
        return held.borrows and is_within_own()

    def leaves_half(self, held: Held, has: Callable[[str], int], whole: Callable[[str], int | None]) -> bool:
        """There may be this one beside the others. `has`: what there is of a resource in its tree; `whole`: what the
        workers have; None: there is no limit."""
        others = list(self._held.values())
        in_tree = [each for each in others if each.root is not None and each.root == held.root]
        for name, amount in held.quota.items():
            if in_tree and 2 * (amount + sum(each.quota.get(name, 0) for each in in_tree)) > has(name):
                return False
        for name, amount in held.candidate.requests.items():
            most = whole(name)
            claimed = amount + sum(each.candidate.requests.get(name, 0) for each in others)
            if others and most is not None and 2 * claimed > most:
                return False
        return True


def waits_since(candidate: Candidate, now: float) -> float:
    """Since when it waits: since it was created, or was last stopped for another."""
    return max(seconds_of(candidate.created, now), candidate.stopped or 0.0)


class Ends:
    """When what runs is gone, by its deadlines. None where something is charged that is not seen to run yet: then
    nobody knows what will be free, nor when."""

    def __init__(self, state: RunningState, charged: UsageSums) -> None:
        """`charged`: what is charged in the pass, as it goes on."""
        self._state, self._charged = state, charged
        self._lines: dict[str, list[RunningJob]] | None = None

    def on(self, worker: str) -> tuple[RunningJob, ...] | None:
        """Those on a worker of which it is known, in order."""
        if self._lines is None:
            self._lines = {}
            for (_, place), line in self._state.running.lines.items():
                if place is not None:
                    self._lines.setdefault(place, []).extend(line.jobs)
        leaving = [job for job in self._state.leaving if job.worker == worker]
        return _ending(self._lines.get(worker, ()), leaving, self._charged.worker(worker))

    def of(self, queue: str) -> tuple[RunningJob, ...] | None:
        """Those of a queue of which it is known, in order."""
        leaving = [job for job in self._state.leaving if job.queue == queue]
        return _ending(self._state.running.of(queue), leaving, self._charged.queue(queue))


def _ending(
    running: Sequence[RunningJob], leaving: Sequence[RunningJob], charged: Usage
) -> tuple[RunningJob, ...] | None:
    if charged.jobs > len(running) + len(leaving):
        return None
    return tuple(sorted((job for job in running if job.ends is not None), key=_end))


def _end(job: RunningJob) -> float:
    assert job.ends is not None
    return job.ends


def starts_on(room: Room, ending: Sequence[RunningJob] | None, now: float) -> float | None:
    """When there is room at the latest; None: nobody knows."""
    return starts_when(lambda gone: not room.lacking(gone), ending, now) if not room.full else None


def starts_when(
    fits: Callable[[Sequence[RunningJob]], bool], ending: Sequence[RunningJob] | None, now: float
) -> float | None:
    """When so many of them are gone that it fits; `ending`: in order."""
    if fits(()):
        return now
    if ending is None or not fits(ending):
        return None
    low, high = 1, len(ending)
    while low < high:
        middle = (low + high) // 2
        if fits(ending[:middle]):
            high = middle
        else:
            low = middle + 1
    return max(now, _end(ending[low - 1]))


@dataclass(frozen=True, slots=True)
class Place:
    """A worker that a Job could have a claim on."""

    worker: str
    starts: float | None
    shortage: float

    @property
    def order(self) -> tuple[bool, float, float, str]:
        """Where it would start soonest; else where least is missing."""
        return self.starts is None, self.starts or 0.0, self.shortage, self.worker

    def is_sooner(self, than: float | None) -> bool:
        return self.starts is not None and (than is None or self.starts < than)


def places(rooms: Iterable[Room], ends: Ends, now: float) -> list[Place]:
    """The best first."""
    nearest = sorted(rooms, key=lambda room: (room.shortage, room.worker))[:MOST_ROOMS]
    found = [Place(room.worker, starts_on(room, ends.on(room.worker), now), room.shortage) for room in nearest]
    return sorted(found, key=lambda place: place.order)


# --- quota


def due(usage: QuotaUsage, node: Node, resource: str, wanting: frozenset[int]) -> int:
    """What a node may count on beyond its own, of what others leave over: by weight, among those that want something.

    `wanting`: by index, the nodes with Jobs that wait. Whoever has some is taken to want all of its own, and what
    others do not want of their part is not dealt out again: so this is never too much."""
    parent = node.parent
    if parent is None or resource not in node.quotas:
        return 0
    surplus = parent.quotas[resource].own + due(usage, parent, resource, wanting)
    weights = node.weight
    for child in parent.children:
        quota = child.quotas.get(resource)
        if quota is None:
            continue
        used = usage.used(child, resource)
        wants = max(used, quota.subtree) if child.index in wanting else used
        surplus += max(0, quota.subtree - max(quota.local, wants))
        if child is not node and (child.index in wanting or used > quota.subtree):
            weights += child.weight
    part = int(surplus * node.weight / weights) if weights else surplus
    borrow = node.quotas[resource].borrow
    return part if borrow is None else min(part, borrow)


def claimed_quota(
    usage: QuotaUsage, queue: Node, requests: Amounts, wanting: frozenset[int], *, own_only: bool
) -> dict[str, int] | None:
    """What is kept of the quota; None: it asks for more than is due to its queue. With Jobs of the queue that run it
    is less than it asks for, and grows as they end."""
    kept: dict[str, int] = {}
    for name, amount in requests.items():
        if amount <= 0 or name not in queue.quotas:
            continue
        most = queue.quotas[name].subtree
        if amount > most and not own_only:
            most += due(usage, queue, name, wanting)
        if amount > most:
            return None
        left = min(amount, most - usage.used(queue, name))
        if left > 0:
            kept[name] = left
    return kept

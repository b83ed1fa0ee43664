"""The quota of one pass: what is charged now, and what will be when everybody who is leaving is gone.

A Job that is being stopped is charged until its pods are gone; what it will free belongs to the Job that it is stopped
for. So a pass keeps two books. `now` is what is charged. `later` is without those that are leaving, and with those that
wait for them. A Job is placed if it fits both: then it takes nothing from one that waits for its victims, which fits as
soon as they are gone. Victims are searched in `later`: nobody is stopped for room that is on its way. So a Job may
count on others, too, who were leaving already when its own victims were chosen: it waits for as long as it fits
`later`, and not only until its own victims are gone. But no queue loses a Job to another for what it does not have yet:
one that is within its quota without those that wait for their victims is asked for nothing.

The first Job of a queue that does not fit, and stops nobody, may keep what is left of its queue's own quota
(`kept_free`): from other queues, not from those behind it in its own, which may pass it. What a claim holds (`claims`)
is held from all. It does not count when victims are searched: no queue gives what it runs for what only waits in it.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final, TypeVar

from multimirror.api import Preempts
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.preemption import find_preemption, kept_free
from multimirror.scheduling.quota import Node, QuotaUsage, Short
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.trial import Room
from multimirror.scheduling.victims import NoPreemption, Preemption, Preemptor, Surroundings

_T = TypeVar("_T")
RECLAIM_ONLY: Final = frozenset({Preempts.RECLAIM})


class Outcome(StrEnum):
    """What a pass came to about a Job that it did not place."""

    LOST = "Lost"
    """It would have fitted, had not others been placed, or kept room, before it in the same pass."""
    WAITS_FOR_VICTIMS = "WaitsForVictims"
    NOT_STOPPED = "NotStopped"
    """Victims were found, and could not be told."""
    NO_FIT = "NoFit"
    NOBODY_TO_STOP = "NobodyToStop"
    NOT_ALLOWED = "NotAllowed"
    """By what it is itself: a namespace that may not use the queue, a field that cannot be read."""

    def is_tried_again(self, *, strict: bool) -> bool:
        """In the next pass, even if nothing changes meanwhile in its tree; else not before something does."""
        if self is Outcome.NOT_ALLOWED:
            return False
        return strict or self in (Outcome.LOST, Outcome.WAITS_FOR_VICTIMS, Outcome.NOT_STOPPED)


class QueueRoom:
    """What is left for a queue, by resource, as long as nothing changes in its tree: the way to the root is gone once,
    whatever its Jobs ask for. For those that may borrow, and wait for nobody who is leaving."""

    __slots__ = ("_charged", "_later", "_left", "_queue", "_within", "later", "now")

    def __init__(self, queue: Node, left: Amounts, later: Amounts, within: Sequence[Amounts]) -> None:
        """`within`: for the queue, and each cohort above it but the root, how much more keeps that within its quota."""
        self._queue, self._left, self._later, self._within = queue, left, later, within
        self._charged: Amounts | None = None
        self.now = self.later = -1
        """The stamps of the usage for which it was found."""

    def fits(self, requests: Amounts) -> bool:
        return _is_there(requests, self._left)

    def fits_later(self, requests: Amounts) -> bool:
        return _is_there(requests, self._later)

    def is_within(self, requests: Amounts) -> bool:
        """With it the queue, or a cohort above it, is within its quota of all that is asked."""
        for left in self._within:  # noqa: SIM110 - as below
            if _is_there(requests, left):
                return True
        return False

    def short(self, requests: Amounts, charged: QuotaUsage) -> Short | None:
        """The first resource of which less is left than is asked, if what is kept for others is not counted. `charged`:
        the usage without that."""
        left = self._charged
        if left is None:
            left = self._charged = {name: charged.left(self._queue, name) for name in self._queue.quotas}
        for name, asked in requests.items():
            if asked > 0 and name in left and asked > left[name]:
                return Short(name, asked, max(0, left[name]))
        return None


def _is_there(requests: Amounts, left: Amounts) -> bool:
    """What is not listed has no limit."""
    for name, asked in requests.items():  # noqa: SIM110 - a generator costs more than what it asks
        if asked > 0 and name in left and asked > left[name]:
            return False
    return True


class PassQuota:
    """The two books of a pass. `usage` is not changed."""

    def __init__(
        self, usage: QuotaUsage, leaving: Iterable[RunningJob] = (), waiting: Iterable[Preemptor] = ()
    ) -> None:
        """`leaving`: those that are being stopped; `waiting`: those that they are stopped for."""
        self.now, self.later = usage.fork(), usage.fork()
        self.leaving: set[str] = set()
        self._waiting: dict[str, Preemptor] = {}
        self._kept: dict[str, tuple[Preemptor, dict[str, int]]] = {}
        self._claimed: dict[str, Amounts] = {}
        self._borrowers: dict[int, tuple[int, bool]] = {}
        """By root: whether a queue of the tree borrows, and the stamp of the usage for which that was found."""
        self._rooms: dict[str, QueueRoom] = {}
        for job in leaving:
            self._leave(job)
        for preemptor in waiting:
            self.wait(preemptor)

    def room(self, uid: str, queue: str) -> QueueRoom | None:
        """What is left for the Jobs of a queue, but for those that may only have its own; None: for this one that has
        to be found by itself."""
        node = self.now.tree.queues[queue]
        if node.cycle is not None or (self._waiting and self._concerns(uid, queue)):
            return None
        root, known = node.path[-1], self._rooms.get(queue)
        if known is None or known.now != self.now.stamp_of(root) or known.later != self.later.stamp_of(root):
            self._count_kept(queue, -1)
            known = self._rooms[queue] = self._find_room(node)
            self._count_kept(queue, 1)
            known.now, known.later = self.now.stamp_of(root), self.later.stamp_of(root)
        return known

    def fits(self, job: Preemptor) -> bool:
        """It can be placed: what it asks for is there, and is not kept for others."""
        return self._checked(
            job, lambda: self._fits(self.now, job) and self._fits(self.later, job) and not self._crowds_out(job)
        )

    def fits_later(self, job: Preemptor) -> bool:
        """It could be placed if those who are leaving were gone."""
        return self._checked(job, lambda: self._fits(self.later, job))

    def may_stop_others(self, job: Preemptor) -> bool:
        """Who may only reclaim may stop nobody if neither its queue, nor a cohort above it, is within its quota with
        the Job."""
        if job.preempts <= RECLAIM_ONLY:
            return bool(job.preempts) and self._checked(job, lambda: self._is_within(job))
        return True

    def anybody_to_stop(self, queue: str, preempts: AbstractSet[Preempts]) -> bool:
        """Who may only reclaim can stop nobody if no queue of the tree uses more than its own."""
        if not preempts <= RECLAIM_ONLY:
            return True
        root = self.later.tree.queues[queue].root
        known, stamp = self._borrowers.get(root.index), self.later.stamp_of(root)
        if known is None or known[0] != stamp:
            known = self._borrowers[root.index] = stamp, any(self._borrows(node) for node in root.queues())
        return known[1]

    def short(self, job: Preemptor) -> tuple[Short, ...]:
        """What is missing for it to be placed."""
        return self._checked(
            job, lambda: self._short(self.now, job) or self._short(self.later, job) or self._crowds_out(job)
        )

    def charged(self) -> QuotaUsage:
        """What is charged now, as it stays: what is kept free is not in it."""
        charged = self.now.fork()
        for queue, (_, kept) in self._kept.items():
            charged.remove(queue, kept)
        for queue, claimed in self._claimed.items():
            charged.remove(queue, claimed)
        return charged

    def claim(self, queue: str, amounts: Amounts) -> None:
        """Nobody gets this; until `unclaim`."""
        self._claimed[queue] = amounts
        self._count(queue, amounts, 1)

    def unclaim(self, queue: str) -> None:
        self._count(queue, self._claimed.pop(queue), -1)

    def place(self, job: Preemptor) -> None:
        self.forget(job)
        self.now.add(job.queue, job.requests)
        self.later.add(job.queue, job.requests)
        kept = self._kept.get(job.queue)
        if kept is not None:
            self.keep(kept[0])

    def wait(self, job: Preemptor) -> None:
        """It waits for those who are leaving: what it asks for is kept for it."""
        if job.uid not in self._waiting:
            self._waiting[job.uid] = job
            self.later.add(job.queue, job.requests)

    def waits(self, uid: str) -> bool:
        """For those who are leaving."""
        return uid in self._waiting

    def forget(self, job: Preemptor) -> None:
        """It waits for nobody any more."""
        if self._waiting.pop(job.uid, None) is not None:
            self.later.remove(job.queue, job.requests)

    def search(
        self, job: Preemptor, around: Surroundings, rooms: Sequence[Room] | None = None
    ) -> Preemption | NoPreemption:
        """Whom to stop for it. `around.leaving` is to have everybody who is in `leaving`."""
        self._count_kept(job.queue, -1)
        for queue, amounts in self._claimed.items():
            self.later.remove(queue, amounts)
        found = find_preemption(job, self.later, around, rooms, charged=self._staying())
        for queue, amounts in self._claimed.items():
            self.later.add(queue, amounts)
        self._count_kept(job.queue, 1)
        return found

    def stop(self, preemption: Preemption, job: Preemptor) -> None:
        """These are stopped for it."""
        for victim in preemption.victims:
            self._leave(victim.job)
        self.wait(job)

    def keep(self, job: Preemptor) -> Amounts:
        """What the first Job of a queue keeps free for itself in this pass, as things are now."""
        if Preempts.RECLAIM in job.preempts:
            return {}
        self._count_kept(job.queue, -1)
        kept = kept_free(self.later, job)
        self._kept[job.queue] = job, kept
        self._count_kept(job.queue, 1)
        return kept

    def _find_room(self, queue: Node) -> QueueRoom:
        left = later = {name: self.later.left(queue, name) for name in queue.quotas}
        if self.leaving or self._waiting:
            left = {name: min(amount, self.now.left(queue, name)) for name, amount in later.items()}
        within: list[dict[str, int]] = [{} for _ in queue.path[1:]]
        for name in queue.quotas:
            for amounts, most in zip(within, self.later.left_within(queue, name), strict=True):
                amounts[name] = most
        return QueueRoom(queue, left, later, within)

    def _concerns(self, uid: str, queue: str) -> bool:
        """It waits itself, or another one of its queue does that may have nothing but the queue's own."""
        return uid in self._waiting or any(
            each.own_quota_only and each.queue == queue for each in self._waiting.values()
        )

    def _staying(self) -> QuotaUsage | None:
        """`later` without those that wait: what runs now, and stays; None: it is `later`."""
        if not self._waiting:
            return None
        staying = self.later.fork()
        for each in self._waiting.values():
            staying.remove(each.queue, each.requests)
        return staying

    def _leave(self, job: RunningJob) -> None:
        if job.uid not in self.leaving:
            self.leaving.add(job.uid)
            self.later.remove(job.queue, job.requests)

    def _fits(self, usage: QuotaUsage, job: Preemptor) -> bool:
        if job.own_quota_only and usage.above_own(job.queue, job.requests):
            return False
        return usage.fits(job.queue, job.requests)

    def _is_within(self, job: Preemptor) -> bool:
        over, quotas = self.later.over, self.later.tree.queues[job.queue].quotas
        asked = [name for name, amount in job.requests.items() if amount > 0 and name in quotas]
        for node, adds in self.later.reaching(job.queue, job.requests):
            if node.parent is not None and all(over(node, name) + adds.get(name, 0) <= 0 for name in asked):
                return True
        return False

    def _borrows(self, queue: Node) -> bool:
        return any(self.later.over(queue, name) > 0 for name in queue.quotas)

    def _short(self, usage: QuotaUsage, job: Preemptor) -> tuple[Short, ...]:
        above = usage.above_own(job.queue, job.requests) if job.own_quota_only else ()
        return above or usage.short(job.queue, job.requests)

    def _crowds_out(self, job: Preemptor) -> tuple[Short, ...]:
        """What it asks for of its queue's own quota that one waits for which may have nothing else: what others of the
        queue borrow is counted as own as long as there is any left, so that one would stop them again and again."""
        own = {
            name
            for other in self._waiting.values()
            if other.own_quota_only and other.queue == job.queue and other.uid != job.uid
            for name, amount in other.requests.items()
            if amount > 0
        }
        asked = {name: amount for name, amount in job.requests.items() if name in own}
        return self.later.above_own(job.queue, asked) if asked else ()

    def _checked(self, job: Preemptor, check: Callable[[], _T]) -> _T:
        """Without what is kept in its queue, and for itself."""
        waiting = job.uid in self._waiting
        self._count_kept(job.queue, -1)
        if waiting:
            self.later.remove(job.queue, job.requests)
        found = check()
        if waiting:
            self.later.add(job.queue, job.requests)
        self._count_kept(job.queue, 1)
        return found

    def _count_kept(self, queue: str, sign: int) -> None:
        if queue in self._kept:
            self._count(queue, self._kept[queue][1], sign)

    def _count(self, queue: str, amounts: Amounts, sign: int) -> None:
        for usage in (self.now, self.later):
            (usage.add if sign > 0 else usage.remove)(queue, amounts)

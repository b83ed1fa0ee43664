"""The quota of queues that share, in one pass: what fits, and why something does not.

A queue shares if it has a cohort; one that may stop Jobs of its own for others stands in a tree of its own, so that
the same search finds them. All other queues have a limit, and nothing of this concerns them.

The books are those of `PassQuota`. Beside them are the usage as it was when the pass began (who would have fitted then
was overtaken), and as it is charged now, for words: forks that are made anew only after something was placed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.candidates import Candidate, Growth
from multimirror.scheduling.filters import AboveQuota, QuotaUsed
from multimirror.scheduling.growth import GrowthWaits
from multimirror.scheduling.heads import HeadOrder
from multimirror.scheduling.past_use import NO_PAST, Past
from multimirror.scheduling.preemption import MOST_STOPS
from multimirror.scheduling.quota import Node, QuotaTree, QuotaUsage, Short
from multimirror.scheduling.refusals import (
    AboveMost,
    Asks,
    CohortShort,
    KeptForOthers,
    Objection,
    Overtaken,
    OwnOnly,
    QueueShort,
    Winner,
    is_own_limit,
)
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.sharing import RECLAIM_ONLY, PassQuota, QueueRoom
from multimirror.scheduling.trial import Room
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.victims import NoPreemption, Preemption, Preemptor, Surroundings

_QUEUES_PER_CHECKPOINT: Final = 64


def quota_tree(
    queues: Mapping[str, MirrorQueueSpec], cohorts: Mapping[str, CohortSpec] = MappingProxyType({})
) -> QuotaTree:
    """Of the queues that share. The same queues and cohorts give the same: whoever plans often keeps it."""
    return QuotaTree({name: spec for name, spec in queues.items() if spec.cohort is not None or spec.preempts}, cohorts)


class SharedQuota:
    """Begins with nothing counted: see `count`."""

    def __init__(self, tree: QuotaTree, specs: Mapping[str, MirrorQueueSpec], past: Past = NO_PAST) -> None:
        self.tree, self._specs, self._past = tree, specs, past
        self._before = QuotaUsage(tree)
        self._books = PassQuota(self._before)
        self._charged: QuotaUsage | None = None
        self._last: dict[int, Winner] = {}
        """By root: the last Job that was placed in this pass."""
        self.heads = HeadOrder(self._books.later, past)
        self._asks: tuple[Candidate, Preemptor] | None = None

    def __contains__(self, queue: str) -> bool:
        return queue in self.tree.queues

    def count(
        self,
        usage: UsageSums,
        queues: Iterable[str],
        leaving: Iterable[RunningJob] = (),
        awaited: Iterable[Candidate] = (),
    ) -> Iterator[None]:
        """What is charged when the pass begins, who is leaving, and who waits for them; in small steps, before anything
        else is asked. Only in the trees of these queues: nobody asks about others."""
        nodes = self.tree.queues
        roots = {nodes[name].path[-1].index: nodes[name].path[-1] for name in queues if name in nodes}
        there = [node.name for root in roots.values() for node in root.queues()]
        for number, name in enumerate(there, 1):
            self._before.add(name, usage.queue(name).resources)
            if number % _QUEUES_PER_CHECKPOINT == 0:
                yield None
        waiting = [self.asks(each) for each in awaited if each.queue in self]
        counted = frozenset(there)
        self._books = PassQuota(self._before, (job for job in leaving if job.queue in counted), waiting)
        self.heads = HeadOrder(self._books.later, self._past)

    def asks(self, candidate: Candidate) -> Preemptor:
        if self._asks is None or self._asks[0] is not candidate:  # it is asked for several times in a row
            spec = self._specs[candidate.queue]
            asks = Preemptor(
                uid=candidate.ref.uid,
                queue=candidate.queue,
                requests=candidate.requests,
                priority=min(candidate.priority, spec.max_priority or 0),
                preempts=spec.preempts,
                own_quota_only=_is_own_only(candidate),
            )
            self._asks = candidate, asks
        return self._asks[1]

    def objection(self, candidate: Candidate) -> Objection | None:
        """Why it cannot have what it asks for now; None: it can."""
        room = self._room(candidate)
        if room.fits(candidate.requests) if room is not None else self._books.fits(self.asks(candidate)):
            return None
        queue = self.tree.queues[candidate.queue]
        if queue.cycle is not None:
            return Objection("Cycle", queue.cycle)
        above = self._before.above_most(candidate.queue, candidate.requests)
        if above:
            return Objection("NeverFits", _above(queue, above[0]))
        if _is_own_only(candidate):
            own = self.charged.above_own(candidate.queue, candidate.requests)
            if own:
                return Objection("OwnQuotaOnly", OwnOnly(queue, own[0], _stops(candidate)))
        short = self._short(candidate, room)
        if short is None:
            return Objection("OthersFirst", self._kept(queue, self.asks(candidate)))
        return self._too_little(queue, candidate, short)

    def _short(self, candidate: Candidate, room: QueueRoom | None) -> Short | None:
        """What there is too little of, if what is kept for others is not counted."""
        if room is not None:
            return room.short(candidate.requests, self.charged)
        return next(iter(self.charged.short(candidate.queue, candidate.requests)), None)

    def objection_to_growth(self, candidate: Candidate, growth: Growth) -> Objection | None:
        """The same for one that runs, and asks for the difference."""
        above = self._before.above_most(candidate.queue, growth.total)
        if above:
            why = _above(self.tree.queues[candidate.queue], above[0])
            return Objection("GrowthNeverFits", GrowthWaits(growth, why))
        found = self.objection(candidate)
        return Objection("GrowthWaits", GrowthWaits(growth, found.why)) if found is not None else None

    def never_fits(self, candidate: Candidate, objection: Objection) -> bool:
        """Whatever others do: it waits for nobody, and nobody has to wait for it."""
        if objection.reason == "OwnQuotaOnly":
            quotas = self.tree.queues[candidate.queue].quotas
            return any(name in quotas and asked > quotas[name].own for name, asked in candidate.requests.items())
        return objection.reason in ("NeverFits", "Cycle")

    def place(self, candidate: Candidate) -> None:
        first = ""
        if self._books.waits(candidate.ref.uid):
            first = "others were stopped for it"
        elif candidate.claim is not None:
            first = "room was kept for it"
        self._books.place(self.asks(candidate))
        queue = self.tree.queues[candidate.queue]
        self._last[queue.root.index] = Winner(queue, candidate.requests, first)
        self._charged = None

    def keep(self, candidate: Candidate) -> None:
        """It is the first of its queue that does not fit: what it may keep free for itself, it does."""
        if self._books.keep(self.asks(candidate)):
            self._charged = None

    def claim(self, queue: str, amounts: Amounts) -> None:
        """So much of what the queue has, or could borrow, is kept for its Job that has waited long; see `unclaim`."""
        self._books.claim(queue, amounts)

    def unclaim(self, queue: str) -> None:
        self._books.unclaim(queue)

    def fits_later(self, candidate: Candidate) -> bool:
        """It will fit when those are gone who are leaving."""
        room = self._room(candidate)
        return room.fits_later(candidate.requests) if room is not None else self._books.fits_later(self.asks(candidate))

    def is_hopeless(self, candidate: Candidate) -> bool:
        """It does not fit, not even when those are gone who are leaving, and nobody may be stopped for it."""
        room = self._room(candidate)
        if room is not None and self._specs[candidate.queue].preempts == RECLAIM_ONLY:
            return not (room.fits_later(candidate.requests) or room.is_within(candidate.requests))
        return not (self.fits_later(candidate) or self.may_stop_others(candidate))

    def may_stop_others(self, candidate: Candidate) -> bool:
        """If there is somebody to stop."""
        preempts, room = self._specs[candidate.queue].preempts, self._room(candidate)
        if room is not None and preempts == RECLAIM_ONLY:
            return room.is_within(candidate.requests)
        return self._books.may_stop_others(self.asks(candidate))

    def anybody_to_stop(self, candidate: Candidate) -> bool:
        """Whom, at all, is another question."""
        return self._books.anybody_to_stop(candidate.queue, self._specs[candidate.queue].preempts)

    def forget(self, candidate: Candidate) -> None:
        """It waits for nobody any more."""
        self._books.forget(self.asks(candidate))

    def search(self, candidate: Candidate, around: Surroundings, rooms: Sequence[Room]) -> Preemption | NoPreemption:
        """Whom to stop for it. Those who are found are leaving from now on, and it waits for them."""
        asks = self.asks(candidate)
        found = self._books.search(asks, around, rooms)
        if isinstance(found, Preemption):
            self._books.stop(found, asks)
            for queue in {victim.job.queue for victim in found.victims}:
                self.heads.refresh(queue)
        return found

    def is_within_own(self, candidate: Candidate) -> bool:
        """It asks for no more than is left of its queue's own quota."""
        return self.charged.is_within_own(candidate.queue, candidate.requests)

    @property
    def charged(self) -> QuotaUsage:
        """What is charged now, for words: what is kept for others is not in it."""
        if self._charged is None:
            self._charged = self._books.charged()
        return self._charged

    def _too_little(self, queue: Node, candidate: Candidate, short: Short) -> Objection:
        last = self._last.get(queue.root.index)
        if last is not None and self._before.fits(candidate.queue, candidate.requests):
            return Objection("OthersFirst", Overtaken(self.charged, queue, short, candidate.requests, last, self._past))
        if queue.parent is None:
            name, limit = short.resource, queue.quotas[short.resource].subtree
            left = limit - self.charged.used(queue, name)
            return Objection("QuotaExceeded", QuotaUsed(queue.name, name, short.asked, left, limit))
        if is_own_limit(self.charged, queue, short):
            return Objection("QuotaExceeded", QueueShort(self.charged, queue, short))
        asks = Asks(candidate.requests, self._specs[queue.name].preempts)
        return Objection("CohortFull", CohortShort(self.charged, queue, short, asks))

    def _room(self, candidate: Candidate) -> QueueRoom | None:
        """What is left for it and all others of its queue, if it is one of those that are alike in that."""
        return self._books.room(candidate.ref.uid, candidate.queue) if not _is_own_only(candidate) else None

    def _kept(self, queue: Node, asks: Preemptor) -> KeptForOthers:
        short = self._books.short(asks)[0]
        return KeptForOthers(queue, short, self.charged.available(queue.name, short.resource))


def _above(queue: Node, short: Short) -> object:
    if queue.parent is None:
        return AboveQuota(queue.name, short.resource, short.asked, short.available)
    return AboveMost(queue, short)


def _is_own_only(candidate: Candidate) -> bool:
    """It is placed on its queue's own quota only."""
    return not candidate.preemptible or candidate.preemptions >= MOST_STOPS


def _stops(candidate: Candidate) -> int | None:
    return candidate.preemptions if candidate.preemptible else None

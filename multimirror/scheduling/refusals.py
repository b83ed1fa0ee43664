"""Why the quota of queues that share leaves no room for a Job: the numbers that were compared, and their words.

Words are made when they are read, from the usage as it was then (`QuotaUsage` forks, which nobody changes any more).
One sentence says what is asked, one what is there, and who has it; the number is always the one that was compared.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from multimirror.api import PREEMPTIBLE_LABEL, Hold, Preempts
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.filters import text
from multimirror.scheduling.past_use import NO_PAST, Past
from multimirror.scheduling.quota import Node, QuotaUsage, Short
from multimirror.scheduling.shares import share

_NAMED: Final = 3
"""Members of a cohort in one sentence."""


class Objection(NamedTuple):
    """Why it does not go on now, or ever."""

    reason: str
    why: object
    """In words, made when they are read."""


class Border(NamedTuple):
    """The first node on the way up that does not let a request through, and what it would let through."""

    node: Node
    left: int


def border(usage: QuotaUsage, queue: Node, short: Short) -> Border:
    """The queue, where its own limit is what is short; else the cohort."""
    name, asked = short.resource, short.asked
    for node in queue.path[:-1]:
        left = _left_at(usage, node, name)
        if left is not None and asked > left:
            return Border(node, max(0, left))
        asked -= max(0, node.quotas[name].local - usage.used(node, name))
    root = queue.root
    return Border(root, max(0, -usage.over(root, name)))


def is_own_limit(usage: QuotaUsage, queue: Node, short: Short) -> bool:
    """The queue itself is the border."""
    left = _left_at(usage, queue, short.resource)
    return left is not None and short.asked > left


def _left_at(usage: QuotaUsage, node: Node, resource: str) -> int | None:
    """What a node lets through by what it may borrow; None: that has no limit."""
    quota = node.quotas[resource]
    if quota.borrow is None:
        return None
    used = usage.used(node, resource)
    return max(0, quota.local - used) + quota.subtree - max(quota.local, used) + quota.borrow


@dataclass(frozen=True, slots=True)
class AboveMost:
    """It asks for more than its queue could have if nobody used anything."""

    queue: Node
    short: Short

    def __str__(self) -> str:
        name, quota, most = self.short.resource, self.queue.quotas[self.short.resource], self.short.available
        asks = f"it asks for {text(self.short.asked)} {name}; queue {self.queue.name} can have {text(most)} at most"
        own = f"own {text(quota.own)}"
        if quota.borrow is not None and most == quota.subtree + quota.borrow:
            return f"{asks} ({own}, borrow {text(quota.borrow)}). Raise quota.borrow, or ask for less"
        parent = self.queue.parent
        assert parent is not None
        return f"{asks} ({own}, cohort {parent.name} has no more to lend). Raise quotas of the cohort, or ask for less"


@dataclass(frozen=True, slots=True)
class QueueShort:
    """The queue's own limit on what it borrows is reached."""

    usage: QuotaUsage
    queue: Node
    short: Short

    def __str__(self) -> str:
        name, quota = self.short.resource, self.queue.quotas[self.short.resource]
        used, left, queue = self.usage.used(self.queue, name), text(self.short.available), self.queue.name
        assert quota.borrow is not None
        own = (
            f"own {text(quota.own)} all used"
            if used >= quota.own
            else f"uses {text(used)} of its own {text(quota.own)}"
        )
        borrowed = f"{text(max(0, used - quota.own))} more borrowed of at most {text(quota.borrow)}"
        return (
            f"it asks for {text(self.short.asked)} {name}. Queue {queue} has {left} left: {own}, {borrowed}. Raise "
            "quota.borrow to let it have more"
        )


class Asks(NamedTuple):
    """All that a Job asks for, and for what its queue may stop others."""

    requests: Amounts
    preempts: AbstractSet[Preempts]


@dataclass(frozen=True, slots=True)
class CohortShort:
    """What the queue may borrow is not there: others of its cohort use it."""

    usage: QuotaUsage
    queue: Node
    short: Short
    asks: Asks

    def __str__(self) -> str:
        name, (cohort, left) = self.short.resource, border(self.usage, self.queue, self.short)
        asks = f"it asks for {text(self.short.asked)} {name}"
        has = f"{text(left)} left"
        if cohort.parent is not None:
            has += f" (own {text(cohort.quotas[name].subtree)}, borrow {text(cohort.quotas[name].borrow or 0)})"
        own, used = self.queue.quotas[name].own, self.usage.used(self.queue, name)
        ours = f"queue {self.queue.name} uses {text(used)} of its own {text(own)}"
        others = ", ".join(self._others(cohort))
        return f"{asks}; {ours}, and cohort {cohort.name} has {has}{': ' if others else ''}{others}{self._remedy()}"

    def _remedy(self) -> str:
        """What the queue could be allowed, if that would help: as the search for victims compares it, but with Jobs of
        any size."""
        missing = {self.short.resource: self.short.available - self.short.asked}
        reaches = dict(self.usage.reaching(self.queue.name, self.asks.requests))
        for fork in self.queue.path[1:]:
            ours = self.queue.below(fork)
            within = all(self.usage.over(ours, name) + more <= 0 for name, more in reaches[ours].items())
            would, fair = share(self.usage, ours, more=reaches[ours]), Preempts.FAIR_SHARE not in self.asks.preempts
            givers = [node for node in fork.children if node is not ours and self._gives(node)]
            for theirs in sorted(givers, key=lambda node: share(self.usage, node), reverse=True):
                if within and Preempts.RECLAIM not in self.asks.preempts:
                    return f". With Reclaim in its preempts the queue could have its own back from {_called(theirs)}"
                has = share(self.usage, theirs)
                if not within and fair and would <= share(self.usage, theirs, more=missing):
                    shares = f"its share is {has}, that of {_called(ours)} would be {would}"
                    return f". With FairShare in its preempts the queue could take from {_called(theirs)}: {shares}"
        return ""

    def _gives(self, node: Node) -> bool:
        """It uses more than it has of what is short."""
        return self.short.resource in node.quotas and self.usage.over(node, self.short.resource) > 0

    def _others(self, cohort: Node) -> Iterator[str]:
        """Those who use most beyond what they have, first."""
        name = self.short.resource
        using = [
            node
            for node in cohort.children
            if node not in self.queue.path and self.usage.used(node, name) > 0 and name in node.quotas
        ]
        using.sort(key=lambda node: (-self.usage.over(node, name), node.name))
        for node in using[:_NAMED]:
            yield f"{_called(node)} uses {text(self.usage.used(node, name))} of its {text(node.quotas[name].subtree)}"
        if len(using) > _NAMED:
            yield f"and {len(using) - _NAMED} more"


class Winner(NamedTuple):
    """The Job that was placed last in a tree."""

    queue: Node
    requests: Amounts
    first: str = ""
    """Why it came before all others, in words; nothing: it was compared with them."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """It would have fitted, had not another Job of its tree been placed first in the same pass."""

    usage: QuotaUsage
    queue: Node
    short: Short
    requests: Amounts
    winner: Winner
    past: Past = NO_PAST

    def __str__(self) -> str:
        name, queue, winner = self.short.resource, self.queue, self.winner.queue
        left = f"{text(self.short.available)} {name} are left of the {text(self.short.asked)} that it asks for"
        if winner is queue:
            return f"a Job of its queue {queue.name} came first: {left}"
        if self.winner.first:
            return f"it fitted, but a Job of {_called(winner)} came first: {self.winner.first}. Now {left}"
        fork = next(node for node in queue.path if node in winner.path)
        compared = self._compared(queue.below(fork), winner.below(fork), fork)
        if not compared:
            return f"it fitted, but a Job of {_called(winner)} came first. Now {left}"
        return f"it fitted, but {_called(winner.below(fork))} was next for what is shared: {compared}. Now {left}"

    def _compared(self, ours: Node, theirs: Node, fork: Node) -> str:
        """What was, in the order that counts; nothing: it was something else. The winner's share is what it is with its
        Job; equal ones were told apart by what else counts."""
        reaches = dict(self.usage.reaching(self.queue.name, self.requests))[ours]
        asked = [name for name, amount in self.winner.requests.items() if amount > 0 and name in theirs.quotas]
        theirs_borrows = any(self.usage.over(theirs, name) > 0 for name in asked)
        ours_borrows = any(self.usage.over(ours, name) + more > 0 for name, more in reaches.items())
        has, would = share(self.usage, theirs), share(self.usage, ours, more=reaches)
        shares = f"its share is {has}, that of {_called(ours)} would be {would}"
        theirs_all, ours_all, then = has, would, ""
        if fork.half_life is not None:
            before, ours_before = self.past.counted(theirs), self.past.counted(ours)
            shares = (
                f"its share is {has} and {before} for what it used before, that of {_called(ours)} would be {would} "
                f"and {ours_before}"
            )
            theirs_all, ours_all = has.plus(before), would.plus(ours_before)
            then = "; what was used before decided" if theirs_all < ours_all and not has < would else ""
        if ours_borrows and not theirs_borrows and ours_all <= theirs_all:
            return f"its Job borrows nothing of what it asks for, and with this one {_called(ours)} would"
        if ours_all < theirs_all or (theirs_borrows and not ours_borrows):
            return ""
        if theirs_all == ours_all:
            then = f"; of equal {'sums' if fork.half_life is not None else 'shares'} priority decides, then age"
        return f"{shares}{then}"


@dataclass(frozen=True, slots=True)
class KeptForOthers:
    """What is left is kept for Jobs that come first: those that others are being stopped for, or heads of queues."""

    queue: Node
    short: Short
    left: int | None
    """Of what is charged now; None: there is no limit."""

    def __str__(self) -> str:
        name = self.short.resource
        left = text(self.left) if self.left is not None else "enough"
        free, asked = text(self.short.available), text(self.short.asked)
        return (
            f"{left} {name} are left for queue {self.queue.name}, but only {free} of that are not kept for Jobs that "
            f"come first, and it asks for {asked}"
        )


@dataclass(frozen=True, slots=True)
class OwnOnly:
    """It may use its queue's own quota and nothing else."""

    queue: Node
    short: Short
    stops: int | None
    """How often it was stopped while it borrowed; None: it is never to be stopped."""

    def __str__(self) -> str:
        if self.stops is None:
            label = f'{PREEMPTIBLE_LABEL}: "false"'
            why = f"it is never to be stopped ({label}), so it is placed on its queue's own quota only"
        else:
            why = f"it was stopped {self.stops} times while it borrowed, and now waits for its queue's own quota"
        name = self.short.resource
        own = text(self.queue.quotas[name].own)
        return (
            f"{why}: it asks for {text(self.short.asked)} {name}, and {text(self.short.available)} of the {own} of "
            f"queue {self.queue.name} are free"
        )


@dataclass(frozen=True, slots=True)
class QueueHeld:
    """The queue places nothing."""

    queue: str
    hold: Hold
    waiting: int
    since: float | None = None
    """By our clock; None: nobody knows."""

    def __str__(self) -> str:
        how = "held" if self.hold is Hold.HOLD else "drained"
        jobs = "1 Job waits" if self.waiting == 1 else f"{self.waiting} Jobs wait"
        since = f" since {format_time(utc_datetime(self.since))}" if self.since is not None else ""
        said = f"queue {self.queue} is {how} (spec.hold is {self.hold}){since}"
        return f"{said}: nothing of it is placed until that is None; {jobs}"


def _called(node: Node) -> str:
    return f"{'queue' if node.is_queue else 'cohort'} {node.name}"

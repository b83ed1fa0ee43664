"""A try at making room: the usage with a Job counted in, and without those that would be stopped for it.

Here is what the plans of `preemption` have in common: whether room and quota suffice, whether a set of victims is
legal, and sending back whoever is not needed. A set is judged as it is in the end. What was legal when it was taken
stays so when others are taken too, for that makes our side smaller; so only sending somebody back has to be judged
again: it may make our side larger than it may be. (Others' sides only grow by it, and who was over quota still is.)
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from multimirror.api import Preempts
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.quota import Node, QuotaUsage
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.shares import Share, share

Way = Callable[[RunningJob, Sequence[RunningJob]], bool] | None
"""Of whom victims on a worker are taken: whether somebody is one of them, when those are gone; None: of all."""


class Room(Protocol):
    """A worker, as a place for one Job."""

    @property
    def worker(self) -> str: ...

    @property
    def score(self) -> float:
        """Of two that would do otherwise, the one with the smaller is taken."""

    def lacking(self, gone: Sequence[RunningJob]) -> Collection[str]:
        """Of which resources there is not enough for the Job when those are gone. Nothing: it has room."""

    def ways(self) -> Iterable[Way]:
        """In which ways to look for victims on it, the best first."""


@dataclass(frozen=True, slots=True)
class AmountsRoom:
    """A worker of which only sums are known: what is free, and what a Job needs there. What is not in `free` has no
    limit."""

    worker: str
    needed: Amounts
    free: Amounts
    score: float = 0.0

    def lacking(self, gone: Sequence[RunningJob]) -> Collection[str]:
        here = [job.requests for job in gone if job.worker == self.worker]
        return [
            name
            for name, amount in self.needed.items()
            if name in self.free and amount > self.free[name] + sum(requests.get(name, 0) for requests in here)
        ]

    def ways(self) -> Iterable[Way]:
        return (None,)


class Taken(NamedTuple):
    """One that would be stopped, and the two sides of the fork where it was taken; for one of the own queue, none."""

    job: RunningJob
    reason: Preempts
    ours: Node | None = None
    theirs: Node | None = None


class Trial:
    """Begins with nobody stopped. `usage` is not changed, nor is `charged`: the same without those that wait for their
    victims, where somebody does."""

    def __init__(
        self,
        usage: QuotaUsage,
        queue: str,
        requests: Amounts,
        room: Room | None = None,
        charged: QuotaUsage | None = None,
        *,
        way: Way = None,
        own_quota_only: bool = False,
    ) -> None:
        self.queue = usage.tree.queues[queue]
        self.usage = usage.fork()
        self._charged = charged.fork() if charged is not None else None
        self.requests, self.room, self.way = requests, room, way
        self.asked = tuple(name for name, amount in requests.items() if amount > 0 and name in self.queue.quotas)
        """What it asks for that counts."""
        short = usage.short(queue, requests)
        if own_quota_only:
            short += usage.above_own(queue, requests)  # what it could borrow is nothing to it
        self.quota_short = frozenset(each.resource for each in short)
        self.lacking = frozenset(room.lacking(())) if room is not None else frozenset()
        self.contended = self.quota_short | self.lacking
        self._ceilings = {
            name: max(usage.used(self.queue, name), self.queue.quotas[name].subtree) for name in self.asked
        }
        self.taken: list[Taken] = []
        self._shares: dict[int, Share] = {}
        self.usage.add(queue, requests)

    @property
    def jobs(self) -> list[RunningJob]:
        return [each.job for each in self.taken]

    def take(self, taken: Taken, place: int | None = None) -> None:
        self.usage.remove(taken.job.queue, taken.job.requests)
        if self._charged is not None:
            self._charged.remove(taken.job.queue, taken.job.requests)
        self.taken.insert(len(self.taken) if place is None else place, taken)
        self._forget(taken.job)

    def give_back(self, place: int) -> Taken:
        taken = self.taken.pop(place)
        self.usage.add(taken.job.queue, taken.job.requests)
        if self._charged is not None:
            self._charged.add(taken.job.queue, taken.job.requests)
        self._forget(taken.job)
        return taken

    def has_room(self) -> bool:
        return not self.lacking or (self.room is not None and not self.room.lacking(self.jobs))

    def suffices(self) -> bool:
        """There is room for it, and quota."""
        if not self.has_room():
            return False
        if not self.quota_short:
            return True
        queue = self.queue.name
        self.usage.remove(queue, self.requests)
        fits = self.usage.fits(queue, self.requests)
        self.usage.add(queue, self.requests)
        return fits

    def share(self, node: Node) -> Share:
        found = self._shares.get(node.index)
        if found is None:
            found = self._shares[node.index] = share(self.usage, node)
        return found

    def is_within(self, node: Node) -> bool:
        """With the Job, the queue or a cohort above it uses no more than it has of anything that the Job asks for."""
        return all(self.usage.over(node, name) <= 0 for name in self.asked)

    def is_no_larger(self) -> bool:
        """The queue has no more than before, or is within its own quota, of everything that the Job asks for."""
        return not any(self.exceeds(name) for name in self.asked)

    def exceeds(self, name: str) -> bool:
        """The queue has more of it than before, and than its own quota."""
        return self.usage.used(self.queue, name) > self._ceilings[name]

    def is_above_own(self, name: str) -> bool:
        return self.usage.over(self.queue, name) > 0

    def is_over(self, job: RunningJob, theirs: Node, contended: Iterable[str]) -> bool:
        """A Job that runs uses something contended of which its queue, and all above it on its side of the fork, have
        more than they are due: already, and not only when those run that wait for their victims."""
        path = self.usage.tree.queues[job.queue].path
        side = path[: path.index(theirs) + 1]
        books = (self.usage,) if self._charged is None else (self.usage, self._charged)
        return any(
            job.requests.get(name, 0) > 0 and all(usage.over(node, name) > 0 for usage in books for node in side)
            for name in contended
        )

    def is_fair(self, ours: Node, theirs: Node) -> bool:
        """Our side ends with no larger share than theirs. A side of weight 0 gives all that it borrows."""
        if ours.weight and not theirs.weight:
            return True
        if not self.share(ours) <= self.share(theirs):
            return False
        contended = self.contended
        return share(self.usage, ours, resources=contended) <= share(self.usage, theirs, resources=contended)

    def is_legal(self) -> bool:
        """Of victims in other queues: our side of each fork may have what it takes there."""
        pairs = {(each.reason, each.ours, each.theirs) for each in self.taken}
        for reason, ours, theirs in pairs:
            if ours is None or theirs is None:
                continue
            if not (self.is_within(ours) if reason is Preempts.RECLAIM else self.is_fair(ours, theirs)):
                return False
        return True

    def _forget(self, job: RunningJob) -> None:
        for node in self.usage.tree.queues[job.queue].path:
            self._shares.pop(node.index, None)

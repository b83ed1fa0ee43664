"""Whom to stop so that a Job can run. Pure: plain values in, a set of victims out, or why there is none.

Four plans, and the first one that works counts:

1. Reclaim: Jobs of other queues. With the Job, our side of a fork of the tree is within its quota for everything that
   the Job asks for; theirs is over it, in something contended that the victim uses, all the way down to its queue. The
   nearest fork comes first; at a fork, the side with the largest share.
2. Priority: Jobs of lower priority in the own queue, which ends with no more than it had, or within its own quota.
3. Both: own lower ones until the queue is within its own quota with the Job, then as 1.
4. FairShare: as 1 over the whole tree, the largest share first, if our side ends with no larger share than theirs: over
   all resources, and over the contended ones. A side of weight 0 gives all that it borrows.

Then whoever is not needed is sent back, latest taken first, if the rest stays legal without it, until nobody can be.

So priority counts inside a queue and never buys it a larger share, a queue within its own quota loses nothing to
others, and nobody takes more than he leaves to the one he takes from: who is stopped cannot take it back the same way.

Quota and room are one search: where worker clusters are given, victims on one of them are taken until there is room on
it, and victims elsewhere only for the quota that is still missing. Of the workers, the one with the fewest victims is
chosen, then the one where the least work is lost (pods x time), then by score.

Those that are being stopped already are to be left out of `usage`, as if they were gone. A search is bounded by what it
looks at (`MOST_CANDIDATES` of a queue, `MOST_ROOMS`, `MOST_CHECKS` in all), not by a clock, so it is repeatable.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

from multimirror.api import Preempts
from multimirror.scheduling.givers import Borrowers, Givers
from multimirror.scheduling.quota import Node, QuotaUsage
from multimirror.scheduling.running import MOST_CANDIDATES, RunningJob
from multimirror.scheduling.trial import Room, Taken, Trial, Way
from multimirror.scheduling.victims import (
    Compared,
    NobodyThere,
    NobodyToStop,
    NoPreemption,
    OwnQuotaOnly,
    Plan,
    Preemption,
    Preemptor,
    Protected,
    Standing,
    Surroundings,
    Victim,
)

MOST_ROOMS: Final = 8
MOST_CHECKS: Final = 320
"""Candidates of other queues that one search judges, over all plans and workers: about 20 ms."""
MOST_STOPS: Final = 3
"""After so many stops by Reclaim or FairShare a Job is placed on own quota only."""
_LOOKED_AT: Final = 4 * MOST_CANDIDATES
_FACTOR: Final = {Preempts.RECLAIM: 0.5, Preempts.FAIR_SHARE: 1.0, Preempts.PRIORITY: 1.0}
"""How much of the shortest run time counts."""


def find_preemption(
    preemptor: Preemptor,
    usage: QuotaUsage,
    around: Surroundings,
    rooms: Sequence[Room] | None = None,
    *,
    charged: QuotaUsage | None = None,
) -> Preemption | NoPreemption:
    """Whom to stop for a Job that does not fit. `usage` is without those that are leaving, and is not changed.

    `rooms`: the workers that it could go to, most promising first; None: only quota is looked at. `charged`: `usage`
    without those that wait for their victims; None: nobody does. What they will have, their queues have not yet."""
    search = _Search(preemptor, usage, around, rooms, charged)
    found = search.run()
    if found is not None:
        return found
    if search.protected:
        unprotected = _Search(preemptor, usage, around, rooms, charged, protect=False)
        would = unprotected.run()
        if would is not None:
            until = {each.job.uid: unprotected.protected_until(each.job, each.reason) for each in would.victims}
            jobs = [each.job for each in would.victims if until[each.job.uid] > around.now]
            jobs.sort(key=lambda job: until[job.uid], reverse=True)
            return Protected(tuple(jobs), max(until.values()))
    if preemptor.own_quota_only:
        above = usage.above_own(preemptor.queue, preemptor.requests)
        if above:
            return OwnQuotaOnly(above)
    short = usage.short(preemptor.queue, preemptor.requests)
    if short or rooms is None:
        return NobodyToStop(short, search.cut)
    queues = [node.name for node in usage.tree.queues[preemptor.queue].root.queues()]
    there = next(_used_by(queues, around, rooms), None)
    return NobodyToStop((), search.cut, there) if there is not None else NobodyThere()


def _used_by(queues: Sequence[str], around: Surroundings, rooms: Sequence[Room]) -> Iterator[tuple[str, str]]:
    """The workers where these queues have something of what is lacking, and of what."""
    for room in rooms[:MOST_ROOMS]:
        for name in sorted(room.lacking(())):
            lines = (around.running.of(queue, room.worker) for queue in queues)
            if any(job.requests.get(name, 0) > 0 for line in lines for job in line):
                yield room.worker, name


def kept_free(usage: QuotaUsage, preemptor: Preemptor) -> dict[str, int]:
    """What a Job that does not fit, and has nobody to stop, keeps free for itself for the rest of a pass.

    What is left of its queue's own quota: it would be lent otherwise, and not come back. Nothing, if the Job is too
    large for that quota, or if the queue may reclaim it at any time."""
    queue = usage.tree.queues[preemptor.queue]
    asked = {name: amount for name, amount in preemptor.requests.items() if amount > 0 and name in queue.quotas}
    if Preempts.RECLAIM in preemptor.preempts or any(asked[name] > queue.quotas[name].own for name in asked):
        return {}
    left = {name: min(amount, -usage.over(queue, name)) for name, amount in asked.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


class _Search:
    def __init__(
        self,
        preemptor: Preemptor,
        usage: QuotaUsage,
        around: Surroundings,
        rooms: Sequence[Room] | None,
        charged: QuotaUsage | None = None,
        *,
        protect: bool = True,
    ) -> None:
        self._asks, self._usage, self._around, self._protect = preemptor, usage, around, protect
        self._charged = charged
        self._rooms: tuple[Room | None, ...] = tuple(rooms[:MOST_ROOMS]) if rooms is not None else (None,)
        self._borrowers = Borrowers(usage, around.running)
        self._checks = MOST_CHECKS
        self.protected = False
        """Somebody was left alone who has not run long enough."""

    @property
    def cut(self) -> bool:
        """Not everybody was looked at."""
        return self._checks <= 0 or self._borrowers.cut

    def run(self) -> Preemption | None:
        for plan in _plans(self._asks.preempts):
            found: list[tuple[int, float, int, Trial]] = []
            without_room = False
            for room in sorted(self._rooms, key=lambda room: room.score if room is not None else 0.0):
                for way in room.ways() if room is not None else (None,):
                    trial = self._trial(room, way)
                    if not trial.lacking:
                        if without_room:
                            break  # there is room on it as well, so the victims are the same
                        without_room = True
                    if trial.contended and self._try(plan, trial):
                        found.append((len(trial.taken), self._lost_work(trial), len(found), trial))
                        break
                    if not trial.lacking:
                        break
            if found:
                found.sort(key=lambda each: each[:3])
                return self._preemption(plan, found[0][3], [each[3] for each in found[1:]])
        return None

    def protected_until(self, job: RunningJob, reason: Preempts) -> float:
        """When it has run long enough to be stopped for this; 0: it is not protected."""
        least = _FACTOR[reason] * self._around.min_runtime.get(job.queue, 0.0)
        return job.placed + least if least else 0.0

    def _trial(self, room: Room | None, way: Way) -> Trial:
        asks = self._asks
        return Trial(
            self._usage, asks.queue, asks.requests, room, self._charged, way=way, own_quota_only=asks.own_quota_only
        )

    def _lost_work(self, trial: Trial) -> float:
        return sum(job.pods * max(0.0, self._around.now - job.placed) for job in trial.jobs)

    def _try(self, plan: Plan, trial: Trial) -> bool:
        """Take victims by a plan until it fits, and send back those who are not needed."""
        for worker, contended in _places(trial):
            if plan in (Plan.PRIORITY, Plan.BOTH):
                self._take_own(plan, trial, worker, contended)
        for worker, contended in _places(trial):
            if plan is Plan.FAIR_SHARE:
                self._take_fair(trial, self._givers(trial, Preempts.FAIR_SHARE, worker, contended))
            elif plan is not Plan.PRIORITY:
                self._take_back(trial, self._givers(trial, Preempts.RECLAIM, worker, contended))
            if not trial.has_room():
                return False
        if not self._is_done(plan, trial):
            return False
        self._send_back(plan, trial)
        return True

    def _is_done(self, plan: Plan, trial: Trial) -> bool:
        return self._is_legal(plan, trial) and trial.suffices()

    def _is_legal(self, plan: Plan, trial: Trial) -> bool:
        if plan is Plan.PRIORITY and not trial.is_no_larger():
            return False
        if (plan is Plan.BOTH or self._asks.own_quota_only) and not trial.is_within(trial.queue):
            return False
        return trial.is_legal()

    def _send_back(self, plan: Plan, trial: Trial) -> None:
        changed = True
        while changed:
            changed = False
            for place in range(len(trial.taken) - 1, -1, -1):
                taken = trial.give_back(place)
                if self._is_done(plan, trial):
                    changed = True
                else:
                    trial.take(taken, place)

    def _take_own(self, plan: Plan, trial: Trial, worker: str | None, contended: AbstractSet[str]) -> None:
        """Those of lower priority in the own queue, until it fits; or, of both plans, until others may be asked. Only
        those that use something contended, or of which the queue would have too much."""
        both = plan is Plan.BOTH
        for job in self._candidates(trial, trial.queue.name, worker, Preempts.PRIORITY):
            enough = trial.is_within(trial.queue) if both else self._is_done(plan, trial)
            if job.priority >= self._asks.priority or enough:
                return
            too_much = {name for name in trial.asked if (trial.is_above_own(name) if both else trial.exceeds(name))}
            helps = too_much if both else too_much | contended
            if any(job.requests.get(name, 0) > 0 for name in helps):
                trial.take(Taken(job, Preempts.PRIORITY))

    def _take_back(self, trial: Trial, givers: Givers) -> None:
        """Our own quota, from those who borrow it: the nearest fork first."""
        for fork in trial.queue.path[1:]:
            ours = trial.queue.below(fork)
            while trial.is_within(ours):
                if trial.suffices():
                    return
                job = self._next(givers, fork)
                if job is None:
                    break
                theirs = self._usage.tree.queues[job.queue].below(fork)
                if trial.is_over(job, theirs, givers.contended):
                    trial.take(Taken(job, Preempts.RECLAIM, ours, theirs))

    def _take_fair(self, trial: Trial, givers: Givers) -> None:
        """From those who have more than we would have."""
        path = trial.queue.path
        while not trial.suffices():
            job = self._next(givers, trial.queue.root)
            if job is None:
                return
            node = self._usage.tree.queues[job.queue]
            fork = next(each for each in node.path if each in path)
            ours, theirs = trial.queue.below(fork), node.below(fork)
            if not trial.is_over(job, theirs, givers.contended):
                continue
            trial.take(Taken(job, Preempts.FAIR_SHARE, ours, theirs))
            if not trial.is_fair(ours, theirs):
                trial.give_back(len(trial.taken) - 1)

    def _next(self, givers: Givers, at: Node) -> RunningJob | None:
        self._checks -= 1
        return givers.next(at) if self._checks > 0 else None

    def _givers(self, trial: Trial, reason: Preempts, worker: str | None, contended: AbstractSet[str]) -> Givers:
        return Givers(
            trial,
            frozenset(contended & trial.queue.quotas.keys()),
            self._borrowers,
            lambda queue: self._candidates(trial, queue, worker, reason),
            whole_tree=reason is Preempts.FAIR_SHARE,
        )

    def _candidates(self, trial: Trial, queue: str, worker: str | None, reason: Preempts) -> Iterator[RunningJob]:
        """The Jobs of a queue that may be stopped, in order."""
        taken = {job.uid for job in trial.jobs}
        found = 0
        for job in islice(self._around.running.of(queue, worker), _LOOKED_AT):
            if job.uid in taken or not self._may_stop(job, reason, trial):
                continue
            if worker is not None and trial.way is not None and not trial.way(job, trial.jobs):
                continue
            if found == MOST_CANDIDATES:
                return
            found += 1
            yield job

    def _may_stop(self, job: RunningJob, reason: Preempts, trial: Trial) -> bool:
        if not job.preemptible or job.uid in self._around.leaving:
            return False
        if trial.lacking and job.worker in self._around.unready:
            return False
        if self._protect and self.protected_until(job, reason) > self._around.now:
            self.protected = True
            return False
        return True

    def _preemption(self, plan: Plan, trial: Trial, others: Sequence[Trial]) -> Preemption:
        return Preemption(
            plan,
            tuple(Victim(each.job, each.reason, self._compared(trial, each)) for each in trial.taken),
            trial.room.worker if trial.room is not None else None,
            tuple(sorted(trial.contended)),
            tuple((each.room.worker, len(each.taken)) for each in others if each.room is not None),
        )

    def _compared(self, trial: Trial, taken: Taken) -> Compared | None:
        if taken.ours is None or taken.theirs is None:
            return None
        over = [
            name
            for name in sorted(trial.contended)
            if taken.job.requests.get(name, 0) > 0 and self._usage.over(taken.theirs, name) > 0
        ]
        resource = over[0]
        return Compared(
            resource,
            self._asks.requests.get(resource, 0),
            self._standing(taken.ours, resource),
            self._standing(taken.theirs, resource),
            trial.share(taken.ours),
            trial.share(taken.theirs),
        )

    def _standing(self, node: Node, resource: str) -> Standing:
        used = (self._charged or self._usage).used(node, resource)
        return Standing(node.name, node.is_queue, used, node.quotas[resource].subtree)


def _plans(preempts: frozenset[Preempts]) -> Iterator[Plan]:
    if Preempts.RECLAIM in preempts:
        yield Plan.RECLAIM
    if Preempts.PRIORITY in preempts:
        yield Plan.PRIORITY
    if {Preempts.RECLAIM, Preempts.PRIORITY} <= preempts:
        yield Plan.BOTH
    if Preempts.FAIR_SHARE in preempts:
        yield Plan.FAIR_SHARE


def _places(trial: Trial) -> Iterator[tuple[str | None, AbstractSet[str]]]:
    """Where to look for victims, and of what they have to use something: first on the worker, if it lacks anything;
    then anywhere, for quota."""
    if trial.room is not None and trial.lacking:
        yield trial.room.worker, trial.contended
    yield None, trial.quota_short

"""The quota of one pass: what is charged now, and what will be when everybody who is leaving is gone.

A Job that is being stopped is charged until its pods are gone; what it will free belongs to the Job that it is stopped
for. So a pass keeps two books. `now` is what is charged. `later` is without those that are leaving, and with those that
wait for them. A Job is placed if it fits both: then it takes nothing from one that waits for its victims, which fits as
soon as they are gone. Victims are searched in `later`: nobody is stopped for room that is on its way. So a Job may
count on others, too, who were leaving already when its own victims were chosen: it waits for as long as it fits
`later`, and not only until its own victims are gone.

The first Job of a queue that does not fit, and stops nobody, may keep what is left of its queue's own quota
(`kept_free`): from other queues, not from those behind it in its own, which may pass it.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.preemption import find_preemption, kept_free
from multimirror.scheduling.quota import QuotaUsage, Short
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.trial import Room
from multimirror.scheduling.victims import NoPreemption, Preemption, Preemptor, Surroundings

_T = TypeVar("_T")


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
        for job in leaving:
            self._leave(job)
        for preemptor in waiting:
            self.wait(preemptor)

    def fits(self, job: Preemptor) -> bool:
        """It can be placed: what it asks for is there, and is not kept for others."""
        return self._checked(job, lambda: self._fits(self.now, job) and self._fits(self.later, job))

    def fits_later(self, job: Preemptor) -> bool:
        """It could be placed if those who are leaving were gone."""
        return self._checked(job, lambda: self._fits(self.later, job))

    def short(self, job: Preemptor) -> tuple[Short, ...]:
        """What is missing for it to be placed."""
        return self._checked(job, lambda: self._short(self.now, job) or self._short(self.later, job))

    def charged(self) -> QuotaUsage:
        """What is charged now, as it stays: what is kept free is not in it."""
        charged = self.now.fork()
        for queue, (_, kept) in self._kept.items():
            charged.remove(queue, kept)
        return charged

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

    def forget(self, job: Preemptor) -> None:
        """It waits for nobody any more."""
        if self._waiting.pop(job.uid, None) is not None:
            self.later.remove(job.queue, job.requests)

    def search(
        self, job: Preemptor, around: Surroundings, rooms: Sequence[Room] | None = None
    ) -> Preemption | NoPreemption:
        """Whom to stop for it. `around.leaving` is to have everybody who is in `leaving`."""
        self._count_kept(job.queue, -1)
        found = find_preemption(job, self.later, around, rooms)
        self._count_kept(job.queue, 1)
        return found

    def stop(self, preemption: Preemption, job: Preemptor) -> None:
        """These are stopped for it."""
        for victim in preemption.victims:
            self._leave(victim.job)
        self.wait(job)

    def keep(self, job: Preemptor) -> Amounts:
        """What the first Job of a queue keeps free for itself in this pass, as things are now."""
        self._count_kept(job.queue, -1)
        kept = kept_free(self.later, job)
        self._kept[job.queue] = job, kept
        self._count_kept(job.queue, 1)
        return kept

    def _leave(self, job: RunningJob) -> None:
        if job.uid not in self.leaving:
            self.leaving.add(job.uid)
            self.later.remove(job.queue, job.requests)

    def _fits(self, usage: QuotaUsage, job: Preemptor) -> bool:
        if job.own_quota_only and usage.above_own(job.queue, job.requests):
            return False
        return usage.fits(job.queue, job.requests)

    def _short(self, usage: QuotaUsage, job: Preemptor) -> tuple[Short, ...]:
        above = usage.above_own(job.queue, job.requests) if job.own_quota_only else ()
        return above or usage.short(job.queue, job.requests)

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
            kept = self._kept[queue][1]
            for usage in (self.now, self.later):
                (usage.add if sign > 0 else usage.remove)(queue, kept)

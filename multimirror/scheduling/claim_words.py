"""Claims in words, made when they are read: to the Job that has one, and to those that wait because of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from multimirror.batch.times import format_time, utc_datetime
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.claims import Held
from multimirror.scheduling.filters import WorkerInfo, text
from multimirror.scheduling.waiting import Waiter

_NAMED: Final = 3
"""Resources in one sentence."""


@dataclass(frozen=True, slots=True)
class HasClaim:
    """To the one that has it."""

    why: object
    held: Held
    now: float

    def __str__(self) -> str:
        claim, starts = self.held.claim, self.held.starts
        if self.held.worker is None:
            return f"{self.why}. Room was to be kept for it on worker {claim.worker}, which takes nothing now"
        since = format_time(utc_datetime(claim.since))
        kept = f"{self.why}. Room on worker {claim.worker} is kept for it since {since}"
        return f"{kept}: it can start in {duration(starts - self.now)} at the latest" if starts is not None else kept


@dataclass(frozen=True, slots=True)
class KeptForClaim:
    """To one that would fit otherwise."""

    candidate: Candidate
    held: Held
    now: float
    where: str
    """The worker, or the quota, that would do."""
    free: Mapping[str, int]
    """What is free there of what it asks for."""

    @classmethod
    def of(
        cls, waiter: Waiter, info: WorkerInfo, kept: Sequence[Held], root: int | None, now: float, *, in_quota: bool
    ) -> "KeptForClaim":
        """`info`: the worker where it would go if nothing were kept. `kept`: what binds it, on workers or in quota."""
        candidate = waiter.candidate
        there = [each for each in kept if each.worker == info.name]
        if there and not in_quota:
            free = {name: info.left[name] for name, _ in waiter.asked if name in info.left}
            return cls(candidate, there[0], now, f"on worker {info.name}", free)
        ours = [each for each in kept if each.candidate.queue == candidate.queue]
        related = ours or [each for each in kept if root is not None and each.root == root] or kept
        return cls(candidate, related[0], now, f"in the quota of queue {candidate.queue}", {})

    def __str__(self) -> str:
        amounts = [f"{text(max(0, amount))} {name}" for name, amount in list(self.free.items())[:_NAMED]]
        first = self.held.candidate
        name, waited = f"{first.namespace}/{first.name}", duration(self.now - self.held.since)
        free = f"{' and '.join(amounts)} are free" if amounts else "there is room"
        return f"{free} {self.where}, but kept for {name}, which has waited {waited}; {self._may_not_pass()}"

    def _may_not_pass(self) -> str:
        starts, runs = self.held.starts, self.candidate.run_seconds
        if runs is None:
            return "this Job does not say when it ends (activeDeadlineSeconds), so it could delay it"
        if starts is None:
            return "Jobs run there that do not say when they end, so nobody knows whether this one would delay it"
        return (
            f"this Job may run for {duration(runs)}, and would end after it can start, in {duration(starts - self.now)}"
        )


def duration(seconds: float) -> str:
    """About how long, for people."""
    seconds = max(0, round(seconds))
    if seconds < 120:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"

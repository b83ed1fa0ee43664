"""What a pass decides about one candidate, step by step: a worker for it, that it waits, or whom to stop for it.

Nobody changes these. They are not frozen all the same: thousands of them are made in a pass, and that would cost three
times as much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from multimirror.api.placement import Claim
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.filters import FilterResult, WorkerInfo, result
from multimirror.scheduling.usage import Reservation
from multimirror.scheduling.victims import Preemption
from multimirror.scheduling.waiting import Waiter

_TOLD: Final = 8
"""Workers in one sentence."""


def cut(names: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """As many as fit into a sentence, and how many more there are, in words, if there are any."""
    more = len(names) - _TOLD
    return names[:_TOLD], (f"and {more} more",) if more > 0 else ()


@dataclass(slots=True)
class Comparison:
    """The workers that a decision was about, as they were then: words are made of it when they are wanted."""

    waiter: Waiter
    names: tuple[str, ...]
    workers: Mapping[str, WorkerInfo]
    fenced: bool

    def result(self, worker: str) -> FilterResult:
        return result(self.waiter, worker, self.workers.get(worker), fenced=self.fenced)


class Rest(IntEnum):
    """What has to happen before one that waits could get another answer, time aside; the larger, the less it takes."""

    WITH_LESS = 0
    """Something is used less: in its tree, or on a worker, so that what it asks for fits there."""
    WITH_TREE = 1
    """Anything else is used in its tree: there may be others to stop for it."""
    WITH_ALL = 2
    """Anything else is used anywhere."""
    NEVER = 3
    """Nothing: it was not asked about to the end."""


@dataclass(slots=True)
class PlacementDecision:
    """The whole decision about one candidate: a worker, or why it waits."""

    chosen: str | None
    reason: str = ""
    why: object = ""
    """In words; made when it is read."""
    compared: Comparison | None = field(default=None, compare=False, repr=False)
    holds_up: bool = field(default=False, compare=False)
    """In a strict queue: those behind it wait for it."""
    for_room: bool = field(default=False, compare=False)
    """It waits for what others have, quota or room: they could be stopped for it."""
    again: float | None = field(default=None, compare=False)
    """When to look again, by the clock, if nothing happens before."""
    rest: Rest = field(default=Rest.WITH_LESS, compare=False, repr=False)
    preemption: Preemption | None = field(default=None, compare=False, repr=False)
    """Those are to be stopped for it."""
    claim: Claim | None = field(default=None, compare=False)
    """Room is kept for it there."""

    def until(self, rest: Rest, again: float | None = None) -> "PlacementDecision":
        """The same, of one that stays as it is until then. (`replace` costs more than many a decision.)"""
        return PlacementDecision(
            self.chosen,
            self.reason,
            self.why,
            self.compared,
            self.holds_up,
            self.for_room,
            self.again if again is None else again,
            rest,
            self.preemption,
            self.claim,
        )

    @property
    def results(self) -> tuple[FilterResult, ...]:
        """Every worker of the queue, in the queue's order."""
        compared = self.compared
        return tuple(compared.result(name) for name in compared.names) if compared is not None else ()

    def __str__(self) -> str:
        """For people: the worker that was chosen first, and no more than a few."""
        why, told = str(self.why), self._told()
        return f"{why} ({told})" if why and told else why or told

    def _told(self) -> str:
        if self.compared is None:
            return ""
        names = sorted(self.compared.names, key=lambda name: name != self.chosen)
        shown, more = cut(names)
        words = [f"{name}: {self.compared.result(name).why}" for name in shown]
        return "; ".join((*words, *more))


@dataclass(slots=True)
class Placed:
    """It goes to `decision.chosen`."""

    candidate: Candidate
    decision: PlacementDecision

    @property
    def reservation(self) -> Reservation:
        """What it counts for from now on."""
        assert self.decision.chosen is not None
        return reservation_of(self.candidate, self.decision.chosen)


@dataclass(slots=True)
class Waits:
    """It does not go anywhere now, and `decision` says why."""

    candidate: Candidate
    decision: PlacementDecision


@dataclass(slots=True)
class Preempts:
    """It waits, and others are to be stopped for it: `decision.preemption`."""

    candidate: Candidate
    decision: PlacementDecision

    @property
    def worker(self) -> str | None:
        """Where there will be room for it."""
        return self.preemption.worker

    @property
    def preemption(self) -> Preemption:
        assert self.decision.preemption is not None
        return self.decision.preemption


Step = Placed | Waits | Preempts
"""What a pass decides, one after the other."""


def reservation_of(candidate: Candidate, worker: str) -> Reservation:
    """What it counts for there."""
    return Reservation(candidate.queue, candidate.namespace, worker, candidate.requests)

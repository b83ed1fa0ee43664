"""What a run promised, and what a broken promise looks like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from faults.labels import CopyLabels


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, in words, with the writes and changes that show it."""

    invariant: str
    """I1 to I10; `end` where the run did not end as it does when nothing goes wrong."""
    text: str
    evidence: Sequence[str] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.invariant}: {self.text}", *(f"    {line}" for line in self.evidence)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds in a run: how the controller labels its copies, and what its queue's policy allows."""

    labels: CopyLabels = field(default_factory=CopyLabels)
    dispatcher: str = "dispatcher"
    """The client that must keep the promises, in the record."""
    job_controller: str = "jobs"
    """The clients that run the copies on their workers, in the record."""
    user_agent: str = "multimirror"
    """The same, as it appears in managedFields; for runs without proxies."""
    when_lost: str = "Redispatch"
    lost_after: float = 300.0
    fence: float = 0.0
    """The lease of the queue's fence; 0: it has none."""
    fenced: frozenset[str] | None = None
    """The queues with that fence, where there are several; None: all of them."""
    grace: float = 30.0
    """How late a worker's own Job controller may be, with a fence."""
    retention: float = 0.0
    patience: float = 5.0
    """How long something that nothing stands in the way of may take (I8)."""
    heard_late: float = 1.0
    """By so much watches of two clusters may be out of step."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """How each Job must end, by name, where that is known."""
    waived: Mapping[str, str] = field(default_factory=dict)
    """Invariants that this run breaks by design, and why."""

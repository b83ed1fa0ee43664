"""What is known about one worker cluster: plain values, and the conditions that they make."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from multimirror.api import CONNECTED, READY
from multimirror.batch import Json


@dataclass(frozen=True, slots=True)
class Contact:
    """Whether a worker can be talked to, and its cache believed; since when not."""

    connected: bool
    lost_since: float | None = None
    """Seconds since the epoch; None: there is contact, or it is being tried right now."""
    why: str = ""
    recorded: bool = True
    """Its WorkerCluster says so too; without that no fence is renewed there."""
    clock_ahead: float = 0.0
    """By how many seconds its clock is ahead of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """One worker, as we see it."""

    connected: bool = False
    """It answers, and the cache of our copies there is filled and followed."""
    reason: str = "Connecting"
    message: str = "not tried yet"
    lost_since: float | None = None
    """Since when it cannot be reached (seconds since the epoch); None: it can, or is being tried."""
    last_contact: float | None = None
    latency: float | None = None
    clock_ahead: float = field(default=0.0, compare=False)
    """How many seconds its clock is ahead of ours; what it says itself, so never more than the truth by much."""
    version: str = ""
    is_management: bool = False
    """It is the management cluster itself."""
    missing: tuple[str, ...] = ()
    """What we may not do there, and would need to."""
    capacity: Mapping[str, Decimal] | None = None
    namespaces: frozenset[str] | None = field(default=None, compare=False)

    @property
    def ready(self) -> bool:
        """It may get Jobs."""
        return self.connected and not self.missing

    @property
    def why_not_ready(self) -> tuple[str, str]:
        """Reason and message."""
        if not self.connected:
            return self.reason, self.message
        if self.missing:
            return "PermissionDenied", f"the account may not {', '.join(self.missing)}; see deploy/worker"
        return "Ready", "it takes Jobs"


def conditions(state: WorkerState, *, cordoned: bool) -> list[tuple[str, bool, str, str]]:
    """(type, holds, reason, message) of each condition."""
    reason, message = state.why_not_ready
    if state.ready and cordoned:
        reason, message = "Cordoned", "it takes no new Jobs; those that run there go on"
    return [
        (CONNECTED, state.connected, state.reason, state.message),
        (READY, state.ready and not cordoned, reason, message),
    ]


def merged_conditions(
    before: list[Json], wanted: list[tuple[str, bool, str, str]], *, now: str, generation: int
) -> list[Json]:
    """The list to write: a condition that did not change keeps its time, and those of others stay."""
    result: list[Json] = []
    for kind, holds, reason, message in wanted:
        old = next((each for each in before if each.get("type") == kind), None)
        status = "True" if holds else "False"
        since = old["lastTransitionTime"] if old is not None and old.get("status") == status else now
        result.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
                "observedGeneration": generation,
            }
        )
    ours = {kind for kind, _, _, _ in wanted}
    return result + [each for each in before if each.get("type") not in ours]

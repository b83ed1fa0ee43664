"""What is known for a while, and may be forgotten at any time: after a restart it is found out again.

Refusals keep an object from going round in circles between workers that will not have it; the last seen status keeps it
from being run again when its finished copy was removed before we could write its end down; what was rejected once is
not sent again and again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from multimirror.batch import Json
from multimirror.kinds.kind import Ref
from multimirror.reconcile.pacing import Bucket
from multimirror.reconcile.state import StoppingPods

_ATTEMPTS_KNOWN: Final = 4


class _Refusal(NamedTuple):
    why: str
    until: float


class LastSeen(NamedTuple):
    """A copy that was finished when it vanished."""

    worker: str
    attempt: int
    status: Json


@dataclass(slots=True)
class Notes:
    """About one object."""

    refusals: dict[str, _Refusal] = field(default_factory=dict)
    last_seen: LastSeen | None = None
    made: dict[int, str] = field(default_factory=dict)
    """The uids of its copies, by attempt, as far as we know them; of the latest few."""
    asked: int | None = None
    """For which attempt a copy was asked for that was neither refused nor seen: it may come yet."""
    made_last: tuple[int, float] | None = None
    """For which attempt a copy was made last, and when."""
    blocked_since: float | None = None
    """Since when copies of earlier attempts have been there that nobody may overtake."""
    pods_said: tuple[int, str] | None = None
    """What the pods of that attempt's copy said when they were not ready in time."""
    stopping: StoppingPods | None = None
    """What its worker said of pods that stop."""
    taken_since: float | None = None
    """Since when the name of its copy has been taken by something that ought to go."""
    rejected_status: Json | None = None
    """The status that the API server would not take."""
    rejected_until: float = 0.0
    """When it is asked again (the event loop's time)."""
    rejected_patch: Json | None = None
    """The fields of a copy that a worker would not take, or changed back."""
    pace: Bucket | None = None
    """What it has left to pay for writes with."""
    changed_at: float | None = None
    """When a change of the copy was first observed that has not been mirrored yet (the event loop's time)."""

    def note_copy(self, attempt: int, uid: str) -> None:
        """That attempt's copy is this one, and no other."""
        self.made[attempt] = uid
        if len(self.made) > _ATTEMPTS_KNOWN:
            del self.made[min(self.made)]


class Memory:
    """Notes by object."""

    def __init__(self) -> None:
        self._notes: dict[Ref, Notes] = {}

    def of(self, ref: Ref) -> Notes:
        """To write into."""
        return self._notes.setdefault(ref, Notes())

    def find(self, ref: Ref) -> Notes | None:
        """To look at."""
        return self._notes.get(ref)

    def forget(self, ref: Ref) -> None:
        self._notes.pop(ref, None)

    def refuse(self, ref: Ref, worker: str, why: str, until: float) -> None:
        """A worker would not take it; do not ask again before then."""
        self.of(ref).refusals[worker] = _Refusal(why, until)

    def refusals(self, ref: Ref, now: float) -> Mapping[str, str]:
        """Those that still count."""
        notes = self._notes.get(ref)
        if notes is None or not notes.refusals:
            return {}
        return {worker: refusal.why for worker, refusal in notes.refusals.items() if refusal.until > now}

    def next_refusal_end(self, ref: Ref, now: float) -> float | None:
        """In how many seconds the first of them stops counting."""
        notes = self._notes.get(ref)
        ends = [r.until - now for r in notes.refusals.values() if r.until > now] if notes is not None else []
        return min(ends, default=None)

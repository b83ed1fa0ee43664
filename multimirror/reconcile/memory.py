"""What is known for a while, and may be forgotten at any moment: after a restart it is found out again.

Refusals keep a Job from going round in circles between workers that will not have it; last words keep a Job from being
run again when its finished copy was removed before we could write its end down; told keeps us from repeating ourselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from multimirror.batch import Json


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    until: float


@dataclass(slots=True)
class Notes:
    """About one Job."""

    refusals: dict[str, _Refusal] = field(default_factory=dict)
    last_words: tuple[str, int, Json] | None = None
    """Worker, attempt, and the status of a copy that was finished when it vanished."""
    unwanted: Json | None = None
    """The status that the API server would not take."""
    unwanted_until: float = 0.0
    """When it is asked again (the event loop's time)."""
    stubborn: Json | None = None
    """The fields of a copy that a worker would not take, or changed back."""
    heard: float | None = None
    """When a change of the copy was first heard of that has not been mirrored yet."""
    told: str = ""
    """The reason for waiting that its user was told last."""


class Memory:
    """Notes by uid."""

    def __init__(self) -> None:
        self._notes: dict[str, Notes] = {}

    def of(self, uid: str) -> Notes:
        """To write into."""
        return self._notes.setdefault(uid, Notes())

    def find(self, uid: str) -> Notes | None:
        """To look at."""
        return self._notes.get(uid)

    def forget(self, uid: str) -> None:
        """It is over."""
        self._notes.pop(uid, None)

    def refuse(self, uid: str, worker: str, why: str, until: float) -> None:
        """A worker would not take it; do not ask again before then."""
        self.of(uid).refusals[worker] = _Refusal(why, until)

    def refusals(self, uid: str, now: float) -> Mapping[str, str]:
        """Those that still count."""
        notes = self._notes.get(uid)
        if notes is None or not notes.refusals:
            return {}
        return {worker: refusal.why for worker, refusal in notes.refusals.items() if refusal.until > now}

    def next_refusal_end(self, uid: str, now: float) -> float | None:
        """In how many seconds the first of them stops counting."""
        notes = self._notes.get(uid)
        ends = [r.until - now for r in notes.refusals.values() if r.until > now] if notes is not None else []
        return min(ends, default=None)

"""A worker that sends what no honest one does is left alone for a while, and longer each time.

That a worker broke its budget (kube/budget.py), how often it did so in a row, and until when it is left alone stands in
the status of its WorkerCluster: whoever starts after us knows it before connecting, so that a worker cannot end one
process after the other. An hour of good behaviour after the last pause, and it is forgotten. What makes a worker be
connected anew (another kubeconfig, other settings), or a person who takes the record out of the status, ends a pause at
once.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

from multimirror.batch import Json
from multimirror.batch.times import format_time, seconds_of, utc_datetime
from multimirror.kube.errors import printable

_FIRST_PAUSE: Final = 60.0
_LONGEST_PAUSE: Final = 3600.0
_PROBATION: Final = 3600.0
_LONGEST_MESSAGE: Final = 500
_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """What a worker did last, how often it did such things in a row, and until when it is left alone."""

    count: int
    until: float
    message: str

    @classmethod
    def after(cls, before: Self | None, message: str, now: float) -> Self:
        """It has done it, again or for the first time."""
        count = min(1 if before is None else before.count + 1, _MOST)
        pause = min(_FIRST_PAUSE * 2 ** min(count - 1, 16), _LONGEST_PAUSE)
        return cls(count, float(int(now + pause)), printable(message, _LONGEST_MESSAGE))

    @classmethod
    def read(cls, cluster: Json | None) -> Self | None:
        """What the status of a WorkerCluster says."""
        found = ((cluster or {}).get("status") or {}).get("misbehaviour")
        if not isinstance(found, dict) or not isinstance(found.get("count"), int):
            return None
        return cls(found["count"], seconds_of(found.get("until"), 0.0), str(found.get("message", "")))

    def written(self) -> Json:
        """For the status of its WorkerCluster."""
        return {"count": self.count, "until": format_time(utc_datetime(self.until)), "message": self.message}

    def lifted(self, now: float) -> Self:
        """It may try again now; it is still known."""
        return replace(self, until=min(self.until, float(int(now))))

    def is_over(self, now: float) -> bool:
        """It behaved for so long that nobody need remember."""
        return now >= self.until + _PROBATION

    def __str__(self) -> str:
        again = "" if self.count == 1 else f" (the {self.count}th time in a row)"
        until = format_time(utc_datetime(self.until))
        return (
            f"{self.message}{again}; it is left alone until {until}, or until its kubeconfig changes. "
            "Find out what answers at its address"
        )

"""Where a Job's pods did not become ready in time, as it is written on the Job (the annotation not-started, JSON).

By worker: how often, when last, and a digest of what it asked for then. A worker is avoided for a minute after the
first time, then for two, four and so on up to an hour: by this Job alone. Beside that is written how often in all since
it last started, and at which attempt it was held for that. So whoever comes after us knows as much. What cannot be read
counts as absent: whoever breaks our annotations is tried anew.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from multimirror.api.names import NOT_STARTED_ANNOTATION, STARTING_ANNOTATION
from multimirror.api.placement import annotations, attempt_of
from multimirror.batch import Json

FIRST_PAUSE_SECONDS: Final = 60.0
LONGEST_PAUSE_SECONDS: Final = 3600.0
_MOST_WORKERS: Final = 16
"""Those where it was tried last; more would not fit into what caches keep of an annotation."""
_MOST: Final = 2**31


@dataclass(frozen=True, slots=True)
class Failure:
    """Of one Job, on one worker."""

    count: int
    at: float
    """The last time (seconds since the epoch, by our clock)."""
    shape: str
    """What is the same for Jobs that ask for the same."""

    @property
    def avoided_until(self) -> float:
        return self.at + min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self.count - 1, 16))


@dataclass(frozen=True, slots=True)
class NotStarted:
    """All that is written down about one Job."""

    total: int = 0
    """How often it did not start since it last did, or since its user let it go again."""
    held: int = 0
    """The attempt at which it was held for that; 0: it was not."""
    workers: Mapping[str, Failure] = field(default_factory=dict)

    def failed(self, worker: str, *, at: float, shape: str) -> "NotStarted":
        """Once more, on that worker."""
        before = self.workers.get(worker)
        failure = Failure(before.count + 1 if before is not None else 1, at, shape)
        kept = sorted(({**self.workers, worker: failure}).items(), key=lambda item: item[1].at)[-_MOST_WORKERS:]
        return replace(self, total=self.total + 1, workers=dict(kept))

    def started(self) -> "NotStarted":
        """Its attempts are counted anew."""
        return replace(self, total=0)

    def given_up(self, attempt: int) -> "NotStarted":
        """It is held; who lets it go lets it begin anew."""
        return replace(self, total=0, held=attempt)

    def avoided(self, now: float) -> dict[str, float]:
        """Workers that it does not go to yet, and until when."""
        return {name: each.avoided_until for name, each in self.workers.items() if each.avoided_until > now}

    def __str__(self) -> str:
        """As the annotation has it."""
        workers = {
            name: {"count": each.count, "at": int(each.at), "shape": each.shape}
            for name, each in sorted(self.workers.items())
        }
        written = {"total": self.total, **({"held": self.held} if self.held else {}), "workers": workers}
        return json.dumps(written, separators=(",", ":"))


NEVER: Final = NotStarted()


def not_started_of(obj: Json) -> NotStarted:
    """Of an original."""
    text = annotations(obj).get(NOT_STARTED_ANNOTATION)
    if not text:
        return NEVER
    try:
        return _parsed(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return NEVER


def was_given_up(obj: Json) -> bool:
    """It was held because it did not start, and has not been given to a worker since."""
    return 0 < not_started_of(obj).held == attempt_of(obj)


def is_starting(obj: Json) -> bool:
    """Its pods are waited for: not all of them have been ready yet, in this attempt."""
    return STARTING_ANNOTATION in annotations(obj)


def _parsed(found: Any) -> NotStarted:
    workers = {
        str(name): Failure(max(1, _number(each["count"])), float(_number(each["at"])), str(each["shape"]))
        for name, each in found["workers"].items()
    }
    return NotStarted(_number(found["total"]), _number(found.get("held", 0)), workers)


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 2 * _MOST:
        raise ValueError(value)
    return value

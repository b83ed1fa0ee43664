"""What can be decided about one Job. An action names all that its execution needs; carrying it out decides nothing.

on the management cluster   Unassign, PatchStatus, Warn, Refuse
on a worker                 CreateCopy, DeleteCopy, SyncCopy
for the scheduler           Place
for later                   LookAgain
"""

from dataclasses import dataclass
from typing import Literal

from multimirror.batch import Json
from multimirror.kinds.job.mirror import Refusal


@dataclass(frozen=True, slots=True)
class Place:
    """The Job needs a worker. `avoid`: workers that refused it, and why."""

    avoid: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Unassign:
    """Suspend the Job and take its worker away; the next assignment is another attempt."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Write this status onto the original. `worker` is whose news it is."""

    status: Json
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """What the worker says breaks the rules, and is not written."""

    worker: str
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell the Job's user; the same words are told once."""

    reason: str
    message: str
    kind: Literal["Normal", "Warning"] = "Warning"


@dataclass(frozen=True, slots=True)
class CreateCopy:
    """Make the copy of this attempt. `deadline`: its activeDeadlineSeconds."""

    worker: str
    attempt: int
    deadline: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteCopy:
    """Delete exactly this copy."""

    worker: str
    namespace: str
    name: str
    uid: str
    why: Literal["orphan", "finished", "stale"]
    """The Job is gone, or has ended, or is at a later attempt."""


@dataclass(frozen=True, slots=True)
class SyncCopy:
    """Set these fields of the copy's spec to what the original says."""

    worker: str
    namespace: str
    name: str
    uid: str
    spec: Json
    was: Json


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Time alone will change the answer."""

    seconds: float


WorkerAction = CreateCopy | DeleteCopy | SyncCopy
Action = Place | Unassign | PatchStatus | Refuse | Warn | WorkerAction | LookAgain

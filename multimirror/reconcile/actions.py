"""What can be decided about one object. An action names all that its execution needs; carrying it out decides nothing.

on the management cluster   Preempt, NoteResumed, Unassign, Reserve, Annotate, PatchStatus, Tell, RejectStatus
on a worker                 CreateCopy, DeleteCopy, SyncCopy, AskPods, AskStopping
for the scheduler           Enqueue, Grow
for later                   Show, Requeue
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from multimirror.batch import Json
from multimirror.kinds.kind import Rejection
from multimirror.kinds.preempted import Preemption
from multimirror.kinds.reserved import Reserved

Annotations = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Enqueue:
    """The object needs a worker. `avoid`: workers that refused it, and why."""

    avoid: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Grow:
    """The object has a worker, and needs room there for more pods. `to`: all that it would have reserved."""

    to: Reserved


@dataclass(frozen=True, slots=True)
class Reserve:
    """Write down that this is reserved for the object: no less than what its copy has."""

    reserved: Reserved


@dataclass(frozen=True, slots=True)
class Annotate:
    """Write these annotations of ours onto the original (None: take one away)."""

    annotations: Annotations


@dataclass(frozen=True, slots=True)
class Unassign:
    """Suspend the object and take its worker away; the next assignment is another attempt."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Warning"


@dataclass(frozen=True, slots=True)
class Preempt:
    """Mark the object as one that is taken back from its worker (kinds/preempted.py)."""

    why: Preemption
    message: str
    annotations: Annotations = field(default_factory=dict)
    """What else is written down with the mark."""


@dataclass(frozen=True, slots=True)
class NoteResumed:
    """Write down that its user has resumed an object that is being taken back."""


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Write this status onto the original. `worker` is whose news it is."""

    status: Json
    worker: str | None = None
    copy_uid: str | None = None
    """The uid of the copy, where the original does not say it yet: it is written along."""
    reserved: Reserved | None = None
    """The same of what is reserved for it from now on."""
    annotations: Annotations = field(default_factory=dict)
    """And of these."""


@dataclass(frozen=True, slots=True)
class RejectStatus:
    """What the worker says breaks the rules, and is not written."""

    worker: str
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class Tell:
    """An event for the object's user; the same words are told once."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Warning"


@dataclass(frozen=True, slots=True)
class CreateCopy:
    """Make the copy of this attempt."""

    worker: str
    namespace: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DeleteCopy:
    """Delete exactly this copy."""

    worker: str
    namespace: str
    name: str
    uid: str
    why: Literal["orphan", "finished", "stale", "stuck"]
    """The original is gone, or has ended, or is at a later attempt; or it is taken back, and pods do not stop."""


@dataclass(frozen=True, slots=True)
class SyncCopy:
    """Bring the copy in step with the original by this merge patch."""

    worker: str
    namespace: str
    name: str
    uid: str
    patch: Json
    renews: bool = False
    """It pushes the fence forward."""


@dataclass(frozen=True, slots=True)
class AskPods:
    """Find out what the pods of a copy say that are not ready, before they are taken away."""

    worker: str
    namespace: str
    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AskStopping:
    """Find out whether pods of a copy that was suspended are still there (stopping.py)."""

    worker: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class Show:
    """It is held, and its status does not say so yet (showing.py)."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Time alone will change the answer."""

    seconds: float


WorkerAction = CreateCopy | DeleteCopy | SyncCopy | AskPods | AskStopping
ManagementAction = Preempt | NoteResumed | Unassign | Reserve | Annotate | PatchStatus | RejectStatus | Tell
Action = Enqueue | Grow | ManagementAction | WorkerAction | Show | Requeue

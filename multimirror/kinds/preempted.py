"""What is written onto an object that is taken back from its worker: at the beginning, on the way, at the end.

    marked      why, for whom, since when; it is suspended, and keeps its worker: it is counted there until its pods are
                gone. How often it was stopped by Reclaim or FairShare is counted in the same write
    resumed     its user does not want it to be suspended: it is taken back all the same, and is not held afterwards
    unassigned  the worker goes, and with it the mark; the object waits again, or is held. For whom it made room it says
                until it is assigned again: so long the room is that one's

Whose suspension it is has to be told apart, for with a worker `suspend` belongs to the user (decision 0077). Who had
suspended it before the mark gets it held: the mark notes that as the annotation `hold`. While it carries the mark, its
suspension is the mark's; who resumes it takes that back, which is noted, and a suspension after that is the user's
again. `hold` is the user's at any time.

Each is a merge patch for exactly the object that was decided on.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from multimirror.api.names import (
    ADMITTED_QUEUE_ANNOTATION,
    CLUSTER_ANNOTATION,
    CLUSTER_NAMESPACE_ANNOTATION,
    HOLD_ANNOTATION,
    PREEMPTED_ANNOTATION,
    PREEMPTED_AT_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIONS_ANNOTATION,
    RESERVED_ANNOTATION,
    RESUMED_ANNOTATION,
)
from multimirror.api.placement import exactly, preempted_by_of, preempted_of, preemptions_of, was_resumed
from multimirror.batch import Json
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds.kind import Kind


class Preemption(StrEnum):
    """Why an object is taken back."""

    RECLAIM = "Reclaim"
    """Another queue needs its own quota."""
    PRIORITY = "Priority"
    """An object of higher priority in its own queue needs the room."""
    FAIR_SHARE = "FairShare"
    """Another queue has less of what is shared than it may have."""
    DRAIN = "Drain"
    """Its queue is drained."""
    NOT_STARTED = "NotStarted"
    """Its pods did not become ready in time."""


_COUNTED: Final = frozenset({Preemption.RECLAIM, Preemption.FAIR_SHARE})
_GONE: Final = dict.fromkeys(
    (
        CLUSTER_ANNOTATION,
        CLUSTER_NAMESPACE_ANNOTATION,
        ADMITTED_QUEUE_ANNOTATION,
        RESERVED_ANNOTATION,
        PREEMPTED_ANNOTATION,
        RESUMED_ANNOTATION,
    )
)
"""The uid of the copy stays until the next attempt has one: it says which copy may still be deleted. For whom it made
room, and when, stays until it is assigned again: the scheduler has to know whose room it is."""


def preemption_patch(
    kind: Kind,
    obj: Json,
    why: Preemption,
    *,
    now: float,
    by: str | None = None,
    along: Mapping[str, str | None] = MappingProxyType({}),
) -> Json:
    """Mark an object that has a worker, and no mark yet. `by`: the uid of the one that it makes room for. `along`:
    annotations that say more about why."""
    annotations: Json = {
        **along,
        PREEMPTED_ANNOTATION: why.value,
        PREEMPTED_BY_ANNOTATION: by,
        PREEMPTED_AT_ANNOTATION: format_time(utc_datetime(now)),
        RESUMED_ANNOTATION: None,
    }
    if why in _COUNTED:
        annotations[PREEMPTIONS_ANNOTATION] = str(preemptions_of(obj) + 1)
    if kind.is_suspended(obj):
        annotations[HOLD_ANNOTATION] = "true"
    return {"metadata": {**exactly(obj), "annotations": annotations}, **kind.suspension(suspend=True)}


def resumption_patch(obj: Json) -> Json:
    """Note that the user of a marked object has resumed it."""
    return {"metadata": {**exactly(obj), "annotations": {RESUMED_ANNOTATION: "true", HOLD_ANNOTATION: None}}}


def unassignment_patch(kind: Kind, obj: Json) -> Json:
    """Suspend an object and take its worker away, with all that was written down about it there."""
    annotations: Json = dict(_GONE)
    if preempted_by_of(obj) is None:
        annotations[PREEMPTED_AT_ANNOTATION] = None
    if preempted_of(obj) is not None and was_resumed(obj) == kind.is_suspended(obj):
        # Resumed, and suspended again: its user wants it to be held. Not resumed, and not suspended: just resumed.
        annotations[HOLD_ANNOTATION] = "true" if was_resumed(obj) else None
    return {"metadata": {**exactly(obj), "annotations": annotations}, **kind.suspension(suspend=True)}

"""Labels and annotations that say where an object runs: read here, and nowhere else.

On the original: its queue (by its user), worker, namespace there, attempt, the queue that admitted it, the uid of its
copy, and why it is being taken back (by us). On a copy: whose it is, and which attempt at it. What cannot be read
counts as absent: whoever breaks our annotations gets a fresh attempt.
"""

from dataclasses import dataclass
from typing import NamedTuple

from multimirror.api import jobs
from multimirror.api.names import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLAIM_ANNOTATION,
    CLUSTER_ANNOTATION,
    CLUSTER_NAMESPACE_ANNOTATION,
    COPY_UID_ANNOTATION,
    DEFAULT_QUEUE_LABEL,
    FENCE_ANNOTATION,
    HOLD_ANNOTATION,
    ORIGIN_UID_LABEL,
    PREEMPTED_ANNOTATION,
    PREEMPTED_AT_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIONS_ANNOTATION,
    RESUMED_ANNOTATION,
)
from multimirror.batch import Json
from multimirror.batch.times import format_time, seconds_of, utc_datetime


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of an object, as a worker's cache has it: made by us, and read by workers/reading.py."""

    worker: str
    object: Json

    @property
    def uid(self) -> str:
        """Its own uid, for preconditions."""
        return str(self.object["metadata"]["uid"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def attempt(self) -> int:
        """Which attempt it is; 0 where the label is broken, which is no attempt's number."""
        return _number((self.object["metadata"].get("labels") or {}).get(ATTEMPT_LABEL))

    @property
    def terminating(self) -> bool:
        """Somebody deleted it; it still has finalizers to go through."""
        return "deletionTimestamp" in self.object["metadata"]


def annotations(obj: Json) -> Json:
    """Never None."""
    found: Json = obj["metadata"].get("annotations") or {}
    return found


def cluster_of(obj: Json) -> str | None:
    """The worker that the object is assigned to."""
    return annotations(obj).get(CLUSTER_ANNOTATION) or None


def cluster_namespace_of(obj: Json) -> str | None:
    """The namespace there that its copy belongs into, as it was when the object was assigned."""
    return annotations(obj).get(CLUSTER_NAMESPACE_ANNOTATION) or None


def attempt_of(obj: Json) -> int:
    """How often the object has been assigned; 0 means never: then there is no copy of it anywhere."""
    return _number(annotations(obj).get(ATTEMPT_ANNOTATION))


def fence_of(obj: Json) -> int | None:
    """For how many seconds the object's copy may run without contact; None: for as long as it likes."""
    return _number(annotations(obj).get(FENCE_ANNOTATION)) or None


def admitted_queue_of(obj: Json) -> str | None:
    """The queue that admitted the object to its worker, whatever it says of queues since; None without a worker."""
    found = annotations(obj)
    return (found.get(ADMITTED_QUEUE_ANNOTATION) or None) if found.get(CLUSTER_ANNOTATION) else None


def copy_uid_of(obj: Json) -> str | None:
    """The uid of its latest attempt's copy, as far as that is written down."""
    return annotations(obj).get(COPY_UID_ANNOTATION) or None


def preempted_of(obj: Json) -> str | None:
    """Why the object is being taken back from its worker; None: it is not."""
    return annotations(obj).get(PREEMPTED_ANNOTATION) or None


def preempted_by_of(obj: Json) -> str | None:
    """The uid of the object that it makes room for, where it does for one."""
    return annotations(obj).get(PREEMPTED_BY_ANNOTATION) or None


def preempted_at_of(obj: Json) -> float | None:
    """Since when it is being taken back, by our clock (seconds since the epoch)."""
    since = seconds_of(annotations(obj).get(PREEMPTED_AT_ANNOTATION), -1.0)
    return since if since >= 0 else None


def preemptions_of(obj: Json) -> int:
    """How often it was stopped by Reclaim or FairShare."""
    return _number(annotations(obj).get(PREEMPTIONS_ANNOTATION))


class Claim(NamedTuple):
    """Room that is kept for an object that waits."""

    worker: str
    since: float
    """By our clock (whole seconds since the epoch)."""

    def __str__(self) -> str:
        """As it is written down."""
        return f"{self.worker} {format_time(utc_datetime(self.since))}"


def claim_of(obj: Json) -> Claim | None:
    """Where room is kept for it; None: nowhere."""
    worker, _, since = annotations(obj).get(CLAIM_ANNOTATION, "").partition(" ")
    found = seconds_of(since, -1.0)
    return Claim(worker, found) if worker and found >= 0 else None


def was_resumed(obj: Json) -> bool:
    """By its user, while it is being taken back, and that is written down."""
    return annotations(obj).get(RESUMED_ANNOTATION) is not None


def exactly(obj: Json) -> Json:
    """The metadata of a write that meets this very object, in the version that was decided on, or nothing."""
    metadata = obj["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


def hold_requested(obj: Json) -> bool:
    """Its user asked for it not to be placed."""
    return bool(annotations(obj).get(HOLD_ANNOTATION) == "true")


def queue_of(obj: Json, namespace: Json | None) -> str | None:
    """The object's own queue, or that of its namespace."""
    queue = jobs.queue_of(obj)
    if queue is None and namespace is not None:
        queue = (namespace["metadata"].get("labels") or {}).get(DEFAULT_QUEUE_LABEL)
    return queue or None


def origin_uid(copy: Json) -> str:
    """Whose copy it is."""
    return str((copy["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL, ""))


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0

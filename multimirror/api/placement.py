"""What is written on Jobs about where they run: read here, and nowhere else.

On the original: its queue (by its user), worker and attempt (by us). On a copy: whose it is, and which
attempt at it. A mark that cannot be read counts as absent: whoever breaks our marks gets a fresh attempt.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from multimirror.api import jobs
from multimirror.api.names import (
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    DEFAULT_QUEUE_LABEL,
    HOLD_ANNOTATION,
    LEASE_ANNOTATION,
    ORIGIN_UID_LABEL,
)
from multimirror.batch import Json

_STOCK: Final = frozenset({"kube-controller-manager", "k3s"})
"""How the API server calls those who carry Kubernetes' own Job controller, in managedFields."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a Job, as a worker's cache has it."""

    worker: str
    job: Json

    @property
    def uid(self) -> str:
        """Its own uid, for preconditions."""
        return str(self.job["metadata"]["uid"])

    @property
    def attempt(self) -> int:
        """Which attempt it is; 0 where the label is broken, which is no attempt's number."""
        return _number((self.job["metadata"].get("labels") or {}).get(ATTEMPT_LABEL))

    @property
    def terminating(self) -> bool:
        """Somebody deleted it; it still has finalizers to go through."""
        return "deletionTimestamp" in self.job["metadata"]


def annotations(job: Json) -> Json:
    """Never None."""
    found: Json = job["metadata"].get("annotations") or {}
    return found


def cluster_of(job: Json) -> str | None:
    """The worker that the Job is assigned to."""
    return annotations(job).get(CLUSTER_ANNOTATION) or None


def attempt_of(job: Json) -> int:
    """How often the Job has been assigned; 0 means never: then there is no copy of it anywhere."""
    return _number(annotations(job).get(ATTEMPT_ANNOTATION))


def lease_of(job: Json) -> int | None:
    """For how many seconds the Job's copy may run without contact; None: for as long as it likes."""
    return _number(annotations(job).get(LEASE_ANNOTATION)) or None


def is_held(job: Json) -> bool:
    """Its user does not want it to be placed; whoever resumes it wants it to."""
    return annotations(job).get(HOLD_ANNOTATION) == "true" and bool(job["spec"].get("suspend"))


def queue_of(job: Json, namespace: Json | None) -> str | None:
    """The Job's own queue, or that of its namespace."""
    queue = jobs.queue_of(job)
    if queue is None and namespace is not None:
        queue = (namespace["metadata"].get("labels") or {}).get(DEFAULT_QUEUE_LABEL)
    return queue or None


def stock_writers(managed_fields: Iterable[Json] | None) -> list[Json]:
    """The entries by which Kubernetes' own Job controller has written a Job's status; of each, what tells."""
    return [
        {"manager": each["manager"], "subresource": "status"}
        for each in managed_fields or ()
        if each.get("subresource") == "status" and each.get("manager") in _STOCK
    ]


def is_run_here(job: Json) -> bool:
    """This cluster's own Job controller works on it, although spec.managedBy names us: it does not know the field."""
    return bool(stock_writers(job["metadata"].get("managedFields")))


def origin_uid(copy: Json) -> str:
    """Whose copy it is."""
    return str((copy["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL, ""))


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0

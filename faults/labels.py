"""What a multi-cluster controller writes on Jobs, so that the checker can tell copies from other Jobs.

The defaults are multimirror's. For another controller, say which labels it uses.
"""

from dataclasses import dataclass
from typing import Any

from multimirror.api import ATTEMPT_LABEL, CLUSTER_ANNOTATION, MANAGED_BY, ORIGIN_LABEL, ORIGIN_UID_LABEL

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLabels:
    """Names of labels and annotations."""

    managed_by: str = MANAGED_BY
    """The value of spec.managedBy on originals."""
    origin: str = ORIGIN_LABEL
    """On every copy: the management cluster that it comes from."""
    origin_uid: str = ORIGIN_UID_LABEL
    """On every copy: the uid of its original."""
    attempt: str = ATTEMPT_LABEL
    """On every copy: which attempt it is."""
    cluster: str = CLUSTER_ANNOTATION
    """On an original: where it runs."""
    identity: str | None = None
    """The value of `origin` on our copies, where several management clusters share workers; None: any."""

    def is_original(self, job: Json) -> bool:
        """A Job that is to run elsewhere."""
        return bool(job["spec"].get("managedBy") == self.managed_by)

    def is_copy(self, job: Json) -> bool:
        """A Job that runs for another one."""
        origin = _labels(job).get(self.origin)
        return origin is not None and self.identity in (None, origin)

    def original_of(self, copy: Json) -> str:
        """The uid of the Job whose copy it is; empty where it is none of ours."""
        return str(_labels(copy).get(self.origin_uid, "")) if self.is_copy(copy) else ""

    def attempt_of(self, copy: Json) -> str:
        """Which attempt it is."""
        return str(_labels(copy).get(self.attempt, ""))

    def is_current(self, copy: Json, cluster: str, original: Json) -> bool:
        """It is where its original is to run, for the attempt that counts."""
        annotations = original["metadata"].get("annotations") or {}
        return self.cluster_of(original) == cluster and annotations.get(self.attempt) == self.attempt_of(copy)

    def cluster_of(self, job: Json) -> str | None:
        """Where it is to run."""
        return (job["metadata"].get("annotations") or {}).get(self.cluster)


def _labels(job: Json) -> dict[str, str]:
    return job["metadata"].get("labels") or {}

"""What a Job says to us in its labels and annotations, read with care: users write them by hand."""

import re
from typing import Final

from multimirror.api.names import CLUSTERS_ANNOTATION, PREEMPTIBLE_LABEL, PRIORITY_LABEL, QUEUE_LABEL
from multimirror.api.reading import SpecError
from multimirror.batch import Json
from multimirror.batch.names import dns_subdomain

_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def queue_of(job: Json) -> str | None:
    """The name of the queue in the Job's label; None without the label."""
    labels: dict[str, str] = job["metadata"].get("labels") or {}
    return labels.get(QUEUE_LABEL)


def priority_of(job: Json) -> int:
    """The Job's priority: higher goes first, 0 (the lowest) without the label. Raises SpecError."""
    value = (job["metadata"].get("labels") or {}).get(PRIORITY_LABEL)
    if value is None:
        return 0
    if not _WHOLE_NUMBER.fullmatch(value):
        raise SpecError(_field("labels", PRIORITY_LABEL), f"must be a whole number from 0 to 999999999, not {value!r}")
    return int(value)


def allowed_clusters(job: Json) -> frozenset[str] | None:
    """The only clusters that the Job may go to; None without the annotation. Raises SpecError."""
    value = (job["metadata"].get("annotations") or {}).get(CLUSTERS_ANNOTATION)
    if value is None:
        return None
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if dns_subdomain(name):
            message = f"must be names of worker clusters separated by commas; {name!r} is none"
            raise SpecError(_field("annotations", CLUSTERS_ANNOTATION), message)
    return frozenset(names)


def is_preemptible(job: Json) -> bool:
    """Whether the Job may be stopped for others: unless its label or its annotation says false."""
    return "false" not in _preemptible(job).values()


def check_preemptible(job: Json) -> None:
    """Raises SpecError where the Job's label or annotation says neither true nor false."""
    for kind, value in _preemptible(job).items():
        if value not in ("true", "false"):
            raise SpecError(_field(kind, PREEMPTIBLE_LABEL), f'must be "true" or "false", not {value!r}')


def _preemptible(job: Json) -> dict[str, str]:
    """By where it is said: labels or annotations."""
    said = {kind: (job["metadata"].get(kind) or {}).get(PREEMPTIBLE_LABEL) for kind in ("labels", "annotations")}
    return {kind: value for kind, value in said.items() if value is not None}


def _field(kind: str, key: str) -> str:
    return f"metadata.{kind}[{key}]"

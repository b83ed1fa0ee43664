"""What a Job says to us in its labels and annotations, read with care: users write them by hand."""

import re
from typing import Final

from multimirror.api.names import CLUSTERS_ANNOTATION, PRIORITY_LABEL, QUEUE_LABEL
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


def _field(kind: str, key: str) -> str:
    return f"metadata.{kind}[{key}]"

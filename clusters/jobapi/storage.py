"""How a Job looks when it is read back: empty values gone, as the server's encoding leaves them out.

Two templates are equal to the server if their stored forms are: it makes no difference between an empty list and none,
or between two spellings of a quantity, but it does between no affinity and an empty one.
"""

from typing import Any, Final

from multimirror.batch import stored_status
from multimirror.batch.types import Json

# Maps from a user's keys to a user's values: what is in them stays, even the empty string.
_MAPS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests"})
# Fields in which the empty string means something else than no value.
_NULLABLE_TEXTS: Final = frozenset({"succeededIndexes", "containerName", "runtimeClassName", "type", "service"})
# Fields without a third value beside true and false, zero and other numbers.
_PLAIN_FIELDS: Final = frozenset(
    {"hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly", "hostPort", "initialDelaySeconds"}
)
_METADATA_LISTS: Final = frozenset({"labels", "annotations", "finalizers", "ownerReferences", "managedFields"})


def stored_job(job: Json) -> Json:
    """An accepted Job as it is read back."""
    metadata = {key: value for key, value in job["metadata"].items() if value or key not in _METADATA_LISTS}
    spec, status = stored_spec(job["spec"]), stored_status(job.get("status") or {})
    labels = spec["template"]["metadata"].get("labels")
    if labels and "labels" not in metadata:
        metadata["labels"] = dict(labels)  # whoever reads a Job without labels gets its template's
    return {**job, "metadata": metadata, "spec": spec, "status": status}


def stored_spec(spec: Json) -> Json:
    """A Job's spec as it is read back."""
    stored: Json = stored_value(spec)
    template = stored.setdefault("template", {})
    template.setdefault("metadata", {})
    if "podFailurePolicy" in stored:
        stored["podFailurePolicy"].setdefault("rules", None)
    return stored


def stored_template(template: Json) -> Json:
    """A pod template as it is read back, and as it is compared."""
    stored: Json = stored_value(template)
    stored.setdefault("metadata", {})
    return stored


def stored_value(value: Any) -> Any:
    """Some part of a Job's spec as it is read back."""
    if isinstance(value, dict):
        return {
            key: item if key in _MAPS else stored_value(item)
            for key, item in value.items()
            if not _is_left_out(key, item)
        }
    if isinstance(value, list):
        return [stored_value(item) for item in value]
    return value


def _is_left_out(key: str, value: Any) -> bool:
    if value is None or value == []:
        return True
    if value == "":
        return key not in _NULLABLE_TEXTS
    if value == {}:
        return key in _MAPS
    return key in _PLAIN_FIELDS and not value

"""What the caches keep of a Job: what something is decided on, and no more. The rest is read when a copy is made.

Of an original: our own labels and annotations, the few fields of its spec that rules and the scheduler ask for, and its
status. Its template, which is most of it and which nobody bounds but etcd, becomes one container that asks for what all
of them ask for together (so that pod sets are read from either), with the digest and the size of what was there, and
what it says about its nodes, if that is not too much.
Of a copy: our labels, the fields that are kept in step, and the status.

Nothing that is kept refers to what is dropped, and every text and list that others write has a bound here. Those of a
status are not below the mirror's own, or what it writes would never be what the cache shows. An object that breaks a
bound that counts says so (`problem_of`), and is not placed.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from multimirror.api.limits import size_of
from multimirror.api.names import (
    ATTEMPT_LABEL,
    CLUSTERS_ANNOTATION,
    ESTIMATED_START_ANNOTATION,
    HOLD_ANNOTATION,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    OUR_DOMAIN,
    PLACEMENT_ANNOTATIONS,
    POSITION_ANNOTATION,
    PREEMPTIBLE_LABEL,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    RESERVED_ANNOTATION,
    SIGNATURE_LABEL,
)
from multimirror.batch import Json
from multimirror.kinds.job.mirror import (
    CONDITIONS_LIMIT,
    INDEXES_LIMIT,
    MESSAGE_LIMIT,
    UID_LIMIT,
    UNCOUNTED_LIMIT,
)
from multimirror.kinds.pod_sets import amount_text, pod_requests
from multimirror.kinds.pod_shapes import TOO_LARGE, placement_of
from multimirror.kinds.reserved import RESERVED_LIMIT, RESOURCES_LIMIT

_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")
_ORIGINAL_SPEC: Final = (
    "parallelism",
    "completions",
    "completionMode",
    "backoffLimitPerIndex",
    "suspend",
    "managedBy",
    "activeDeadlineSeconds",
)
_COPY_SPEC: Final = (
    "parallelism",
    "completions",
    "completionMode",
    "backoffLimitPerIndex",
    "suspend",
    "activeDeadlineSeconds",
)
_STATUS_NUMBERS: Final = ("active", "ready", "terminating", "succeeded", "failed")
_STATUS_TEXTS: Final = ("completedIndexes", "failedIndexes", "startTime", "completionTime")
_CONDITION: Final = ("type", "status", "reason", "message", "lastProbeTime", "lastTransitionTime")
_SHORT: Final = 1024
_KNOWN: Final = tuple(
    dict.fromkeys(
        (
            *PLACEMENT_ANNOTATIONS,
            *(POSITION_ANNOTATION, ESTIMATED_START_ANNOTATION),
            *(ORIGIN_LABEL, ORIGIN_UID_LABEL, ATTEMPT_LABEL, SIGNATURE_LABEL),
            *(QUEUE_LABEL, PRIORITY_LABEL, PREEMPTIBLE_LABEL, CLUSTERS_ANNOTATION, HOLD_ANNOTATION),
        )
    )
)
"""What somebody reads: nobody pushes it out with keys that come before it."""
_KEYS_LIMIT: Final = 32
_VALUE_LIMIT: Final = 4096
"""Of an annotation in our domain that users write."""
_CUT: Final = "…"
"""At the end of what was cut: no name of anything, so that nobody takes it for the whole."""
_TRIMMED: Final = "trimmed"
"""In the place of a template: what is known about the one that was there. No template of the API has such a field."""


def trim_original(job: Json, managed_fields: Iterable[Json]) -> Json:
    """`managed_fields`: what is kept of them."""
    metadata, spec = job["metadata"], job["spec"]
    kept = _metadata(metadata, labels=_ours(metadata.get("labels")), annotations=_ours(metadata.get("annotations")))
    if managed_fields := list(managed_fields):
        kept["managedFields"] = managed_fields
    kept_spec = {key: spec[key] for key in _ORIGINAL_SPEC if spec.get(key) is not None}
    if spec.get("successPolicy") is not None:
        kept_spec["successPolicy"] = {}  # that there is one
    kept_spec["template"] = _collapsed(spec.get("template") or {}, size_of(job))
    trimmed = {"apiVersion": "batch/v1", "kind": "Job", "metadata": kept, "spec": kept_spec}
    return _with_status(trimmed, job)


def trim_copy(job: Json) -> Json:
    """A worker wrote it: anything may be in it."""
    metadata, spec = job["metadata"], job.get("spec")
    kept = _metadata(metadata, labels=_ours(metadata.get("labels")))
    spec = spec if isinstance(spec, dict) else {}
    return _with_status(
        {"metadata": kept, "spec": {key: spec[key] for key in _COPY_SPEC if _plain(spec.get(key))}}, job
    )


def template_of(job: Json) -> str:
    """The digest of its template, of a whole Job or of a trimmed one."""
    template = job["spec"].get("template") or {}
    digest: str | None = (template.get(_TRIMMED) or {}).get("digest")
    return digest if digest is not None else _digest(template)


def bytes_of(job: Json) -> int:
    """How large it is, or was before it was trimmed."""
    size: int | None = ((job["spec"].get("template") or {}).get(_TRIMMED) or {}).get("bytes")
    return size if size is not None else size_of(job)


def problem_of(job: Json) -> str:
    """Why what is kept of a Job is not enough to place it."""
    template = job["spec"].get("template") or {}
    trimmed = template.get(_TRIMMED) or {}
    resources = trimmed.get("resources") or len(pod_requests(template.get("spec") or {}))
    if resources > RESOURCES_LIMIT:
        return f"its pods ask for {resources} different resources, more than the {RESOURCES_LIMIT} that are counted"
    return ""


def _collapsed(template: Json, size: int) -> Json:
    spec = template.get("spec") or {}
    requests = pod_requests(spec)
    known: Json = {"digest": _digest(template), "bytes": size}
    if len(requests) > RESOURCES_LIMIT:
        known["resources"] = len(requests)
        requests = {name: requests[name] for name in sorted(requests)[:RESOURCES_LIMIT]}
    container = {"resources": {"requests": {name: amount_text(amount) for name, amount in requests.items()}}}
    collapsed: Json = {"containers": [container]}
    if (stop := spec.get("terminationGracePeriodSeconds")) is not None:
        collapsed["terminationGracePeriodSeconds"] = stop
    placement = placement_of(spec)
    collapsed |= placement if placement is not None else {TOO_LARGE: True}
    return {"spec": collapsed, _TRIMMED: known}


def _digest(template: Json) -> str:
    return hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _metadata(metadata: Json, **ours: Json) -> Json:
    kept = {key: metadata[key] for key in _METADATA if _plain(metadata.get(key))}
    if "deletionTimestamp" in metadata:
        kept["deletionTimestamp"] = str(metadata["deletionTimestamp"])[:_SHORT]
    return kept | {key: values for key, values in ours.items() if values}


def _ours(values: object) -> Json:
    """Labels or annotations of our domain: first those that we know, and of the others not too many."""
    if not isinstance(values, dict):
        return {}
    keys = [key for key in _KNOWN if key in values]
    others = (key for key in values if key.startswith(OUR_DOMAIN) and key not in _KNOWN)
    keys += sorted(others)[:_KEYS_LIMIT]
    return {key: _cut(key, values[key]) for key in keys if isinstance(values[key], str)}


def _cut(key: str, text: str) -> str:
    limit = RESERVED_LIMIT if key == RESERVED_ANNOTATION else _VALUE_LIMIT
    return text if len(text) <= limit else text[:limit] + _CUT


def _plain(value: object) -> bool:
    """A short text, or a number."""
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= _SHORT)


# --- the status: what the mirror asks for, of the types and sizes that it lets through


def _with_status(trimmed: Json, job: Json) -> Json:
    status = job.get("status")
    if isinstance(status, dict) and (kept := _status(status)):
        trimmed["status"] = kept
    return trimmed


def _status(status: Mapping[str, Any]) -> Json:
    kept: Json = {key: status[key] for key in _STATUS_NUMBERS if isinstance(status.get(key), int)}
    for key in _STATUS_TEXTS:
        text = status.get(key)
        if isinstance(text, str) and len(text) <= INDEXES_LIMIT:
            kept[key] = text
    conditions = status.get("conditions")
    if isinstance(conditions, list):
        some = conditions[: 2 * CONDITIONS_LIMIT]
        kept["conditions"] = [_condition(each) for each in some if isinstance(each, dict)]
    uncounted = status.get("uncountedTerminatedPods")
    if isinstance(uncounted, dict):
        lists = {key: uncounted[key] for key in ("succeeded", "failed") if isinstance(uncounted.get(key), list)}
        kept["uncountedTerminatedPods"] = {key: _uids(uids) for key, uids in lists.items()}
    return kept


def _condition(condition: Mapping[str, Any]) -> Json:
    texts = ((key, condition.get(key)) for key in _CONDITION)
    return {key: text[:MESSAGE_LIMIT] for key, text in texts if isinstance(text, str)}


def _uids(uids: list[Any]) -> list[str]:
    return [uid[:UID_LIMIT] for uid in uids[:UNCOUNTED_LIMIT] if isinstance(uid, str)]

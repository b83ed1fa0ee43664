"""What a session keeps track of on a worker: a list of kinds, each with its selector and its trim."""

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL
from multimirror.kinds.pod_sets import pod_requests
from multimirror.kube import Object, Resource
from multimirror.kube.resources import NAMESPACES, NODES, PODS
from multimirror.kube.trimming import compact
from multimirror.kube.watch import Trim
from multimirror.workers.reading import is_plain

_RESOURCES: Final = 64
_LONGEST_RESOURCE: Final = 317
_LONGEST_AMOUNT: Final = 64
_LARGEST_AMOUNT: Final = 128
"""Bits of an amount in billionths: no cluster has more of anything."""
_LABELS: Final = 256
_LONGEST_VALUE: Final = 63
_TAINTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """One kind of object, cached for as long as the session lasts."""

    resource: Resource
    label_selector: str | None = None
    trim: Trim = compact
    at_once: bool = True
    """False: from the moment that somebody asks for it. Until then it costs nothing."""


def copies_of(resource: Resource, origin: str, *, trim: Trim = compact, at_once: bool = True) -> Followed:
    """Our copies of a kind: nothing without our origin is ever asked for."""
    selector = f"{ORIGIN_LABEL}={origin}"
    return Followed(resource=resource, label_selector=selector, trim=trim, at_once=at_once)


def origin_uids(copy: Object) -> list[str]:
    """The index of copies: the uid of the original."""
    uid = (copy["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL)
    return [uid] if uid else []


def trim_node(node: Object) -> Object | None:
    """Only what counts for capacity: a node that says every few seconds that it is there says nothing new."""
    metadata = _metadata(node, "name", "uid", "resourceVersion")
    if metadata is None:
        return None
    spec, status = _mapping(node.get("spec")), _mapping(node.get("status"))
    conditions = status.get("conditions")
    return {
        "metadata": metadata,
        "spec": {"unschedulable": bool(spec.get("unschedulable"))},
        "status": {
            "allocatable": _amounts(_mapping(status.get("allocatable"))),
            "conditions": [
                {"type": "Ready", "status": "True" if condition.get("status") == "True" else "False"}
                for condition in (conditions if isinstance(conditions, list) else ())
                if isinstance(condition, dict) and condition.get("type") == "Ready"
            ][:1],
        },
    }


def trim_node_with_labels(node: Object) -> Object | None:
    """And what decides which pods may go there."""
    kept = trim_node(node)
    if kept is None:
        return None
    labels, taints = _mapping(node["metadata"].get("labels")), _mapping(node.get("spec")).get("taints")
    kept["metadata"]["labels"] = {
        key: value
        for key, value in islice(labels.items(), _LABELS)
        if isinstance(value, str) and len(key) <= _LONGEST_RESOURCE and len(value) <= _LONGEST_VALUE
    }
    kept["spec"]["taints"] = [
        taint
        for taint in map(_taint, islice(taints if isinstance(taints, list) else (), _TAINTS))
        if all(len(text) <= _LONGEST_RESOURCE for text in taint.values())
    ]
    return compact(kept)


def _taint(found: Any) -> dict[str, str]:
    taint = _mapping(found)
    return {key: value if isinstance(value := taint.get(key), str) else "" for key in ("key", "value", "effect")}


def trim_pod(pod: Object) -> Object | None:
    """Only what it takes of its node, and which Job has made it; nothing of one that takes nothing (any more)."""
    metadata = _metadata(pod, "name", "namespace", "uid", "resourceVersion")
    spec, status = _mapping(pod.get("spec")), _mapping(pod.get("status"))
    node = spec.get("nodeName")
    if metadata is None or not is_plain(node) or status.get("phase") in ("Succeeded", "Failed"):
        return None
    try:
        asked = pod_requests(spec)
    except (AttributeError, TypeError, ValueError):
        return None  # no API server has let that in
    requests = {
        name: amount
        for name, amount in islice(asked.items(), _RESOURCES)
        if amount > 0 and len(name) <= _LONGEST_RESOURCE and amount.bit_length() <= _LARGEST_AMOUNT
    }
    return compact({"metadata": metadata, "node": node, "owner": _job_of(pod), "requests": requests})


def _job_of(pod: Object) -> str:
    """The uid of the Job that controls it; empty: none does."""
    references = pod["metadata"].get("ownerReferences")
    for each in references if isinstance(references, list) else ():
        reference = _mapping(each)
        if reference.get("controller") is True and reference.get("kind") == "Job" and is_plain(reference.get("uid")):
            return str(reference["uid"])
    return ""


def trim_worker_namespace(namespace: Object) -> Object | None:
    """Its name, and whether it is going."""
    metadata = _metadata(namespace, "name", "uid", "resourceVersion", "deletionTimestamp")
    return {"metadata": metadata} if metadata is not None else None


def _metadata(obj: Object, *kept: str) -> dict[str, str] | None:
    """None where a worker sends something that is none."""
    metadata = obj["metadata"]
    found = {key: metadata[key] for key in kept if key in metadata}
    return found if is_plain(found.get("name")) and all(map(is_plain, found.values())) else None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _amounts(found: dict[str, Any]) -> dict[str, str]:
    """Resources, as long as they can be some: a real node has a dozen."""
    amounts = {}
    for name, amount in islice(found.items(), _RESOURCES):
        text = str(amount) if isinstance(amount, int) else amount
        if isinstance(text, str) and len(text) <= _LONGEST_AMOUNT and len(name) <= _LONGEST_RESOURCE:
            amounts[name] = text
    return amounts


def trim_namespace(namespace: Object) -> Object:
    """Its name, its labels, and whether it is going."""
    metadata = namespace["metadata"]
    kept = ("name", "uid", "resourceVersion", "deletionTimestamp", "labels")
    return {"metadata": {key: metadata[key] for key in kept if key in metadata}}


FOLLOWED_NODES: Final = Followed(resource=NODES, trim=trim_node)
FOLLOWED_LABELLED_NODES: Final = Followed(resource=NODES, trim=trim_node_with_labels)
FOLLOWED_PODS: Final = Followed(resource=PODS, trim=trim_pod)
FOLLOWED_NAMESPACES: Final = Followed(resource=NAMESPACES, trim=trim_worker_namespace)

"""What a session keeps track of on a worker: a list of kinds, each with its selector and its trim."""

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL
from multimirror.kube import Object, Resource
from multimirror.kube.resources import NAMESPACES, NODES
from multimirror.kube.trimming import compact
from multimirror.kube.watch import Trim
from multimirror.workers.reading import is_plain

_RESOURCES: Final = 64
_LONGEST_RESOURCE: Final = 317
_LONGEST_AMOUNT: Final = 64


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
FOLLOWED_NAMESPACES: Final = Followed(resource=NAMESPACES, trim=trim_worker_namespace)

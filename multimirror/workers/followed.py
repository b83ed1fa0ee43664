"""What a session keeps track of on a worker: a list of kinds, each with its selector and its trim."""

from dataclasses import dataclass
from typing import Final

from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL
from multimirror.kube import Object, Resource
from multimirror.kube.resources import NAMESPACES, NODES
from multimirror.kube.trimming import compact
from multimirror.kube.watch import Trim


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """One kind of object, cached for as long as the session lasts."""

    resource: Resource
    label_selector: str | None = None
    trim: Trim = compact
    at_once: bool = True
    """False: from the moment that somebody asks for it. Until then it costs nothing."""


def copies_of(resource: Resource, origin: str, *, at_once: bool = True) -> Followed:
    """Our copies of a kind: nothing without our origin is ever asked for."""
    return Followed(resource=resource, label_selector=f"{ORIGIN_LABEL}={origin}", at_once=at_once)


def origin_uids(copy: Object) -> list[str]:
    """The index of copies: the uid of the original."""
    uid = (copy["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL)
    return [uid] if uid else []


def trim_node(node: Object) -> Object:
    """Only what counts for capacity: a node that says every few seconds that it is there says nothing new."""
    status = node.get("status") or {}
    return {
        "metadata": {key: node["metadata"][key] for key in ("name", "uid", "resourceVersion")},
        "spec": {"unschedulable": bool((node.get("spec") or {}).get("unschedulable"))},
        "status": {
            "allocatable": status.get("allocatable") or {},
            "conditions": [
                {"type": "Ready", "status": condition.get("status")}
                for condition in status.get("conditions") or ()
                if condition.get("type") == "Ready"
            ],
        },
    }


def trim_namespace(namespace: Object) -> Object:
    """Its name, its labels, and whether it is going."""
    metadata = namespace["metadata"]
    kept = ("name", "uid", "resourceVersion", "deletionTimestamp", "labels")
    return {"metadata": {key: metadata[key] for key in kept if key in metadata}}


FOLLOWED_NODES: Final = Followed(resource=NODES, trim=trim_node)
FOLLOWED_NAMESPACES: Final = Followed(resource=NAMESPACES, trim=trim_namespace)

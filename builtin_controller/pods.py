"""What the controller needs to know about a pod, read once per version of the pod.

active       not Succeeded or Failed, and not being deleted
terminating  not Succeeded or Failed, and being deleted
tracked      carries the tracking finalizer: not counted yet
"""

import re
from typing import Final

from builtin_controller.times import parse_time
from builtin_controller.vocabulary import (
    FAILED,
    FAILURE_COUNT_KEY,
    IGNORED_FAILURE_COUNT_KEY,
    INDEX_KEY,
    SUCCEEDED,
    TRACKING_FINALIZER,
)
from multimirror.batch import Json

NO_INDEX: Final = -1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_MAX_INT32: Final = 2**31 - 1
_KEPT: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "ownerReferences",
    "finalizers",
    "deletionTimestamp",
)


class Pod:
    """One version of one pod. `raw` is the object as the server sent it, or what trimming left of it."""

    __slots__ = ("active", "deleting", "index", "name", "namespace", "phase", "raw", "ready", "tracked", "uid")

    def __init__(self, raw: Json) -> None:
        metadata = raw["metadata"]
        status = raw.get("status") or {}
        self.raw = raw
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self.uid: str = metadata.get("uid", "")
        self.phase: str = status.get("phase") or ""
        self.deleting = bool(metadata.get("deletionTimestamp"))
        self.tracked = TRACKING_FINALIZER in (metadata.get("finalizers") or ())
        self.index = completion_index(metadata.get("annotations"))
        self.active = not self.deleting and self.phase not in (SUCCEEDED, FAILED)
        self.ready = self.active and _ready(status)

    @property
    def terminal(self) -> bool:
        return self.phase in (SUCCEEDED, FAILED)

    @property
    def terminating(self) -> bool:
        return self.deleting and not self.terminal

    @property
    def metadata(self) -> Json:
        metadata: Json = self.raw["metadata"]
        return metadata

    @property
    def status(self) -> Json:
        return self.raw.get("status") or {}

    def counts_as_failed(self, *, only_failed_replaced: bool) -> bool:
        """Whether it is a failure: also while it is being deleted, unless only Failed pods are replaced."""
        if self.phase == FAILED:
            return True
        return not only_failed_replaced and self.deleting and self.phase != SUCCEEDED

    @property
    def failure_count(self) -> int:
        return _count(self.metadata.get("annotations"), FAILURE_COUNT_KEY)

    @property
    def ignored_failure_count(self) -> int:
        return _count(self.metadata.get("annotations"), IGNORED_FAILURE_COUNT_KEY)

    def finish_time(self) -> float:
        """When it ended, from the best witness there is."""
        for witness in (_from_containers, _from_readiness, _from_deletion):
            time = witness(self.raw)
            if time is not None:
                return time
        return parse_time(self.metadata.get("creationTimestamp")) or 0.0


def with_tracking_finalizer(raw: Json) -> Json:
    """The pod as it looks after adoption."""
    metadata = raw["metadata"]
    finalizers = [*(metadata.get("finalizers") or ()), TRACKING_FINALIZER]
    return {**raw, "metadata": {**metadata, "finalizers": finalizers}}


def completion_index(annotations: Json | None) -> int:
    """The pod's index, or NO_INDEX when it has none that can be read."""
    text = annotations.get(INDEX_KEY) if annotations else None
    if text is None or not _INTEGER.fullmatch(text):
        return NO_INDEX
    return max(int(text), NO_INDEX)


def controller_of(raw: Json) -> Json | None:
    """The owner reference that says controller: true."""
    for reference in raw["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Json = reference
            return found
    return None


def condition_of(status: Json, kind: str) -> Json | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Json = condition
            return found
    return None


def sidecar_names(raw: Json) -> set[str]:
    """The init containers that run beside the others (restartPolicy Always)."""
    containers = (raw.get("spec") or {}).get("initContainers") or ()
    return {container["name"] for container in containers if container.get("restartPolicy") == "Always"}


def trim_pod(raw: Json) -> Json:
    """What the cache keeps of a pod: all of a Job's pod that a sync looks at, and of the others that they are there."""
    metadata = raw["metadata"]
    metadata.pop("managedFields", None)
    status = raw.get("status") or {}
    tracked = TRACKING_FINALIZER in (metadata.get("finalizers") or ())
    controller = controller_of(raw)
    foreign = controller is not None and controller.get("kind") != "Job"
    counted = controller is not None and status.get("phase") == SUCCEEDED and not tracked
    if foreign or counted:
        slim = {key: metadata[key] for key in _KEPT if key in metadata}
        return {"metadata": slim, "status": {"phase": status.get("phase", "")}}
    sidecars = [{"name": name, "restartPolicy": "Always"} for name in sorted(sidecar_names(raw))]
    node = (raw.get("spec") or {}).get("nodeName", "")
    raw["spec"] = {"nodeName": node, **({"initContainers": sidecars} if sidecars else {})}
    return raw


def _ready(status: Json) -> bool:
    condition = condition_of(status, "Ready")
    return condition is not None and condition.get("status") == "True"


def _count(annotations: Json | None, key: str) -> int:
    """A failure count; anybody may have written the annotation, so what is not a good number reads as 0."""
    text = annotations.get(key) if annotations else None
    if text is None or not _INTEGER.fullmatch(text):
        return 0
    count = int(text)
    return count if 0 <= count <= _MAX_INT32 else 0


def _from_containers(raw: Json) -> float | None:
    """The latest end of all containers and sidecars, if all have ended. Sidecars alone are enough when a regular
    container's end is not known, as in Kubernetes."""
    status = raw.get("status") or {}
    sidecars = sidecar_names(raw)
    latest = _latest_end(None, status.get("containerStatuses") or ())
    beside = [s for s in status.get("initContainerStatuses") or () if s.get("name") in sidecars]
    return _latest_end(latest, beside)


def _latest_end(latest: float | None, statuses: list[Json] | tuple[Json, ...]) -> float | None:
    for status in statuses:
        terminated = (status.get("state") or {}).get("terminated")
        end = parse_time(terminated.get("finishedAt")) if terminated else None
        if end is None:
            return None
        latest = end if latest is None else max(latest, end)
    return latest


def _from_readiness(raw: Json) -> float | None:
    condition = condition_of(raw.get("status") or {}, "Ready")
    if condition is None or condition.get("status") != "False":
        return None
    return parse_time(condition.get("lastTransitionTime"))


def _from_deletion(raw: Json) -> float | None:
    metadata = raw["metadata"]
    deleted = parse_time(metadata.get("deletionTimestamp"))
    return None if deleted is None else deleted - (metadata.get("deletionGracePeriodSeconds") or 0)

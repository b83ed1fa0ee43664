"""Pods: defaults, what may change once a pod is there, and graceful deletion."""

from collections.abc import Mapping
from typing import Any, Final

from clusters.embedded.kinds import Strategy
from clusters.embedded.store import Object
from clusters.jobapi import default_pod, validate_pod_spec
from multimirror.batch import FieldError
from multimirror.batch.errors import forbidden

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_COMPUTE: Final = ("cpu", "memory")
_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_FIXED_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


class Pods(Strategy):
    """What runs."""

    has_status = True
    counts_generation = True
    returns_deleted = True
    selectable = frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    )

    def fields(self, obj: Object) -> Mapping[str, str]:
        """By node, phase and a few more."""
        spec, status = obj.get("spec", {}), obj.get("status", {})
        found = {f"spec.{key}": spec[key] for key in ("nodeName", "restartPolicy", "schedulerName") if key in spec}
        found["spec.serviceAccountName"] = spec.get("serviceAccountName", "")
        found["spec.hostNetwork"] = "true" if spec.get("hostNetwork") else "false"
        found |= {f"status.{key}": status[key] for key in ("phase", "podIP", "nominatedNodeName") if key in status}
        return found

    def default(self, obj: Object) -> Object:
        """A pod spec's defaults."""
        return default_pod(obj)

    def prepare_create(self, obj: Object) -> Object:
        """Pending; what admission plugins of a standard cluster add is there as well."""
        obj = self.default(obj)
        spec = obj["spec"]
        account = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = account
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        spec["tolerations"] = _with_node_tolerations(spec.get("tolerations") or [])
        obj["status"] = {"phase": "Pending", "qosClass": quality_class(spec)}
        return obj

    def prepare_status(self, new: Object, old: Object) -> Object:
        """Owners and quality are not the status endpoint's business."""
        kept = super().prepare_status(new, old)
        metadata: dict[str, Any] = dict(kept["metadata"])
        owners = old["metadata"].get("ownerReferences")
        if owners:
            metadata["ownerReferences"] = owners
        else:
            metadata.pop("ownerReferences", None)
        status = dict(kept.get("status") or {})
        if quality := old.get("status", {}).get("qosClass"):
            status["qosClass"] = quality
        return {**kept, "metadata": metadata, "status": status}

    def reset_fields(self, subresource: str) -> tuple[tuple[str, ...], ...]:
        """The status endpoint owns neither owners nor the deletion's mark."""
        if subresource == "status":
            return (("f:spec",), ("f:metadata", "f:ownerReferences"), ("f:metadata", "f:deletionTimestamp"))
        return super().reset_fields(subresource)

    def grace_period(self, obj: Object, asked: int | None) -> int | None:
        """What the client asks for, else what the pod says; none for pods that run nowhere."""
        spec, status = obj["spec"], obj.get("status", {})
        period: int = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
        if not spec.get("nodeName") or status.get("phase") in _TERMINAL:
            return 0
        return max(period, 1) if period < 0 else period

    def validate_create(self, obj: Object) -> list[FieldError]:
        """The pod spec's rules."""
        return validate_pod_spec(obj["spec"], "spec")

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """Little of a pod's spec may change."""
        problems = self.validate_create(new)
        if _fixed(new["spec"], old["spec"]) != _fixed(old["spec"], old["spec"]):
            problems.append(forbidden("spec", _FIXED_TEXT))
        return problems


def quality_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, by the containers' requests and limits."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    resources = [each.get("resources") or {} for each in containers]
    asked = [each for each in resources if each.get("requests") or each.get("limits")]
    if not asked:
        return "BestEffort"
    for each in resources:
        limits, requests = each.get("limits") or {}, each.get("requests") or {}
        if any(limits.get(name) is None or requests.get(name, limits[name]) != limits[name] for name in _COMPUTE):
            return "Burstable"
    return "Guaranteed"


def _with_node_tolerations(tolerations: list[Any]) -> list[Any]:
    """A pod stays five minutes on a node that is not ready, unless it says otherwise."""
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in _NODE_TAINTS
        if not any(each.get("key") in {key, None, ""} for each in tolerations)
    ]
    return [*tolerations, *added]


def _fixed(spec: Object, old: Object) -> Object:
    """The pod spec with everything in it that may change as it is in the old one."""
    fixed = {**spec}
    for key in ("activeDeadlineSeconds", "schedulingGates", "nodeName"):
        if key in old:
            fixed[key] = old[key]
        else:
            fixed.pop(key, None)
    had = old.get("tolerations") or []
    if all(each in (spec.get("tolerations") or ()) for each in had):
        fixed["tolerations"] = had
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        fixed["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    for key in ("containers", "initContainers"):
        now, before = fixed.get(key) or [], old.get(key) or []
        if len(now) == len(before):
            fixed[key] = [{**one, "image": other.get("image")} for one, other in zip(now, before, strict=True)]
        elif key in fixed:
            fixed[key] = now
    return {key: value for key, value in fixed.items() if value not in (None, [], {})}

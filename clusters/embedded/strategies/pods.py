"""Pods: defaults, what may change once a pod is there, and graceful deletion."""

from collections.abc import Mapping
from typing import Any, Final

from clusters.embedded.kinds import Strategy
from clusters.embedded.store import Object
from multimirror.batch import FieldError, default_pod, validate_pod_spec

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


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
        """Pending."""
        obj = self.default(obj)
        obj["status"] = {"phase": "Pending"}
        return obj

    def grace_period(self, obj: Object, asked: int | None) -> int | None:
        """What the client asks for, else what the pod says; none for pods that run nowhere."""
        spec, status = obj["spec"], obj.get("status", {})
        period: int = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
        if not spec.get("nodeName") or status.get("phase") in _TERMINAL:
            return 0
        return max(period, 1) if period < 0 else period

    def prepare_status(self, new: Object, old: Object) -> Object:
        """Owners are not the status endpoint's business."""
        kept = super().prepare_status(new, old)
        metadata: dict[str, Any] = dict(kept["metadata"])
        owners = old["metadata"].get("ownerReferences")
        if owners:
            metadata["ownerReferences"] = owners
        else:
            metadata.pop("ownerReferences", None)
        return {**kept, "metadata": metadata}

    def validate_create(self, obj: Object) -> list[FieldError]:
        """The pod spec's rules."""
        return validate_pod_spec(obj["spec"], "spec")

"""Namespaces: they go when their content has gone, which the namespace controller tells by the finalize endpoint."""

from collections.abc import Mapping
from typing import Final

from clusters.embedded.kinds import Strategy
from clusters.embedded.store import Object
from multimirror.batch.names import dns_label

_IMMORTAL: Final = frozenset({"default", "kube-public", "kube-system"})


class Namespaces(Strategy):
    """Hold everything else."""

    has_status = True
    returns_deleted = True
    selectable = frozenset({"status.phase"})

    @staticmethod
    def name_rule(name: str) -> list[str]:
        """A DNS label."""
        return dns_label(name)

    def fields(self, obj: Object) -> Mapping[str, str]:
        """By phase."""
        return {"status.phase": obj.get("status", {}).get("phase", "")}

    def default(self, obj: Object) -> Object:
        """Every namespace carries its name as a label."""
        if name := obj["metadata"].get("name"):
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
        return obj

    def prepare_create(self, obj: Object) -> Object:
        """Active, and held until its content has gone."""
        obj = self.default(obj)
        obj["status"] = {"phase": "Active"}
        finalizers = obj.setdefault("spec", {}).setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        return obj

    def prepare_update(self, new: Object, old: Object) -> Object:
        """Only the finalize endpoint changes the spec's finalizers."""
        new["spec"] = old.get("spec", {})
        return super().prepare_update(new, old)

    def why_undeletable(self, obj: Object) -> str:
        """Some namespaces are always there."""
        return "this namespace may not be deleted" if obj["metadata"]["name"] in _IMMORTAL else ""

    def can_go(self, obj: Object) -> bool:
        """When nothing in it is left to clean up."""
        return not obj.get("spec", {}).get("finalizers")

    def mark_deleted(self, obj: Object) -> None:
        """It terminates."""
        obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}

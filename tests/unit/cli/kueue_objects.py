"""Kueue's objects, built as its users write them."""

from typing import Any

from multimirror.cli.kueue import Finding, Outcome, Sourced, Translation, read_objects, translate

Json = dict[str, Any]


def kueue(kind: str, name: str, version: str = "v1beta2", namespace: str | None = None, **more: Any) -> Json:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": metadata, **more}


def quotas(**flavors: Json) -> list[Json]:
    """`quotas(spot={"cpu": 4})`; an amount may be (nominal, borrowing limit, lending limit)."""
    names = ("nominalQuota", "borrowingLimit", "lendingLimit")
    groups = []
    for flavor, amounts in flavors.items():
        resources = []
        for resource, amount in amounts.items():
            limits = amount if isinstance(amount, tuple) else (amount,)
            said = {key: value for key, value in zip(names, limits, strict=False) if value is not None}
            resources.append({"name": resource, **said})
        groups.append({"name": flavor, "resources": resources})
    return [{"coveredResources": sorted({r for f in flavors.values() for r in f}), "flavors": groups}]


def cluster_queue(name: str = "team-a", version: str = "v1beta2", **spec: Any) -> Json:
    spec.setdefault("namespaceSelector", {})
    return kueue("ClusterQueue", name, version, spec=spec)


def local_queue(namespace: str, name: str = "user-queue", to: str = "team-a", **spec: Any) -> Json:
    return kueue("LocalQueue", name, namespace=namespace, spec={"clusterQueue": to, **spec})


def translated(*objects: Json, fair_sharing: bool = False) -> Translation:
    sourced = [Sourced(f"document {number}", each) for number, each in enumerate(objects, 1)]
    return translate(read_objects(sourced), fair_sharing=fair_sharing)


def spec_of(translation: Translation, name: str = "team-a", kind: str = "MirrorQueue") -> Json:
    (found,) = [
        each["spec"] for each in translation.objects if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    assert isinstance(found, dict)
    return found


def findings(translation: Translation, outcome: Outcome, field: str = "") -> list[Finding]:
    return [each for each in translation.findings if each.outcome is outcome and field in each.field]

"""The smallest objects that the API accepts, for tests to add to."""

from typing import Any, Final

Object = dict[str, Any]


def meta(name: str, **more: Any) -> Object:
    return {"name": name, **more}


def configmap(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, **metadata), "data": data or {"k": "v"}}


def secret(name: str, **fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta(name), **fields}


def lease(name: str, **spec: Any) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta(name), "spec": spec}


def pod(name: str, *, metadata: Object | None = None, **spec: Any) -> Object:
    containers = [{"name": "main", "image": "example.com/app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, **(metadata or {})),
        "spec": {"containers": containers, **spec},
    }


def template(**spec: Any) -> Object:
    containers = [{"name": "main", "image": "example.com/app:1"}]
    return {"spec": {"restartPolicy": "Never", "containers": containers, **spec}}


def job(name: str, *, metadata: Object | None = None, **spec: Any) -> Object:
    """A Job that no controller of any cluster touches, so that only the API's own behaviour is seen."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta(name, **(metadata or {})),
        "spec": {"managedBy": "example.com/contract", "template": template(), **spec},
    }


def cronjob(name: str, **spec: Any) -> Object:
    """A CronJob that does not fire while a test runs."""
    jobs = {"spec": {"template": template()}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": meta(name),
        "spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": jobs, **spec},
    }


def owner(thing: Object, **more: Any) -> Object:
    """An owner reference to a stored object."""
    return {
        "apiVersion": thing["apiVersion"],
        "kind": thing["kind"],
        "name": thing["metadata"]["name"],
        "uid": thing["metadata"]["uid"],
        **more,
    }


def crd(group: str, plural: str, kind: str, *, schema: Object, **version: Any) -> Object:
    """A namespaced custom resource with one version, v1."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta(f"{plural}.{group}"),
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


WIDGETS: Final = "contract.example.com"


def widgets(namespace: str, name: str | None = None, subresource: str | None = None) -> str:
    """The path of the custom resource that the fixture `widget_crd` defines."""
    tail = "".join(f"/{part}" for part in (name, subresource) if part)
    return f"/apis/{WIDGETS}/v1/namespaces/{namespace}/widgets{tail}"


def widget(name: str, **spec: Any) -> Object:
    return {"apiVersion": f"{WIDGETS}/v1", "kind": "Widget", "metadata": meta(name), "spec": {"size": 1, **spec}}


def widget_crd() -> Object:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 100},
            "colour": {"type": "string", "default": "red", "enum": ["red", "blue"]},
            "note": {"type": "string", "maxLength": 10, "nullable": True},
            "tags": {"type": "array", "items": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "done": {"type": "integer"}}}
    return crd(
        WIDGETS,
        "widgets",
        "Widget",
        schema={"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}},
        subresources={"status": {}},
        additionalPrinterColumns=[
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big it is"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    )

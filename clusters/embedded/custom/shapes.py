"""A CRD's schema as a shape, so that server-side apply knows how its objects merge."""

from typing import Any

from clusters.embedded.schemas import GRANULAR, Field, Listed, Mapped, Scalar, Shape, Struct, builtin

_SCALARS = {"string": "string", "integer": "int64", "number": "number", "boolean": "bool"}
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def shape_of_kind(kind: str, schema: dict[str, Any]) -> Struct:
    """The shape of a whole custom resource."""
    made = shape_of(schema)
    fields = dict(made.fields) if isinstance(made, Struct) else {}
    fields["apiVersion"] = fields["kind"] = Field(Scalar("string"))
    fields["metadata"] = Field(builtin().struct(METADATA))
    return Struct(kind, fields, rest=GRANULAR)


def shape_of(schema: dict[str, Any]) -> Shape:
    """The shape of a part."""
    match schema.get("type"):
        case "object":
            return _object(schema)
        case "array":
            listing = schema.get("x-kubernetes-list-type", "atomic")
            keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            return Listed(shape_of(schema.get("items") or {}), listing, keys)
        case str() as name if name in _SCALARS:
            return Scalar(_SCALARS[name])
    return Scalar("intstr") if schema.get("x-kubernetes-int-or-string") else GRANULAR


def _object(schema: dict[str, Any]) -> Shape:
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    properties = schema.get("properties")
    if properties:
        fields = {
            name: Field(_later(inner), default=inner.get("default"), required=name in (schema.get("required") or ()))
            for name, inner in properties.items()
        }
        rest = GRANULAR if schema.get("x-kubernetes-preserve-unknown-fields") else None
        return Struct("", fields, atomic=atomic, rest=rest)
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return Mapped(shape_of(values), atomic)
    return Mapped(GRANULAR, atomic=True) if atomic else GRANULAR


def _later(schema: dict[str, Any]) -> Any:
    return lambda: shape_of(schema)

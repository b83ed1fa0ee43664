"""Shapes as OpenAPI schemas, in the dialect of version 2 or 3."""

from typing import Any, Final

from clusters.embedded.kinds import Kind
from clusters.embedded.openapi.descriptions import DESCRIPTIONS
from clusters.embedded.schemas import Anything, Field, Listed, Mapped, Scalar, Shape, Struct, builtin

Schema = dict[str, Any]

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_NAMED: Final = {
    "quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "time": f"{META}.Time",
    "microtime": f"{META}.MicroTime",
    "intstr": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
}
_PLAIN: Final[dict[str, Schema]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
}
_LEAVES: Final[dict[str, Schema]] = {
    _NAMED["quantity"]: {"description": "An amount of a resource, such as 500m or 1Gi.", "type": "string"},
    _NAMED["time"]: {"description": "A time in RFC 3339.", "type": "string", "format": "date-time"},
    _NAMED["microtime"]: {"description": "A time with microseconds.", "type": "string", "format": "date-time"},
    _NAMED["intstr"]: {"description": "A number or a percentage.", "type": "string", "format": "int-or-string"},
}


def schema_name(kind: Kind) -> str:
    """The name of a kind's schema."""
    if isinstance(kind.shape, Struct) and not kind.custom:
        return kind.shape.name
    reversed_group = ".".join(reversed(kind.group.split(".")))
    return f"{reversed_group}.{kind.version}.{kind.kind}"


class Definitions:
    """Collects the schemas that some kinds need."""

    def __init__(self, version: int) -> None:
        self._prefix = "#/definitions/" if version == 2 else "#/components/schemas/"
        self._version = version
        self.schemas: dict[str, Schema] = {}

    def add_kind(self, kind: Kind) -> str:
        """A kind's schema and all that it refers to."""
        name = schema_name(kind)
        if kind.custom:
            self._add_custom(name, kind)
        else:
            assert isinstance(kind.shape, Struct)
            self._add(kind.shape)
        identity = {"group": kind.group, "kind": kind.kind, "version": kind.version}
        self.schemas[name]["x-kubernetes-group-version-kind"] = [identity]
        return name

    def reference(self, name: str) -> Schema:
        """A reference to a schema."""
        return {"$ref": self._prefix + name}

    def _add_custom(self, name: str, kind: Kind) -> None:
        metadata = builtin().struct(f"{META}.ObjectMeta")
        self._add(metadata)
        schema = dict(kind.openapi or {})
        properties = dict(schema.get("properties") or {})
        properties |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        properties["metadata"] = self._described(self.reference(metadata.name), "The object's metadata.")
        self.schemas[name] = {**schema, "properties": properties}

    def _add(self, shape: Struct) -> None:
        if shape.name in self.schemas:
            return
        texts = DESCRIPTIONS.get(shape.name.rsplit(".", 1)[-1], {})
        schema: Schema = {"type": "object"}
        self.schemas[shape.name] = schema
        if "" in texts:
            schema["description"] = texts[""]
        if shape.fields:
            schema["properties"] = {
                name: self._field(field, texts.get(name, "")) for name, field in shape.fields.items()
            }
        needed = [name for name, field in shape.fields.items() if field.required]
        if needed:
            schema["required"] = needed
        if shape.atomic:
            schema["x-kubernetes-map-type"] = "atomic"

    def _field(self, field: Field, text: str) -> Schema:
        schema = self._described(self._shape(field.shape), text)
        if field.default is not None:
            schema["default"] = field.default
        if isinstance(field.shape, Listed):
            schema["x-kubernetes-list-type"] = field.shape.listing
            if field.shape.keys:
                schema["x-kubernetes-list-map-keys"] = list(field.shape.keys)
        if isinstance(field.shape, Mapped) and field.shape.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        if field.merge_key is not None:
            schema["x-kubernetes-patch-strategy"] = "merge,retainKeys" if field.retain_keys else "merge"
            if field.merge_key:
                schema["x-kubernetes-patch-merge-key"] = field.merge_key
        elif field.retain_keys:
            schema["x-kubernetes-patch-strategy"] = "retainKeys"
        return schema

    def _described(self, schema: Schema, text: str) -> Schema:
        if "$ref" in schema:
            schema = {"allOf": [schema]} if self._version == 3 else schema
        return {"description": text, **schema} if text else dict(schema)

    def _shape(self, shape: Shape) -> Schema:
        match shape:
            case Scalar(name) if name in _NAMED:
                named = _NAMED[name]
                self.schemas.setdefault(named, dict(_LEAVES[named]))
                return self.reference(named)
            case Scalar(name):
                return dict(_PLAIN[name])
            case Struct(name):
                self._add(shape)
                return self.reference(name)
            case Listed(item):
                return {"type": "array", "items": self._shape(item)}
            case Mapped(value):
                return {"type": "object", "additionalProperties": self._shape(value)}
            case Anything():
                return {"type": "object"}

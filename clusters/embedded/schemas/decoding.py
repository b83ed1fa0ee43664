"""From what a client sent to what the server keeps: unknown fields out, wrong types refused, values in their one form.

Follows what Kubernetes' Go types do on a round trip through JSON: null is absence, zero values of optional fields
vanish, embedded structs are there even when empty, quantities and times come back in their canonical spelling. Unknown
fields are collected, not refused: the caller turns them into warnings or an error, as the request's `fieldValidation`
asks.
"""

import base64
import binascii
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from clusters.embedded.schemas.model import Anything, Listed, Mapped, Scalar, Shape, Struct
from multimirror.batch.quantities import canonical

Path = tuple[Any, str] | None

_INT_LIMITS: Final = {"int32": 1 << 31, "int64": 1 << 63}
_UTC_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_GO_NAMES: Final = {"bytes": "[]uint8", "quantity": "resource.Quantity", "number": "float64", "intstr": "int32"}


canonical_quantity = lru_cache(maxsize=4096)(canonical)


class MismatchError(ValueError):
    """A value of the wrong type; the message is the one that Kubernetes' JSON decoder gives."""


class _MapKey(str):
    """A key that a user chose; what Kubernetes says about wrong types does not name it."""

    __slots__ = ()


class Findings:
    """What a decoding found besides the object: unknown fields. `fill` adds the structs that are always there."""

    __slots__ = ("fill", "unknown")

    def __init__(self, *, fill: bool = True) -> None:
        self.fill = fill
        self.unknown: list[str] = []


def dotted(path: Path) -> str:
    """`spec.template.spec.containers[0].name` from the links."""
    parts: list[str] = []
    while path is not None:
        path, name = path
        parts.append(name if name.startswith("[") or path is None else "." + name)
    return "".join(reversed(parts))


def _names(path: Path) -> list[str]:
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(name)
    return names[::-1]


def clean(value: Any, shape: Shape, findings: Findings, path: Path = None, owner: str = "") -> Any:
    """The value as kept. Raises MismatchError where a type is wrong; unknown fields are named in the findings."""
    kind = type(shape)
    if kind is Scalar:
        return clean_scalar(value, shape.name, path, owner)  # type: ignore[union-attr]  # narrowed by kind, for speed
    if kind is Struct:
        return clean_struct(value, shape, findings, path, owner)  # type: ignore[arg-type]  # narrowed by kind
    if kind is Listed:
        assert isinstance(shape, Listed)
        if type(value) is not list:
            raise _mismatch(value, f"[]{_go_name(shape.item)}", path, owner)
        item = shape.item
        return [clean(each, item, findings, (path, f"[{index}]"), owner) for index, each in enumerate(value)]
    if kind is Mapped:
        assert isinstance(shape, Mapped)
        if type(value) is not dict:
            raise _mismatch(value, f"map[string]{_go_name(shape.value)}", path, owner)
        inner = shape.value
        texts = findings.fill and type(inner) is Scalar and inner.name == "string"
        return {
            key: "" if value[key] is None else clean(value[key], inner, findings, (path, _MapKey(key)), owner)
            for key in sorted(value)
            if texts or value[key] is not None  # a null among texts is an empty one
        }
    return value


def clean_struct(value: Any, shape: Struct, findings: Findings, path: Path, owner: str) -> dict[str, Any]:
    """A struct's known fields, each clean."""
    if type(value) is not dict:
        raise _mismatch(value, _go_name(shape), path, owner)
    kept: dict[str, Any] = {}
    fields = shape.fields
    name = shape.name
    for key, each in value.items():
        field = fields.get(key)
        if field is None:
            if shape.rest is not None:
                kept[key] = each
            else:
                findings.unknown.append(dotted((path, key)))
            continue
        if each is None or (field.drop_zero and not each and _is_empty(each, field.shape)):
            continue
        inner = field.shape
        cleaned = (
            clean_scalar(each, inner.name, (path, key), name)
            if type(inner) is Scalar
            else clean(each, inner, findings, (path, key), name)
        )
        if field.drop_zero and not cleaned:
            continue
        kept[key] = cleaned
    if findings.fill:
        for key, field in fields.items():
            if field.always and key not in kept:
                kept[key] = clean({}, field.shape, findings, (path, key), name)
    return kept


def _is_empty(value: Any, shape: Shape) -> bool:
    """Whether an empty value is one of the shape's kind, and so the same as none."""
    if type(value) is list:
        return type(shape) is Listed
    return type(value) is dict and type(shape) is not Listed and type(shape) is not Scalar


def clean_scalar(value: Any, name: str, path: Path, owner: str) -> Any:
    """A leaf in its one spelling."""
    kind = type(value)
    if name == "string":
        if kind is str:
            return value
    elif name in _INT_LIMITS:
        if kind is int and -_INT_LIMITS[name] <= value < _INT_LIMITS[name]:
            return value
    elif name == "bool":
        if kind is bool:
            return value
    elif name == "intstr":
        if kind is int or kind is str:
            return value
    elif name == "number":
        if kind is int or kind is float:
            return value
    elif kind is str or (name == "quantity" and kind in {int, float}):
        return _clean_spelling(value, name, path)
    raise _mismatch(value, _GO_NAMES.get(name, name), path, owner)


def _clean_spelling(value: Any, name: str, path: Path) -> str:
    if name == "time":
        return value if _UTC_SECONDS.fullmatch(value) else parse_time(value).strftime("%Y-%m-%dT%H:%M:%SZ")
    if name == "microtime":
        return parse_time(value).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if name == "quantity":
        try:
            return canonical_quantity(value)
        except ValueError:
            raise MismatchError(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ) from None
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise MismatchError(f"illegal base64 data at {dotted(path)}") from None
    return str(value)


def parse_time(value: str) -> datetime:
    """An RFC 3339 time, in UTC."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in value:
        text = f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'
        raise MismatchError(text)
    return moment.astimezone(UTC)


def _go_name(shape: Shape) -> str:
    match shape:
        case Scalar(name):
            return _GO_NAMES.get(name, name)
        case Struct(name):
            parts = name.rsplit(".", 2)
            return f"{parts[-2]}.{parts[-1]}" if len(parts) > 1 else name
        case Listed(item):
            return f"[]{_go_name(item)}"
        case Mapped(inner):
            return f"map[string]{_go_name(inner)}"
        case Anything():
            return "interface {}"


def _mismatch(value: Any, expected: str, path: Path, owner: str) -> MismatchError:
    match value:
        case bool():
            found = "bool"
        case int() | float():
            found = f"number {value}" if isinstance(value, float) or expected.startswith("int") else "number"
        case str():
            found = "string"
        case list():
            found = "array"
        case _:
            found = "object"
    holder = owner.rsplit(".", 1)[-1]
    named = ".".join(name for name in _names(path) if not isinstance(name, _MapKey) and not name.startswith("["))
    return MismatchError(f"json: cannot unmarshal {found} into Go struct field {holder}.{named} of type {expected}")

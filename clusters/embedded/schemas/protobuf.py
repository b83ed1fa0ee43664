"""Kubernetes' protocol buffers into JSON: what kubectl's `create job`, `create token` and the like send.

Read by the same shapes as JSON, with the numbers of protobuf.json. Only reading: answers are JSON, which every client
that sends this accepts as well. Fields that are not known are skipped, as protocol buffers ask.
"""

import base64
import functools
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final

import orjson

from clusters.embedded.schemas.model import Anything, Listed, Mapped, Scalar, Shape, Struct

MAGIC: Final = b"k8s\x00"
MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5

Value = int | bytes


class WireError(ValueError):
    """Bytes that are no protocol buffers of Kubernetes."""


@functools.cache
def _tables() -> dict[str, dict[str, str]]:
    read: dict[str, dict[str, str]] = orjson.loads(resources.files(__package__).joinpath("protobuf.json").read_bytes())
    return read


def decode(data: bytes, shape: Struct) -> dict[str, Any]:
    """The object in an envelope, with its type."""
    if not data.startswith(MAGIC):
        raise WireError("the body does not begin as Kubernetes' protocol buffers do")
    envelope = dict(_fields(data[len(MAGIC) :]))
    kind = {number: _text(value) for number, value in _fields(_bytes(envelope.get(1, b"")))}
    obj = _message(_bytes(envelope.get(2, b"")), shape, shape.name)
    return {"apiVersion": kind.get(1, ""), "kind": kind.get(2, ""), **obj}


def _message(data: bytes, shape: Struct, name: str) -> dict[str, Any]:
    table = _tables().get(name, {})
    made: dict[str, Any] = {}
    for number, value in _fields(data):
        field = table.get(str(number))
        if field is None:
            continue
        if field.startswith("#"):
            made |= _message(_bytes(value), shape, field[1:])
            continue
        inner = shape.fields[field].shape
        if isinstance(inner, Listed):
            made.setdefault(field, []).append(_value(value, inner.item))
        elif isinstance(inner, Mapped):
            entry = dict(_fields(_bytes(value)))
            made.setdefault(field, {})[_text(entry.get(1, b""))] = _value(entry.get(2, b""), inner.value)
        else:
            made[field] = _value(value, inner)
    return made


def _value(value: Value, shape: Shape) -> Any:
    match shape:
        case Struct(name):
            return _message(_bytes(value), shape, name)
        case Scalar(name):
            return _scalar(value, name)
        case Listed(item):  # a list inside a map is a message with the items under 1
            return [_value(each, item) for _, each in _fields(_bytes(value))]
        case Mapped():
            return {}
        case Anything():
            raw = _bytes(dict(_fields(_bytes(value))).get(1, b""))
            return orjson.loads(raw) if raw else {}


def _scalar(value: Value, name: str) -> Any:
    match name:
        case "string":
            return _text(value)
        case "int32" | "int64":
            number = _int(value)
            return number - (1 << 64) if number >= 1 << 63 else number
        case "bool":
            return bool(_int(value))
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "number":
            return struct.unpack("<d", _bytes(value))[0]
        case "quantity":
            return _text(dict(_fields(_bytes(value))).get(1, b"0"))
        case "time" | "microtime":
            return _time(dict(_fields(_bytes(value))), micro=name == "microtime")
        case _:
            parts = dict(_fields(_bytes(value)))
            return _text(parts.get(3, b"")) if parts.get(1) else _scalar(parts.get(2, 0), "int32")


def _time(parts: dict[int, Value], *, micro: bool) -> str | None:
    seconds = _scalar(parts.get(1, 0), "int64")
    if not parts:
        return None
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=_int(parts.get(2, 0)) // 1000 if micro else 0)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == _VARINT:
            number, position = _varint(data, position)
            yield tag >> 3, number
            continue
        if wire == _BYTES:
            length, position = _varint(data, position)
        elif wire in {_DOUBLE, _FLOAT}:
            length = 8 if wire == _DOUBLE else 4
        else:
            raise WireError(f"wire type {wire} is not used by Kubernetes")
        if position + length > len(data):
            raise WireError("the body ends in the middle of a field")
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise WireError("the body ends in the middle of a number")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise WireError("a number where a message is expected")
    return value


def _int(value: Value) -> int:
    if isinstance(value, bytes):
        raise WireError("a message where a number is expected")
    return value


def _text(value: Value) -> str:
    return _bytes(value).decode()

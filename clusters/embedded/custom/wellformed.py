"""Whether a CRD's schema is one at all: each keyword of the type that the schema's users rely on."""

import re
from typing import Any, Final

from multimirror.batch import FieldError
from multimirror.batch.errors import invalid, not_supported

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_NUMBERS: Final = ("minimum", "maximum", "multipleOf")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NAMES: Final = ("required", "x-kubernetes-list-map-keys")
_LISTED: Final = ("allOf", "anyOf", "oneOf")
_LISTINGS: Final = ("atomic", "map", "set")


def schema_problems(schema: Any, path: str) -> list[FieldError]:
    """What keeps a schema from being used."""
    if not isinstance(schema, dict):
        return [_wrong(path, "a schema must be an object")]
    problems: list[FieldError] = []
    if "type" in schema and schema["type"] not in _TYPES:
        problems.append(not_supported(f"{path}.type", schema["type"], _TYPES))
    listing = schema.get("x-kubernetes-list-type", "atomic")
    if listing not in _LISTINGS:
        problems.append(not_supported(f"{path}.x-kubernetes-list-type", listing, _LISTINGS))
    problems += _value_problems(schema, path)
    return problems + _inner_problems(schema, path)


def _value_problems(schema: dict[str, Any], path: str) -> list[FieldError]:
    problems = [
        _wrong(f"{path}.{key}", "must be a number")
        for key in (*_NUMBERS, *_COUNTS)
        if key in schema and (isinstance(schema[key], bool) or not isinstance(schema[key], int | float))
    ]
    for key in _NAMES:
        value = schema.get(key) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            problems.append(_wrong(f"{path}.{key}", "must be a list of names"))
    if not isinstance(schema.get("enum", []), list):
        problems.append(_wrong(f"{path}.enum", "must be a list"))
    if "pattern" in schema:
        try:
            re.compile(schema["pattern"])
        except (re.error, TypeError) as error:
            problems.append(_wrong(f"{path}.pattern", f"must be a valid regular expression, but isn't: {error}"))
    return problems


def _inner_problems(schema: dict[str, Any], path: str) -> list[FieldError]:
    problems: list[FieldError] = []
    properties = schema.get("properties") or {}
    if not isinstance(properties, dict):
        return [_wrong(f"{path}.properties", "must be an object")]
    for name, inner in properties.items():
        problems += schema_problems(inner, f"{path}.properties[{name}]")
    for key in ("items", "not"):
        if schema.get(key) is not None:
            problems += schema_problems(schema[key], f"{path}.{key}")
    rest = schema.get("additionalProperties")
    if rest is not None and not isinstance(rest, bool):
        problems += schema_problems(rest, f"{path}.additionalProperties")
    for key in _LISTED:
        several = schema.get(key) or []
        if not isinstance(several, list):
            problems.append(_wrong(f"{path}.{key}", "must be a list of schemas"))
            continue
        for index, inner in enumerate(several):
            problems += schema_problems(inner, f"{path}.{key}[{index}]")
    return problems


def _wrong(path: str, text: str) -> FieldError:
    return invalid(path, "", text)

"""A custom resource's schema at work: unknown fields out, defaults in, values checked.

Covers what structural schemas use: types, properties, required, enum, bounds, patterns, lengths, unique lists,
nullable, int-or-string, preserve-unknown-fields, embedded resources, and anyOf/allOf/oneOf/not of those. CEL rules
(`x-kubernetes-validations`) are kept and not run. The messages are those that users of CRDs know.
"""

import copy
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from multimirror.batch import FieldError
from multimirror.batch.errors import duplicate, invalid, not_supported, required, too_many

Schema = dict[str, Any]
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_TYPE_META: Final = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: Schema, unknown: list[str], path: str = "", *, root: bool = False) -> Any:
    """The value without fields that the schema does not know; their paths are added to `unknown`."""
    if isinstance(value, dict):
        return _prune_object(value, schema, unknown, path, root=root)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        items = schema["items"]
        return [prune(each, items, unknown, f"{path}[{index}]") for index, each in enumerate(value)]
    return value


def _prune_object(value: dict[str, Any], schema: Schema, unknown: list[str], path: str, *, root: bool) -> Any:
    properties: dict[str, Schema] = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    keep = bool(schema.get(_PRESERVE)) or rest is True
    typed = root or schema.get(_EMBEDDED)
    kept = {}
    for key, each in value.items():
        where = f"{path}.{key}" if path else key
        if typed and key in _TYPE_META:
            kept[key] = each
        elif key in properties:
            kept[key] = prune(each, properties[key], unknown, where)
        elif isinstance(rest, dict):
            kept[key] = prune(each, rest, unknown, where)
        elif keep:
            kept[key] = each
        else:
            unknown.append(where)
    return kept


def apply_defaults(value: Any, schema: Schema) -> None:
    """Fill in defaults, in place; a null where there is a default counts as left out."""
    if isinstance(value, dict):
        for key, inner in (schema.get("properties") or {}).items():
            if key in value and value[key] is None and "default" in inner and not inner.get("nullable"):
                del value[key]
            if key not in value and "default" in inner:
                value[key] = copy.deepcopy(inner["default"])
            if key in value:
                apply_defaults(value[key], inner)
        rest = schema.get("additionalProperties")
        if isinstance(rest, dict):
            for each in value.values():
                apply_defaults(each, rest)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for each in value:
            apply_defaults(each, schema["items"])


def validate(value: Any, schema: Schema, path: str = "", *, root: bool = False) -> list[FieldError]:
    """Everything that is wrong with a value."""
    if value is None:
        return [] if schema.get("nullable") else _type_problems(value, schema, path)
    problems = _type_problems(value, schema, path)
    if problems:
        return problems
    if "enum" in schema and value not in schema["enum"]:
        problems.append(not_supported(path, value, [str(each) for each in schema["enum"]]))
    if isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        problems += _number_problems(value, schema, path)
    elif isinstance(value, str):
        problems += _string_problems(value, schema, path)
    elif isinstance(value, list):
        problems += _list_problems(value, schema, path)
    elif isinstance(value, dict):
        problems += _object_problems(value, schema, path, root=root)
    return problems + _combined_problems(value, schema, path)


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _type_problems(value: Any, schema: Schema, path: str) -> list[FieldError]:
    found = _type_of(value)
    if schema.get(_INT_OR_STRING):
        if found in {"integer", "string"}:
            return []
        return [invalid(path, found, f'{path} in body must be of type integer,string: "{found}"')]
    wanted = schema.get("type")
    if not wanted or wanted == found or (wanted == "number" and found == "integer"):
        return []
    return [invalid(path, found, f'{path} in body must be of type {wanted}: "{found}"')]


def _number_problems(value: float, schema: Schema, path: str) -> list[FieldError]:
    problems = []
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        than = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        problems.append(invalid(path, value, f"{path} in body should be {than} {low}"))
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        than = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        problems.append(invalid(path, value, f"{path} in body should be {than} {high}"))
    if step and value % step:
        problems.append(invalid(path, value, f"{path} in body should be a multiple of {step}"))
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits and not -(1 << bits) <= value < 1 << bits:
        problems.append(invalid(path, value, f'{path} in body must be of type {schema["format"]}: "{value}"'))
    return problems


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(r"\z", r"\Z"))


def _string_problems(value: str, schema: Schema, path: str) -> list[FieldError]:
    problems = []
    if len(value) < schema.get("minLength", 0):
        problems.append(invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long"))
    limit = schema.get("maxLength")
    if limit is not None and len(value) > limit:
        problems.append(FieldError("FieldValueTooLong", path, f"Too long: may not be more than {limit} bytes"))
    if (pattern := schema.get("pattern")) and not _pattern(pattern).search(value):
        problems.append(invalid(path, value, f"{path} in body should match '{pattern}'"))
    if schema.get("format") == "date-time":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            problems.append(invalid(path, value, f'{path} in body must be of type date-time: "{value}"'))
    return problems


def _list_problems(value: list[Any], schema: Schema, path: str) -> list[FieldError]:
    problems = []
    if len(value) < schema.get("minItems", 0):
        text = f"{path} in body should have at least {schema['minItems']} items"
        problems.append(invalid(path, len(value), text))
    limit = schema.get("maxItems")
    if limit is not None and len(value) > limit:
        problems.append(too_many(path, len(value), limit))
    if isinstance(schema.get("items"), dict):
        for index, each in enumerate(value):
            problems += validate(each, schema["items"], f"{path}[{index}]")
    return problems + _repetitions(value, schema, path)


def _repetitions(value: list[Any], schema: Schema, path: str) -> list[FieldError]:
    listing = schema.get("x-kubernetes-list-type")
    if listing not in {"set", "map"} and not schema.get("uniqueItems"):
        return []
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: list[Any] = []
    problems = []
    for index, each in enumerate(value):
        identity = {key: each.get(key) for key in keys if key in each} if keys and isinstance(each, dict) else each
        if identity in seen:
            problems.append(duplicate(f"{path}[{index}]", identity))
        seen.append(identity)
    return problems


def _object_problems(value: dict[str, Any], schema: Schema, path: str, *, root: bool) -> list[FieldError]:
    problems = []
    properties: dict[str, Schema] = schema.get("properties") or {}
    problems += [required(_join(path, key)) for key in schema.get("required") or () if key not in value]
    rest = schema.get("additionalProperties")
    for key, each in value.items():
        if root and key in _TYPE_META:
            continue
        if key in properties:
            problems += validate(each, properties[key], _join(path, key))
        elif isinstance(rest, dict):
            problems += validate(each, rest, _join(path, key))
    if len(value) < schema.get("minProperties", 0):
        text = f"{path} in body should have at least {schema['minProperties']} properties"
        problems.append(invalid(path, len(value), text))
    limit = schema.get("maxProperties")
    if limit is not None and len(value) > limit:
        problems.append(too_many(path, len(value), limit))
    return problems


def _combined_problems(value: Any, schema: Schema, path: str) -> list[FieldError]:
    problems: list[FieldError] = []
    for each in schema.get("allOf") or ():
        problems += validate(value, each, path)
    if schema.get("anyOf") and not _passing(value, schema["anyOf"], path):
        problems.append(invalid(path, "", f"{path} in body must validate at least one schema (anyOf)"))
    if schema.get("oneOf") and _passing(value, schema["oneOf"], path) != 1:
        problems.append(invalid(path, "", f"{path} in body must validate one and only one schema (oneOf)"))
    if schema.get("not") and not validate(value, schema["not"], path):
        problems.append(invalid(path, "", f"{path} in body must not validate the schema (not)"))
    return problems


def _passing(value: Any, schemas: list[Schema], path: str) -> int:
    check: Callable[[Schema], bool] = lambda schema: not validate(value, schema, path)  # noqa: E731 # one line, used once
    return sum(map(check, schemas))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key

"""The building blocks of our OpenAPI schemas: each with its description, so that `kubectl explain` answers everything.

Every list, map and text has a bound: the API server must know how much a CEL rule can cost before it accepts one.
"""

from enum import StrEnum
from typing import Any, Final

from multimirror.batch.durations import WHOLE_PATTERN

Schema = dict[str, Any]

DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
QUALIFIED_NAME: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_ATOMIC_LIST: Final = {"x-kubernetes-list-type": "atomic"}
_QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$"


def rule(expression: str, message: str, **more: str) -> Schema:
    """A CEL rule; `message` tells the user what would be right."""
    return {"rule": expression, "message": message, **more}


def ruled(schema: Schema, *rules: Schema) -> Schema:
    """The schema with CEL rules."""
    return {**schema, "x-kubernetes-validations": list(rules)}


def struct(description: str, properties: dict[str, Schema], *, required: tuple[str, ...] = (), **more: Any) -> Schema:
    schema: Schema = {"type": "object", "description": description, "properties": properties, **more}
    if required:
        schema["required"] = list(required)
    return schema


def text(description: str, *, pattern: str | None = None, limit: int = 253, **more: Any) -> Schema:
    schema: Schema = {"type": "string", "description": description, "minLength": 1, "maxLength": limit, **more}
    if pattern:
        schema["pattern"] = pattern
    return schema


def choice(description: str, default: StrEnum) -> Schema:
    return {**optional_choice(description, type(default)), "default": default.value}


def optional_choice(description: str, kind: type[StrEnum]) -> Schema:
    """One word of several; where there is none, that means something of its own."""
    return {"type": "string", "description": description, "enum": [value.value for value in kind]}


def whole(description: str, *, minimum: int = 0, form: str = "int32", **more: Any) -> Schema:
    return {"type": "integer", "format": form, "description": description, "minimum": minimum, **more}


def generation(description: str) -> Schema:
    return whole(description, form="int64")


def flag(description: str, *, default: bool) -> Schema:
    return {"type": "boolean", "description": description, "default": default}


def duration(description: str, *rules: Schema, default: str | None = None) -> Schema:
    """A duration such as 1h30m."""
    schema = text(description, pattern=WHOLE_PATTERN, limit=20)
    if default is not None:
        schema["default"] = default
    return ruled(schema, *rules) if rules else schema


def timestamp(description: str) -> Schema:
    return {"type": "string", "format": "date-time", "description": description}


def listing(description: str, items: Schema, *, limit: int, **more: Any) -> Schema:
    return {"type": "array", "description": description, "items": items, "maxItems": limit, **more}


def name_set(description: str, items: Schema, *, limit: int, **more: Any) -> Schema:
    return listing(description, items, limit=limit, **{"x-kubernetes-list-type": "set"}, **more)


def keyed(description: str, items: Schema, key: str, *, limit: int, **more: Any) -> Schema:
    """A list in which each item has a name of its own."""
    kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return listing(description, items, limit=limit, **kind, **more)


def labels(description: str) -> Schema:
    value = {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE}
    schema = {"type": "object", "description": description, "additionalProperties": value, "maxProperties": 64}
    keys = "self.all(key, !format.qualifiedName().validate(key).hasValue())"
    return ruled(schema, rule(keys, "keys must be label keys, such as region or example.com/region"))


def quantities(description: str) -> Schema:
    """Amounts of resources. Never negative."""
    amount = _number_or_text(_QUANTITY)
    return {"type": "object", "description": description, "additionalProperties": amount, "maxProperties": 64}


def weight(description: str, default: int) -> Schema:
    """A number, whole or not ("0.5"). Never negative."""
    return {**_number_or_text(_QUANTITY), "description": description, "default": default}


def whole_or(description: str, word: str) -> Schema:
    """A whole number, or one word in its place."""
    return {**_number_or_text(f"^{word}$"), "description": description}


def _number_or_text(pattern: str) -> Schema:
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": pattern,
        "maxLength": 40,
        "minimum": 0,
    }


def label_selector(description: str, **more: Any) -> Schema:
    expression = struct(
        "One requirement on a label.",
        {
            "key": text("The label's key.", pattern=QUALIFIED_NAME, limit=317),
            "operator": {
                "type": "string",
                "description": "How the label's value relates to the values.",
                "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
            },
            "values": listing(
                "The values, for In and NotIn; none for Exists and DoesNotExist.",
                {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
                limit=64,
                **_ATOMIC_LIST,
            ),
        },
        required=("key", "operator"),
    )
    with_values = rule(
        "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0"
        " : !has(self.values) || size(self.values) == 0",
        "In and NotIn need values; Exists and DoesNotExist must have none",
    )
    properties = {
        "matchLabels": labels("Labels that must be there with exactly these values."),
        "matchExpressions": listing(
            "Requirements that must all be met.", ruled(expression, with_values), limit=32, **_ATOMIC_LIST
        ),
    }
    return {**struct(description, properties), "x-kubernetes-map-type": "atomic", **more}


def conditions(description: str) -> Schema:
    condition = struct(
        "One aspect of the state.",
        {
            "type": text("What it is about, in CamelCase.", limit=316),
            "status": {"type": "string", "description": "Whether it holds.", "enum": ["True", "False", "Unknown"]},
            "reason": text(
                "Why, in one CamelCase word.", pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", limit=1024
            ),
            "message": {"type": "string", "description": "Why, in words.", "maxLength": 32768},
            "lastTransitionTime": timestamp("When the status last changed."),
            "observedGeneration": generation("The generation of the object that this was found out about."),
        },
        required=("type", "status", "reason", "message", "lastTransitionTime"),
    )
    return keyed(description, condition, "type", limit=16)

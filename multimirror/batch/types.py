"""The shape of everything here: plain JSON, as it came from the wire. Nothing is decoded into models."""

from typing import Any

Json = dict[str, Any]


def clone(value: Any) -> Any:
    """A deep copy without the nulls: to the API a null field is an absent one."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value

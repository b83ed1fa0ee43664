"""Field errors: what an API server says about the fields of an object that it refuses.

A `FieldError` is what one cause of a refused request says: reason, field path and message. The constructors print the
bad value as kube-apiserver does: strings quoted, numbers plain, a null pointer as `null`, anything else as JSON.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson


class _Omitted:
    """Marks a value that the message leaves out."""


OMITTED: Final = _Omitted()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One violated rule, as a cause in an API server's answer."""

    reason: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, _text("Invalid value", value, detail))


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, _text("Required value", OMITTED, detail))


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", field, _text("Duplicate value", value, ""))


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    choices = ", ".join(quote(choice) for choice in supported)
    return FieldError(
        "FieldValueNotSupported", field, _text("Unsupported value", value, f"supported values: {choices}")
    )


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, _text("Forbidden", OMITTED, detail))


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, _text("Too long", OMITTED, f"may not be more than {limit} bytes"))


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError("FieldValueTooMany", field, _text("Too many", count, f"must have at most {limit} items"))


def not_negative(field: str, value: int | None) -> list[FieldError]:
    if value is not None and value < 0:
        return [invalid(field, value, "must be greater than or equal to 0")]
    return []


def _text(prefix: str, value: Any, detail: str) -> str:
    text = prefix if value is OMITTED else f"{prefix}: {_printed(value)}"
    return f"{text}: {detail}" if detail else text


def _printed(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return quote(value)
        case _:
            # Go's encoder escapes what could end a script element.
            text = orjson.dumps(value).decode()
            return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quote(text: str) -> str:
    """The string in double quotes, escaped as Go's `%q` does it."""
    return '"' + "".join(_quoted(char) for char in text) + '"'


def _quoted(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

"""Reading a spec field by field: each value checked, each complaint naming its field and the remedy.

The API server checks the same things with the schema, but not for objects that were stored before a rule was made, and
not where CEL rules are not evaluated. One broken object must cost its own user a clear word, and nobody else anything:
whatever JSON is in it, reading it gives a value or raises SpecError.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, TypeVar

from multimirror.batch import Json, validate_label_selector
from multimirror.batch.durations import DurationError, whole_seconds
from multimirror.batch.names import dns_label
from multimirror.batch.quantities import QuantityError, quantity

_LONGEST_SHOWN: Final = 100
_Choice = TypeVar("_Choice", bound=StrEnum)
_Item = TypeVar("_Item")


class SpecError(ValueError):
    """An object says something that cannot be meant. `field` is its path, the message says what would be right."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class Fields:
    """The fields of one object within an API object, read by key."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise SpecError(path, f"must be an object, not {_shown(value)}")
        self._value: Mapping[str, Any] = value
        self.path = path

    def __contains__(self, key: str) -> bool:
        return self._value.get(key) is not None

    def error(self, key: str, message: str) -> SpecError:
        return SpecError(f"{self.path}.{key}", message)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value.get(key)
        if value is None:
            if default is None:
                raise self.error(key, "is required")
            return default
        if not isinstance(value, str) or not value:
            raise self.error(key, f"must be a text that is not empty, not {_shown(value)}")
        return value

    def number(self, key: str, default: int, minimum: int, maximum: int | None = None) -> int:
        return default if (value := self.optional_number(key, minimum, maximum)) is None else value

    def optional_number(self, key: str, minimum: int, maximum: int | None = None) -> int | None:
        value = self._value.get(key)
        if value is None:
            return None
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= minimum
        if not fits or (maximum is not None and value > maximum):
            bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
            raise self.error(key, f"must be a whole number {bounds}, not {_shown(value)}")
        return int(value)

    def flag(self, key: str) -> bool:
        value = self._value.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_shown(value)}")
        return value

    def choice(self, key: str, default: _Choice) -> _Choice:
        value = self._value.get(key)
        if value is None:
            return default
        try:
            return type(default)(value)
        except ValueError:
            choices = ", ".join(type(default))
            raise self.error(key, f"must be one of {choices}, not {_shown(value)}") from None

    def choices(self, key: str, kind: type[_Choice]) -> frozenset[_Choice]:
        """A list of words, none of them twice."""

        def one(value: Any, path: str) -> _Choice:
            try:
                return kind(value)
            except ValueError:
                raise SpecError(path, f"must be one of {', '.join(kind)}, not {_shown(value)}") from None

        found = self.items(key, one)
        if len(set(found)) != len(found):
            raise self.error(key, "must not name anything twice")
        return frozenset(found)

    def label_name(self, key: str) -> str | None:
        """The name of an object that is a DNS label; None where there is none."""
        if key not in self:
            return None
        name = self.text(key)
        if dns_label(name):
            message = f"must be lower case letters, digits and '-', at most 63, such as research, not {_shown(name)}"
            raise self.error(key, message)
        return name

    def weight(self, key: str, default: int) -> Fraction:
        """A number, whole or not, that is not negative."""
        value = self._value.get(key)
        try:
            weight = quantity(default if value is None else value)
        except QuantityError:
            raise self.error(key, f'must be a number such as 2 or "0.5", not {_shown(value)}') from None
        if weight < 0:
            raise self.error(key, f"must be a number of at least 0, not {_shown(value)}")
        return Fraction(weight)

    def seconds(self, key: str, default: str | None, minimum: float = 0, maximum: int | None = None) -> float:
        """`maximum`: whole hours."""
        text = self.text(key, default)
        try:
            value = whole_seconds(text)
        except DurationError as error:
            raise self.error(key, str(error)) from None
        if value < minimum:
            raise self.error(key, f"must be at least {minimum:g}s, not {text}")
        if maximum is not None and value > maximum:
            raise self.error(key, f"must be at most {maximum // 3600}h, not {text}")
        return value

    def texts(self, key: str) -> dict[str, str]:
        found = self.part(key)._value if key in self else {}
        for name, value in found.items():
            if not isinstance(value, str):
                raise self.error(f"{key}[{name}]", f"must be a text, not {_shown(value)}")
        return dict(found)

    def quantities(self, key: str) -> dict[str, Decimal]:
        """A list of resources (`cpu: 500m`), as numbers."""
        amounts = {}
        for name, value in (self.part(key)._value if key in self else {}).items():
            try:
                amounts[name] = quantity(value)
            except QuantityError:
                message = f"must be a quantity such as 4, 500m or 16Gi, not {_shown(value)}"
                raise self.error(f"{key}[{name}]", message) from None
            if amounts[name] < 0:
                raise self.error(f"{key}[{name}]", f"must not be negative: {_shown(value)}")
        return amounts

    def selector(self, key: str) -> Json | None:
        """A label selector; None where there is none."""
        if key not in self:
            return None
        part = self.part(key)
        part.texts("matchLabels")
        part.items("matchExpressions", _requirement)
        selector = dict(part._value)
        errors = validate_label_selector(selector, part.path)
        if errors:
            raise SpecError(errors[0].field, errors[0].message)
        return selector

    def part(self, key: str) -> "Fields":
        """The object under a key; an empty one where there is none."""
        value = self._value.get(key)
        return Fields({} if value is None else value, f"{self.path}.{key}")

    def items(self, key: str, read: Callable[[Any, str], _Item]) -> tuple[_Item, ...]:
        """A list, each item read by `read(value, path)`."""
        value = self._value.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.error(key, f"must be a list, not {_shown(value)}")
        return tuple(read(item, f"{self.path}.{key}[{index}]") for index, item in enumerate(value))

    def names(self, key: str) -> tuple[str, ...]:
        """A list of names, none of them twice."""
        found = self.items(key, _name)
        if len(set(found)) != len(found):
            raise self.error(key, "must not name anything twice")
        return found


def _name(value: object, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise SpecError(path, f"must be a name, not {_shown(value)}")
    return value


def _requirement(value: object, path: str) -> None:
    """One of a selector's matchExpressions; whether its words make sense is another question."""
    fields = Fields(value, path)
    fields.text("key")
    fields.text("operator")
    fields.items("values", _text)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise SpecError(path, f"must be a text, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """For a message: not all of it, where it is long."""
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_SHOWN:
        return "a number that long"  # Python does not write the longest ones
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def read_spec(obj: Json, kind: str) -> Fields:
    """The spec of an object of ours."""
    found = obj.get("kind", kind)
    if found != kind:
        raise SpecError("kind", f"must be {kind}, not {found!r}")
    spec = obj.get("spec")
    return Fields({} if spec is None else spec, "spec")

"""What the server knows of an object's shape: scalars, structs, lists and maps, and how each of them merges.

One model serves decoding, strategic merge patches, server-side apply and OpenAPI, for built-in kinds (read from
types.json) and for custom resources (read from their CRD's schema). Shapes may be recursive, so references are resolved
on first use. A shape never changes after it was made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Listing = Literal["atomic", "set", "map"]


@dataclass(slots=True, eq=False)
class Scalar:
    """A leaf: `string`, `int32`, `int64`, `bool`, `number`, `quantity`, `intstr`, `time`, `microtime`, `bytes`."""

    name: str


@dataclass(slots=True, eq=False)
class Anything:
    """JSON that the server keeps as it is, merged as one value unless it is known to be `granular`."""

    granular: bool = False


@dataclass(slots=True, eq=False)
class Listed:
    """A list: replaced as a whole (`atomic`), a `set` of scalars, or a `map` of items found by their `keys`."""

    item: "Shape"
    listing: Listing = "atomic"
    keys: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Mapped:
    """A map from any name to values of one shape."""

    value: "Shape"
    atomic: bool = False


@dataclass(slots=True, eq=False)
class Struct:
    """Named fields. Fields that are not named are unknown, unless `rest` says what they are."""

    name: str
    fields: dict[str, "Field"] = field(default_factory=dict)
    atomic: bool = False
    rest: "Shape | None" = None

    def shape_of(self, name: str) -> "Shape | None":
        """The shape of a field, if it is known."""
        found = self.fields.get(name)
        return found.shape if found else self.rest


Shape = Scalar | Anything | Listed | Mapped | Struct


class Field:
    """One field of a struct. `merge_key` is the strategic merge patch's: None replaces, "" merges scalars."""

    __slots__ = ("_resolve", "_shape", "always", "default", "drop_zero", "merge_key", "required", "retain_keys")

    def __init__(
        self,
        shape: "Shape | Callable[[], Shape]",
        *,
        required: bool = False,
        drop_zero: bool = False,
        always: bool = False,
        merge_key: str | None = None,
        retain_keys: bool = False,
        default: Any = None,
    ) -> None:
        self._shape: Shape | None = None
        self._resolve: Callable[[], Shape] | None = None
        if callable(shape):
            self._resolve = shape
        else:
            self._shape = shape
        self.required, self.drop_zero, self.always = required, drop_zero, always
        self.merge_key, self.retain_keys, self.default = merge_key, retain_keys, default

    @property
    def shape(self) -> Shape:
        """The field's shape, resolved on first use."""
        if self._shape is None:
            assert self._resolve is not None
            self._shape = self._resolve()
        return self._shape


ANYTHING: Final = Anything()
GRANULAR: Final = Anything(granular=True)


class Library:
    """Shapes by their OpenAPI name, built from types.json as they are asked for."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._made: dict[str, Struct] = {}
        self._scalars: dict[str, Scalar] = {}

    def __iter__(self) -> Any:
        return iter(self._types)

    def struct(self, name: str) -> Struct:
        """The struct of that name."""
        made = self._made.get(name)
        if made is None:
            entry = self._types[name]
            self._made[name] = made = Struct(name, atomic=entry.get("atomic", False))
            made.fields.update({key: self._field(value) for key, value in entry["fields"].items()})
        return made

    def _field(self, entry: str | Mapping[str, Any]) -> Field:
        if isinstance(entry, str):
            entry = {"t": entry}
        expression: str = entry["t"]
        listing: Listing = entry.get("l", "atomic")
        keys = tuple(entry.get("k", ()))
        atomic = bool(entry.get("a"))
        return Field(
            lambda: self._shape(expression, listing, keys, atomic),
            required="q" in entry,
            drop_zero="z" in entry,
            always="e" in entry,
            merge_key=entry.get("m"),
            retain_keys="r" in entry,
            default=entry.get("d"),
        )

    def _shape(
        self, expression: str, listing: Listing = "atomic", keys: tuple[str, ...] = (), atomic: bool = False
    ) -> Shape:
        if expression.startswith("[]"):
            return Listed(self._shape(expression[2:]), listing, keys)
        if expression.startswith("{}"):
            return Mapped(self._shape(expression[2:]), atomic)
        if expression.startswith("#"):
            return self.struct(expression[1:])
        if expression == "any":
            return ANYTHING
        return self._scalars.setdefault(expression, Scalar(expression))

"""The kinds that are served, and what is particular to each: its strategy.

A `Kind` says where objects live and what they look like; its `Strategy` says what the server does to them on the way
in. The generic rules (names, versions, finalizers, ownership of fields) are elsewhere and the same for all. A strategy
is pure: it changes the objects that it is given and returns errors, nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from clusters.embedded.schemas import Shape
from clusters.embedded.store import Object, Store, Table
from clusters.jobapi import validate_metadata, validate_metadata_update
from multimirror.batch import FieldError
from multimirror.batch.names import dns_subdomain

Propagation = Literal["Background", "Foreground", "Orphan"]


class Strategy:
    """What the server does to objects of a kind. The defaults suit a kind without behaviour, such as a ConfigMap."""

    has_status: ClassVar[bool] = False
    wipes_status: ClassVar[bool] = True
    """A new object starts without the status that its creator may have sent."""
    counts_generation: ClassVar[bool] = False
    unconditional_update: ClassVar[bool] = True
    create_on_update: ClassVar[bool] = False
    returns_deleted: ClassVar[bool] = False
    """A deletion answers with the object instead of a Status."""
    selectable: ClassVar[frozenset[str]] = frozenset()
    """Field selectors beyond metadata.name and metadata.namespace."""
    default_propagation: ClassVar[Propagation] = "Background"
    deletion_warning: ClassVar[str] = ""

    @staticmethod
    def name_rule(name: str) -> list[str]:
        """What is wrong with a name."""
        return dns_subdomain(name)

    def fields(self, obj: Object) -> Mapping[str, str]:
        """Values of the selectable fields."""
        return {}

    def default(self, obj: Object) -> Object:
        """The object with what the client left out; may be the same one, changed."""
        return obj

    def prepare_create(self, obj: Object) -> Object:
        """A new object with its defaults and with what the server decides; its status is already gone."""
        return self.default(obj)

    def prepare_update(self, new: Object, old: Object) -> Object:
        """A change of the main resource: status stays, the generation counts."""
        new = self.default(new)
        if self.has_status:
            _take_over(new, old, "status")
        if self.counts_generation and self.spec_changed(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return new

    def prepare_status(self, new: Object, old: Object) -> Object:
        """A change of the status: the rest, but for metadata, stays."""
        kept = {**old, "metadata": new["metadata"]}
        _take_over(kept, new, "status")
        return kept

    def spec_changed(self, new: Object, old: Object) -> bool:
        """Whether a change asks for something else, so that the generation counts."""
        return new.get("spec") != old.get("spec")

    def reset_fields(self, subresource: str) -> tuple[tuple[str, ...], ...]:
        """Fields that a write to the endpoint never changes, so that nobody comes to own them there."""
        if subresource == "status":
            return (("f:spec",),)
        return (("f:status",),) if self.has_status else ()

    def problems(self, obj: Object, namespaced: bool) -> list[FieldError]:
        """All that is wrong with a new object."""
        found = validate_metadata(obj["metadata"], self.name_rule, namespaced=namespaced)
        return found + self.validate_create(obj)

    def update_problems(self, new: Object, old: Object) -> list[FieldError]:
        """All that is wrong with a change."""
        return validate_metadata_update(new["metadata"], old["metadata"]) + self.validate_update(new, old)

    def status_problems(self, new: Object, old: Object) -> list[FieldError]:
        """All that is wrong with a change of status."""
        return validate_metadata_update(new["metadata"], old["metadata"])

    def validate_create(self, obj: Object) -> list[FieldError]:
        """What is wrong with a new object, beyond its metadata."""
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """What is wrong with a change, beyond its metadata."""
        return self.validate_create(new)

    def grace_period(self, obj: Object, asked: int | None) -> int | None:
        """Seconds between a deletion's mark and its end, for kinds that stop gracefully."""
        return None

    def why_undeletable(self, obj: Object) -> str:
        """Why an object may not be deleted, if so."""
        return ""

    finalizers_on_deletion: ClassVar[tuple[str, ...]] = ()
    """What the server itself waits for when an object is deleted."""

    def can_go(self, obj: Object) -> bool:
        """Whether nothing but finalizers holds a marked object back."""
        return True

    def mark_deleted(self, obj: Object) -> None:
        """What else a deletion's mark changes."""

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """What the client should know although it is allowed."""
        return []


def _take_over(new: Object, old: Object, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


@dataclass(slots=True, eq=False, kw_only=True)
class Kind:
    """One kind in one version."""

    group: str
    version: str
    plural: str
    kind: str
    shape: Shape
    table: Table
    strategy: Strategy
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    custom: bool = False
    columns: tuple[Any, ...] = ()
    """Printer columns of a custom resource."""
    storage: bool = True
    """Stored objects are of this version, so their bytes can be sent as they are."""
    served: bool = True
    """A stored version that is not served is known to controllers alone."""
    stored_version: str = ""
    """The apiVersion of stored objects."""
    from_stored: Callable[[Object], Object] | None = None
    """For a kind that shows another's objects: how an object looks here."""
    to_stored: Callable[[Object], Object] | None = None
    """And how what is written here is stored."""
    openapi: dict[str, Any] | None = None
    """The schema in a custom resource's definition."""
    prefix: bytes = field(init=False)
    """What the bytes of every stored object start with."""

    def __post_init__(self) -> None:
        self.singular = self.singular or self.kind.lower()
        self.stored_version = self.stored_version or self.api_version
        self.prefix = f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @property
    def api_version(self) -> str:
        """`batch/v1`, or `v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`jobs.batch`, or `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def key(self, namespace: str | None, name: str) -> str:
        """The key of an object in its table."""
        return f"{namespace}/{name}" if self.namespaced else name


class Kinds:
    """All kinds that are served now; custom ones come and go. `revision` counts the changes."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._served: dict[tuple[str, str, str], Kind] = {}
        self.revision = 0
        self.on_change: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._served.values()))

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind that is served there."""
        kind = self._served.get((group, version, plural))
        return kind if kind is not None and kind.served else None

    def stored(self, group: str, plural: str) -> Kind | None:
        """The version that is stored."""
        found = (kind for kind in self if kind.group == group and kind.plural == plural and kind.storage)
        return next(found, None)

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """The kind of that name, as owner references give it."""
        return next((each for each in self if each.kind == kind and each.api_version == api_version), None)

    def add(self, kinds: Iterable[Kind]) -> None:
        """Serve more kinds."""
        for kind in kinds:
            self._served[kind.group, kind.version, kind.plural] = kind
        self._changed()

    def remove(self, group: str, plural: str) -> None:
        """Serve no version of a resource any more."""
        for key in [key for key in self._served if key[0] == group and key[2] == plural]:
            del self._served[key]
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        for call in self.on_change:
            call()

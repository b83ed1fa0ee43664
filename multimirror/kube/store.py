"""The cache: objects by key, and by whatever else their users look them up with.

Objects are kept as parsed and are shared by all readers: **never change one that came from here**; copy what you
send. All is synchronous and runs on the event loop's thread, so that a reader between two awaits sees one moment of
the cache.
"""

from collections.abc import Callable, Iterable, Iterator

from .resource import Object

IndexFunction = Callable[[Object], Iterable[str]]
"""The values under which an object is to be found. Pure: the same object always gives the same values."""


class Store:
    """Objects by key (`namespace/name`), with any number of indexes."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self._indexes: dict[str, tuple[IndexFunction, dict[str, dict[str, None]]]] = {}

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[Object]:
        return iter(self.objects.values())

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Look objects up by what `function` gives for them; those that are here already are filed at once."""
        if name in self._indexes:
            raise ValueError(f"there is an index {name!r} already")
        entries: dict[str, dict[str, None]] = {}
        self._indexes[name] = (function, entries)
        for key, obj in self.objects.items():
            for value in function(obj):
                entries.setdefault(value, {})[key] = None

    def by_index(self, name: str, value: str) -> list[Object]:
        """The objects filed under this value."""
        return [self.objects[key] for key in self._indexes[name][1].get(value, ())]

    def put(self, key: str, obj: Object) -> None:
        """Add or replace."""
        old = self.objects.get(key)
        self.objects[key] = obj
        for function, entries in self._indexes.values():
            if old is not None:
                _unfile(entries, function(old), key)
            for value in function(obj):
                entries.setdefault(value, {})[key] = None

    def remove(self, key: str) -> None:
        """Forget what is there under this key."""
        old = self.objects.pop(key)
        for function, entries in self._indexes.values():
            _unfile(entries, function(old), key)


def _unfile(entries: dict[str, dict[str, None]], values: Iterable[str], key: str) -> None:
    for value in values:
        keys = entries.get(value)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del entries[value]

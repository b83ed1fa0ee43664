"""The objects: encoded bytes under their keys, one clock of resourceVersions, and a window of history for each
resource.

Guarantees. Every write gets the next resourceVersion; a write is journalled before anyone can see it; watchers see the
writes of a resource in order, each once. An object is encoded once, when it is written: reads and watches send those
bytes. Within the history window a list can be taken as of any version, which is what paging stands on.

Everything happens on the event loop's thread without awaiting, so there are no locks and no torn reads. Nothing here
knows what an object means.
"""

import bisect
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import orjson

from clusters.embedded import errors

Object = dict[str, Any]


class Item:
    """One version of one object."""

    __slots__ = ("data", "fields", "key", "labels", "version")

    def __init__(
        self, key: str, version: int, data: bytes, labels: Mapping[str, str], fields: Mapping[str, str]
    ) -> None:
        self.key, self.version, self.data, self.labels, self.fields = key, version, data, labels, fields

    def decode(self) -> Object:
        """A fresh copy of the object, free to change."""
        decoded: Object = orjson.loads(self.data)
        return decoded


class Event:
    """One write: `after` is the new version (for a deletion the last one), `before` what it replaced."""

    __slots__ = ("after", "before", "deleted", "frames")

    def __init__(self, before: Item | None, after: Item, deleted: bool) -> None:
        self.before, self.after, self.deleted = before, after, deleted
        self.frames: dict[str, bytes] = {}
        """Encodings for the wire, made by the first watcher that needs one and used by all while the event is new."""

    @property
    def version(self) -> int:
        """The resourceVersion of the write."""
        return self.after.version


class Journal(Protocol):
    """Where writes are kept beyond the process's life."""

    def put(self, resource: str, key: str, version: int, data: bytes) -> None:
        """Keep a version of an object."""

    def remove(self, resource: str, key: str, version: int) -> None:
        """Keep that the object is gone."""

    def load(self) -> Iterator[tuple[str, str, int, bytes]]:
        """All objects, as (resource, key, version, data)."""

    def version(self) -> int:
        """The last resourceVersion that was given."""


Indexer = Callable[[Object], Mapping[str, str]]
Subscriber = Callable[[Event], None]


class Table:
    """All objects of one resource. Keys are `namespace/name`, or `name` for a cluster's own."""

    __slots__ = ("_index", "_store", "compacted", "history", "items", "keys", "name", "subscribers")

    def __init__(self, store: "Store", name: str, index: Indexer) -> None:
        self._store, self.name, self._index = store, name, index
        self.items: dict[str, Item] = {}
        self.keys: list[str] = []
        self.history: deque[Event] = deque()
        self.compacted = store.version
        """Versions up to this one are no longer known exactly."""
        self.subscribers: list[Subscriber] = []

    @property
    def version(self) -> int:
        """The clock's time: what a list taken now is as of."""
        return self._store.version

    def get(self, key: str) -> Item | None:
        """The current version of an object."""
        return self.items.get(key)

    def put(self, key: str, obj: Object) -> Item:
        """Write a new version. The object's resourceVersion is set here; it must not be used afterwards."""
        version = self._store.advance()
        obj["metadata"]["resourceVersion"] = str(version)
        item = self._item(key, version, _encoded(obj), obj)
        self._store.journal_put(self.name, item)
        before = self.items.get(key)
        self.items[key] = item
        if before is None:
            bisect.insort(self.keys, key)
        self._publish(Event(before, item, deleted=False))
        return item

    def remove(self, key: str, last: Object | None = None) -> Item:
        """Delete an object. Watchers see `last` (or the stored object) under the version of the deletion."""
        before = self.items[key]
        obj = before.decode() if last is None else last
        version = self._store.advance()
        obj["metadata"]["resourceVersion"] = str(version)
        item = self._item(key, version, _encoded(obj), obj)
        self._store.journal_remove(self.name, key, version)
        del self.items[key]
        del self.keys[bisect.bisect_left(self.keys, key)]
        self._publish(Event(before, item, deleted=True))
        return item

    def restore(self, key: str, version: int, data: bytes) -> None:
        """Put back what the journal kept."""
        self.items[key] = self._item(key, version, data, orjson.loads(data))

    def restored(self) -> None:
        """All of it is back."""
        self.keys = sorted(self.items)
        self.compacted = self._store.version

    def scan(self, prefix: str = "", after: str = "") -> Iterator[Item]:
        """Current objects in key order, those of a namespace (`prefix` = `namespace/`), behind a key."""
        keys = self.keys
        start = bisect.bisect_right(keys, after) if after else bisect.bisect_left(keys, prefix)
        end = bisect.bisect_left(keys, prefix[:-1] + "0") if prefix else len(keys)  # "0" follows "/"
        items = self.items
        return (items[key] for key in keys[start:end])

    def scan_at(self, version: int, prefix: str = "", after: str = "") -> Iterator[Item]:
        """The objects as they were at a version. Raises Gone when that is out of the window."""
        if version == self._store.version or not self.history or self.history[-1].version <= version:
            return self.scan(prefix, after)
        if version < self.compacted:
            raise errors.gone("The resourceVersion for the provided list is too old.")
        past: dict[str, Item | None] = {}
        for event in reversed(self.history):
            if event.version <= version:
                break
            past[event.after.key] = event.before
        found = [item for item in self.scan(prefix, after) if item.key not in past]
        found += [item for key, item in past.items() if item and key.startswith(prefix) and key > after]
        found.sort(key=lambda item: item.key)
        return iter(found)

    def events_after(self, version: int) -> list[Event] | None:
        """The writes behind a version, oldest first; None when the window does not reach back so far."""
        if version < self.compacted:
            return None
        found: list[Event] = []
        for event in reversed(self.history):
            if event.version <= version:
                break
            found.append(event)
        found.reverse()
        return found

    def compact(self, keep: int) -> None:
        """Forget the oldest history."""
        while len(self.history) > keep:
            self.compacted = self.history.popleft().version

    def _item(self, key: str, version: int, data: bytes, obj: Object) -> Item:
        return Item(key, version, data, obj["metadata"].get("labels") or {}, self._index(obj))

    def _publish(self, event: Event) -> None:
        self.history.append(event)
        self.compact(self._store.window)
        for subscriber in tuple(self.subscribers):
            subscriber(event)
        event.frames.clear()  # watchers that come later are few, and history should not hold every event twice


class Store:
    """All tables of a server, on one clock."""

    def __init__(self, *, window: int = 10_000, journal: Journal | None = None) -> None:
        self.window = window
        """How many writes of each resource can be watched or listed again."""
        self.version = max(1, journal.version() if journal else 1)
        self._journal = journal
        self._tables: dict[str, Table] = {}
        self._kept: dict[str, list[tuple[str, int, bytes]]] = {}
        if journal:
            for resource, key, version, data in journal.load():
                self._kept.setdefault(resource, []).append((key, version, data))

    def table(self, name: str, index: Indexer) -> Table:
        """The table of a resource, made (and filled from the journal) on first use."""
        table = self._tables.get(name)
        if table is None:
            self._tables[name] = table = Table(self, name, index)
            for key, version, data in self._kept.pop(name, ()):
                table.restore(key, version, data)
            table.restored()
        return table

    def advance(self) -> int:
        """The next resourceVersion."""
        self.version += 1
        return self.version

    def journal_put(self, resource: str, item: Item) -> None:
        """Keep a write, if anything is kept."""
        if self._journal:
            self._journal.put(resource, item.key, item.version, item.data)

    def journal_remove(self, resource: str, key: str, version: int) -> None:
        """Keep a deletion, if anything is kept."""
        if self._journal:
            self._journal.remove(resource, key, version)


def _encoded(obj: Object) -> bytes:
    """The object's bytes, in a buffer of just that size: the one that orjson fills is up to twice as large."""
    return bytes(memoryview(orjson.dumps(obj)))

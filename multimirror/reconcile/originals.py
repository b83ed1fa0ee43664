"""The objects of the management cluster that are ours, of every mirrored kind. Reads come from here, not from the API.

The API cannot select Jobs by managedBy, so all are watched; of those that are not ours nothing but the name is kept.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from multimirror.api import QUEUE_LABEL
from multimirror.api.placement import admitted_queue_of, cluster_of, queue_of
from multimirror.batch import Json
from multimirror.kinds import Kind, Kinds, Ref, ref_of
from multimirror.kube import Change, Client, Informer, Object
from multimirror.kube.own_writes import OwnWrites

_BY_UID: Final = "uid"
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class OriginalHandlers(Protocol):
    """Whoever wants to hear of changes."""

    def original_changed(self, ref: Ref, change: Change) -> None:
        """One of our objects is new, changed, or gone."""

    def unmanaged_created(self, kind: Kind, obj: Json) -> None:
        """A new object asks for a queue, and is not ours."""


class _OfKind(NamedTuple):
    kind: Kind
    informer: Informer
    writes: OwnWrites


class Originals:
    """Our objects, by Ref."""

    def __init__(self, client: Client, kinds: Kinds, managed_by: str, namespaces: Informer) -> None:
        self.finished: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Finished objects that are still there, by queue and by the worker that had them last ("": none)."""
        self.kinds = kinds
        self._managed_by = managed_by
        self._namespaces = namespaces
        self._ended: dict[Ref, tuple[str, str]] = {}  # a finished object: its queue and its worker
        self._handlers: list[OriginalHandlers] = []
        self._caches = {kind.resource.name: self._cache(client, kind) for kind in kinds}

    @property
    def informers(self) -> list[Informer]:
        return [cache.informer for cache in self._caches.values()]

    def subscribe(self, handlers: OriginalHandlers) -> None:
        """To be called before the caches are filled: what was there before is not told again."""
        self._handlers.append(handlers)

    def kind(self, ref: Ref) -> Kind:
        return self.kinds.of(ref)

    def get(self, ref: Ref) -> Json | None:
        """The object as the cache has it. Shared: do not change it."""
        return next(iter(self._caches[ref.kind].informer.by_index(_BY_UID, ref.uid)), None)

    def find(self, kind: Kind, key: str) -> Json | None:
        """One of ours by `namespace/name`."""
        found = self._caches[kind.resource.name].informer.get(key)
        return found if found is not None and self.is_ours(kind, found) else None

    def all(self) -> Iterable[tuple[Ref, Json]]:
        for cache in self._caches.values():
            for obj in cache.informer.list():
                if self.is_ours(cache.kind, obj):
                    yield ref_of(cache.kind, obj), obj

    def writes(self, ref: Ref) -> OwnWrites:
        """Our own writes, which the cache may not have seen yet."""
        return self._caches[ref.kind].writes

    def queue_of(self, obj: Json) -> str:
        """The name of its queue: the one that admitted it, while it is on a worker; empty where there is none."""
        return admitted_queue_of(obj) or queue_of(obj, self._namespaces.get(obj["metadata"]["namespace"])) or ""

    def is_ours(self, kind: Kind, obj: Json) -> bool:
        return kind.managed_by(obj) == self._managed_by

    def _cache(self, client: Client, kind: Kind) -> _OfKind:
        informer = Informer(client, kind.resource, trim=self._trimmer(kind))
        informer.add_index(_BY_UID, lambda obj: [obj["metadata"]["uid"]] if self.is_ours(kind, obj) else [])
        writes = OwnWrites(informer)  # before us: whoever is told of a change finds it settled
        informer.add_handler(lambda change: self._changed(kind, change))
        return _OfKind(kind, informer, writes)

    def _changed(self, kind: Kind, change: Change) -> None:
        obj = change.object
        if not self.is_ours(kind, obj):
            if change.old is None and not change.initial and QUEUE_LABEL in (obj["metadata"].get("labels") or {}):
                for handlers in self._handlers:
                    handlers.unmanaged_created(kind, obj)
            return
        ref = ref_of(kind, obj)
        self._count_end(kind, ref, change.new)
        for handlers in self._handlers:
            handlers.original_changed(ref, change)

    def _count_end(self, kind: Kind, ref: Ref, obj: Json | None) -> None:
        if obj is not None and ref not in self._ended and kind.outcome(obj).finished:
            self._ended[ref] = queue, worker = self.queue_of(obj), cluster_of(obj) or ""
            self.finished[queue][worker] += 1
        elif obj is None and ref in self._ended:
            queue, worker = self._ended.pop(ref)
            self.finished[queue][worker] -= 1

    def _trimmer(self, kind: Kind) -> Callable[[Object], Object]:
        def trim(obj: Object) -> Object:
            if self.is_ours(kind, obj):
                return kind.trim(obj)
            metadata = obj["metadata"]
            kept = {key: metadata[key] for key in _KEPT if key in metadata}
            queue = (metadata.get("labels") or {}).get(QUEUE_LABEL)
            if queue is not None:
                kept["labels"] = {QUEUE_LABEL: queue}
            return {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "metadata": kept}

        return trim

"""The garbage collector: follows owner references and carries out what `ownership.decide` says.

Keeps one index, from an owner's uid to the objects that refer to it. An object is looked at when its references
change, when it is being deleted in the foreground or orphaning, and when an owner or a dependent of it changes so.
Most writes change none of that, and are told apart by a look at their bytes, without decoding: a pod's status costs
the collector nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import orjson

from clusters.embedded.controllers import ownership
from clusters.embedded.controllers.client import InProcessClient, Json
from clusters.embedded.controllers.ownership import Delete, DropFinalizer, DropOwners, Unblock
from clusters.embedded.kinds import Kind
from clusters.embedded.store import Event, Item
from multimirror.kube import Controller

_OWNERS: Final = b'"ownerReferences":['
_DELETED: Final = b'"deletionTimestamp"'


class _Owner(NamedTuple):
    uid: str
    api_version: str
    kind: str
    name: str


class GarbageCollector:
    """Deletes what lost its owners."""

    def __init__(self, client: InProcessClient) -> None:
        self._client = client
        self._dependents: dict[str, set[str]] = {}
        """Owner uid to the dependents' addresses."""
        self._owners: dict[str, tuple[_Owner, ...]] = {}
        """A dependent's address to its owners."""
        self._find = ownership.finder(self._look_up)
        self.controller = Controller("garbage-collector", self._reconcile, concurrency=2)
        client.listen(self._changed)

    def start(self) -> None:
        """Take in what is there already."""
        for kind in self._client.stored():
            for item in list(kind.table.scan()):
                if _OWNERS in item.data or _DELETED in item.data:
                    self._observe(kind, item)

    def _changed(self, kind: Kind, event: Event) -> None:
        if event.deleted:
            self._gone(kind, event.after)
            return
        before, after = event.before, event.after
        deleting = _DELETED in after.data
        owners = _owners_part(after.data)
        had = _owners_part(before.data) if before is not None else b""
        if deleting or owners != had:
            self._observe(kind, after)

    def _observe(self, kind: Kind, item: Item) -> None:
        address = _address(kind, item.key)
        meta = item.decode()["metadata"]
        owners = tuple(
            _Owner(ref["uid"], ref["apiVersion"], ref["kind"], ref["name"]) for ref in meta.get("ownerReferences", ())
        )
        former = self._owners.get(address, ())
        if owners != former:
            self._index(address, owners)
            self._look_at_owners(kind, item.key, former)
        if _works_off_dependents(meta):
            self._look_at(address)
            self._look_at_all(self._dependents.get(meta["uid"], ()))
        elif owners and not all(self._is_solid(kind, item.key, owner) for owner in owners):
            self._look_at(address)

    def _gone(self, kind: Kind, item: Item) -> None:
        address = _address(kind, item.key)
        former = self._owners.get(address, ())
        self._index(address, ())
        self._look_at_owners(kind, item.key, former)
        uid = orjson.loads(item.data)["metadata"]["uid"] if self._dependents else ""
        self._look_at_all(self._dependents.get(uid, ()))

    def _index(self, address: str, owners: tuple[_Owner, ...]) -> None:
        for owner in self._owners.pop(address, ()):
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.discard(address)
                if not dependents:
                    del self._dependents[owner.uid]
        if owners:
            self._owners[address] = owners
            for owner in owners:
                self._dependents.setdefault(owner.uid, set()).add(address)

    def _look_at(self, address: str) -> None:
        self.controller.queue.add(address)

    def _look_at_all(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._look_at(address)

    def _look_at_owners(self, kind: Kind, key: str, owners: tuple[_Owner, ...]) -> None:
        """An owner that waits for its dependents may be able to go."""
        for owner in owners:
            found = self._owner_item(owner, key.rpartition("/")[0])
            if found is not None and _DELETED in found[1].data:
                self._look_at(_address(found[0], found[1].key))

    def _is_solid(self, kind: Kind, key: str, owner: _Owner) -> bool:
        """Whether the owner is certainly there to stay, from its bytes alone."""
        found = self._owner_item(owner, key.rpartition("/")[0])
        if found is None:
            return False
        data = found[1].data
        return f'"uid":"{owner.uid}"'.encode() in data and _DELETED not in data

    def _owner_item(self, owner: _Owner, namespace: str) -> tuple[Kind, Item] | None:
        kind = self._client.kinds.by_kind(owner.api_version, owner.kind)
        if kind is None or (kind.namespaced and not namespace):
            return None
        item = kind.table.get(kind.key(namespace, owner.name))
        return None if item is None else (kind, item)

    def _look_up(self, api_version: str, kind_name: str, namespace: str, name: str) -> Json | None:
        kind = self._client.kinds.by_kind(api_version, kind_name)
        if kind is None or (kind.namespaced and not namespace):
            raise ownership.Unresolvable(f"{api_version} {kind_name}")
        return self._client.get(kind, namespace, name)

    async def _reconcile(self, address: str) -> None:
        await asyncio.sleep(0)  # nothing below needs to wait: let clients have their turn in a long sweep
        kind, obj = self._resolve(address)
        if kind is None or obj is None:
            return
        dependents = _Dependents(self._dependents.get(obj["metadata"]["uid"], set()), self._resolve)
        for action in ownership.decide(obj, dependents, self._find):
            match action:
                case Delete(propagation):
                    await self._client.delete(kind, obj, propagation)
                case DropOwners(owners, None):
                    await self._drop_owners(kind, obj, owners)
                case DropOwners(owners, dependent_uid) if dependent_uid is not None:
                    await self._drop_owners(*dependents.seen[dependent_uid], owners)
                case Unblock():
                    await self._unblock(kind, obj)
                case DropFinalizer(finalizer):
                    left = [each for each in obj["metadata"]["finalizers"] if each != finalizer]
                    await self._patch(kind, obj, {"finalizers": left})

    def _resolve(self, address: str) -> tuple[Kind | None, Json | None]:
        resource, _, key = address.partition("|")
        plural, _, group = resource.partition(".")
        kind = self._client.kinds.stored(group, plural)
        return kind, None if kind is None else self._client.at(kind, key)

    async def _drop_owners(self, kind: Kind, obj: Json, owners: frozenset[str]) -> None:
        await self._patch(kind, obj, {"ownerReferences": ownership.without_owners(obj, owners) or None})

    async def _unblock(self, kind: Kind, obj: Json) -> None:
        references = [{**ref, "blockOwnerDeletion": False} for ref in obj["metadata"]["ownerReferences"]]
        await self._patch(kind, obj, {"ownerReferences": references})
        obj["metadata"]["ownerReferences"] = references

    async def _patch(self, kind: Kind, obj: Json, metadata: Json) -> None:
        """Only if it is still what the decision was made on: else Conflict, and the queue brings it back."""
        meta = obj["metadata"]
        known = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        stored = await self._client.patch(kind, obj, {"metadata": {**metadata, **known}})
        obj["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]


class _Dependents:
    """The dependents of an object, decoded one by one as they are looked at; those that were are kept by uid."""

    def __init__(self, addresses: set[str], resolve: Callable[[str], tuple[Kind | None, Json | None]]) -> None:
        self._addresses, self._resolve = addresses, resolve
        self.seen: dict[str, tuple[Kind, Json]] = {}

    def __iter__(self) -> Iterator[Json]:
        for address in tuple(self._addresses):
            kind, obj = self._resolve(address)
            if kind is not None and obj is not None:
                self.seen[obj["metadata"]["uid"]] = kind, obj
                yield obj


def _address(kind: Kind, key: str) -> str:
    return f"{kind.resource}|{key}"


def _owners_part(data: bytes) -> bytes:
    """The bytes of the owner references; they hold no brackets but their own."""
    start = data.find(_OWNERS)
    return data[start : data.find(b"]", start)] if start >= 0 else b""


def _works_off_dependents(meta: Json) -> bool:
    finalizers = meta.get("finalizers", ())
    return bool(meta.get("deletionTimestamp")) and (
        ownership.FOREGROUND in finalizers or ownership.ORPHAN in finalizers
    )

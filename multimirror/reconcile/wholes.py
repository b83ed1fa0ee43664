"""Whole originals, of which the caches keep only a part: needed when a copy is made, and only then.

The answer to the assignment is the whole object, a moment before its copy is made: it is kept until then, if there is
room for it (in bytes; the oldest go first). Else the object is read once more. Either way it is what was decided on, or
nothing is made of it: the same attempt on the same worker, as much wanted, and the template that was counted. Whatever
else it is, the cache will show, and another decision be made.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from multimirror.api.placement import attempt_of, cluster_namespace_of, cluster_of, fence_of, preempted_of
from multimirror.batch import Json
from multimirror.kinds import Kind, Ref, ref_of
from multimirror.kinds.reserved import reserved_of
from multimirror.kube import Client
from multimirror.kube.errors import NotFound

_MOST_BYTES: Final = 4 * 1024 * 1024
"""Of JSON, which takes up to eight times as much when it is parsed."""


class _Whole(NamedTuple):
    obj: Json
    size: int


class WholeOriginals:
    """Kept for a moment, or read."""

    def __init__(self, client: Client, *, most_bytes: int = _MOST_BYTES) -> None:
        self._client, self._most = client, most_bytes
        self._kept: OrderedDict[Ref, _Whole] = OrderedDict()
        self._size = 0

    def keep(self, kind: Kind, obj: Json) -> None:
        """The API server answered a write with this."""
        ref, size = ref_of(kind, obj), kind.size_of(obj)
        self._forget(ref)
        if size <= self._most:
            self._kept[ref] = _Whole(obj, size)
            self._size += size
            while self._size > self._most:
                self._forget(next(iter(self._kept)))

    async def take(self, kind: Kind, cached: Json) -> Json | None:
        """The whole of a cached original; None where it is another one by now, or gone."""
        metadata = cached["metadata"]
        whole = self._forget(ref_of(kind, cached))
        if whole is None or whole["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            try:
                whole = await self._client.get(kind.resource, metadata["name"], metadata["namespace"])
            except NotFound:
                return None
        return whole if _is_as_decided(kind, cached, whole) else None

    def _forget(self, ref: Ref) -> Json | None:
        kept = self._kept.pop(ref, None)
        if kept is None:
            return None
        self._size -= kept.size
        return kept.obj


def _is_as_decided(kind: Kind, cached: Json, whole: Json) -> bool:
    reserved = reserved_of(whole)
    return (
        whole["metadata"]["uid"] == cached["metadata"]["uid"]
        and "deletionTimestamp" not in whole["metadata"]
        and _place(whole) == _place(cached)
        and reserved == reserved_of(cached)
        and (reserved is None or kind.template_of(whole) == kind.template_of(cached))
        and kind.is_suspended(whole) == kind.is_suspended(cached)
        and not kind.outcome(whole).ending
    )


def _place(obj: Json) -> tuple[object, ...]:
    return cluster_of(obj), cluster_namespace_of(obj), attempt_of(obj), fence_of(obj), preempted_of(obj)

"""The controllers' client to the API server in the same process.

Reads come straight from the tables, so they are never behind. Writes go through the same verbs as any client's
(defaults, validation, admission, preconditions), without the socket. Changes are told as they happen, before the
writer hears of its success: listeners only note what to look at and never write from within.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal
from urllib.parse import quote

import orjson

from clusters.embedded.errors import StatusError
from clusters.embedded.kinds import Kind
from clusters.embedded.server import ApiServer
from clusters.embedded.store import Event, Table
from multimirror.kube.errors import Conflict, NotFound, error_from_answer

Json = dict[str, Any]
Listener = Callable[[Kind, Event], None]
_MERGE_PATCH: Final = "application/merge-patch+json"


class InProcessClient:
    """What controllers see of the server."""

    def __init__(self, server: ApiServer) -> None:
        self._server, self.kinds = server, server.kinds
        self._listeners: list[Listener] = []
        self._followed: dict[Table, Callable[[Event], None]] = {}
        self.kinds.on_change.append(self._follow_tables)
        self._follow_tables()

    def close(self) -> None:
        """Hear nothing more."""
        self.kinds.on_change.remove(self._follow_tables)
        for table, subscriber in self._followed.items():
            table.subscribers.remove(subscriber)
        self._followed.clear()
        self._listeners.clear()

    def listen(self, listener: Listener) -> None:
        """Tell it of every change of every object."""
        self._listeners.append(listener)

    def kind(self, group: str, plural: str) -> Kind:
        """A kind that is always served."""
        found = self.kinds.stored(group, plural)
        assert found is not None, f"{plural} is built in"
        return found

    def stored(self) -> Iterator[Kind]:
        """Every kind once, in the version that is stored."""
        return (kind for kind in self.kinds if kind.storage)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """The object as it is now; a copy."""
        item = kind.table.get(kind.key(namespace, name))
        return None if item is None else item.decode()

    def at(self, kind: Kind, key: str) -> Json | None:
        """The object under this key of the kind's table."""
        item = kind.table.get(key)
        return None if item is None else item.decode()

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Json]:
        """The objects as they are now; copies."""
        prefix = f"{namespace}/" if namespace else ""
        return (item.decode() for item in list(kind.table.scan(prefix)))

    async def create(self, kind: Kind, obj: Json, namespace: str | None = None) -> Json:
        """Raises what a client's would (`ApiError`), as all of these do."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return await self._call("POST", kind, namespace, None, body=body)

    async def replace(self, kind: Kind, obj: Json, subresource: str = "") -> Json:
        """A new version of the object."""
        meta = obj["metadata"]
        return await self._call("PUT", kind, meta.get("namespace"), meta["name"], subresource=subresource, body=obj)

    async def patch(self, kind: Kind, obj: Json, body: Json) -> Json:
        """Merge into the object of this name; put uid or resourceVersion into the patch to mean exactly this one."""
        meta = obj["metadata"]
        where = meta.get("namespace"), meta["name"]
        return await self._call("PATCH", kind, *where, body=body, content_type=_MERGE_PATCH)

    async def delete(
        self, kind: Kind, obj: Json, propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    ) -> None:
        """Delete exactly this object (by uid). One that is gone already is as good as deleted."""
        meta = obj["metadata"]
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
            "preconditions": {"uid": meta["uid"]},
        }
        with contextlib.suppress(NotFound, Conflict):
            await self._call("DELETE", kind, meta.get("namespace"), meta["name"], body=options)

    async def _call(
        self,
        method: str,
        kind: Kind,
        namespace: str | None,
        name: str | None,
        *,
        subresource: str = "",
        body: Any,
        content_type: str = "application/json",
    ) -> Json:
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
        if kind.namespaced:
            path += f"/namespaces/{quote(namespace or '', safe='')}"
        path += f"/{kind.plural}" + (f"/{quote(name, safe='')}" if name else "")
        path += f"/{subresource}" if subresource else ""
        try:
            answer: Json = await self._server.call(
                method, path, body, content_type=content_type, manager="kube-controller-manager"
            )
        except StatusError as error:
            status = orjson.dumps(error.status)
            raise error_from_answer(error.code, status, cluster="embedded", url=path, write=True) from error
        return answer

    def _follow_tables(self) -> None:
        served = {kind.table: kind for kind in self.stored()}
        for table in [table for table in self._followed if table not in served]:
            table.subscribers.remove(self._followed.pop(table))
        for table, kind in served.items():
            if table not in self._followed:
                self._followed[table] = self._teller(kind)
                table.subscribers.append(self._followed[table])

    def _teller(self, kind: Kind) -> Callable[[Event], None]:
        def tell(event: Event) -> None:
            for listener in self._listeners:
                listener(kind, event)

        return tell

"""The API server: everything put together, listening on loopback.

`call` is the way in for code in the same process: the same requests and answers without a socket. Controllers that live
here also read the kinds' tables; `subscribe` tells of every write. All of it is for the event loop's own thread.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from clusters.embedded import custom, errors
from clusters.embedded.admission import Admission, Hooks
from clusters.embedded.authentication import ADMINISTRATOR, Authenticator
from clusters.embedded.context import Clock, Context
from clusters.embedded.deleting import Deleter
from clusters.embedded.discovery import VERSION, Discovery
from clusters.embedded.http import JSON, Answer, Request, Response
from clusters.embedded.kinds import Kind, Kinds
from clusters.embedded.openapi import OpenApi
from clusters.embedded.persistence import SqliteJournal
from clusters.embedded.pod_endpoints import PodEndpoints
from clusters.embedded.protocol import Connection
from clusters.embedded.reading import Reader
from clusters.embedded.reviews import Reviews
from clusters.embedded.routing import Router
from clusters.embedded.store import Event, Store
from clusters.embedded.strategies import builtin_kinds
from clusters.embedded.tables import Tables
from clusters.embedded.watching import Watches
from clusters.embedded.webhooks import Webhooks
from clusters.embedded.writing import Writer

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_OPEN: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_STOP_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server behaves."""

    history: int = 10_000
    """How many writes of each resource can be watched again; older versions are answered with 410."""
    bookmark_interval: float = 60.0
    data_dir: Path | None = None
    sync: bool = False
    """With a data directory: wait for the disk at each write."""
    clock: Clock = field(default_factory=Clock)
    hooks: Callable[[Kinds], Hooks] | None = None
    """Who is asked before a write is kept, in the place of webhooks."""


class ApiServer:
    """One Kubernetes API."""

    def __init__(self, token: str, key: bytes, options: ServerOptions | None = None) -> None:
        self.options = options = options or ServerOptions()
        self._journal = SqliteJournal(options.data_dir, sync=options.sync) if options.data_dir else None
        self.store = Store(window=options.history, journal=self._journal)
        self.kinds = Kinds(self.store)
        self.kinds.add(builtin_kinds(self.store, options.clock.now))
        self._watches = Watches(bookmark_interval=options.bookmark_interval)
        clock = options.clock
        self._authenticator = Authenticator(token, key, self._uid_of, clock.time)
        self.webhooks = Webhooks(self.kinds)
        admission = Admission(self.kinds, options.hooks(self.kinds) if options.hooks is not None else self.webhooks)
        deleter = Deleter(clock, admission)
        writer = Writer(clock, admission, deleter)
        self.router = Router(self.kinds, Reader(self._watches, Tables(clock)), writer, deleter)
        self._pods = PodEndpoints(self.kinds, clock, writer, deleter)
        self._pods.register(self.router)
        Reviews(self._authenticator).register(self.router)
        self.router.subresources["PUT", "namespaces", "finalize"] = writer.finalize
        self._deleter = deleter
        definitions = self.kinds.stored(custom.GROUP, "customresourcedefinitions")
        assert definitions is not None
        custom.CustomKinds(self.kinds, definitions, self._delete_all, self._watches.end_of)
        self._discovery = Discovery(self.kinds)
        self._openapi = OpenApi(self.kinds)
        self._connections: dict[Connection, None] = {}  # in order: a run can be repeated exactly
        self._server: asyncio.Server | None = None
        self.port = 0

    # --- life

    async def start(self, host: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None) -> None:
        """Listen; on return requests are answered."""
        self._bootstrap()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self.handle, self._connections), host, port, ssl=context, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hang up on everybody and let go of everything."""
        self._watches.close()
        if self._server:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close()
        if self._server:
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._server.wait_closed()
            except TimeoutError:
                for connection in tuple(self._connections):
                    connection.abort()
            self._server = None
        await self.webhooks.close()
        await self._pods.close()
        if self._journal:
            self._journal.close()
            self._journal = None

    def _bootstrap(self) -> None:
        """What every cluster has."""
        for name in NAMESPACES:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            try:
                self._call_now("POST", "/api/v1/namespaces", namespace)
            except errors.StatusError as error:
                if error.reason != "AlreadyExists":
                    raise

    # --- requests

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer a request from the network."""
        if request.path in _OPEN or request.path.startswith(("/healthz/", "/livez/", "/readyz/")):
            return self._open(request)
        request.user = self._authenticator.authenticate(request)
        return self._serve(request)

    def _open(self, request: Request) -> Answer:
        if request.path == "/version":
            return Response.json(200, VERSION)
        if request.flag("verbose"):
            name = request.path.split("/")[1]
            return Response(200, f"[+]ping ok\n{name} check passed\n".encode(), "text/plain; charset=utf-8")
        return Response(200, b"ok", "text/plain; charset=utf-8")

    def _serve(self, request: Request) -> Answer | Awaitable[Answer]:
        if request.method == "GET":
            found = self._discovery.answer(request) or self._openapi.answer(request)
            if found is not None:
                return found
        return self.router.route(request)

    # --- from inside

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        manager: str = "embedded",
    ) -> Any:
        """A request from this process, as the administrator. Returns the decoded answer, raises StatusError."""
        request = _request(method, path, body, dict(query or {}), {"content-type": content_type, "user-agent": manager})
        answer = self._serve(request)
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, Response), "a watch needs a socket; use subscribe"
        return answer.decode()

    def _call_now(self, method: str, path: str, body: Any) -> Any:
        answer = self._serve(_request(method, path, body, {}, {"user-agent": "embedded"}))
        assert isinstance(answer, Response)
        return answer.decode()

    def subscribe(self, group: str, plural: str, call: Callable[[Event], None]) -> Callable[[], None]:
        """Tell of every write to a resource from now on; returns what ends it."""
        kind = self.kinds.stored(group, plural)
        if kind is None:
            raise errors.no_such_path()
        kind.table.subscribers.append(call)
        return lambda: kind.table.subscribers.remove(call)

    def _delete_all(self, kind: Kind) -> None:
        """Delete every object of a kind, as its definition's deletion asks."""
        for item in list(kind.table.scan()):
            namespace, _, name = item.key.rpartition("/")
            request = _request("DELETE", "", None, {}, {})
            self._deleter.delete_item(Context(request, kind, namespace or None, name), item, {})

    def _uid_of(self, resource: str, namespace: str, name: str) -> str | None:
        kind = self.kinds.find("", "v1", resource)
        item = kind.table.get(f"{namespace}/{name}") if kind else None
        return item.decode()["metadata"]["uid"] if item else None


def _request(method: str, path: str, body: Any, query: dict[str, str], headers: Mapping[str, str]) -> Request:
    request = Request(method, path, query, headers, b"" if body is None else orjson.dumps(body))
    request.user = ADMINISTRATOR
    return request

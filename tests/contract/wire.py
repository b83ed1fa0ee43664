"""The Kubernetes API as it is on the wire: what the contract tests say and hear.

On purpose not our own client: these tests look at status codes, headers and bodies that a good client hides. Every
request has a deadline far above what a loaded machine needs, so that a hang is a failure with a name.
"""

import asyncio
import base64
import contextlib
import io
import json
import os
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from tests.waiting import DEADLINE

Object = dict[str, Any]

_ROOTS: Final = {
    "jobs": "/apis/batch/v1",
    "cronjobs": "/apis/batch/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
}
_PATCHES: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Answer:
    """One response, read to its end."""

    request: str
    status: int
    headers: dict[str, str]
    warnings: list[str]
    content: bytes

    @property
    def body(self) -> Object:
        parsed: Object = json.loads(self.content)
        return parsed

    @property
    def text(self) -> str:
        return self.content.decode()

    def ok(self, status: int = 200) -> Object:
        """The body of an answer that must have this status."""
        assert self.status == status, f"{self.request} -> {self.status}, not {status}: {self.text[:2000]}"
        return self.body

    def refused(self, status: int, reason: str | None) -> Object:
        """The Status body of an answer that must be this refusal."""
        body = self.ok(status)
        assert body["kind"] == "Status", body
        assert body["apiVersion"] == "v1", body
        assert body["status"] == "Failure", body
        assert body["code"] == status, body
        assert body.get("reason") == reason, body
        return body


@dataclass
class Stream:
    """The events of one watch."""

    response: aiohttp.ClientResponse
    seen: list[Object] = field(default_factory=list)

    async def next(self) -> Object | None:
        """The next event; None when the server has ended the watch."""
        async with asyncio.timeout(DEADLINE):
            line = await self.response.content.readuntil(b"\n") if not self.response.content.at_eof() else b""
        if not line.strip():
            return None
        event: Object = json.loads(line)
        self.seen.append(event)
        return event

    async def event(self) -> tuple[str, Object]:
        """The next event, which must come, as its type and object."""
        event = await self.next()
        assert event is not None, f"the watch ended; seen: {self.seen}"
        return event["type"], event["object"]

    async def take(self, count: int) -> list[tuple[str, str]]:
        """The next events as (type, name of the object), bookmarks left out."""
        taken: list[tuple[str, str]] = []
        while len(taken) < count:
            kind, thing = await self.event()
            if kind != "BOOKMARK":
                taken.append((kind, thing["metadata"]["name"]))
        return taken

    async def until(self, wanted: Callable[[str, Object], bool]) -> Object:
        """The object of the first event that is wanted."""
        while True:
            kind, thing = await self.event()
            if wanted(kind, thing):
                return thing

    async def rest(self) -> list[Object]:
        """All that comes until the server ends the watch."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


class Wire:
    """A pool of connections to one API server, with the credentials of a kubeconfig."""

    def __init__(self, kubeconfig: Object) -> None:
        self.kubeconfig = kubeconfig
        self.server, self._tls, self._headers = connect(kubeconfig)
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "the wire is not connected"
        return self._session

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls or True, limit=32),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()


class Api:
    """One API server, seen from one test's namespace."""

    def __init__(self, wire: Wire, namespace: str) -> None:
        self.wire, self.namespace = wire, namespace

    def at(self, plural: str, name: str | None = None, subresource: str | None = None) -> str:
        """The path of a namespaced built-in resource in this test's namespace."""
        root = _ROOTS.get(plural, "/api/v1")
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}/namespaces/{self.namespace}/{plural}{tail}"

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        **params: str | int,
    ) -> Answer:
        """One request. A str or bytes body goes out as it is, anything else as JSON."""
        sent = dict(headers or {})
        if body is not None and not isinstance(body, str | bytes):
            body = json.dumps(body)
        if isinstance(body, str):
            body = io.BytesIO(body.encode())
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        query = {key: str(value) for key, value in params.items()}
        async with (
            asyncio.timeout(DEADLINE),
            self.wire.session.request(
                method, self.wire.server + path, params=query, data=body, headers=sent
            ) as response,
        ):
            content = await response.read()
            warned = [text for value in response.headers.getall("Warning", []) for text in _WARNING.findall(value)]
            return Answer(
                f"{method} {path} {query or ''}",
                response.status,
                {key.lower(): value for key, value in response.headers.items()},
                [text.replace('\\"', '"').replace("\\\\", "\\") for text in warned],
                content,
            )

    async def get(self, path: str, *, accept: str | None = None, **params: str | int) -> Answer:
        return await self.call("GET", path, headers={"Accept": accept} if accept else None, **params)

    async def post(self, path: str, body: Any, **params: str | int) -> Answer:
        return await self.call("POST", path, body, headers=None, **params)

    async def put(self, path: str, body: Any, **params: str | int) -> Answer:
        return await self.call("PUT", path, body, headers=None, **params)

    async def patch(self, path: str, body: Any, patch: str = "merge", **params: str | int) -> Answer:
        return await self.call("PATCH", path, body, headers={"Content-Type": _PATCHES[patch]}, **params)

    async def apply(self, path: str, body: Object, manager: str, **params: str | int) -> Answer:
        return await self.patch(path, body, "apply", fieldManager=manager, **params)

    async def delete(self, path: str, body: Any = None, **params: str | int) -> Answer:
        return await self.call("DELETE", path, body, headers=None, **params)

    async def made(self, plural: str, body: Object, **params: str | int) -> Object:
        """Create it in this test's namespace; it must work."""
        return (await self.post(self.at(plural), body, **params)).ok(201)

    async def read(self, plural: str, name: str) -> Object:
        return (await self.get(self.at(plural, name))).ok()

    @contextlib.asynccontextmanager
    async def watch(self, path: str, *, accept: str | None = None, **params: str | int) -> AsyncIterator[Stream]:
        """An open watch: on entering, the server has answered 200 and the stream has begun."""
        query = {"watch": "true"} | {key: str(value) for key, value in params.items()}
        no_limit = aiohttp.ClientTimeout(total=None)
        headers = {"Accept": accept} if accept else {}
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(DEADLINE):
                response = await stack.enter_async_context(
                    self.wire.session.get(self.wire.server + path, params=query, headers=headers, timeout=no_limit)
                )
            assert response.status == 200, await response.text()
            try:
                yield Stream(response)
            finally:
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()  # a server in mid-stream would be slow to say goodbye

    async def watched(self, path: str, wanted: Callable[[str, Object], bool], **params: str | int) -> Object:
        """The first object, of those there now and those to come, whose event is wanted."""
        async with self.watch(path, accept=None, **params) as stream:
            return await stream.until(wanted)

    async def gone(self, plural: str, name: str) -> None:
        """Returns when no such object is there any more."""
        path, only = self.at(plural), f"metadata.name={name}"
        found = (await self.get(path, fieldSelector=only)).ok()
        if found["items"]:
            version = found["metadata"]["resourceVersion"]
            await self.watched(path, lambda kind, _: kind == "DELETED", fieldSelector=only, resourceVersion=version)


def connect(kubeconfig: Object) -> tuple[str, ssl.SSLContext | None, dict[str, str]]:
    """The server's address, its TLS and the headers that prove who we are, from a self-contained kubeconfig."""
    cluster = kubeconfig["clusters"][0]["cluster"]
    user = kubeconfig["users"][0]["user"]
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    server: str = cluster["server"].rstrip("/")
    if not server.startswith("https:"):
        return server, None, headers
    authority = cluster.get("certificate-authority-data")
    tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode() if authority else None)
    if "client-certificate-data" in user:
        parts = [base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")]
        descriptor, name = tempfile.mkstemp()  # the ssl module takes certificates from files only
        os.close(descriptor)
        pem = Path(name)
        try:
            pem.write_bytes(b"\n".join(parts))
            tls.load_cert_chain(pem)
        finally:
            pem.unlink()
    return server, tls, headers

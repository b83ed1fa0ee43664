"""Small servers that misbehave on purpose, byte by byte."""

import asyncio
import functools
import json
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from multimirror.kube import Connection, Resource

THINGS = Resource("example.dev", "v1", "things", "Thing")


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The server's end of one connection, while it answers one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.closed = False
        self.over = False

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        await self.send((head + extra + "\r\n").encode() + data)

    async def start_chunks(self) -> None:
        await self.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, kind: str, obj: dict[str, Any]) -> None:
        await self.chunk(json.dumps({"type": kind, "object": obj}).encode() + b"\n")

    async def end_chunks(self) -> None:
        await self.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """Not a goodbye but a slammed door: the peer sees a connection reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER 0
        self.writer.transport.abort()
        self.closed = True

    def hang_up(self) -> None:
        self.writer.close()
        self.closed = True

    async def silence(self) -> None:
        """Say nothing more, until the client goes."""
        await self.writer.wait_closed()


Script = Callable[[Seen, Wire], Awaitable[None]]


@dataclass
class Server:
    """Answers each request with the next script; the last one stays."""

    scripts: deque[Script] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    scheme: str = "http"
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def then(self, script: Script) -> None:
        self.scripts.append(script)

    def then_answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        async def script(_: Seen, wire: Wire) -> None:
            await wire.answer(status, body, headers)

        self.then(script)

    def cut_off(self) -> None:
        """From now on requests arrive, and nothing comes back."""

        async def silence(_: Seen, wire: Wire) -> None:
            await wire.silence()

        self.scripts.clear()
        self.then(silence)

    def connection(self, **kwargs: Any) -> Connection:
        return Connection(name="worker-1", server=f"{self.scheme}://127.0.0.1:{self.port}", **kwargs)

    async def until_seen(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.seen) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        wire = Wire(reader, writer)
        try:
            while not wire.closed:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                request = Seen(method, target, headers, body)
                async with self.arrived:
                    self.seen.append(request)
                    self.arrived.notify_all()
                script = self.scripts.popleft() if len(self.scripts) > 1 else self.scripts[0]
                await script(request, wire)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went
        finally:
            writer.close()


@asynccontextmanager
async def running(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(scheme="https" if tls else "http")
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def status(code: int, reason: str, message: str = "", **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
        "details": details,
    }


def a_thing(name: str, version: int = 1, **extra: Any) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    metadata |= extra.pop("metadata", {})
    return {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": metadata, **extra}


def a_list(version: int, *items: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.dev/v1",
        "kind": "ThingList",
        "metadata": {"resourceVersion": str(version), **metadata},
        "items": list(items),
    }


class Things:
    """A small but honest API server: optimistic concurrency, list, watch from any version; and faults on demand."""

    def __init__(self, server: Server, *, streaming: bool = True, plural: str = "things") -> None:
        self.plural = plural
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.version = 10
        self.compacted = 0
        self.streaming = streaming
        self.changed = asyncio.Condition()
        self.deaf = False  # watches stay open but tell nothing
        self.watches: set[Wire] = set()
        self.lists = 0
        self.server = server
        server.then(self.handle)

    async def put(self, name: str, **extra: Any) -> dict[str, Any]:
        """Create or change."""
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = a_thing(name, self.version, **extra)
        await self._tell(kind, self.objects[name])
        return self.objects[name]

    async def remove(self, name: str) -> None:
        self.version += 1
        gone = self.objects.pop(name)
        last = gone | {"metadata": gone["metadata"] | {"resourceVersion": str(self.version)}}
        await self._tell("DELETED", last)

    async def _tell(self, kind: str, obj: dict[str, Any]) -> None:
        async with self.changed:
            self.history.append((self.version, kind, obj))
            self.changed.notify_all()

    def compact(self) -> None:
        """Forget the past: whoever resumes from before gets 410."""
        self.compacted = self.version
        self.history.clear()

    async def end_watches(self) -> None:
        """As a server does when a watch's time is over."""
        for wire in tuple(self.watches):
            wire.over = True
        async with self.changed:
            self.changed.notify_all()

    def break_watches(self) -> None:
        for wire in tuple(self.watches):
            wire.reset()

    async def handle(self, seen: Seen, wire: Wire) -> None:
        parts = urlsplit(seen.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        name = parts.path.rpartition(f"/{self.plural}")[2].strip("/")
        if query.get("watch") == "true":
            await self._watch(query, wire)
        elif seen.method == "GET" and not name:
            self.lists += 1
            await wire.answer(200, a_list(self.version, *self.objects.values()))
        else:
            await self._object(seen, name, wire)

    async def _object(self, seen: Seen, name: str, wire: Wire) -> None:
        if seen.method == "POST":
            obj = seen.json
            name = obj["metadata"]["name"]
            if name in self.objects:
                return await wire.answer(409, status(409, "AlreadyExists"))
            await self.put(name, **{k: v for k, v in obj.items() if k not in {"metadata", "kind", "apiVersion"}})
            return await wire.answer(201, self.objects[name])
        if name not in self.objects:
            return await wire.answer(404, status(404, "NotFound", f"things {name!r} not found"))
        if seen.method == "PUT":
            obj = seen.json
            if obj["metadata"].get("resourceVersion") not in {None, self.objects[name]["metadata"]["resourceVersion"]}:
                return await wire.answer(409, status(409, "Conflict"))
            await self.put(name, **{k: v for k, v in obj.items() if k not in {"metadata", "kind", "apiVersion"}})
        elif seen.method == "DELETE":
            await self.remove(name)
            return await wire.answer(200, {"kind": "Status", "status": "Success"})
        await wire.answer(200, self.objects[name])
        return None

    async def _watch(self, query: dict[str, str], wire: Wire) -> None:
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.streaming:
            return await wire.answer(422, status(422, "Invalid", "sendInitialEvents is forbidden"))
        at = self.version if initial else int(query["resourceVersion"])
        await wire.start_chunks()
        self.watches.add(wire)
        try:
            if initial:
                for obj in self.objects.values():
                    await wire.event("ADDED", obj)
                mark = {"resourceVersion": str(at), "annotations": {"k8s.io/initial-events-end": "true"}}
                await wire.event("BOOKMARK", {"kind": "Thing", "metadata": mark})
            while not wire.closed and not wire.over and at >= self.compacted:
                for version, kind, obj in tuple(self.history):
                    if version > at:
                        await wire.event(kind, obj)
                        at = version
                async with self.changed:
                    await self.changed.wait_for(functools.partial(self._wakes, wire, at))
            if not wire.closed:
                if not wire.over:
                    await wire.event("ERROR", status(410, "Expired", "too old resource version"))
                wire.over = False
                await wire.end_chunks()
        finally:
            self.watches.discard(wire)

    def _wakes(self, wire: Wire, at: int) -> bool:
        return wire.over or wire.closed or (not self.deaf and self.version > at)

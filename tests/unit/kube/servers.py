"""Small servers that misbehave on purpose, byte by byte."""

import asyncio
import json
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

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

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.closed = False

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

    def connection(self, **kwargs: Any) -> Connection:
        return Connection(name="worker-1", server=f"{self.scheme}://127.0.0.1:{self.port}", **kwargs)

    async def until_seen(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.seen) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        wire = Wire(writer)
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

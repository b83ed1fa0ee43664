"""HTTP/1.1 as a proxy needs it: heads and bodies as they are, requests of the Kubernetes API understood."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

_LIMIT: Final = 2**24  # of what may stand between two line breaks
WRITES: Final = ("create", "patch", "update", "delete")
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


class BrokenError(ConnectionError):
    """The other side went away in the middle."""


@dataclass(slots=True)
class Message:
    """A request or an answer."""

    start: str
    """The first line."""
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""

    @property
    def status(self) -> int:
        """Of an answer."""
        try:
            return int(self.start.split(" ", 2)[1])
        except (IndexError, ValueError):
            raise BrokenError(f"no HTTP: {self.start!r}") from None

    def encode(self) -> bytes:
        """As it goes over the wire, its body whole."""
        headers = {k: v for k, v in self.headers.items() if k not in ("transfer-encoding", "content-length")}
        lines = [self.start, *(f"{name}: {value}" for name, value in headers.items())]
        if self.body or not self.start.startswith("GET"):
            lines.append(f"content-length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body

    def encode_head(self) -> bytes:
        """The head alone, of an answer whose body comes in chunks."""
        headers = {k: v for k, v in self.headers.items() if k not in ("transfer-encoding", "content-length")}
        lines = [self.start, *(f"{name}: {value}" for name, value in headers.items()), "transfer-encoding: chunked"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass(frozen=True, slots=True)
class Call:
    """What a request asks of the API."""

    verb: str
    resource: str
    """`jobs`, `jobs/status`; empty for what is no resource (`/version`)."""
    namespace: str
    name: str
    path: str
    query: dict[str, str]

    @property
    def stores(self) -> bool:
        """It is to change what the API server holds: a question about rights is asked with POST, and does not."""
        return self.verb in WRITES and not self.resource.endswith("reviews")


async def read_head(reader: asyncio.StreamReader) -> Message | None:
    """The head of the next message; None at the end of the connection."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BrokenError("closed in the middle of a head") from None
        return None
    except (ConnectionError, OSError):
        return None
    start, *lines = raw[:-4].decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Message(start, headers)


async def read_body(reader: asyncio.StreamReader, message: Message) -> bytes:
    """The whole body."""
    if "chunked" in message.headers.get("transfer-encoding", ""):
        return b"".join([chunk async for chunk in chunks(reader)])
    size = int(message.headers.get("content-length", 0))
    try:
        return await reader.readexactly(size) if size else b""
    except asyncio.IncompleteReadError:
        raise BrokenError("closed in the middle of a body") from None


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The chunks of a body, as they come."""
    while True:
        try:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
        except (asyncio.IncompleteReadError, ValueError):
            raise BrokenError("closed in the middle of a body") from None
        if size == 0:
            return
        yield data[:-2]


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def understand(request: Message) -> Call:
    """What is asked for. `/apis/batch/v1/namespaces/team/jobs/report/status` is `jobs/status` of team/report."""
    method, target, _ = request.start.split(" ", 2)
    path, _, raw = target.partition("?")
    query = dict(parse_qsl(raw, keep_blank_values=True))
    parts = [unquote(part) for part in path.strip("/").split("/")]
    verb = _VERBS.get(method, method.lower())
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource = "/".join([rest[0], *rest[2:]]) if rest else ""
    name = rest[1] if len(rest) > 1 else ""
    if verb == "get" and rest and not name:
        verb = "watch" if query.get("watch") in ("true", "1") else "list"
    return Call(verb, resource, namespace, name, path, query)


def limit() -> int:
    """How much a reader may have to hold."""
    return _LIMIT

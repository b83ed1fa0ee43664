"""HTTP/1.1 on asyncio's own protocols, parsed by httptools: a third of what a general client costs per request.

One request at a time on each connection; a connection whose answer was complete goes back to the pool, any other is
closed. No redirects, cookies, compression or upgrades: API servers need none of them, and following a redirect would
hand our credentials to whoever sent it. A stream that is read too slowly stops the sender, and an answer that is larger
than its reader expects is refused (before its first byte, where it says how long it is), so memory stays bounded.
Sockets are set up to notice a peer that is gone without a word.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from .budget import ERROR_BYTES
from .connection import Connection
from .dialing import NoWay, in_words
from .transport import Response, TooLarge, TransportError

_KEEPALIVE_IDLE: Final = 15  # seconds until a quiet connection is probed,
_KEEPALIVE_PROBES: Final = 3  # how often, before it counts as dead,
_UNACKNOWLEDGED_MS: Final = 30_000  # and how long sent data may stay unacknowledged
_POOL_IDLE: Final = 30.0  # below what servers and load balancers allow, so that they do not close under a request
_HIGH_WATER: Final = 1024 * 1024  # unread bytes of a stream at which its sender has to wait
_LONGEST_HEAD: Final = 256 * 1024
_MOST_HEADERS: Final = 256
_MOST_INFORMATIONAL: Final = 16  # answers of 1xx before the answer proper
_UNFRUITFUL: Final = 512 * 1024  # bytes that bring no piece of an answer: a header, or what frames a body, without end
_SMALL: Final = 1024  # pieces of a body up to here are put together: thousands of one byte each cost forty times that
_PUT_TOGETHER: Final = 64 * 1024


class _Wire(asyncio.Protocol):
    """One connection. `exchange` and `open` start an answer; the callbacks of the parser fill it in."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closed = loop.create_future()
        self.idle_since = 0.0
        self.reusable = False  # the last answer came whole, and the server keeps the connection
        self.status = 0
        self.host = self.prefix = ""
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self.headers: dict[str, str] = {}
        self._head_size = self._head_count = self._informational = self._unfruitful = 0
        self._limit = 0
        self._parts: list[bytes | bytearray] = []
        self._buffered = 0
        self._paused = False
        self._streaming = False
        self._complete = False
        self._error: TransportError | None = None
        self._answer: asyncio.Future[None] | None = None  # the whole answer, or the head of a stream
        self._more: asyncio.Future[None] | None = None  # the next piece of a stream

    def head(self, method: str, target: str, lines: str) -> bytes:
        """The head of a request to whoever is at the other end."""
        return f"{method} {self.prefix}{target} HTTP/1.1\r\nHost: {self.host}\r\n{lines}\r\n".encode("latin-1")

    async def exchange(self, head: bytes, body: bytes | None, limit: int) -> Response:
        """Send a request, and wait for its whole answer."""
        self._limit = limit
        await self._send(head, body, streaming=False)
        parts, self._parts = self._parts, []
        return Response(self.status, self.headers, _joined(parts))

    async def open(self, head: bytes) -> None:
        """Send a request, and wait for the head of its answer."""
        await self._send(head, None, streaming=True)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._parts:
                parts, self._parts, self._buffered = self._parts, [], 0
                if self._paused and self._transport is not None:
                    self._paused = False
                    self._transport.resume_reading()
                yield _joined(parts)
            elif self._complete:
                return
            elif self._error is not None:
                raise self._error
            else:
                self._more = self._loop.create_future()
                await self._more

    async def read(self, limit: int) -> bytes:
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                raise TooLarge(limit)
        return bytes(body)

    def abort(self) -> None:
        """Close without ceremony. What was asked for and not answered is taken back, as far as it has not arrived."""
        if self._transport is not None:
            if self._parser is not None and not self.status:
                _take_back(self._transport.get_extra_info("socket"))
            self._transport.abort()
        self.reusable = False

    async def _send(self, head: bytes, body: bytes | None, *, streaming: bool) -> None:
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self.headers, self._parts = {}, []
        self.status = self._buffered = self._head_size = self._head_count = self._informational = self._unfruitful = 0
        self._complete = self.reusable = False
        self._streaming = streaming
        self._answer = self._loop.create_future()
        self._transport.write(head + body if body else head)
        await self._answer

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of that class
        _watch_over(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if self._parser is None:  # nobody asked: whatever this is, it is not an answer
            self.abort()
            return
        self._unfruitful += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # which nobody asked for
            self._refuse(_no_http("it wants to speak something else"))
            return
        except httptools.HttpParserError as error:
            too_large = error.__context__ if isinstance(error.__context__, TooLarge) else None
            self._refuse(too_large or _no_http(error))
            return
        if self._unfruitful > _UNFRUITFUL:
            self._refuse(_no_http("headers without end"))
            return
        if self._streaming and self._parts:
            self._wake()
            if self._buffered > _HIGH_WATER and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.reusable = False
        if self._parser is not None and self.status and _ends_with_the_connection(self.headers) and error is None:
            self.on_message_complete()
        elif self._parser is not None:
            where = "in mid-stream" if self._streaming else "in mid-answer"
            why = in_words(error) if error is not None else "closed by the server"
            broke = f"the connection broke {where if self.status else 'before an answer came'} ({why})"
            self._fail(TransportError(broke, sent=True))
        if not self.closed.done():
            self.closed.set_result(None)

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.headers, self.status = {}, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        self._head_count += 1
        if self._head_size > _LONGEST_HEAD or self._head_count > _MOST_HEADERS:
            raise ValueError("headers without end")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"  # a server may warn more than once

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        self._unfruitful = 0
        if status >= 200:
            self.status = status
            if self._streaming:
                self._answered()
                return
            if status >= 300:
                self._limit = min(self._limit, ERROR_BYTES)
            announced = self.headers.get("content-length", "")
            if announced.isdigit() and (len(announced) > 15 or int(announced) > self._limit):
                raise TooLarge(self._limit)
        else:
            self._informational += 1
            if self._informational > _MOST_INFORMATIONAL:
                raise ValueError("never comes to the answer proper")

    def on_body(self, body: bytes) -> None:
        self._unfruitful = 0
        self._buffered += len(body)
        if not self._streaming and self._buffered > self._limit:
            raise TooLarge(self._limit)
        if len(body) > _SMALL:
            self._parts.append(body)
            return
        last = self._parts[-1] if self._parts else None
        if isinstance(last, bytearray) and len(last) < _PUT_TOGETHER:
            last += body
        else:
            self._parts.append(bytearray(body))

    def on_message_complete(self) -> None:
        if not self.status:  # 1xx: the answer proper follows
            return
        self.reusable = self._transport is not None and self._parser is not None and self._parser.should_keep_alive()
        self._parser = None
        self._complete = True
        self._answered()
        self._wake()

    def _refuse(self, error: TransportError) -> None:
        self._fail(error)
        self.abort()

    def _fail(self, error: TransportError) -> None:
        self._parser = None
        self._parts, self._error = [] if not self._streaming else self._parts, error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._error)
        self._wake()

    def _answered(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


class Http1Transport:
    """The connections to one server. Has to be used on one event loop."""

    def __init__(self, connection: Connection) -> None:
        parts = urlsplit(connection.server)
        self._server, self._netloc, self._prefix = connection.server, parts.netloc, parts.path
        self._dial = connection.dial
        self._idle: list[_Wire] = []
        self._all: dict[_Wire, None] = {}  # in order: a run can be repeated exactly

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        limit: int,
        check: Callable[[], None] | None = None,
    ) -> Response:
        lines = _head_lines(target, headers, body)
        wire = await self._take()
        try:
            head = wire.head(method, target, lines)
            if check is not None:
                check()  # not earlier: connecting takes time, in which what is checked may change
            return await wire.exchange(head, body, limit)
        finally:
            self._give_back(wire)

    @asynccontextmanager
    async def stream(self, method: str, target: str, headers: Mapping[str, str]) -> AsyncIterator[_Wire]:
        lines = _head_lines(target, headers, None)
        wire = await self._take()
        try:
            await wire.open(wire.head(method, target, lines))
            yield wire
        finally:
            self._give_back(wire)

    async def close(self) -> None:
        self._idle.clear()
        for wire in tuple(self._all):
            wire.abort()
        if self._all:
            await asyncio.wait([wire.closed for wire in self._all])

    async def _take(self) -> _Wire:
        """The connection that was used last, so that those that are not needed grow old; or a new one."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            wire = self._idle.pop()
            if wire.reusable and now - wire.idle_since < _POOL_IDLE:
                return wire
            wire.abort()
        try:
            wire = await self._connect()
        except ssl.SSLCertVerificationError as error:
            message = f"the certificate of {self._server} is not to be trusted: {error.verify_message}"
            raise TransportError(message, sent=False) from error
        except NoWay as error:
            raise TransportError(str(error), sent=False) from error
        except OSError as error:
            raise TransportError(f"no connection to {self._server} ({in_words(error)})", sent=False) from error
        self._all[wire] = None
        wire.closed.add_done_callback(lambda _: self._all.pop(wire, None))
        return wire

    def _give_back(self, wire: _Wire) -> None:
        if wire.reusable:
            wire.idle_since = asyncio.get_running_loop().time()
            self._idle.append(wire)
        else:
            wire.abort()

    async def _connect(self) -> _Wire:
        loop = asyncio.get_running_loop()
        dialed = await self._dial(lambda: _Wire(loop))
        if dialed.server != self._server:
            parts = urlsplit(dialed.server)
            dialed.protocol.host, dialed.protocol.prefix = parts.netloc, parts.path
        else:
            dialed.protocol.host, dialed.protocol.prefix = self._netloc, self._prefix
        return dialed.protocol


def _head_lines(target: str, headers: Mapping[str, str], body: bytes | None) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if body is not None:
        lines += f"Content-Length: {len(body)}\r\n"
    if " " in target or not target.isprintable() or lines.count("\r\n") != lines.count("\n"):
        raise ValueError(f"a path or header with spaces or line breaks: {target!r}")
    return lines


def _no_http(why: object) -> TransportError:
    return TransportError(f"the server does not answer in HTTP ({why})", sent=True)


def _joined(parts: list[bytes | bytearray]) -> bytes:
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)  # of bytes that is no copy


def _ends_with_the_connection(headers: Mapping[str, str]) -> bool:
    return "content-length" not in headers and "transfer-encoding" not in headers


def _watch_over(sock: socket.socket | None) -> None:
    """Notice when the other side is gone."""
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_NODELAY", 1),
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", _KEEPALIVE_IDLE),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS),
    ):
        if hasattr(socket, option):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _take_back(sock: socket.socket | None) -> None:
    """Once closed, nothing more is sent: else the system goes on trying for as long as _UNACKNOWLEDGED_MS, and a write
    arrives behind the back of whoever gave up on it and has gone on."""
    if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
        with suppress(OSError):  # it is closed already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

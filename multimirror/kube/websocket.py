"""The client's half of a WebSocket (RFC 6455), over the same connections and credentials as every other request.

API servers speak it for what flows both ways: exec, attach, port-forward. Only what that needs is here: binary
messages, whole ones up to a limit, pings answered. A server that refuses says so as any other does, by an ApiError.
"""

import asyncio
import base64
import hashlib
import os
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode, urlsplit

from .budget import ERROR_BYTES
from .client import Client
from .dialing import NoWay, in_words
from .errors import ApiError, BadAnswer, TimedOut, Unreachable, error_from_answer

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LONGEST_MESSAGE: Final = 4 * 1024 * 1024
_LONGEST_HEAD: Final = 64 * 1024
_GOODBYE_SECONDS: Final = 1.0
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL, _MASKED = 0x80, 0x80


class WebSocket:
    """An open one. Use as `async with await open_websocket(...) as socket:`; whoever leaves closes it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cluster: str, subprotocol: str
    ) -> None:
        self.subprotocol = subprotocol
        """The one of those that were offered which the server speaks."""
        self._reader, self._writer, self._cluster = reader, writer, cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._writer.is_closing():
            with suppress(OSError, RuntimeError):
                self._writer.write(_frame(_CLOSE, struct.pack("!H", 1000)))
        self._writer.close()  # what was written goes out first
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._writer.wait_closed()
        except OSError:  # it broke, or nobody is there to say goodbye to
            self._writer.transport.abort()

    async def send(self, message: bytes) -> None:
        """Waits while the server takes nothing more. Raises Unreachable."""
        await self._write(_frame(_BINARY, message))

    async def ping(self) -> None:
        """So that nobody on the way takes a quiet connection for a dead one."""
        await self._write(_frame(_PING, b""))

    async def receive(self) -> bytes | None:
        """The next message; None when the server has closed it. Raises Unreachable, BadAnswer."""
        message = bytearray()
        while True:
            try:
                kind, final, payload = await self._read_frame(_LONGEST_MESSAGE - len(message))
            except asyncio.IncompleteReadError:
                raise Unreachable("the connection broke in mid-stream", cluster=self._cluster) from None
            except OSError as error:
                raise Unreachable(f"the connection broke ({in_words(error)})", cluster=self._cluster) from error
            if kind == _CLOSE:
                return None
            if kind == _PING:
                await self._write(_frame(_PONG, payload))
            elif kind in {_CONTINUATION, _TEXT, _BINARY}:
                message += payload
                if final:
                    return bytes(message)

    async def _write(self, frame: bytes) -> None:
        if self._writer.is_closing():  # what is written to such a one ends in other errors than those of the network
            raise Unreachable("the connection is closed", cluster=self._cluster)
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except OSError as error:
            raise Unreachable(f"the connection broke ({in_words(error)})", cluster=self._cluster) from error

    async def _read_frame(self, limit: int) -> tuple[int, bool, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
        if second & _MASKED or size > limit:
            raise BadAnswer("what it sends is no WebSocket, or too large a message", cluster=self._cluster)
        return first & 0x0F, bool(first & _FINAL), await self._reader.readexactly(size)


async def open_websocket(
    client: Client, path: str, query: Sequence[tuple[str, str]], subprotocols: Sequence[str]
) -> WebSocket:
    """Ask for one, as that client would for anything else and within its time. Raises ApiError."""
    try:
        async with asyncio.timeout(client.timeout):
            return await _opened(client, f"{path}?{urlencode(query)}", path, subprotocols)
    except TimeoutError as error:
        raise TimedOut(f"no answer to {path} in {client.timeout:g} s", cluster=client.cluster) from error
    except NoWay as error:
        raise Unreachable(str(error), cluster=client.cluster) from error
    except (OSError, asyncio.IncompleteReadError) as error:
        message = f"no connection to {client.connection.server} ({in_words(error)})"
        raise Unreachable(message, cluster=client.cluster) from error
    except asyncio.LimitOverrunError as error:
        raise BadAnswer("headers without end", cluster=client.cluster) from error


async def _opened(client: Client, target: str, path: str, subprotocols: Sequence[str]) -> WebSocket:
    key = base64.b64encode(os.urandom(16))
    own = {
        "Accept": "*/*",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key.decode(),
        "Sec-WebSocket-Protocol": ", ".join(subprotocols),
    }
    headers = await client.request_headers(own)
    reader = asyncio.StreamReader(limit=_LONGEST_HEAD)
    dialed = await client.connection.dial(lambda: asyncio.StreamReaderProtocol(reader))
    writer = asyncio.StreamWriter(dialed.transport, dialed.protocol, reader, asyncio.get_running_loop())
    parts = urlsplit(dialed.server)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET {parts.path}{target} HTTP/1.1\r\nHost: {parts.netloc}\r\n{lines}\r\n".encode("latin-1"))
    try:
        spoken = await _agreed(client, reader, path, key)
    except BaseException:
        dialed.transport.abort()
        raise
    if spoken not in subprotocols:
        dialed.transport.abort()
        raise _another_protocol(client, path)
    return WebSocket(reader, writer, client.cluster, spoken)


async def _agreed(client: Client, reader: asyncio.StreamReader, path: str, key: bytes) -> str:
    """Which subprotocol the server has chosen. Raises the error with which it refuses."""
    status, answer = _parsed(await reader.readuntil(b"\r\n\r\n"), client.cluster)
    if status != 101:
        raise await _refusal(client, reader, status, answer, path)
    accepted = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    if answer.get("sec-websocket-accept") != accepted:
        raise _another_protocol(client, path)
    return answer.get("sec-websocket-protocol", "")


def _another_protocol(client: Client, path: str) -> BadAnswer:
    return BadAnswer(f"{path}: what answers there speaks another protocol", cluster=client.cluster)


def _parsed(head: bytes, cluster: str) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not re.fullmatch("[1-5][0-9]{2}", words[1]):
        raise BadAnswer("the server does not answer in HTTP", cluster=cluster)
    pairs = (line.partition(":") for line in lines if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _refusal(
    client: Client, reader: asyncio.StreamReader, status: int, headers: Mapping[str, str], path: str
) -> ApiError:
    announced = headers.get("content-length", "")
    size = min(int(announced), ERROR_BYTES) if announced.isdecimal() and len(announced) < 10 else 0
    return error_from_answer(
        status,
        await reader.readexactly(size),
        cluster=client.cluster,
        url=client.connection.server + path,
        write=False,
    )


def _frame(kind: int, payload: bytes) -> bytes:
    """What a client sends is masked, so that no proxy on the way can be made to take it for something else."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", _FINAL | kind, _MASKED | size)
    elif size < 65536:
        head = struct.pack("!BBH", _FINAL | kind, _MASKED | 126, size)
    else:
        head = struct.pack("!BBQ", _FINAL | kind, _MASKED | 127, size)
    mask = os.urandom(4)
    repeated = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ repeated).to_bytes(size, "big")

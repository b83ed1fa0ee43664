"""Many connections over one pipe: frames, and for each connection as many bytes under way as its reader allows.

A frame is a kind (1 byte), the number of its connection (4), a length (4) and that many bytes:

    OPEN    where its address is stored; the connection has that number from now on
    OPENED  it is there
    DATA    a piece of it
    CREDIT  so many more bytes may be sent (4 bytes): those that its reader has taken
    CLOSE   it has ended, or was never made; in words why

Without credit, one connection that nobody reads from (a log that is shown slowly) would hold up all others.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from multimirror.kube.errors import printable
from multimirror.kube.supervise import Supervisor

_HEAD: Final = struct.Struct("!BII")
_COUNT: Final = struct.Struct("!I")
WINDOW: Final = 256 * 1024
_PIECE: Final = 32 * 1024 - _HEAD.size
"""A frame goes out in one message: one that is cut off in the middle of two would be the end of all connections."""
_LONGEST: Final = 64 * 1024
_LONGEST_WORDS: Final = 1000
_MOST: Final = 256
"""Connections at a time."""


class Kind(IntEnum):
    OPEN = 1
    OPENED = 2
    DATA = 3
    CREDIT = 4
    CLOSE = 5


_KINDS: Final = frozenset(map(int, Kind))


@dataclass(frozen=True, slots=True)
class Frame:
    kind: Kind
    stream: int
    payload: bytes = b""

    def encoded(self) -> bytes:
        return _HEAD.pack(self.kind, self.stream, len(self.payload)) + self.payload


class ProtocolError(OSError):
    """What came is no frame: the other side is something else."""


class Frames:
    """Puts frames together from pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Those that are complete now. Raises ProtocolError."""
        self._buffer += data
        found: list[Frame] = []
        while len(self._buffer) >= _HEAD.size:
            kind, stream, size = _HEAD.unpack_from(self._buffer)
            if size > _LONGEST or kind not in _KINDS:
                raise ProtocolError(None, "what it sends is not understood")
            end = _HEAD.size + size
            if len(self._buffer) < end:
                break
            found.append(Frame(Kind(kind), stream, bytes(self._buffer[_HEAD.size : end])))
            del self._buffer[:end]
        return found


class Stream:
    """One connection: what comes over the pipe is written to it, what is read from it goes into the pipe."""

    def __init__(self, number: int, send: Callable[[Frame], Awaitable[None]]) -> None:
        self.number = number
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._send = send
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._waiting = 0  # bytes that have come and were not taken yet
        self._closed = False
        self._credit, self._more = WINDOW, asyncio.Event()

    def received(self, frame: Frame) -> None:
        """Raises ProtocolError."""
        match frame.kind:
            case Kind.OPENED:
                if not self.opened.done():
                    self.opened.set_result(None)
            case Kind.DATA if frame.payload:  # those without would be many, and count for nothing
                self._waiting += len(frame.payload)
                if self._waiting > WINDOW:
                    raise ProtocolError(None, "it sends more than it may")
                self._arrived.put_nowait(frame.payload)
            case Kind.CREDIT if len(frame.payload) == _COUNT.size:
                self._credit += _COUNT.unpack(frame.payload)[0]
                self._more.set()
            case Kind.CLOSE:
                said = printable(frame.payload[:_LONGEST_WORDS].decode("utf-8", "replace"))
                self.close(OSError(None, said or "closed by the other side"))

    def close(self, why: OSError) -> None:
        """Nothing more comes; what has come is still written."""
        if not self.opened.done():
            self.opened.set_exception(why)
            self.opened.exception()  # whoever waits for it is told; nobody need
        if not self._closed:
            self._closed = True
            self._arrived.put_nowait(None)

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both ways, until one of them ends."""
        try:
            async with asyncio.TaskGroup() as both:
                ways = [both.create_task(self._out(reader)), both.create_task(self._in(writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _out(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):  # the connection has broken, or the pipe
            while True:
                while not self._credit:
                    self._more.clear()
                    await self._more.wait()
                data = await reader.read(min(_PIECE, self._credit))
                if not data:
                    return
                self._credit -= len(data)
                await self._send(Frame(Kind.DATA, self.number, data))

    async def _in(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while (data := await self._arrived.get()) is not None:
                writer.write(data)
                await writer.drain()
                self._waiting -= len(data)
                await self._send(Frame(Kind.CREDIT, self.number, _COUNT.pack(len(data))))


Opening = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Streams:
    """The connections of one pipe, at either of its ends."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], tasks: Supervisor) -> None:
        self._write, self._tasks = write, tasks
        self._turn = asyncio.Lock()  # a frame goes out whole
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._ended: OSError | None = None

    async def follow(self, incoming: AsyncIterator[bytes], opening: Opening | None = None) -> None:
        """Until the pipe ends. `opening`: who makes a connection that the other side asks for. Raises ProtocolError."""
        frames = Frames()
        async for data in incoming:
            for frame in frames.feed(data):
                self._received(frame, opening)

    def _received(self, frame: Frame, opening: Opening | None) -> None:
        if frame.kind is Kind.OPEN:
            if opening is None or frame.stream in self._streams or len(self._streams) >= _MOST:
                raise ProtocolError(None, "it opens what it may not")
            stream = self._streams[frame.stream] = Stream(frame.stream, self._send)
            name = frame.payload.decode("utf-8", "replace")
            self._tasks.start(f"stream {frame.stream}", self._serve(stream, name, opening), may_return=True)
        elif (known := self._streams.get(frame.stream)) is not None:
            known.received(frame)

    async def open(self, name: str) -> Stream:
        """Ask the other side for one; its `copy` is the caller's. Raises OSError with what the other side says."""
        if self._ended is not None:
            raise self._ended
        if len(self._streams) >= _MOST:
            raise OSError(None, f"more than {_MOST} connections at a time")
        self._last += 1
        stream = self._streams[self._last] = Stream(self._last, self._send)
        try:
            await self._send(Frame(Kind.OPEN, stream.number, name.encode()))
            await stream.opened
        except BaseException:
            self._streams.pop(stream.number, None)
            raise
        return stream

    async def carry(self, stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy both ways until it ends, and say so to the other side."""
        try:
            await stream.copy(reader, writer)
        finally:
            self._streams.pop(stream.number, None)
            with suppress(OSError):
                await self._send(Frame(Kind.CLOSE, stream.number))

    def close(self, why: OSError) -> None:
        """The pipe has ended, and all that is in it."""
        self._ended = why
        for stream in tuple(self._streams.values()):
            stream.close(why)

    async def _serve(self, stream: Stream, name: str, opening: Opening) -> None:
        try:
            reader, writer = await opening(name)
        except OSError as error:
            self._streams.pop(stream.number, None)
            words = (error.strerror or str(error) or type(error).__name__).encode()[:_LONGEST_WORDS]
            with suppress(OSError):
                await self._send(Frame(Kind.CLOSE, stream.number, words))
            return
        with suppress(OSError):
            await self._send(Frame(Kind.OPENED, stream.number))
        await self.carry(stream, reader, writer)

    async def _send(self, frame: Frame) -> None:
        async with self._turn:
            await self._write(frame.encoded())

"""The bytes of one connection, as they come and no faster than they are taken.

Not asyncio's streams: those keep the error that a connection ended with, its traceback keeps the frames that met it,
and these keep the stream. Each connection is a cycle then, with all its buffers, and the garbage collector, which our
processes run seldom, has to find it: whoever opens and closes connections fills the memory. Here nothing is kept that
points back, and what is over lets go of everything.
"""

import asyncio
from typing import cast


class Gone(Exception):  # noqa: N818 - not a fault
    """There is nothing more to be read, or nobody to write to."""


class TooLong(Exception):  # noqa: N818 - not a fault of ours
    """What was waited for did not come within so many bytes."""


class Stream(asyncio.Protocol):
    """One connection, read and written by one task."""

    def __init__(self, ahead: int) -> None:
        """`ahead`: how many bytes are taken before anybody has asked for them."""
        self._ahead = self._wanted = ahead
        self._buffer = bytearray()
        self._over = False
        self._paused = False
        self._clogged = False  # the other side does not read
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read_until(self, end: bytes, most: int) -> bytes:
        """Up to and with `end`. Raises TooLong."""
        while (found := self._buffer.find(end)) < 0:
            if len(self._buffer) > most:
                raise TooLong
            await self._more(most)
        return self._take(found + len(end))

    async def read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._more(size)
        return self._take(size)

    async def any(self) -> bool:
        """Wait for a byte, and leave it; False when there will be none."""
        try:
            while not self._buffer:
                await self._more(1)
        except Gone:
            return False
        return True

    async def write(self, data: bytes) -> None:
        """It has gone out, or can go: no more than one answer waits for a reader."""
        if self._transport is None or self._over:
            raise Gone
        self._transport.write(data)
        while self._clogged:
            await self._wait()

    async def close(self) -> None:
        """In an orderly way; `abort` ends it however far that has come."""
        if self._transport is not None:
            self._transport.close()
            while self._transport is not None:
                await self._wait()

    def hang_up(self) -> None:
        """Begin to close it in an orderly way; whoever reads learns that there will be nothing more."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._buffer = bytearray()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size]) if size < len(self._buffer) else bytes(self._buffer)
        del self._buffer[:size]
        return taken

    async def _more(self, wanted: int) -> None:
        if self._over or self._transport is None:
            raise Gone
        self._wanted = max(wanted, self._ahead)
        if self._paused and len(self._buffer) <= self._wanted:
            self._paused = False
            self._transport.resume_reading()
        try:
            await self._wait()
        finally:
            self._wanted = self._ahead

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > self._wanted and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._over = True
        self._wake()
        return False

    def pause_writing(self) -> None:
        self._clogged = True

    def resume_writing(self) -> None:
        self._clogged = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over, self._clogged = True, False
        self._transport = None
        self._wake()

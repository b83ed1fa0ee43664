"""A whole fleet in one process, on time that is only counted: the same seed gives the same run, and waiting is free.

`install` replaces the process's clocks and sources of chance, so it has to come before anything that remembers them is
imported (`python -m faults` starts a process for it). On a `SimulatedLoop` connections are pairs of objects in memory;
each piece of data takes a small time of its own, drawn from the seed, so that another seed is also another order of
things. Data on one connection stays in order. Nobody is ever slow: time passes only when everybody waits, so a loaded
machine changes nothing.

Not simulated: TLS (contexts are ignored), name resolution, full buffers, threads.
"""

import asyncio
import itertools
import os
import random
import selectors
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Self

_EPOCH: Final = 1_800_000_000.0
_FASTEST, _SLOWEST = 0.000_05, 0.002
_APART: Final = 1e-7  # timers of the same moment have no order
_FIRST_PORT: Final = 20_000
_Random = random.Random

EXACT: ContextVar[bool] = ContextVar("EXACT", default=False)
"""Connections made where this is set take no time at all: whoever looks through them sees things as they happen."""


class DeadlockError(RuntimeError):
    """Everybody waits, and nothing will ever happen."""


class _Selector(selectors.SelectSelector):
    """Instead of waiting for sockets, of which there are none, time moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError("everybody waits, and there is no timer")
        if timeout > 0:
            self.now += timeout
        return []


class _Address:
    """What stands in for a listening socket."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        """Where it listens."""
        return self._name


class MemoryServer(asyncio.AbstractServer):
    """Listens on a port of the simulation."""

    def __init__(self, loop: "SimulatedLoop", factory: Callable[[], asyncio.BaseProtocol], port: int) -> None:
        self._loop, self.factory, self._port = loop, factory, port
        self.sockets = [_Address("127.0.0.1", port)]

    def close(self) -> None:
        """Nobody gets in any more; who is in stays."""
        self._loop.servers.pop(self._port, None)

    async def wait_closed(self) -> None:
        """There is nothing to wait for."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it serves on."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether it listens."""
        return self._port in self._loop.servers

    async def start_serving(self) -> None:
        """It does already."""

    async def serve_forever(self) -> None:
        """Until cancelled."""
        await self._loop.create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, loop: "SimulatedLoop", protocol: asyncio.BaseProtocol, *, ours: int, theirs: int, exact: bool
    ) -> None:
        super().__init__({"sockname": ("127.0.0.1", ours), "peername": ("127.0.0.1", theirs)})
        self._exact = exact
        self._chance = _Random(loop.seed * 100_003 + ours)  # its own: who else talks changes nothing here
        self._loop, self._protocol = loop, protocol
        self.peer: MemoryTransport | None = None
        self._arrives = 0.0  # when the last piece that was sent gets there
        self._closing = self._lost = False
        self._reading = True
        self._kept: list[bytes | None] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; it arrives after a while."""
        if data and not self._closing:
            self._send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        """Send all of it."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """As TCP can."""
        return True

    def write_eof(self) -> None:
        """Nothing more comes from here."""
        if not self._closing:
            self._send(None)

    def close(self) -> None:
        """Hang up, after what was written has been sent."""
        if not self._closing:
            self._closing = True
            self._send(None)
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Hang up at once; the other side sees a broken connection."""
        if self._lost:
            return
        self._closing = True
        self._loop.call_soon(self._lose, None)
        if self.peer is not None:
            self._loop.call_later(self._latency(), self.peer.broken)

    def broken(self) -> None:
        """The other side hung up in the middle."""
        self._closing = True
        self._lose(ConnectionResetError(104, "Connection reset by peer"))

    def is_closing(self) -> bool:
        """Whether it is over, or about to be."""
        return self._closing

    def is_reading(self) -> bool:
        """Whether data is passed on to the protocol."""
        return self._reading

    def pause_reading(self) -> None:
        """Keep what comes."""
        self._reading = False

    def resume_reading(self) -> None:
        """Pass on what came."""
        self._reading = True
        kept, self._kept = self._kept, []
        for data in kept:
            self.arrive(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Somebody else listens from now on."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who listens."""
        return self._protocol

    def get_write_buffer_size(self) -> int:
        """What the other side does not want to read yet. Buffers are never full."""
        kept = self.peer._kept if self.peer is not None else ()
        return sum(len(data) for data in kept if data is not None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Buffers are never full."""

    def arrive(self, data: bytes | None) -> None:
        """A piece of data, or the end of them, has come."""
        if self._lost:
            return
        if not self._reading:
            self._kept.append(data)
        elif data is not None:
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(data)
        else:
            assert isinstance(self._protocol, asyncio.Protocol)
            if not self._protocol.eof_received():
                self.close()

    def _send(self, data: bytes | None) -> None:
        assert self.peer is not None
        if self._exact:
            self._loop.call_soon(self.peer.arrive, data)
            return
        self._arrives = max(self._arrives + _APART, self._loop.time() + self._latency())
        self._loop.call_at(self._arrives, self.peer.arrive, data)

    def _latency(self) -> float:
        return self._chance.uniform(_FASTEST, _SLOWEST)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop without an outside."""

    def __init__(self, seed: int = 0) -> None:
        self._simulated = _Selector()
        super().__init__(self._simulated)
        self.servers: dict[int, MemoryServer] = {}
        self._ports = itertools.count(_FIRST_PORT)
        self.seed = seed

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._simulated.now

    async def create_server(  # type: ignore[override] # what is left out has no meaning here
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: object = None,
        port: int | None = None,
        *,
        ssl: ssl.SSLContext | None = None,
        **_: object,
    ) -> MemoryServer:
        """Listen on a port of the simulation."""
        wanted = port or next(self._ports)
        if wanted in self.servers:
            raise OSError(98, f"port {wanted} is taken")
        self.servers[wanted] = server = MemoryServer(self, protocol_factory, wanted)
        return server

    async def create_connection(  # type: ignore[override] # what is left out has no meaning here
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: object = None,
        port: int | None = None,
        **_: object,
    ) -> tuple[MemoryTransport, asyncio.BaseProtocol]:
        """Connect to a port of the simulation."""
        assert port is not None
        await asyncio.sleep(_FASTEST)
        server = self.servers.get(port)
        if server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        ours = next(self._ports)
        mine, theirs = protocol_factory(), server.factory()
        exact = EXACT.get()
        here = MemoryTransport(self, mine, ours=ours, theirs=port, exact=exact)
        there = MemoryTransport(self, theirs, ours=port, theirs=ours, exact=exact)
        here.peer, there.peer = there, here
        theirs.connection_made(there)
        mine.connection_made(here)
        return here, mine

    def run_in_executor(  # type: ignore[override] # typing says more of it than is needed here
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """There are no threads: it is done at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is passed on
            future.set_exception(error)
        return future


_SOURCE: Final = _Random()


class _Seeded(_Random):
    """One that nobody gave a seed gets one from ours."""

    def __init__(self, x: Any = None) -> None:
        super().__init__(_SOURCE.getrandbits(64) if x is None else x)


class _InOrder(dict[Any, None]):
    """As much of a set as a TaskGroup needs."""

    def add(self, item: Any) -> None:
        """Put it at the end."""
        self[item] = None

    def discard(self, item: Any) -> None:
        """Take it out, if it is there."""
        self.pop(item, None)


def install(seed: int) -> None:
    """Replace the clocks and the sources of chance of this process; before anything else is imported."""
    real = time.time()
    running = asyncio._get_running_loop

    def seconds() -> float:
        loop = running()
        return loop.time() if isinstance(loop, SimulatedLoop) else real

    time.time = lambda: _EPOCH + seconds()
    time.monotonic = time.perf_counter = seconds
    time.clock_gettime = lambda _: seconds()
    make = asyncio.TaskGroup.__init__

    def in_order(group: Any) -> None:
        make(group)
        group._tasks = _InOrder()

    os.urandom = _SOURCE.randbytes
    random._urandom = _SOURCE.randbytes  # type: ignore[attr-defined] # what `secrets` draws from
    random.Random = _Seeded  # type: ignore[misc] # for everybody who asks from now on
    asyncio.TaskGroup.__init__ = in_order  # type: ignore[method-assign, assignment] # sets of tasks are ordered by addresses
    reseed(seed)


def reseed(seed: int) -> None:
    """From here on chance is this seed's."""
    _SOURCE.seed(seed)
    random.seed(seed)

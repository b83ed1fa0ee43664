"""An HTTPS server for one path that is posted to, bounded before anything is read, decrypted or parsed.

Whoever reaches the port may send what he likes; API servers are known by their client certificates only where the
operator has given an authority for those. So:

- connections are counted before the handshake, in all and by address; a newcomer takes the place of one that waits for
  its next request. Handshake, head, body and answer have deadlines;
- a body is refused by its announced length, before a byte of it is read; without one, too. Of large bodies only a few
  are taken at a time, of one address fewer: the small ones, which is what Jobs are, never wait for them;
- so many requests are worked on at a time, whoever sent them.

Whoever is sent away is told before (`drain`): a server that is taken out of a Service goes on answering, on connections
that are open and on new ones, says `Connection: close` each time, and ends when nobody has asked for a while. A client
that keeps connections may send its next request just as an idle one is closed, and API servers do not send a POST
again: so idle ones are left until the very end.

What all of this can take of memory is `connections x (TLS + small) + large_bodies x largest`, and what the handler
makes of it.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import parse_qsl

import structlog
from prometheus_client import Counter

from multimirror.admission.stream import Gone, Stream, TooLong
from multimirror.kube.supervise import Supervisor

HUNG_UP: Final = Counter(
    "multimirror_admission_hung_up_total",
    "Connections to the webhook that were closed by us, by why: crowded, handshake, slow, malformed, large.",
    ["reason"],
)
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server takes on."""

    connections: int = 256
    of_a_peer: int = 224
    """An API server has 200 writes in flight at most, by default, and may want a connection for each."""
    head_bytes: int = 16 * 1024
    small_bytes: int = 64 * 1024
    largest_bytes: int = 4 * 2**20
    """An API server takes 3 MiB from its clients, and adds little."""
    large_bodies: int = 4
    """At once: of those above `small_bytes`."""
    large_bodies_of_a_peer: int = 2
    requests: int = 32
    handshake_seconds: float = 5.0
    head_seconds: float = 5.0
    body_seconds: float = 3.0
    idle_seconds: float = 120.0
    """For the next request; API servers keep connections for 90 seconds."""
    write_seconds: float = 5.0
    goodbye_seconds: float = 1.0


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Handler = Callable[[Mapping[str, str], bytes], Awaitable[Answer]]
"""From the parameters and the body of a request to its answer."""


class _HangUp(Exception):  # noqa: N818 - not a fault of ours
    def __init__(self, reason: str, answer: Answer | None = None) -> None:
        super().__init__(reason)
        self.reason, self.answer = reason, answer


class _Connection:
    __slots__ = ("idle", "peer", "stream", "task")

    def __init__(self, peer: str, stream: Stream) -> None:
        self.peer = peer
        self.stream = stream
        self.idle = True
        self.task: asyncio.Task[None] | None = None


class HttpsServer:
    """Serves while the context is open. `port` 0 takes a free one; see `port` afterwards."""

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        handler: Handler,
        *,
        tls: ssl.SSLContext,
        limits: Limits | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._path = path
        self._handler = handler
        self._tls = tls
        self._limits = limits or Limits()
        self._connections: list[_Connection] = []  # the oldest first
        self._large: list[str] = []  # the addresses whose large bodies are being read
        self._turn = asyncio.Semaphore(self._limits.requests)
        self._draining = False
        self._last_asked = 0.0  # on the loop's clock
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as opening:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            listener = socket.create_server((self.host, self.port), family=family, backlog=128)
            opening.callback(listener.close)
            listener.setblocking(False)
            self.port = listener.getsockname()[1]
            tasks = await opening.enter_async_context(Supervisor())
            tasks.start("admission server", self._accept(listener, tasks))
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def drain(self, quiet_seconds: float, most_seconds: float) -> None:
        """Answer, and keep no connection, until nobody has asked for so long; then close those that wait.

        The listener stays open until the context ends. Whoever asks all the time is not waited for beyond the most."""
        loop = asyncio.get_running_loop()
        self._draining = True
        self._last_asked = loop.time()
        deadline = self._last_asked + most_seconds
        left = min(quiet_seconds, most_seconds)
        while left > 0:
            await asyncio.sleep(left)
            left = min(self._last_asked + quiet_seconds, deadline) - loop.time()
        for each in self._connections:
            if each.idle:
                each.stream.hang_up()
        if leaving := [each.task for each in self._connections if each.task is not None]:  # who is answered now, too
            await asyncio.wait(leaving, timeout=self._limits.goodbye_seconds)

    async def _accept(self, listener: socket.socket, tasks: Supervisor) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # between two that are there already, others have their turn
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError:  # gone already, or there are no file descriptors
                await asyncio.sleep(0.01)
                continue
            self._take_in(sock, address[0], tasks)

    def _take_in(self, sock: socket.socket, peer: str, tasks: Supervisor) -> None:
        """Whoever accepts must not keep the connection in his frame, with all its buffers, until the next one comes."""
        self._last_asked = asyncio.get_running_loop().time()
        if not self._make_room(peer):
            HUNG_UP.labels("crowded").inc()
            sock.close()
            return
        connection = _Connection(peer, Stream(self._limits.small_bytes))
        self._connections.append(connection)
        connection.task = tasks.start("admission connection", self._serve(sock, connection), may_return=True)

    def _make_room(self, peer: str) -> bool:
        """Whether a connection from there may come in; for it, one that waits may have to go."""
        of = [each for each in self._connections if each.peer == peer]
        if len(of) >= self._limits.of_a_peer:
            return self._push_out(of)
        if len(self._connections) < self._limits.connections:
            return True
        counts: dict[str, int] = {}
        for each in self._connections:
            counts[each.peer] = counts.get(each.peer, 0) + 1
        most = max(counts, key=counts.__getitem__)
        return self._push_out([each for each in self._connections if each.peer == most])

    def _push_out(self, candidates: list[_Connection]) -> bool:
        idle = next((each for each in candidates if each.idle and each.task is not None), None)
        if idle is None or idle.task is None:
            return False
        idle.task.cancel()
        self._connections.remove(idle)
        return True

    async def _serve(self, sock: socket.socket, connection: _Connection) -> None:
        limits, stream = self._limits, connection.stream
        try:
            await self._shake_hands(sock, stream)
            patience = limits.head_seconds
            while await self._request(stream, connection, patience):
                patience = limits.idle_seconds
            await self._say_goodbye(stream, None)
        except _HangUp as end:
            HUNG_UP.labels(end.reason).inc()
            await self._say_goodbye(stream, end.answer)
        except (OSError, Gone):
            pass  # gone
        except Exception:  # noqa: BLE001 - one connection's trouble is its own
            _log.exception("a connection to the webhook ended")
        finally:
            if connection in self._connections:
                self._connections.remove(connection)
            stream.abort()
            sock.close()
            connection.task = None

    async def _shake_hands(self, sock: socket.socket, stream: Stream) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: stream,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.handshake_seconds,
                ssl_shutdown_timeout=self._limits.goodbye_seconds,
            )
        except OSError:  # also ssl.SSLError: no TLS, or not a certificate that we ask for
            raise _HangUp("handshake") from None

    async def _say_goodbye(self, stream: Stream, answer: Answer | None) -> None:
        """The last words, for as long as somebody listens."""
        with contextlib.suppress(OSError, TimeoutError, Gone):
            async with asyncio.timeout(self._limits.goodbye_seconds):
                if answer is not None:
                    await stream.write(_encoded(answer, keep=False))
                await stream.close()

    async def _request(self, stream: Stream, connection: _Connection, patience: float) -> bool:
        """Answer one; whether another one may follow."""
        limits = self._limits
        connection.idle = True
        try:
            async with asyncio.timeout(patience):
                if not await stream.any():
                    return False
            connection.idle = False
            self._last_asked = asyncio.get_running_loop().time()
            async with asyncio.timeout(limits.head_seconds):
                head = await stream.read_until(b"\r\n\r\n", limits.head_bytes)
        except TimeoutError:
            raise _HangUp("slow") from None
        except TooLong:
            raise _HangUp("malformed") from None
        parameters, length, keep = self._parsed(head)
        with self._room_for(length, connection.peer):
            answer = await self._answer(stream, length, parameters)
        keep = keep and not self._draining
        try:
            async with asyncio.timeout(limits.write_seconds):
                await stream.write(_encoded(answer, keep=keep))
        except TimeoutError:
            raise _HangUp("slow") from None
        return keep

    async def _answer(self, stream: Stream, length: int, parameters: Mapping[str, str]) -> Answer:
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await stream.read_exactly(length)
        except TimeoutError:
            raise _HangUp("slow") from None
        async with self._turn:
            return await self._handler(parameters, body)

    def _parsed(self, head: bytes) -> tuple[Mapping[str, str], int, bool]:
        """Parameters, the length of the body, and whether the connection is to be kept."""
        try:
            request, *lines = head[:-4].decode("latin-1").split("\r\n")
            method, target, version = request.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            path, _, query = target.partition("?")
            parameters = dict(parse_qsl(query, max_num_fields=8))
            length = int(headers["content-length"]) if headers.get("content-length", "").isdecimal() else None
        except ValueError:
            raise _HangUp("malformed") from None
        if path != self._path:
            raise _HangUp("malformed", Answer(404, f"there is {self._path}\n".encode()))
        if method != "POST":
            raise _HangUp("malformed", Answer(405, b"to be posted to\n"))
        if length is None or "transfer-encoding" in headers:
            raise _HangUp("malformed", Answer(411, b"say how long it is\n"))
        if length > self._limits.largest_bytes:
            raise _HangUp("large", Answer(413, f"{self._limits.largest_bytes} bytes are the most\n".encode()))
        return parameters, length, version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"

    @contextlib.contextmanager
    def _room_for(self, length: int, peer: str) -> Iterator[None]:
        """A large body is taken when there is room for it, and not kept waiting."""
        if length <= self._limits.small_bytes:
            yield
            return
        crowded = len(self._large) >= self._limits.large_bodies
        if crowded or self._large.count(peer) >= self._limits.large_bodies_of_a_peer:
            raise _HangUp("large", Answer(503, b"too many large requests at once; try again\n"))
        self._large.append(peer)
        try:
            yield
        finally:
            self._large.remove(peer)


def _encoded(answer: Answer, *, keep: bool) -> bytes:
    return (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    ).encode() + answer.body

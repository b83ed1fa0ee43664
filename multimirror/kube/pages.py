"""Short pages over HTTP/1.1, served by a thread of its own: nothing that is done to the port reaches the event loop.

Whoever can reach the port may do to it what he likes: open connections and leave them, send half a request, many at
once, or ask without ever reading the answer. What that costs is bounded, whatever it is:

- the thread uses a fixed share of a processor at most (`SHARE`): what it has used beyond that it sleeps off. The event
  loop, with which it shares the interpreter, keeps the rest;
- so many connections in all, so many from one address. A newcomer takes the place of an old one: of one of his own that
  has not asked for anything, or, when all places are taken, of the address that has most. Who holds connections keeps
  nobody else out;
- one request at a time: whoever sends more before the answer has gone out is hung up on. So is whoever has not sent
  a request, or not read its answer, after some seconds, and whoever sends anything but a short request for a page;
- so many answers a second to one address; who asks faster waits.

A handler gets the request and a Reply, on this thread. It answers at once, or has somebody else do it (`Reply.send` may
be called from any thread): a request that nobody has answered in time is answered here.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import structlog

MOST_CONNECTIONS: Final = 64
MOST_OF_A_PEER: Final = 8
SHARE: Final = 0.2
"""Of one processor."""
_BURST_SECONDS: Final = 0.2  # of the processor: a page that is long to render is no reason to pause
_LONGEST_PAUSE: Final = 0.25
_LONGEST_HEAD: Final = 8 * 1024
_MOST_REQUESTS: Final = 1000  # over one connection
_RATE, _BURST = 20.0, 40.0  # answers to one address, a second and at once
_REMEMBERED_PEERS: Final = 256

_HEAD_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 75.0  # for the next request of somebody who keeps the connection; Prometheus comes every minute
_WRITE_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 4.0
"""After which a request has been answered by us, if by nobody else. The kubelet waits for five."""

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    429: "Too Many Requests",
    503: "Service Unavailable",
}
_log = structlog.get_logger(__name__)


class Page(NamedTuple):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Request(NamedTuple):
    path: str
    parameters: Mapping[str, str]
    """Of one that is given twice the last counts."""
    peer: str
    """The address that it came from."""


class Reply:
    """Answers one request, once; later calls are of no consequence."""

    def __init__(self, server: "PageServer", connection: "_Connection", number: int) -> None:
        self._server, self._connection, self._number = server, connection, number

    def send(self, page: Page) -> None:
        """From any thread."""
        self._server._answered.append((self._connection, self._number, page))
        self._server._wake()


Handler = Callable[[Request, Reply], None]


class _State(Enum):
    READING = "reading"
    WAITING = "waiting for its turn"
    ASKED = "asked, not yet answered"
    WRITING = "writing"


class _Connection:
    __slots__ = ("born", "close", "deadline", "head", "inbound", "outbound", "peer", "requests", "sock", "state")

    def __init__(self, sock: socket.socket, peer: str, now: float) -> None:
        self.sock, self.peer, self.born = sock, peer, now
        self.inbound = bytearray()
        self.outbound: list[memoryview] = []
        self.state = _State.READING
        self.deadline = now + _HEAD_SECONDS
        self.requests = 0
        self.close = False
        self.head: tuple[str, Request] | None = None  # the method, and what is asked for


class PageServer:
    """Serves from `start` to `stop`. `port` 0 takes a free one; see `port` afterwards."""

    def __init__(self, host: str, port: int, handler: Handler, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.host = host
        self.port = port
        self._handler = handler
        self._clock = clock
        self._connections: dict[socket.socket, _Connection] = {}
        self._buckets: dict[str, tuple[float, float]] = {}  # address: tokens, as of when
        self._answered: deque[tuple[_Connection, int, Page]] = deque()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listener = socket.create_server((self.host, self.port), family=family, backlog=128)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._ours, self._theirs = socket.socketpair()
        for end in (self._ours, self._theirs):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for sock in (self._listener, self._ours):
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Every connection is closed when this returns. The thread never waits for its caller."""
        if self._thread is None:
            return
        self._stopping.set()
        self._wake()
        self._thread.join()
        self._thread = None

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; closed: there is nobody to be woken
            self._theirs.send(b"\0")

    # --- the thread

    def _run(self) -> None:
        debt, seen, used = 0.0, self._clock(), time.thread_time()
        try:
            while not self._stopping.is_set():
                for key, _ in self._selector.select(self._patience()):
                    self._on_event(key)
                self._send_answers()
                self._on_deadlines()
                now, total = self._clock(), time.thread_time()
                debt = max(-_BURST_SECONDS, debt + (total - used) - SHARE * (now - seen))
                seen, used = now, total
                if debt > 0:
                    self._stopping.wait(min(_LONGEST_PAUSE, debt / SHARE))
        except Exception:
            _log.exception("the thread that serves health and metrics ended")
            raise
        finally:
            for connection in list(self._connections.values()):
                self._drop(connection)
            self._selector.close()
            for sock in (self._listener, self._ours, self._theirs):
                sock.close()

    def _patience(self) -> float | None:
        if not self._connections:
            return None
        return max(0.0, min(each.deadline for each in self._connections.values()) - self._clock())

    def _on_event(self, key: selectors.SelectorKey) -> None:
        sock = key.fileobj
        if sock is self._listener:
            self._accept()
        elif sock is self._ours:
            with contextlib.suppress(OSError):
                self._ours.recv(4096)
        else:
            connection = self._connections.get(sock)  # type: ignore[call-overload]  # None: dropped in this round
            if connection is not None and connection.state is _State.WRITING:
                self._write(connection)
            elif connection is not None:
                self._read(connection)

    def _accept(self) -> None:
        for _ in range(32):  # a round; then the others have their turn
            try:
                sock, address = self._listener.accept()
            except OSError:  # nobody is left, or he is gone already, or there are no file descriptors
                return
            if not self._make_room(address[0]):
                sock.close()
                continue
            sock.setblocking(False)
            self._connections[sock] = _Connection(sock, address[0], self._clock())
            self._selector.register(sock, selectors.EVENT_READ)

    def _make_room(self, peer: str) -> bool:
        of = [each for each in self._connections.values() if each.peer == peer]
        if len(of) >= MOST_OF_A_PEER:
            return self._push_out([each for each in of if each.state is _State.READING])
        if len(self._connections) < MOST_CONNECTIONS:
            return True
        counts: dict[str, int] = {}
        for each in self._connections.values():
            counts[each.peer] = counts.get(each.peer, 0) + 1
        most = max(counts, key=counts.__getitem__)
        return self._push_out([each for each in self._connections.values() if each.peer == most])

    def _push_out(self, candidates: list[_Connection]) -> bool:
        """One that has asked for nothing, if there is one; of those the oldest. False where there are none at all."""
        if not candidates:
            return False
        self._drop(min(candidates, key=lambda each: (each.state is not _State.READING, each.born)))
        return True

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        if not connection.inbound:
            connection.deadline = min(connection.deadline, self._clock() + _HEAD_SECONDS)
        connection.inbound += data
        head, found, rest = connection.inbound.partition(b"\r\n\r\n")
        if found:
            self._on_head(connection, bytes(head), rest=bool(rest))
        elif len(connection.inbound) > _LONGEST_HEAD:
            self._drop(connection)

    def _on_head(self, connection: _Connection, head: bytes, *, rest: bool) -> None:
        try:
            method, request, keep = _parsed(head, connection.peer)
        except ValueError:  # not HTTP
            self._drop(connection)
            return
        readable = method in {"GET", "HEAD"}
        if rest and readable:  # the next request, before the answer to this one
            self._drop(connection)
            return
        connection.inbound.clear()
        connection.requests += 1
        # A body would have to be read; who sends one is not who this is for.
        connection.close = not keep or not readable or connection.requests >= _MOST_REQUESTS
        connection.head = (method, request)
        self._selector.unregister(connection.sock)  # until the answer is there
        if not readable:
            self._answer(connection, Page(405, b"only to be read\n"))
            return
        wait = self._take_token(connection.peer)
        connection.state, connection.deadline = _State.WAITING, self._clock() + wait
        if wait <= 0:
            self._ask(connection)

    def _take_token(self, peer: str) -> float:
        """The seconds until this address may be answered (0: now), reserved for this request."""
        now = self._clock()
        if len(self._buckets) >= _REMEMBERED_PEERS:
            full = [each for each, (tokens, at) in self._buckets.items() if tokens + (now - at) * _RATE >= _BURST]
            for each in full or [next(iter(self._buckets))]:
                del self._buckets[each]
        tokens, at = self._buckets.get(peer, (_BURST, now))
        tokens = min(_BURST, tokens + (now - at) * _RATE) - 1
        self._buckets[peer] = (tokens, now)
        return max(0.0, -tokens / _RATE)

    def _ask(self, connection: _Connection) -> None:
        assert connection.head is not None
        connection.state, connection.deadline = _State.ASKED, self._clock() + ANSWER_SECONDS
        reply = Reply(self, connection, connection.requests)
        try:
            self._handler(connection.head[1], reply)
        except Exception:  # noqa: BLE001 - one page's trouble does not end the thread
            _log.exception("a page could not be made", path=connection.head[1].path)
            reply.send(Page(503, b"this page cannot be shown right now\n"))

    def _send_answers(self) -> None:
        while self._answered:
            connection, number, page = self._answered.popleft()
            if connection.state is _State.ASKED and connection.requests == number:
                self._answer(connection, page)

    def _answer(self, connection: _Connection, page: Page) -> None:
        method = connection.head[0] if connection.head is not None else "GET"
        head = (
            f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\nConnection: {'close' if connection.close else 'keep-alive'}\r\n\r\n"
        ).encode()
        connection.outbound = [memoryview(head)]
        if method != "HEAD" and page.body:
            connection.outbound.append(memoryview(page.body))  # the same bytes for all who ask: no copy for each
        connection.state, connection.deadline = _State.WRITING, self._clock() + _WRITE_SECONDS
        self._selector.register(connection.sock, selectors.EVENT_WRITE)
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        try:
            sent = connection.sock.sendmsg(connection.outbound)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(connection)
            return
        while connection.outbound and sent >= len(connection.outbound[0]):
            sent -= len(connection.outbound.pop(0))
        if connection.outbound:
            connection.outbound[0] = connection.outbound[0][sent:]
            return
        if connection.close:
            self._drop(connection)
            return
        connection.state, connection.deadline = _State.READING, self._clock() + _IDLE_SECONDS
        self._selector.modify(connection.sock, selectors.EVENT_READ)

    def _on_deadlines(self) -> None:
        now = self._clock()
        for connection in [each for each in self._connections.values() if each.deadline <= now]:
            match connection.state:
                case _State.WAITING:
                    self._ask(connection)
                case _State.ASKED:
                    self._answer(connection, Page(503, b"no answer in time: the event loop is busy\n"))
                case _:
                    self._drop(connection)
        self._send_answers()

    def _drop(self, connection: _Connection) -> None:
        if self._connections.pop(connection.sock, None) is None:
            return
        connection.state = _State.READING  # an answer that is still on its way finds nobody
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()


def _parsed(head: bytes, peer: str) -> tuple[str, Request, bool]:
    """Method, request, and whether the connection is to be kept. Raises ValueError."""
    request, *lines = head.decode("latin-1").split("\r\n")
    method, target, version = request.split(" ")
    if version not in {"HTTP/1.1", "HTTP/1.0"}:
        raise ValueError(version)
    headers = {name.lower(): value.strip().lower() for name, _, value in (line.partition(":") for line in lines)}
    path, _, query = target.partition("?")
    keep = version == "HTTP/1.1" and headers.get("connection") != "close"
    return method, Request(path, dict(parse_qsl(query, max_num_fields=8)), peer), keep

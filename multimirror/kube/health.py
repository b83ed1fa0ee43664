"""/healthz (the event loop turns), /readyz (the caches are filled) and /metrics, for the kubelet and for Prometheus.

Ready does not mean that all is well with every cluster: a sick worker cluster must not take the controller itself out
of service. A check gives None, or the reason why not, which is shown to whoever asks.

More questions can be added, each with a path and parameters of its own; they are answered in JSON.

A web framework would be more than half of what a controller loads before it is ready; three pages that are only read
need none. Whoever sends anything but a short request for a page, or nothing for a while, is hung up on.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import parse_qsl

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

Check = Callable[[], str | None]
Question = Callable[[Mapping[str, str]], tuple[int, object]]
"""From the parameters of a request to the status and the body of the answer."""
_LONGEST_REQUEST: Final = 16 * 1024
_PATIENCE: Final = 75.0  # for the next request of somebody who keeps the connection; Prometheus comes every minute
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class _Page(NamedTuple):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class HealthServer:
    """Serves while the context is open. `port` 0 takes a free one; see `port` afterwards."""

    def __init__(
        self,
        host: str = "0.0.0.0",  # noqa: S104 - the kubelet and Prometheus come from outside the pod
        port: int = 8080,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self.host = host
        self.port = port
        self._registry = registry
        self._alive: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._questions: dict[str, Question] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    def add_health_check(self, name: str, check: Check) -> None:
        """While this gives a reason, /healthz fails, and the kubelet will restart us."""
        self._alive[name] = check

    def add_ready_check(self, name: str, check: Check) -> None:
        """While this gives a reason, /readyz fails, and no traffic is sent to us."""
        self._ready[name] = check

    def add_question(self, path: str, question: Question) -> None:
        """GET `path` is answered by this; of a parameter that is given twice the last counts."""
        self._questions[path] = question

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, self.host, self.port, limit=_LONGEST_REQUEST)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            for connection in self._connections:
                connection.close()
            await self._server.wait_closed()
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            async with asyncio.timeout(_PATIENCE) as patience:
                while await self._answer_one(reader, writer):
                    patience.reschedule(asyncio.get_running_loop().time() + _PATIENCE)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # gone, or silent, or no HTTP
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; whether another one may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head[:-4].split("\r\n")
        method, target, version = request.split(" ")
        headers = {name.lower(): value.strip().lower() for name, _, value in (line.partition(":") for line in lines)}
        path, _, query = target.partition("?")
        page = self._page(method, path, dict(parse_qsl(query)))
        # A body would have to be read; who sends one is not who this is for.
        keep = version == "HTTP/1.1" and headers.get("connection") != "close" and page.status != 405
        writer.write(
            f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n".encode()
            + (page.body if method != "HEAD" else b"")
        )
        await writer.drain()
        return keep

    def _page(self, method: str, path: str, parameters: Mapping[str, str]) -> _Page:
        if method not in ("GET", "HEAD"):
            return _Page(405, b"only to be read\n")
        match path:
            case "/healthz":
                return _answer(self._alive)
            case "/readyz":
                return _answer(self._ready)
            case "/metrics":
                return _Page(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)
        if path in self._questions:
            status, body = self._questions[path](parameters)
            return _Page(status, orjson.dumps(body), "application/json")
        return _Page(404, f"there are {', '.join(['/healthz', '/readyz', '/metrics', *self._questions])}\n".encode())


def _answer(checks: Mapping[str, Check]) -> _Page:
    """Like the API server's own: a line for each check, and a status for machines."""
    results = {name: check() for name, check in checks.items()}
    lines = [f"[+]{name} ok" if why is None else f"[-]{name} failed: {why}" for name, why in results.items()]
    failed = any(why is not None for why in results.values())
    text = "\n".join([*lines, "not ok" if failed else "ok"]) + "\n"
    return _Page(503 if failed else 200, text.encode())

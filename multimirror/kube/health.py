"""/healthz (the event loop turns), /readyz (the caches are filled) and /metrics, for the kubelet and for Prometheus.

Ready does not mean that all is well with every cluster: a sick worker cluster must not take the controller itself out
of service. A check gives None, or the reason why not, which is shown to whoever asks.

The port is open to whoever reaches it, and the leader's lease is renewed on the event loop. So pages are served by a
thread (pages.py), and what that thread asks of the loop is little, however often it is asked itself:

- checks run on the loop, since that is whose state they read; all who ask before it has come to that share a result.
  Where the loop does not turn, /healthz says so: that is what it is for;
- metrics are rendered on the thread, once a second at most, and seldom enough that it takes no more than a twentieth of
  its time; all who ask in between get the same bytes. Gauges that are functions are called on that thread;
- more questions can be added, each with a path and parameters of its own. They are run on the loop, a few at a time,
  those that take longer as tasks for a few seconds, and answered in JSON, to this host only: what they tell is not for
  everybody (`kubectl port-forward` comes from here).

A web framework would be more than half of what a controller loads before it is ready; three pages that are only read
need none.
"""

import asyncio
import ipaddress
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Self

import orjson
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from .pages import ANSWER_SECONDS, MOST_CONNECTIONS, Page, PageServer, Reply, Request
from .supervise import Supervisor

Check = Callable[[], str | None]
Answer = tuple[int, object]
"""A status, and a body."""
Question = Callable[[Mapping[str, str]], Answer | Awaitable[Answer]]
"""From the parameters of a request to its answer."""
_RENDER_EVERY: Final = 1.0
_RENDER_SHARE: Final = 0.05
_MOST_QUESTIONS: Final = 4  # at once
_ANSWER_SECONDS: Final = ANSWER_SECONDS - 0.2
_log = structlog.get_logger(__name__)


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
        self._alive: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._questions: dict[str, Question] = {}
        self._metrics = _Metrics(registry)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: PageServer | None = None
        # Shared by the loop and the thread:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Reply]] = {}  # for the loop to look at the checks; who came first was answered
        self._asking = 0
        self._answers: Supervisor | None = None  # of the loop; None while it is not open

    def add_health_check(self, name: str, check: Check) -> None:
        """While this gives a reason, /healthz fails, and the kubelet will restart us."""
        self._alive[name] = check

    def add_ready_check(self, name: str, check: Check) -> None:
        """While this gives a reason, /readyz fails, and no traffic is sent to us."""
        self._ready[name] = check

    def add_question(self, path: str, question: Question) -> None:
        """GET `path` from this host is answered by this; of a parameter that is given twice the last counts."""
        self._questions[path] = question

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._answers = await Supervisor().__aenter__()
        self._server = PageServer(self.host, self.port, self._on_request)
        self._server.start()
        self.port = self._server.port
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._answers is not None:
            answers, self._answers = self._answers, None
            await answers.__aexit__(kind, error, trace)

    # --- on the thread

    def _on_request(self, request: Request, reply: Reply) -> None:
        match request.path:
            case "/healthz" | "/readyz":
                self._look(request.path, reply)
            case "/metrics":
                reply.send(self._metrics.page())
            case path if path in self._questions:
                self._question(self._questions[path], request, reply)
            case _:
                known = ", ".join(["/healthz", "/readyz", "/metrics", *self._questions])
                reply.send(Page(404, f"there are {known}\n".encode()))

    def _look(self, path: str, reply: Reply) -> None:
        """Have the loop look at the checks: once for all who wait for it."""
        with self._lock:
            waiting = self._waiting.get(path)
            if waiting is not None:
                waiting.append(reply)
                return
            self._waiting[path] = deque([reply], maxlen=MOST_CONNECTIONS)
        self._on_loop(self._check, path)

    def _question(self, question: Question, request: Request, reply: Reply) -> None:
        if not _is_of_this_host(request.peer):
            text = f"{request.path} is answered to this host only: come by `kubectl port-forward`\n"
            reply.send(Page(403, text.encode()))
            return
        with self._lock:
            if self._asking >= _MOST_QUESTIONS:
                reply.send(Page(429, b"others are asking; try again\n"))
                return
            self._asking += 1
        self._on_loop(self._answer, question, request.parameters, reply)

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(call, *arguments)

    # --- on the loop

    def _check(self, path: str) -> None:
        with self._lock:
            waiting = self._waiting.pop(path, ())
        try:
            page = _page(self._alive if path == "/healthz" else self._ready)
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked gets an answer
            _log.exception("a check failed")
            page = Page(503, f"a check failed: {error!r}\n".encode())
        for reply in waiting:
            reply.send(page)

    def _answer(self, question: Question, parameters: Mapping[str, str], reply: Reply) -> None:
        if self._answers is not None:
            self._answers.start("answer", self._answered(question, parameters, reply), may_return=True)

    async def _answered(self, question: Question, parameters: Mapping[str, str], reply: Reply) -> None:
        page = Page(503, b"this process is being stopped\n")
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = question(parameters)
                status, body = answer if isinstance(answer, tuple) else await answer
            page = Page(status, orjson.dumps(body), "application/json")
        except Exception:  # noqa: BLE001 - whatever it is, whoever asked gets an answer
            _log.exception("a question could not be answered")
            page = Page(503, b"this cannot be answered right now\n")
        finally:
            with self._lock:
                self._asking -= 1
            reply.send(page)


class _Metrics:
    """The page of metrics, rendered seldom. Used by one thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._page: Page | None = None
        self._next = 0.0

    def page(self) -> Page:
        begin = time.monotonic()
        if self._page is None or begin >= self._next:
            self._page = Page(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)
            end = time.monotonic()
            self._next = end + max(_RENDER_EVERY, (end - begin) / _RENDER_SHARE)
        return self._page


def _page(checks: Mapping[str, Check]) -> Page:
    """Like the API server's own: a line for each check, and a status for machines."""
    results = {name: check() for name, check in checks.items()}
    lines = [f"[+]{name} ok" if why is None else f"[-]{name} failed: {why}" for name, why in results.items()]
    failed = any(why is not None for why in results.values())
    text = "\n".join([*lines, "not ok" if failed else "ok"]) + "\n"
    return Page(503 if failed else 200, text.encode())


def _is_of_this_host(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback

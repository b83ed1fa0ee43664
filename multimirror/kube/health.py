"""/healthz (the event loop turns), /readyz (the caches are filled) and /metrics, for the kubelet and for Prometheus.

Ready does not mean that all is well with every cluster: a sick worker cluster must not take the controller itself out
of service. A check gives None, or the reason why not, which is shown to whoever asks.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

Check = Callable[[], str | None]


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
        self._runner: web.AppRunner | None = None

    def add_health_check(self, name: str, check: Check) -> None:
        """While this gives a reason, /healthz fails, and the kubelet will restart us."""
        self._alive[name] = check

    def add_ready_check(self, name: str, check: Check) -> None:
        """While this gives a reason, /readyz fails, and no traffic is sent to us."""
        self._ready[name] = check

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self._alive)

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._ready)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(checks: Mapping[str, Check]) -> web.Response:
    """Like the API server's own: a line for each check, and a status for machines."""
    results = {name: check() for name, check in checks.items()}
    lines = [f"[+]{name} ok" if why is None else f"[-]{name} failed: {why}" for name, why in results.items()]
    failed = any(why is not None for why in results.values())
    return web.Response(text="\n".join([*lines, "not ok" if failed else "ok"]) + "\n", status=503 if failed else 200)

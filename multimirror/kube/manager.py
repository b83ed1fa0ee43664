"""The frame of every controller's process: clients, leadership, health, supervision, and an orderly end.

    async with Manager(connection, "mine", election=Election("mine", "default"), health=HealthServer()) as manager:
        await manager.run(MyController(manager.writer), stop)

A standby follows its clusters, so that it can start at once when it leads. When told to stop, nothing new is taken up,
what runs comes to its end, and the lease is released when all writes were answered. Who loses the lease stops at once,
with LeadershipLost; and so, with TaskEnded, does a process of which a task ended that should not have. Either way the
process is to end, and to be started again by whoever runs it. Until it has, /healthz says which task it was.

`background` is the same for a controller inside another program: no leadership, no health, but supervised as well.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import structlog

from .client import Client
from .connection import Connection
from .health import HealthServer
from .leader import LeaderElector
from .supervise import Supervisor
from .write_guard import WriteGuard

_log = structlog.get_logger(__name__)


class Service(Protocol):
    """What a process is for."""

    @property
    def has_synced(self) -> bool:
        """All caches have been filled."""

    @property
    def working(self) -> bool:
        """Something may be in progress that wants to come to its end."""

    def following(self) -> AbstractAsyncContextManager[None]:
        """Caches fill and stay true inside; nothing is written."""

    async def work(self) -> None:
        """Until `stop`; waits for the caches first."""

    def stop(self) -> None:
        """Take up nothing more; `work` returns when what runs has come to its end."""


@dataclass(frozen=True, slots=True)
class Election:
    """Which Lease the one that works holds, and for how long."""

    name: str
    namespace: str
    identity: str | None = None
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class Manager:
    """Clients of one cluster, and the life of the service that uses them."""

    def __init__(
        self,
        connection: Connection,
        component: str,
        *,
        concurrency: int = 16,
        qps: float | None = None,
        burst: int | None = None,
        election: Election | None = None,
        health: HealthServer | None = None,
    ) -> None:
        self.health = health
        self.client = Client(connection, concurrency=concurrency, qps=qps, burst=burst, user_agent=component)
        """Its writes ask nobody whether we lead."""
        # Leadership must not wait behind work: its calls have a client of their own.
        self._own = Client(connection, concurrency=2, user_agent=component)
        self._elector = _elector(self._own, election) if election is not None else None
        self._open = AsyncExitStack()

    @property
    def guard(self) -> WriteGuard | None:
        """To be asked before each write; None when there is no election."""
        return self._elector.guard if self._elector is not None else None

    @property
    def writer(self) -> Client:
        """A client that writes only while we lead."""
        return self.client.guarded(self.guard) if self.guard is not None else self.client

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            for client in (self.client, self._own):
                await opening.enter_async_context(client)
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def run(
        self, service: Service, stop: asyncio.Event, *, beside: AbstractAsyncContextManager[Any] | None = None
    ) -> None:
        """Follow, and work while leading, until `stop`. `beside`: what else is open meanwhile, leading or not."""
        async with AsyncExitStack() as stack:
            if self.health is not None:
                await stack.enter_async_context(self.health)
                _log.info("serves metrics and health", host=self.health.host, port=self.health.port)
            process = await stack.enter_async_context(Supervisor())
            if self.health is not None:
                self.health.add_health_check("tasks", process.why_unhealthy)
                self.health.add_ready_check("caches", lambda: None if service.has_synced else "not filled yet")
            if beside is not None:
                await stack.enter_async_context(beside)
            await stack.enter_async_context(service.following())
            await self._work(service, stop)

    async def _work(self, service: Service, stop: asyncio.Event) -> None:
        async def work() -> None:
            await (self._elector.run(service.work) if self._elector is not None else service.work())
            if not stop.is_set():
                raise RuntimeError("it returned before it was told to stop")

        async with Supervisor() as tasks:
            working = tasks.start("work", work(), may_return=True)
            tasks.start("stop", _stop_when_told(service, stop, working), may_return=True)
            await asyncio.wait([working])


async def _stop_when_told(service: Service, stop: asyncio.Event, working: asyncio.Task[None]) -> None:
    await stop.wait()
    service.stop()
    if not service.working:
        working.cancel()  # it waits for its caches or its turn, and has nothing to finish


def _elector(client: Client, election: Election) -> LeaderElector:
    return LeaderElector(
        client,
        election.name,
        election.namespace,
        identity=election.identity,
        lease_duration=election.lease_duration,
        renew_deadline=election.renew_deadline,
        retry_period=election.retry_period,
    )


@asynccontextmanager
async def background(service: Service, ready: Callable[[], Coroutine[Any, Any, object]]) -> AsyncIterator[None]:
    """The service works inside, from when `ready` has returned, and has come to its end outside."""
    async with service.following(), Supervisor() as tasks:
        working = tasks.start("work", service.work(), may_return=True)
        try:
            waiting = tasks.start("ready", ready(), may_return=True)
            await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
            yield
        finally:
            service.stop()
            await asyncio.wait([working])

"""A controller as a process: health, leadership, and an orderly end.

    async with Client(connection) as client:
        await serve(controller, stop, health=health, elector=elector)

A standby follows its clusters, so that it can start at once when it leads. When told to stop, nothing new is taken up,
what runs comes to its end, and the lease is given back. Who loses the lease stops at once, with LeadershipLost: the
process is to end, and to be started again by whoever runs it.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Protocol

import structlog

from .health import HealthServer
from .leader import LeaderElector

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


async def serve(
    service: Service,
    stop: asyncio.Event,
    *,
    health: HealthServer | None = None,
    elector: LeaderElector | None = None,
    beside: AbstractAsyncContextManager[Any] | None = None,
) -> None:
    """Follow, and work while leading, until `stop`. `beside`: what else is open meanwhile, leading or not."""
    async with AsyncExitStack() as stack:
        if health is not None:
            health.add_ready_check("caches", lambda: None if service.has_synced else "not filled yet")
            await stack.enter_async_context(health)
            _log.info("serves metrics and health", host=health.host, port=health.port)
        if beside is not None:
            await stack.enter_async_context(beside)
        await stack.enter_async_context(service.following())
        await _until(stop, elector.run(service.work) if elector is not None else service.work(), service)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None], service: Service) -> None:
    working = asyncio.ensure_future(work)
    told = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, told], return_when=asyncio.FIRST_COMPLETED)
        service.stop()
        if not service.working and not working.done():
            working.cancel()  # it waits for its caches or its turn, and has nothing to finish
        with suppress(asyncio.CancelledError):
            await working
    finally:
        told.cancel()
        working.cancel()

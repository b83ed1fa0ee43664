"""`multimirror run`: the dispatcher as a process, with health, leadership and an orderly end.

A standby follows all clusters, so that it can start at once when it leads. On SIGTERM nothing new is taken up, what
runs comes to its end, and the lease is given back. Who loses the lease stops at once: the process ends with exit code
1 and is started again by whoever runs it.
"""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from multimirror.cli.admitting import AdmissionSettings, admitting
from multimirror.dispatch import COMPONENT, Dispatcher, DispatcherOptions
from multimirror.kube import Client, Connection, HealthServer, LeaderElector

_log = structlog.get_logger(__name__)
LEASE: Final = "multimirror-dispatcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The command line, read."""

    kubeconfig: Path | None
    context: str | None
    identity: str | None
    leader_elect: bool
    health_host: str
    health_port: int
    concurrency: int
    dispatcher: DispatcherOptions
    admission: AdmissionSettings | None = None
    """None: Jobs are made ours by admission policies, or by whoever creates them."""


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Until `stop`."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(_connection(settings), concurrency=settings.concurrency, user_agent=COMPONENT)
        )
        elector = None
        if settings.leader_elect:
            # Leadership must not wait behind work: its calls have a client of their own.
            own = await stack.enter_async_context(Client(_connection(settings), concurrency=2, user_agent=COMPONENT))
            elector = LeaderElector(own, LEASE, settings.dispatcher.namespace, identity=settings.identity)
        dispatcher = Dispatcher(client, settings.dispatcher, guard=elector.check if elector is not None else None)
        health = HealthServer(settings.health_host, settings.health_port)
        health.add_ready_check("caches", lambda: None if dispatcher.has_synced else "not filled yet")
        await stack.enter_async_context(health)
        _log.info("serves metrics and health", host=health.host, port=health.port)
        if settings.admission is not None:
            await stack.enter_async_context(admitting(settings.admission, _connection(settings), health))
        await stack.enter_async_context(dispatcher.following())
        await _until(stop, elector.run(dispatcher.work) if elector is not None else dispatcher.work(), dispatcher)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None], dispatcher: Dispatcher) -> None:
    working = asyncio.ensure_future(work)
    told = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, told], return_when=asyncio.FIRST_COMPLETED)
        dispatcher.stop()
        if not dispatcher.ready.is_set() and not working.done():
            working.cancel()  # it waits for its caches or its turn, and has nothing to finish
        with suppress(asyncio.CancelledError):
            await working
    finally:
        told.cancel()
        working.cancel()


def _connection(settings: Settings) -> Connection:
    inside = "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
    if settings.kubeconfig is None and settings.context is None and inside:
        return Connection.in_cluster(name="management")
    return Connection.from_kubeconfig(settings.kubeconfig, settings.context, name="management")

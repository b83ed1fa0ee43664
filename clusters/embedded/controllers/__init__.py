"""The rest of a control plane, in the process of the embedded API server: garbage collector, TTL after finished,
CronJobs, namespace deletion, PodGroup protection. Not the Job controller: that runs against this cluster as against
any other.

    async with Controllers(server): ...
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from clusters.embedded.controllers.client import InProcessClient
from clusters.embedded.controllers.cronjobs import CronJobController
from clusters.embedded.controllers.garbage import GarbageCollector
from clusters.embedded.controllers.namespaces import NamespaceController
from clusters.embedded.controllers.podgroups import PodGroupProtection
from clusters.embedded.controllers.recorder import Recorder
from clusters.embedded.controllers.ttl import TtlController
from clusters.embedded.server import ApiServer
from multimirror.kube import Controller

__all__ = ["Controllers"]


class Controllers:
    """All of them, running inside the context."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._stack = contextlib.AsyncExitStack()
        self._timed: list[CronJobController | TtlController] = []
        self._controllers: list[Controller] = []

    async def __aenter__(self) -> Self:
        client = InProcessClient(self._server)
        self._stack.callback(client.close)
        clock = self._server.options.clock
        cronjobs = CronJobController(client, clock.time, Recorder(client, "cronjob-controller", clock.now))
        ttl = TtlController(client, clock.time)
        namespaces = NamespaceController(client, clock.now)
        everyone = (GarbageCollector(client), namespaces, ttl, cronjobs, PodGroupProtection(client))
        self._timed = [ttl, cronjobs]
        for each in everyone:
            each.start()
        self._controllers = [each.controller for each in everyone]
        running = asyncio.create_task(_run(self._controllers), name="embedded controllers")
        self._stack.push_async_callback(_cancelled, running)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def idle(self) -> None:
        """Wait until nothing is left to do but what waits for its time."""
        for controller in self._controllers:
            await controller.queue.idle()

    def clock_moved(self) -> None:
        """Somebody changed the time: look again at everything that waits for it."""
        for each in self._timed:
            each.start()


async def _run(controllers: list[Controller]) -> None:
    async with asyncio.TaskGroup() as group:
        for controller in controllers:
            group.create_task(controller.run())


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

"""Stands in for Job controller and nodes of embedded workers: writes the statuses that they would write, and no pods.

What is measured with it is the dispatcher, to which a copy's status is all there is. Copies that are made while it is
at work run, and are Complete a moment later; those that were there before are left alone.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.frame.generator import NAMESPACE, Json
from multimirror.api import ORIGIN_LABEL
from multimirror.kube import Change, Client, Controller, Informer
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import JOBS


@asynccontextmanager
async def running_copies(workers: dict[str, Client]) -> AsyncIterator[None]:
    """While inside."""
    async with contextlib.AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for client in workers.values():
            controller = Controller(f"stand-in {client.cluster}", _Runner(client).run, concurrency=8)
            informer = Informer(client, JOBS, NAMESPACE, label_selector=ORIGIN_LABEL)

            def added(change: Change, controller: Controller = controller) -> None:
                if change.old is None and not change.initial:
                    controller.queue.add(change.object["metadata"]["name"])

            informer.add_handler(added)
            await stack.enter_async_context(informer)
            await informer.synced()  # or the first copies would be taken for those that were there before
            group.create_task(controller.run())
            stack.callback(controller.stop)
        yield


class _Runner:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self, name: str) -> None:
        """Take one copy through its life."""
        with contextlib.suppress(NotFound):
            for status in statuses():
                await self._write(name, status)

    async def _write(self, name: str, status: Json) -> None:
        await self._client.patch(JOBS, name, {"status": status}, NAMESPACE, subresource="status")


def statuses() -> tuple[Json, Json]:
    """Running, and Complete."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    running: Json = {"startTime": now, "active": 1, "ready": 1, "terminating": 0, "uncountedTerminatedPods": {}}
    moment = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    ended: Json = {
        "completionTime": now,
        "active": None,
        "ready": 0,
        "succeeded": 1,
        "conditions": [{"type": kind, **moment} for kind in ("SuccessCriteriaMet", "Complete")],
    }
    return running, ended

"""The workload: Jobs as people make them, and the moments of their lives as a user could see them.

`Lives` follows the Jobs of all clusters by watches of its own. Every moment is taken from one clock, in one process,
when the event arrives: that is what somebody sees who watches.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from clusters.nodes import PREFIX
from multimirror.api import MANAGED_BY, QUEUE_LABEL
from multimirror.batch import is_finished
from multimirror.kube import Change, Client, Informer
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import JOBS

Json = dict[str, Any]
NAMESPACE: Final = "default"
QUEUE: Final = "bench"
MANAGEMENT: Final = "management"
_STUCK: Final = 600.0


def a_job(name: str, *, managed: bool = True, forever: bool = False) -> Json:
    """A Job with one pod, which ends at once or never; as admission leaves it, or as it runs directly on a worker."""
    template: Json = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    if forever:
        template["metadata"] = {"annotations": {f"{PREFIX}never-finish": "true"}}
    spec: Json = {"backoffLimit": 0, "template": template}
    metadata: Json = {"name": name}
    if managed:
        spec |= {"managedBy": MANAGED_BY, "suspend": True}
        metadata["labels"] = {QUEUE_LABEL: QUEUE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


async def create_all(client: Client, jobs: Iterable[Json], made: Callable[[str], None] = lambda _: None) -> None:
    """As fast as the client's limit lets them; `made` is told each name when the server has answered."""

    async def one(job: Json) -> None:
        await client.create(JOBS, job, NAMESPACE)
        made(job["metadata"]["name"])

    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(one(job))


async def delete_all(client: Client) -> None:
    """Every Job of the namespace, and what belongs to them."""
    await client.request("DELETE", JOBS.path(NAMESPACE), {"propagationPolicy": "Background"}, timeout=120)


async def pace(count: int, per_second: float, start: Callable[[int], Any]) -> None:
    """Start things at a steady rate, however long each takes; returns when all have ended."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(began + number / per_second - time.perf_counter())
            group.create_task(start(number))


class Lives:
    """When each Job was made, and when it was first seen copied, running, finished and gone."""

    def __init__(self) -> None:
        self.made: dict[str, float] = {}
        self.copied: dict[str, float] = {}
        """First seen on a worker."""
        self.ended: dict[str, dict[str, float]] = defaultdict(dict)
        """By cluster: first seen finished there."""
        self.running: dict[str, dict[str, float]] = defaultdict(dict)
        """By cluster: first seen with an active pod there."""
        self.gone: dict[str, float] = {}
        """Last seen gone from a worker."""
        self.shown: dict[str, dict[str, float]] = {"worker": {}, MANAGEMENT: {}}
        """First seen with these visible numbers, on a worker and on the management cluster."""
        self._news = asyncio.Event()

    def note_made(self, name: str) -> None:
        """The server has answered its creation."""
        self.made[name] = time.perf_counter()

    def forget(self) -> None:
        """What is over."""
        for moments in (self.made, self.copied, self.gone, *self.shown.values()):
            moments.clear()
        self.ended.clear()
        self.running.clear()

    def dispatch_seconds(self, names: Iterable[str]) -> list[float]:
        """From the answer to the creation until the copy is seen."""
        return [max(0.0, self.copied[name] - self.made[name]) for name in names]

    def mirror_seconds(self) -> list[float]:
        """From a change seen on a worker until it is seen on the management cluster; what was left out was newer."""
        mirrored = self.shown[MANAGEMENT]
        return [max(0.0, mirrored[key] - seen) for key, seen in self.shown["worker"].items() if key in mirrored]

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = _STUCK) -> float:
        """Wait until something is so; gives the moment."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"{what}: not so after {seconds:.0f} s") from None
        return time.perf_counter()

    @asynccontextmanager
    async def following(self, clients: dict[str, Client]) -> AsyncIterator[None]:
        """While inside."""
        async with contextlib.AsyncExitStack() as stack:
            for name, client in clients.items():
                informer = Informer(client, JOBS, NAMESPACE)
                informer.add_handler(self._handler(name))
                await stack.enter_async_context(informer)
                await informer.synced()
            yield

    def _handler(self, cluster: str) -> Callable[[Change], None]:
        kind = MANAGEMENT if cluster == MANAGEMENT else "worker"

        def seen(change: Change) -> None:
            now, name = time.perf_counter(), change.object["metadata"]["name"]
            if change.new is None:
                if kind == "worker":
                    self.gone[name] = now
            else:
                self._look(cluster, kind, name, change.new.get("status") or {}, now)
            self._news.set()

        return seen

    def _look(self, cluster: str, kind: str, name: str, status: Json, now: float) -> None:
        if kind == "worker":
            self.copied.setdefault(name, now)
        finished = is_finished(status)
        if finished:
            self.ended[cluster].setdefault(name, now)
        elif status.get("active"):
            self.running[cluster].setdefault(name, now)
        if status.get("startTime"):
            visible = [status.get(field) or 0 for field in ("active", "ready", "succeeded", "failed")]
            self.shown[kind].setdefault(f"{name} {visible} {finished}", now)


async def delete_one(client: Client, name: str) -> None:
    """With its pods; fine when it is gone already."""
    with contextlib.suppress(NotFound):
        await client.delete(JOBS, name, NAMESPACE, propagation="Background")

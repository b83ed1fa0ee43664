"""A management cluster, worker clusters and the connections to them, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL, WORKER_CLUSTERS
from multimirror.kube import Change, Client, Connection, Informer, Resource
from multimirror.kube.resources import JOBS, NAMESPACES, NODES, SECRETS
from multimirror.kube.supervise import Supervisor
from multimirror.workers import Followed, Heartbeat, Worker, WorkerOptions, Workers, trim_secret
from multimirror.workers.reading import MadeByUs
from tests.unit.workers.fake_cluster import FakeCluster, a_cluster, a_secret

Json = dict[str, Any]
SYSTEM = "system"
ORIGIN = "origin"
NOW = 1_700_000_000.0


def clock() -> float:
    return NOW + asyncio.get_running_loop().time()


@dataclass
class Recorder:
    """Who subscribed, and what was told."""

    copies: list[tuple[str, Resource, Change]] = field(default_factory=list)
    states: list[tuple[str, bool]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def copy_changed(self, worker: str, resource: Resource, change: Change) -> None:
        self.copies.append((worker, resource, change))
        self.news.set()

    def state_changed(self, worker: str, *, reconnected: bool) -> None:
        self.states.append((worker, reconnected))
        self.news.set()

    def capacity_changed(self, worker: str) -> None:
        self.states.append((worker, False))
        self.news.set()


@dataclass
class Stage:
    """Everything that a test needs to touch."""

    management: FakeCluster
    workers: Workers
    seen: Recorder
    tasks: Supervisor
    stack: AsyncExitStack
    also: tuple[Resource, ...] = ()
    clusters: dict[str, FakeCluster] = field(default_factory=dict)

    async def add(self, name: str, identity: str | None = None, **spec: Any) -> FakeCluster:
        """A worker cluster, its Secret and its WorkerCluster."""
        cluster = await self.stack.enter_async_context(a_cluster(identity or f"cluster-{name}", *self.also))
        self.clusters[name] = cluster
        await self.set_secret(name, cluster.kubeconfig())
        await self.set_spec(name, **spec)
        return cluster

    async def set_secret(self, name: str, kubeconfig: bytes) -> None:
        await self.management.put(SECRETS, a_secret(name, kubeconfig, namespace=SYSTEM))

    async def set_spec(self, name: str, **spec: Any) -> None:
        spec = {"kubeconfig": {"secret": {"name": name}}, **spec}
        before = self.management.objects.get((WORKER_CLUSTERS.path(), "", name), {})
        await self.management.put(WORKER_CLUSTERS, {**before, "metadata": {"name": name}, "spec": spec})

    async def set_status(self, name: str, connected: bool, since: str) -> None:
        cluster = self.management.objects[WORKER_CLUSTERS.path(), "", name]
        condition = {"type": "Connected", "status": str(connected), "lastTransitionTime": since}
        await self.management.put(WORKER_CLUSTERS, {**cluster, "status": {"conditions": [condition]}})

    def worker(self, name: str) -> Worker:
        worker = self.workers.get(name)
        assert worker is not None
        return worker

    async def until(self, true: Callable[[], bool], seconds: float = 300.0) -> None:
        """Until what was told makes it true, or time passed."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while not true():
            assert loop.time() < ends, "it never came true"
            self.seen.news.clear()
            try:
                async with asyncio.timeout(0.5):
                    await self.seen.news.wait()
            except TimeoutError:
                continue

    async def connected(self, name: str) -> Worker:
        await self.until(lambda: (worker := self.workers.get(name)) is not None and worker.session is not None)
        return self.worker(name)

    async def lost(self, name: str) -> Worker:
        def is_lost() -> bool:
            worker = self.workers.get(name)
            return worker is not None and worker.session is None and self.workers.contact(name).lost_since is not None

        await self.until(is_lost)
        return self.worker(name)


@asynccontextmanager
async def a_stage(
    *,
    heartbeat: Heartbeat | None = None,
    directory: Path | None = None,
    also_followed: tuple[Followed, ...] = (),
    made_by_us: MadeByUs = lambda *_: True,
) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        management = await stack.enter_async_context(a_cluster(ORIGIN, WORKER_CLUSTERS))
        connection = Connection.strict(management.kubeconfig(), name="management", plain_http=True)
        client = await stack.enter_async_context(Client(connection))
        options = WorkerOptions(
            origin=ORIGIN,
            made_by_us=made_by_us,
            secret_namespace=SYSTEM,
            directory=directory,
            heartbeat=heartbeat or Heartbeat(),
            also_followed=also_followed,
            plain_http=True,
        )
        clusters, secrets = Informer(client, WORKER_CLUSTERS), Informer(client, SECRETS, SYSTEM, trim=trim_secret)
        workers = Workers(clusters, secrets, options, clock=clock)
        seen = Recorder()
        workers.subscribe(seen)
        tasks = await stack.enter_async_context(Supervisor())
        tasks.start("clusters", clusters.run())
        tasks.start("secrets", secrets.run())
        tasks.start("workers", workers.run())
        inner = await stack.enter_async_context(AsyncExitStack())
        yield Stage(management, workers, seen, tasks, inner, tuple(followed.resource for followed in also_followed))


def a_copy(name: str = "train", namespace: str = "team-a", uid: str = "uid-of-train") -> Json:
    labels = {ORIGIN_LABEL: ORIGIN, ORIGIN_UID_LABEL: uid}
    return {"metadata": {"namespace": namespace, "name": name, "labels": labels}, "spec": {}}


def a_node(name: str, *, ready: bool = True, beat: str = "0", unschedulable: bool = False, **allocatable: Any) -> Json:
    condition = {"type": "Ready", "status": str(ready), "lastHeartbeatTime": beat}
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": unschedulable},
        "status": {"allocatable": allocatable, "conditions": [condition, {"type": "DiskPressure", "status": "False"}]},
    }


def a_namespace(name: str, **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}}


__all__ = ["JOBS", "NAMESPACES", "NODES", "NOW", "SYSTEM", "Stage", "a_copy", "a_namespace", "a_node", "a_stage"]

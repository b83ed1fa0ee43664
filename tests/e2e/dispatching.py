"""What the tests of the dispatcher have in common: a fleet for the whole test run, and a stage for each test.

A stage is a namespace, a queue and two worker clusters of its own names. Dispatchers come to its clusters through
proxies, which can be shut, and with whose help everything is written down; after each test the stage is brought to rest
and the history is checked. Tests see the clusters through their APIs only.
"""

import asyncio
import base64
import contextlib
import functools
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from builtin_controller import JobController
from builtin_controller import Options as JobOptions
from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions
from clusters.nodes import PREFIX, NodeOptions
from faults import Proxy
from faults.record import MANAGEMENT
from multimirror.api import (
    CLUSTER_ANNOTATION,
    MANAGED_BY,
    MIRROR_QUEUES,
    QUEUE_LABEL,
    WORKER_CLUSTERS,
    crds,
)
from multimirror.dispatcher import Dispatcher
from multimirror.kube import ApiError, Client, Connection, LeaderElector, Resource
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.resources import (
    CRDS,
    CRON_JOBS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from multimirror.kube.write_guard import WriteGuard
from multimirror.options import DispatcherOptions
from multimirror.workers import Heartbeat
from multimirror.workers.copy_key import COPY_KEY_NAME, copy_key
from tests.e2e.history import History, rules_of
from tests.waiting import DEADLINE, eventually

Json = dict[str, Any]
SYSTEM = "multimirror-system"
LEASE = "multimirror"
PATIENT = Heartbeat(period=0.3, timeout=60.0, failure_threshold=2)
QUICK_TO_LOSE = Heartbeat(period=0.3, timeout=2.0, failure_threshold=2)
"""For workers that take connections and never answer."""


@contextlib.contextmanager
def running_fleet(kind: str, workers: int = 2, node_options: NodeOptions | None = None) -> Iterator[BackgroundFleet]:
    """A management cluster and workers on which Jobs run: by Kubernetes' own Job controller where there is one."""
    with BackgroundFleet(kind, FleetOptions(workers=workers, node_options=node_options)) as fleet:
        stop, up = threading.Event(), Future[None]()
        task: Future[None] | None = None
        if kind == "embedded":
            task = asyncio.run_coroutine_threadsafe(_job_controllers(fleet, up, stop), fleet._loop)
            up.result(60)
        fleet.run(_prepare(fleet))
        try:
            yield fleet
        finally:
            stop.set()
            if task is not None:
                task.result(30)


async def _job_controllers(fleet: BackgroundFleet, up: "Future[None]", stop: threading.Event) -> None:
    """Embedded clusters have none: ours runs on every one of them, as Kubernetes' own would."""
    async with contextlib.AsyncExitStack() as stack:
        for cluster in fleet.clusters():
            client = await stack.enter_async_context(
                Client(Connection.from_kubeconfig(cluster.kubeconfig), user_agent="user")
            )
            options = JobOptions(sync_batch_period=0.05, pod_backoff_base=0.05)
            await stack.enter_async_context(JobController(client, options))
        up.set_result(None)
        await asyncio.to_thread(stop.wait)


async def _prepare(fleet: BackgroundFleet) -> None:
    """Our kinds, and our namespace, on the management cluster."""
    async with Client(Connection.from_kubeconfig(fleet.management.kubeconfig), user_agent="user") as client:
        await _made(client, NAMESPACES, {"metadata": {"name": SYSTEM}})
        for definition in crds():
            await _made(client, CRDS, definition)
        for resource in (WORKER_CLUSTERS, MIRROR_QUEUES):
            await eventually(functools.partial(_is_served, client, resource))


async def _is_served(client: Client, resource: Resource) -> bool:
    with contextlib.suppress(NotFound):
        await client.list(resource)
        return True
    return False


async def _made(client: Client, resource: Resource, obj: Json, namespace: str | None = None) -> None:
    with contextlib.suppress(AlreadyExists):
        await client.create(resource, obj, namespace)


def a_job(name: str, *, queue: str, **behaviour: str) -> Json:
    """A Job as admission leaves it: ours, and suspended. `behaviour` is for the simulated nodes."""
    annotations = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in behaviour.items()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: queue}},
        "spec": {
            "managedBy": MANAGED_BY,
            "suspend": True,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
            },
        },
    }


def condition(job: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or ())


def finished(job: Json) -> bool:
    return condition(job, "Complete") or condition(job, "Failed")


def running(job: Json) -> bool:
    return bool((job.get("status") or {}).get("ready"))


async def a_dispatcher(client: Client, options: DispatcherOptions, *, guard: WriteGuard | None = None) -> Dispatcher:
    """The one place in these tests where a dispatcher is put together."""
    return await Dispatcher.connect(client, options, guard=guard)


class Replica(NamedTuple):
    """What one of several dispatchers is made of."""

    client: Client
    options: DispatcherOptions


@dataclass
class Stage:
    """One test's view of the fleet."""

    kind: str
    fleet: BackgroundFleet
    tag: str
    namespace: str
    queue: str
    management: Client
    workers: dict[str, Client]
    links: dict[str, Proxy]
    """The dispatcher's way to each cluster, by the cluster's name."""
    history: History
    made: list[tuple[Resource, str]] = field(default_factory=list)
    """What a test made beside: goes when the stage does, after its history was checked."""

    # --- doing

    async def submit(
        self, name: str = "job", *, change: Callable[[Json], None] | None = None, **behaviour: str
    ) -> Json:
        """Create a Job as its user would, admission included."""
        job = a_job(name, queue=self.queue, **behaviour)
        if change is not None:
            change(job)
        return await self.management.create(JOBS, job, self.namespace)

    async def patch(self, name: str, body: Json) -> Json:
        """Change a Job."""
        return await self.management.patch(JOBS, name, body, self.namespace)

    async def set_queue(self, **spec: Any) -> None:
        """Change the queue's rules."""
        await self.management.patch(MIRROR_QUEUES, self.queue, {"spec": spec})

    async def set_worker(self, name: str, **spec: Any) -> None:
        """Change a WorkerCluster."""
        await self.management.patch(WORKER_CLUSTERS, name, {"spec": spec})

    def options(self, **more: Any) -> DispatcherOptions:
        """As shipped, but quicker to notice a worker that refuses connections.

        One that only answers late, as all do on a busy machine, is not lost, unless a test asks for that
        (QUICK_TO_LOSE).
        """
        chosen: dict[str, Any] = {"namespace": SYSTEM, "heartbeat": PATIENT, "report_seconds": 0.2, **more}
        return DispatcherOptions(**chosen)

    @contextlib.asynccontextmanager
    async def dispatcher(self, *, guard: WriteGuard | None = None, **more: Any) -> AsyncIterator[Dispatcher]:
        """The dispatcher at work, in this test's event loop."""
        connection = Connection.from_kubeconfig(self.links[MANAGEMENT].kubeconfig, name="management")
        with self.history.life():
            async with (
                Client(connection) as client,
                await a_dispatcher(client, self.options(**more), guard=guard) as dispatcher,
            ):
                yield dispatcher

    @contextlib.asynccontextmanager
    async def replica(self, name: str) -> AsyncIterator["Replica"]:
        """What another dispatcher needs: its own way to every cluster, so that it is known which of them writes."""
        own = f"{self.namespace}-{name}"
        await self.management.create(NAMESPACES, {"metadata": {"name": own}})
        for worker in self.workers:
            link = await self.history.link(worker, self.kubeconfig_of(worker), name)
            await self.management.create(SECRETS, secret(worker, link.kubeconfig), own)
        await self._share_key(own)
        home = await self.history.link(MANAGEMENT, self.kubeconfig_of(MANAGEMENT), name)
        connection = Connection.from_kubeconfig(home.kubeconfig, name="management")
        with self.history.life(name):
            async with Client(connection) as client:
                yield Replica(client, self.options(namespace=own))

    async def _share_key(self, namespace: str) -> None:
        """Replicas have one namespace, and one key, except here, where each has its own ways to the workers."""
        await copy_key(self.management, SYSTEM)
        found = await self.management.get(SECRETS, COPY_KEY_NAME, SYSTEM)
        shared = {"metadata": {"name": COPY_KEY_NAME}, "data": found["data"]}
        await self.management.create(SECRETS, shared, namespace)

    @contextlib.asynccontextmanager
    async def candidate(self, name: str) -> AsyncIterator[asyncio.Task[None]]:
        """A dispatcher that works once it leads. The lease is long: nobody loses it because the machine is busy."""
        async with self.replica(name) as replica:
            elector = LeaderElector(
                replica.client,
                LEASE,
                self.namespace,
                identity=name,
                lease_duration=120.0,
                renew_deadline=100.0,
                retry_period=0.2,
            )
            dispatcher = await a_dispatcher(replica.client, replica.options, guard=elector.guard)
            async with dispatcher.following():
                task = asyncio.ensure_future(elector.run(dispatcher.work))
                try:
                    yield task
                finally:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

    async def leads(self, name: str) -> None:
        """Wait until that candidate does."""
        await self.until(lambda lease: lease["spec"].get("holderIdentity") == name, LEASE, resource=LEASES)

    async def finish(self, name: str = "job") -> None:
        """The pods of a Job have done what they were to do."""
        worker, _ = await self.copy(name=name)
        await finish_pods(self.workers[worker], self.namespace, name)

    def kubeconfig_of(self, name: str) -> Json:
        """An administrator's, straight to the cluster."""
        return next(c for c in self.fleet.clusters() if name in (c.name, f"{c.name}-{self.tag}")).kubeconfig

    # --- what goes wrong

    def cut(self, worker: str) -> None:
        """The dispatcher's connections to it break, and new ones are refused."""
        self.history.spoil("partition", worker)

    def hang(self, worker: str) -> None:
        """The dispatcher's connections to it are taken and stay open, and nothing comes through any more."""
        self.history.spoil("blackhole", worker)

    def mend(self, worker: str) -> None:
        """The dispatcher reaches it again."""
        self.history.mend(worker)

    async def rename(self, worker: str, other: str) -> None:
        """The worker's kubeconfig is that of another cluster."""
        self.history.struck("swap", worker)
        await self.management.replace(SECRETS, secret(worker, self.links[other].kubeconfig), SYSTEM)

    async def renew(self, worker: str) -> None:
        """Other credentials lead to a worker from now on, and the old ones lead nowhere."""
        old, new = self.links[worker], await self.history.link(worker, self.kubeconfig_of(worker))
        self.links[worker] = new
        await self.management.replace(SECRETS, secret(worker, new.kubeconfig), SYSTEM)
        old.cut()

    async def remove(self, worker: str) -> None:
        """It is a worker no more."""
        self.history.struck("removed", worker)
        await self.management.delete(WORKER_CLUSTERS, worker)

    # --- the end

    async def check(self, *, within: float = DEADLINE) -> None:
        """Undo what was broken, let a dispatcher that starts anew put all in order (I10), and check everything."""
        self.history.mend_all()
        for name in self.workers:
            await self._restore(name)
        await self._vacate()
        async with self.dispatcher() as dispatcher:
            queue = await self.management.get(MIRROR_QUEUES, self.queue)
            await self.history.check(rules_of(queue, dispatcher.origin), dispatcher.idle, within=within)

    async def _vacate(self) -> None:
        """Whoever led has gone, and may have left the lease to run out: longer than anybody wants to wait here."""
        with contextlib.suppress(NotFound):
            await self.management.patch(LEASES, LEASE, {"spec": {"holderIdentity": ""}}, self.namespace)

    async def _restore(self, worker: str) -> None:
        with contextlib.suppress(NotFound):
            await self.management.delete(SECRETS, worker, SYSTEM)
        await self.management.create(SECRETS, secret(worker, self.links[worker].kubeconfig), SYSTEM)
        await _made(self.management, WORKER_CLUSTERS, _worker(worker))
        await self.set_worker(worker, kubeconfig={"secret": {"name": worker}, "path": None})

    # --- seeing

    async def until(
        self,
        what: Callable[[Json], bool],
        name: str = "job",
        *,
        resource: Resource = JOBS,
        client: Client | None = None,
    ) -> Json:
        """The object, as soon as it is so."""
        return await until(client or self.management, resource, self.namespace, name, what)

    async def done(self, name: str = "job") -> Json:
        """The Job, when it has finished."""
        return await self.until(finished, name)

    async def job(self, name: str = "job") -> Json:
        """The Job as it is now."""
        return await self.management.get(JOBS, name, self.namespace)

    async def copies(self, worker: str | None = None) -> list[tuple[str, Json]]:
        """The Jobs in our namespace on the workers."""
        found = []
        for name, client in self.workers.items():
            if worker in (None, name):
                found += [(name, job) for job in (await client.list(JOBS, self.namespace)).items]
        return found

    async def copy(self, what: Callable[[Json], bool] = lambda _: True, name: str = "job") -> tuple[str, Json]:
        """The copy of a Job, as soon as it is there and so; and the worker that has it."""
        job = await self.until(lambda job: cluster_of(job) is not None, name)
        worker = cluster_of(job)
        assert worker is not None
        return worker, await until(self.workers[worker], JOBS, self.namespace, name, what)

    async def nothing_left(self) -> None:
        """Wait until the workers hold nothing in our namespace: no Job, no pod."""
        for client in self.workers.values():
            for resource in (JOBS, PODS):
                await eventually(
                    functools.partial(client.list, resource, self.namespace), lambda found: not found.items
                )

    async def event(self, reason: str, text: str = "", name: str = "job") -> Json:
        """The event that tells the Job's user this."""

        def told(event: Json) -> bool:
            return event["reason"] == reason and text in event["message"] and event["involvedObject"]["name"] == name

        async def find() -> Json | None:
            return next(filter(told, (await self.management.list(EVENTS, self.namespace)).items), None)

        found = await eventually(find)
        assert found is not None
        return found

    async def cluster_condition(self, worker: str, kind: str, status: str, reason: str | None = None) -> Json:
        """The condition of a WorkerCluster, when it has that status (and reason)."""

        def found(cluster: Json) -> Json | None:
            conditions = (cluster.get("status") or {}).get("conditions") or ()
            matching = (c for c in conditions if c["type"] == kind and c["status"] == status)
            return next((c for c in matching if reason in (None, c["reason"])), None)

        cluster = await until(self.management, WORKER_CLUSTERS, None, worker, lambda c: found(c) is not None)
        result = found(cluster)
        assert result is not None
        return result


def cluster_of(job: Json) -> str | None:
    return (job["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION)


async def finish_pods(client: Client, namespace: str, job: str) -> None:
    """Pods of a Job that would run for ever end by themselves, all that come, until the Job has finished."""
    told = {"metadata": {"annotations": {f"{PREFIX}finish": "true"}}}

    async def over() -> bool:
        for pod in (await client.list(PODS, namespace, label_selector=f"job-name={job}")).items:
            if f"{PREFIX}finish" not in (pod["metadata"].get("annotations") or {}):
                with contextlib.suppress(NotFound):
                    await client.patch(PODS, pod["metadata"]["name"], told, namespace)
        try:
            return finished(await client.get(JOBS, job, namespace))
        except NotFound:
            return True  # finished, and removed

    await eventually(over)


async def until(
    client: Client, resource: Resource, namespace: str | None, name: str, what: Callable[[Json], bool]
) -> Json:
    """Watch an object until it is so."""
    last: Json | None = None
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                with contextlib.suppress(ApiError):
                    async with contextlib.aclosing(
                        client.watch(resource, namespace, field_selector=f"metadata.name={name}", timeout=30)
                    ) as events:
                        async for event in events:
                            if event.type in {"ADDED", "MODIFIED"}:
                                last = event.object
                                if what(last):
                                    return last
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{resource.kind} {name} did not become so; last seen: {json.dumps(last)}") from None


@contextlib.asynccontextmanager
async def a_stage(kind: str, fleet: BackgroundFleet) -> AsyncIterator[Stage]:
    """A namespace, a queue and two workers for one test; tidied up afterwards."""
    tag = secrets.token_hex(3)
    namespace, queue = f"team-{tag}", f"queue-{tag}"
    async with contextlib.AsyncExitStack() as stack:
        management = await stack.enter_async_context(
            Client(Connection.from_kubeconfig(fleet.management.kubeconfig), user_agent="user")
        )
        workers = {
            f"{cluster.name}-{tag}": await stack.enter_async_context(
                Client(Connection.from_kubeconfig(cluster.kubeconfig), user_agent="user")
            )
            for cluster in fleet.workers.values()
        }
        history = await stack.enter_async_context(History(management, workers))
        stage = Stage(kind, fleet, tag, namespace, queue, management, workers, {}, history)
        for name, client in {MANAGEMENT: management, **workers}.items():
            await _namespace(client, namespace)
            stage.links[name] = await history.link(name, stage.kubeconfig_of(name))
        for name in workers:
            await management.create(SECRETS, secret(name, stage.links[name].kubeconfig), SYSTEM)
            await management.create(WORKER_CLUSTERS, _worker(name))
        spec = {"workers": {"names": list(workers)}, "retention": "0s"}
        await management.create(MIRROR_QUEUES, {**_header(MIRROR_QUEUES, queue), "spec": spec})
        await history.follow(namespace)
        try:
            yield stage
        finally:
            named = [(WORKER_CLUSTERS, name) for name in workers]
            for resource, name in (*named, (MIRROR_QUEUES, queue), *stage.made):
                with contextlib.suppress(NotFound):
                    await management.delete(resource, name)
            for client in (management, *workers.values()):
                for resource in (CRON_JOBS, JOBS):
                    await client.request("DELETE", resource.path(namespace), {"propagationPolicy": "Background"})


async def _namespace(client: Client, name: str) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    await _made(client, SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, name)


def secret(name: str, kubeconfig: Json) -> Json:
    """As an operator would make it."""
    data = base64.b64encode(json.dumps(kubeconfig).encode()).decode()
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"kubeconfig": data}}


def _worker(name: str) -> Json:
    return {**_header(WORKER_CLUSTERS, name), "spec": {"kubeconfig": {"secret": {"name": name}}}}


def _header(resource: Resource, name: str) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}

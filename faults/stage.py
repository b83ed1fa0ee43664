"""A run's fleet: clusters, proxies before them, controllers behind the proxies, and the hands that break things.

People (the workload) and the watcher go straight to the API servers; only the controllers under test go through
proxies, each client through its own, so that a fault strikes exactly one link.
"""

import asyncio
import base64
import contextlib
import functools
import json
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from builtin_controller import JobController
from builtin_controller import Options as JobOptions
from clusters.embedded.tls import Certificates, make_certificates
from faults import commands
from faults.backends import MANAGEMENT, ClusterBackend
from faults.commands import Files, Processes
from faults.hostile.tricks import Trick
from faults.hostile.worker import HostileWorker
from faults.injecting import Injector
from faults.plan import LEADER, Fault
from faults.processes import Controller, Process, Task
from faults.proxy import Proxy
from faults.record import Record, Watcher, holder_of
from faults.simulation import EXACT
from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS, crds
from multimirror.dispatcher import Dispatcher
from multimirror.kube import ApiError, Client, Connection, Resource
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.resources import CRDS, EVENTS, JOBS, LEASES, NAMESPACES, PODS, SECRETS, SERVICE_ACCOUNTS
from multimirror.options import DispatcherOptions

Json = dict[str, Any]
SYSTEM: Final = "multimirror-system"
DISPATCHER: Final = "dispatcher"
JOB_CONTROLLER: Final = "jobs"
_UP_SECONDS: Final = 120.0


@functools.cache
def certificates() -> Certificates:
    """What all proxies of this process show; made once."""
    return make_certificates()


class Stage:
    """One run's fleet. An async context manager: controllers are made, but not started."""

    def __init__(
        self,
        backend: ClusterBackend,
        plan: Sequence[Fault],
        *,
        namespace: str = "team",
        queue: str = "queue",
        queue_spec: Json | None = None,
        options: DispatcherOptions | None = None,
        pod_backoff: float = JobOptions().pod_backoff_base,
        processes: Processes | None = None,
        hostile: Mapping[str, Sequence[Trick]] | None = None,
        seed: int = 0,
        others: Sequence[str] = (),
        queues: Mapping[str, Json] | None = None,
        cohorts: Mapping[str, Json] | None = None,
        capacity: Mapping[str, int] | None = None,
    ) -> None:
        """`options`: of a dispatcher that is a task. `pod_backoff`: of our Job controllers, in seconds.

        `processes`: which controllers are no tasks. `hostile`: the workers that mean harm, and what they do, by `seed`.
        `others`: namespaces beside the first. `queues`: beside the first; with `cohorts`, which may be none, they share
        what is theirs. `capacity`: of workers, in cpu, where it is declared.
        """
        self.backend, self.namespace, self.queue = backend, namespace, queue
        self.record = Record()
        self._hostile, self._seed = hostile or {}, seed
        self._namespaces, self._queues = (namespace, *others), queues or {}
        self._cohorts, self._capacity = cohorts or {}, capacity or {}
        self.injector = Injector(plan, self.record, self._hands)
        self.injector.on_state = self._state_changed
        self.workers = [name for name in backend.names if name != MANAGEMENT]
        self.people: dict[str, Client] = {}
        """Clients of people, by cluster."""
        self.controllers: dict[str, Controller] = {}
        self.proxies: dict[str, Proxy] = {}
        """By link."""
        self._pod_backoff = pod_backoff
        self._processes = processes or Processes(dispatchers=0)
        count = self._processes.dispatchers
        self.dispatchers = [f"{DISPATCHER}-{number + 1}" for number in range(count)] if count > 1 else [DISPATCHER]
        self._files: Files | None = None
        self._queue_spec = {"retention": "0s", **(queue_spec or {})}
        self._options = options or DispatcherOptions(namespace=SYSTEM)
        shared = (MIRROR_QUEUES, COHORTS) if cohorts is not None else ()
        self._watcher = Watcher(
            self.record,
            {
                name: (JOBS, PODS) if name != MANAGEMENT else (*shared, JOBS, EVENTS, LEASES, WORKER_CLUSTERS)
                for name in backend.names
            },
            None if others else namespace,
            elsewhere={LEASES: SYSTEM},
        )
        self._eyes: dict[str, Client] = {}
        self._open: dict[str, contextlib.AsyncExitStack] = {}
        self._stack = contextlib.AsyncExitStack()
        self._tasks: asyncio.TaskGroup | None = None
        self._at_work: dict[asyncio.Task[None], None] = {}
        self._held: dict[str, asyncio.Lock] = {}
        """Who kills a controller starts it again before anybody else may touch it; by its name."""

    @property
    def queues(self) -> list[str]:
        """The first, and all beside it."""
        return [self.queue, *self._queues]

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            if self._processes.dispatchers or self._processes.job_controllers:
                self._files = Files(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-"))))
            for name in self.backend.names:
                await self._people_of(name)
            stack.push_async_callback(self._leave)
            stack.push_async_callback(self._tidy_up)
            await stack.enter_async_context(self._watcher)
            for name in self.backend.names:
                await self._open_proxies(stack, name)
            await self._furnish()
            await self._introduce()
            for name in self.backend.names:
                await self._watch(name)
            self._make_controllers()
            stack.push_async_callback(self._kill_all)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # --- setting up

    async def _people_of(self, name: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            connection = Connection.from_kubeconfig(self.backend.kubeconfig(name), name=name)
            self.people[name] = await stack.enter_async_context(Client(connection, user_agent="people"))
            self._eyes[name] = await stack.enter_async_context(Client(connection, user_agent="watcher"))
            self._open[name] = stack.pop_all()

    async def _tidy_up(self) -> None:
        """Clusters that outlive the run get back what they were given."""
        if self.backend.needs_job_controllers:
            return
        client = self.people[MANAGEMENT]
        for resource, names in ((WORKER_CLUSTERS, self.workers), (MIRROR_QUEUES, [self.queue])):
            for name in names:
                with contextlib.suppress(NotFound):
                    await client.delete(resource, name)
        for each in self.people.values():
            await each.request("DELETE", JOBS.path(self.namespace), body={"propagationPolicy": "Background"})

    async def _leave(self) -> None:
        for stack in self._open.values():
            await stack.aclose()

    async def _open_proxies(self, stack: contextlib.AsyncExitStack, name: str) -> None:
        clients = [*self.dispatchers]
        if self.backend.needs_job_controllers and name != MANAGEMENT:
            clients.append(JOB_CONTROLLER)
        for client in clients:
            proxy = self._proxy(client, name)
            self.proxies[proxy.link] = await stack.enter_async_context(proxy)

    def _proxy(self, client: str, name: str) -> Proxy:
        kubeconfig = self.backend.kubeconfig(name)
        if name not in self._hostile or client == JOB_CONTROLLER:
            return Proxy(client, name, kubeconfig, self.injector, certificates())
        tricks = self._hostile[name]
        return HostileWorker(name, kubeconfig, self.injector, certificates(), tricks, seed=self._seed, client=client)

    async def _introduce(self) -> None:
        """Hostile workers know who the others are."""
        if not self._hostile:
            return
        found = {name: await client.get(NAMESPACES, "kube-system") for name, client in self.people.items()}
        for proxy in self.proxies.values():
            if isinstance(proxy, HostileWorker):
                proxy.uids = [each["metadata"]["uid"] for name, each in found.items() if name != proxy.cluster]

    async def _furnish(self) -> None:
        """Namespaces, our kinds, the queue and its workers."""
        client = self.people[MANAGEMENT]
        await _made(client, NAMESPACES, {"metadata": {"name": SYSTEM}})
        for definition in crds():
            await _made(client, CRDS, definition)
        for resource in (WORKER_CLUSTERS, MIRROR_QUEUES, COHORTS):
            await _served(client, resource)
        if len(self.dispatchers) > 1:  # that of the run before, on clusters that outlive it, is still held
            await client.request("DELETE", LEASES.path(SYSTEM))
        for name in self.backend.names:
            await self._namespace(name)
        for name in self.workers:
            spec = {"kubeconfig": await self._store_kubeconfig(name, name)}
            if name in self._capacity:
                spec["capacity"] = declared(self._capacity[name])
            await client.create(WORKER_CLUSTERS, {"metadata": {"name": name}, "spec": spec})
        for name, cohort in self._cohorts.items():
            await client.create(COHORTS, {"metadata": {"name": name}, "spec": cohort})
        for name, spec in {self.queue: self._queue_spec, **self._queues}.items():
            queue = {"workers": {"names": self.workers}, **spec}
            await client.create(MIRROR_QUEUES, {"metadata": {"name": name}, "spec": queue})

    async def _namespace(self, name: str) -> None:
        for namespace in self._namespaces:
            await _made(self.people[name], NAMESPACES, {"metadata": {"name": namespace}})
            await _made(self.people[name], SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace)

    async def set_kubeconfig(self, worker: str, of: str | None = None, *, mark: str = "") -> None:
        """As its operator would: credentials with another mark, or those of another worker."""
        source = await self._store_kubeconfig(worker, of or worker, mark)
        if "path" in source:
            await self.people[MANAGEMENT].patch(WORKER_CLUSTERS, worker, {"spec": {"kubeconfig": source}})

    async def _store_kubeconfig(self, worker: str, of: str, mark: str = "") -> Json:
        """Where the WorkerCluster finds it: a file, where each of several dispatchers has its own; else a Secret."""
        found = {client: self.proxies[f"{client}/{of}"].kubeconfig for client in self.dispatchers}
        for kubeconfig in found.values():
            kubeconfig["users"][0]["user"]["token"] += mark
        if self._processes.dispatchers:
            assert self._files is not None
            return {"path": self._files.put(worker, found)}
        data = base64.b64encode(json.dumps(found[DISPATCHER]).encode()).decode()
        secret = {"metadata": {"name": worker}, "data": {"kubeconfig": data}}
        client = self.people[MANAGEMENT]
        try:
            await client.create(SECRETS, secret, SYSTEM)
        except AlreadyExists:
            await client.replace(SECRETS, {"apiVersion": "v1", "kind": "Secret", **secret}, SYSTEM)
        return {"secret": {"name": worker}}

    async def _watch(self, name: str) -> None:
        token = EXACT.set(True)
        try:
            await self._watcher.follow(name, self._eyes[name])
        finally:
            EXACT.reset(token)

    # --- controllers

    def _make_controllers(self) -> None:
        for client in self.dispatchers:
            links = [self.proxies[f"{client}/{name}"] for name in self.backend.names]
            self.controllers[client] = (
                Process(client, links, functools.partial(self._dispatcher_command, client), self.record)
                if self._processes.dispatchers
                else Task(client, links, self._dispatcher, self.record)
            )
        for name in self.workers:
            link = f"{JOB_CONTROLLER}/{name}"
            if link in self.proxies:
                self.controllers[link] = (
                    Process(link, [self.proxies[link]], functools.partial(self._jobs_command, link), self.record)
                    if self._processes.job_controllers
                    else Task(link, [self.proxies[link]], self._jobs_of(name), self.record)
                )

    def _dispatcher_command(self, client: str, life: int) -> Sequence[str]:
        assert self._files is not None
        kubeconfig = self.proxies[f"{client}/{MANAGEMENT}"].kubeconfig
        identity = f"{client}_{life}" if len(self.dispatchers) > 1 else None
        return commands.dispatcher(self._processes, self._files, client, kubeconfig, identity=identity)

    def _jobs_command(self, link: str, _: int) -> Sequence[str]:
        assert self._files is not None
        kubeconfig = self.proxies[link].kubeconfig
        return commands.job_controller(self._files, link, kubeconfig, pod_backoff=self._pod_backoff)

    async def _dispatcher(self) -> None:
        kubeconfig = self.proxies[f"{DISPATCHER}/{MANAGEMENT}"].kubeconfig
        connection = Connection.from_kubeconfig(kubeconfig, name=MANAGEMENT)
        async with Client(connection) as client:
            dispatcher = await Dispatcher.connect(client, self._options)
            async with dispatcher.following():
                await dispatcher.work()

    def _jobs_of(self, worker: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            connection = Connection.from_kubeconfig(self.proxies[f"{JOB_CONTROLLER}/{worker}"].kubeconfig, name=worker)
            async with Client(connection, user_agent="job-controller") as client:
                controller = JobController(client, JobOptions(pod_backoff_base=self._pod_backoff))
                async with controller.following():
                    await controller.work()

        return run

    async def start(self) -> None:
        """All controllers that do not run, once nobody is breaking anything any more; on return processes are up."""
        for task in tuple(self._at_work):
            await asyncio.wait([task])
        for controller in self.controllers.values():
            await controller.start()
        waited_for = {name for name, controller in self.controllers.items() if isinstance(controller, Process)}
        deadline = asyncio.get_running_loop().time() + _UP_SECONDS
        while waited_for:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"{', '.join(sorted(waited_for))} did not start")
            await asyncio.sleep(0.05)
            following = (each for each in self.record.exchanges if each.call.verb == "watch" and each.told == 200)
            waited_for -= {who for each in following for who in (each.client, each.link)}

    async def _kill_all(self) -> None:
        self.injector.stop()
        for controller in self.controllers.values():
            await controller.kill()

    # --- what goes wrong

    def _state_changed(self, link: str) -> None:
        if link in self.proxies:
            self.proxies[link].state_changed()

    async def _hands(self, fault: Fault) -> None:
        """Carried out beside whoever asked, who may be part of what is broken."""
        assert self._tasks is not None
        task = self._tasks.create_task(self._break(fault), name=str(fault))
        self._at_work[task] = None
        task.add_done_callback(self._at_work.pop)

    async def _break(self, fault: Fault) -> None:
        match fault.kind:
            case "crash" | "crash_after" | "crash_at":
                await self._crash(self._controller_of(fault), fault.seconds)
            case "pause":
                await self._pause(self._controller_of(fault), fault.seconds)
            case "wipe":
                await self._wipe(fault.link)
            case "swap":
                await self._swap(fault)
            case "restart":
                await self.backend.restart(fault.link, "etcd" if fault.resource == "etcd" else "apiserver")

    def _controller_of(self, fault: Fault) -> Controller:
        if fault.link == LEADER:
            leases = list(self.record.changes("Lease", MANAGEMENT))
            return self.controllers[(holder_of(leases[-1].object) if leases else "") or self.dispatchers[0]]
        return self.controllers.get(fault.link) or self.controllers[fault.link.partition("/")[0]]

    def _hold(self, controller: Controller) -> asyncio.Lock:
        return self._held.setdefault(controller.name, asyncio.Lock())

    async def _crash(self, controller: Controller, seconds: float) -> None:
        async with self._hold(controller):
            await controller.kill()
            await asyncio.sleep(seconds)
            await controller.start()

    async def _pause(self, controller: Controller, seconds: float) -> None:
        if controller.pause():
            await asyncio.sleep(seconds)
            controller.resume()

    async def _wipe(self, name: str) -> None:
        """All of it is another one: its Job controller too, which is part of it."""
        job_controller = self.controllers.get(f"{JOB_CONTROLLER}/{name}")
        if job_controller is None:
            await self._replace(name)
            return
        async with self._hold(job_controller):
            await job_controller.kill()
            await self._replace(name)
            await job_controller.start()

    async def _replace(self, name: str) -> None:
        links = [proxy for proxy in self.proxies.values() if proxy.cluster == name]
        for proxy in links:
            proxy.cut()
        await self._watcher.wiped(name)
        await self._open.pop(name).aclose()
        if await self.backend.wipe(name):
            for proxy in links:
                proxy.retarget(self.backend.kubeconfig(name))
            await self._people_of(name)
            await self._namespace(name)
            await self._watch(name)
        for client in self.dispatchers:
            if self.controllers[client].running:
                self.proxies[f"{client}/{name}"].mend()

    async def _swap(self, fault: Fault) -> None:
        """The kubeconfig of a worker is that of the next one, for a while."""
        others = [name for name in self.workers if name != fault.link]
        other = others[0]
        with contextlib.suppress(ApiError):
            await self.set_kubeconfig(fault.link, of=other)
        await asyncio.sleep(fault.seconds)
        await self.set_kubeconfig(fault.link)


def declared(cpu: int) -> Json:
    """The capacity of a WorkerCluster that says how much there is."""
    return {"mode": "Declared", "resources": {"cpu": cpu}}


async def _made(client: Client, resource: Resource, obj: Json, namespace: str | None = None) -> None:
    with contextlib.suppress(AlreadyExists):
        await client.create(resource, obj, namespace)


async def _served(client: Client, resource: Resource) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.list(resource)
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return

"""A cluster's simulated nodes: registered, alive, and looking after pods, until they are told to stop.

    async with SimulatedNodes(Connection.from_kubeconfig(kubeconfig), NodeOptions(count=3)):
        ...

They talk to the API alone, so they serve an embedded cluster and a real API server without kubelets in the same way.
Each node renews its Lease; one that a pod takes down falls silent, its pods with it, and either comes back with all
containers dead, or (`crash-node: true`) is removed after `lost_after` seconds together with its pods, as a cloud
would do, and replaced by a new one. Leaving the context stops everything and deletes nothing: started again, the
nodes go on where they were.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

import structlog

from clusters.nodes import life, status
from clusters.nodes.kubelet import KubeletServer
from clusters.nodes.logs import Logs
from clusters.nodes.machines import Machine, labels_of, lease_object, node_object, node_status, ready, silent
from clusters.nodes.pods import PodRules, Pods
from multimirror.kube import ApiError, Client, Connection, Informer, Object
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.informer import Change
from multimirror.kube.resources import LEASES, NODES, PODS

_RETRY_SECONDS: Final = 1.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What the nodes are like."""

    count: int = 1
    prefix: str = "node-"
    capacity: Mapping[str, str] = field(default_factory=dict)
    """Beyond the default of 64 cpu, 256Gi and 10,000 pods a node."""
    labels: Mapping[str, str] = field(default_factory=dict)
    default_duration: float = 0.0
    """How long a pod runs whose annotations do not say."""
    restart_backoff: float = 10.0
    """Before the second restart of a failed container; doubled from there, at most 300 s."""
    bind: bool = True
    """Bind pods to nodes; switch off where a scheduler runs."""
    processes: bool = False
    """Run the pods' commands on this host instead of simulating them. For trusted pods only."""
    heartbeat: float = 10.0
    lost_after: float = 5.0
    """How long a node that never comes back stays, with its pods."""
    concurrency: int = 16


class SimulatedNodes:
    """The nodes of one cluster. An async context manager."""

    def __init__(self, connection: Connection, options: NodeOptions | None = None) -> None:
        self.options = options or NodeOptions()
        self._client = Client(connection, concurrency=self.options.concurrency, user_agent="multimirror-simulated-node")
        self.machines: dict[str, Machine] = {}
        self.logs = Logs()
        self._kubelet = KubeletServer(self.logs)
        self._made = 0
        self._stack = contextlib.AsyncExitStack()
        self._tasks: asyncio.TaskGroup | None = None
        self._crashes: dict[str, asyncio.Event] = {}
        self._power = asyncio.Event()
        self._power.set()
        rules = PodRules(
            default_duration=self.options.default_duration,
            backoff=life.Backoff(base=self.options.restart_backoff),
            bind=self.options.bind,
            processes=self.options.processes,
            concurrency=self.options.concurrency,
        )
        self.pods = Pods(self._client, self.machines, rules, self.logs, crash=self._crash)
        self._nodes = Informer(self._client, NODES)
        self._nodes.add_handler(self._node_changed)

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._client)
            await self._kubelet.start()
            stack.push_async_callback(self._kubelet.stop)
            for _ in range(self.options.count):
                await self._register(self._new_machine())
            stack.push_async_callback(self.pods.aclose)
            await stack.enter_async_context(self._nodes)
            await stack.enter_async_context(self.pods.informer)
            await self.pods.informer.synced()
            run = asyncio.create_task(self._run(), name="simulated nodes")
            stack.push_async_callback(_stopped, run)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def switch_off(self) -> None:
        """All nodes go down at once, as in a power failure, until `switch_on`: no container runs any more."""
        self._power.clear()
        for machine in self.machines.values():
            self._crash(machine, 0.0)

    def switch_on(self) -> None:
        """They come back and find their containers gone."""
        self._power.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self.pods.controller.run())
            for machine in self.machines.values():
                self._keep(machine)

    def _new_machine(self) -> Machine:
        self._made += 1
        name = f"{self.options.prefix}{self._made}"
        machine = Machine(name, labels_of(name, self.options.labels))
        self.machines[name] = machine
        return machine

    def _keep(self, machine: Machine) -> None:
        assert self._tasks is not None, "machines are kept while the nodes run"
        self._crashes[machine.name] = asyncio.Event()
        self._tasks.create_task(self._life_of(machine), name=f"simulated node {machine.name}")

    async def _register(self, machine: Machine) -> None:
        now = time.time()
        node = node_object(machine, self.options.capacity, self._kubelet.port, now)
        try:
            made = await self._client.create(NODES, node)
        except AlreadyExists:
            made = {}
        if not made.get("status", {}).get("capacity"):
            await self._node_status(machine, node_status(self.options.capacity, self._kubelet.port, now))
        await self._beat(machine)

    async def _beat(self, machine: Machine) -> None:
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = lease_object(machine.name, renewed)
        try:
            await self._client.patch(LEASES, machine.name, {"spec": lease["spec"]}, "kube-node-lease")
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                await self._client.create(LEASES, lease, "kube-node-lease")

    async def _node_status(self, machine: Machine, body: Object) -> None:
        patch = {"status": body}
        await self._client.patch(NODES, machine.name, patch, patch_type="strategic", subresource="status")

    async def _life_of(self, machine: Machine) -> None:
        """Beats until the node is gone for good; a fault in talking to the API is tried again with the next beat."""
        crash = self._crashes[machine.name]
        while machine.name in self.machines:
            try:
                async with asyncio.timeout(self.options.heartbeat):
                    await crash.wait()
            except TimeoutError:
                pass
            try:
                if machine.down_since is None:
                    await self._beat(machine)
                else:
                    await self._be_down(machine)
            except ApiError as error:
                _log.warning("a simulated node cannot reach the API", node=machine.name, error=str(error))
                await asyncio.sleep(min(_RETRY_SECONDS, self.options.heartbeat))

    def _crash(self, machine: Machine, seconds: float) -> None:
        if machine.down_since is None:
            machine.down_since = time.time()
            machine.down_for = seconds
            self._crashes[machine.name].set()

    async def _be_down(self, machine: Machine) -> None:
        assert machine.down_since is not None, "it is down"
        for_good = machine.down_for == float("inf")
        await self._node_status(machine, {"conditions": [silent(time.time())]})
        await asyncio.sleep(self.options.lost_after if for_good else machine.down_for)
        await self._power.wait()
        if for_good:
            await self._replace(machine)
            return
        self.pods.kill_all(machine, machine.down_since)
        await self._node_status(machine, {"conditions": [ready(time.time())]})
        machine.down_since = None
        self._crashes[machine.name].clear()
        for key in tuple(machine.pods):
            self.pods.look_at(key)
        self.pods.unbound()

    async def _replace(self, machine: Machine) -> None:
        """The node is gone, its pods with it, as the control plane's pod collector does; a new node takes its place."""
        with contextlib.suppress(NotFound):
            await self._client.delete(NODES, machine.name)
        for pod in self.pods.on(machine):
            await self._lose(pod)
        del self.machines[machine.name]
        replacement = self._new_machine()
        await self._register(replacement)
        self._keep(replacement)
        self.pods.unbound()

    async def _lose(self, pod: Object) -> None:
        meta, now = pod["metadata"], time.time()
        gone = status.disrupted("DeletionByPodGC", "PodGC: node no longer exists", now)
        body = {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Failed", "conditions": [gone]}}
        where = meta["name"], meta["namespace"]
        with contextlib.suppress(NotFound):
            await self._client.patch(PODS, where[0], body, where[1], patch_type="strategic", subresource="status")
            await self._client.delete(PODS, *where, uid=meta["uid"], grace_period=0)

    def _node_changed(self, change: Change) -> None:
        """Somebody cordoned or labelled a node: pods that found none may find one now."""
        machine = self.machines.get(change.object["metadata"]["name"])
        if machine is None or change.new is None:
            return
        before = machine.cordoned, machine.labels
        machine.cordoned = bool(change.new["spec"].get("unschedulable"))
        machine.labels = change.new["metadata"].get("labels", {})
        if before != (machine.cordoned, machine.labels):
            self.pods.unbound()


async def _stopped(task: asyncio.Task[None]) -> None:
    """Cancelled and over; a fault that ended it earlier comes out here."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

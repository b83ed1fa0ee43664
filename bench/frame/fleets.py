"""Fleets to measure: every kind of work in a process of its own, so that CPU time has a name.

    dispatcher          `multimirror run`, as a user starts it
    simulated nodes     take the pods on real control planes through their life; the bench's own
    generator           this process: creates Jobs, and watches
    kube-apiserver, etcd, kube-controller-manager, or the embedded API servers in one process

Real fleets have audit logs; embedded servers count requests themselves.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from bench.frame.generator import MANAGEMENT, QUEUE, Json
from bench.frame.meters import Asked, Meter
from clusters.local import LocalFleet, LocalOptions
from clusters.local.cluster import APISERVER, LocalCluster
from clusters.local.ports import free_ports
from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS, crds
from multimirror.kube import Client, Connection, Resource
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.resources import CLUSTER_ROLE_BINDINGS, CRDS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS

SYSTEM: Final = "multimirror-system"
DISPATCHER: Final = "dispatcher"
NODES: Final = "simulated nodes"
GENERATOR: Final = "generator"
SERVERS: Final = "embedded API servers"
_READY_SECONDS: Final = 120.0


class DispatcherProcess:
    """`multimirror run` of one management cluster. May be stopped and started again."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._process: asyncio.subprocess.Process | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process, see `close`
        self._port = 0

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None, "it is started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether there is one."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Returns at once; it may still be filling its caches."""
        (self._port,) = free_ports(1)
        flags = ["--kubeconfig", str(self._kubeconfig), "--health-address", f"127.0.0.1:{self._port}"]
        command = [sys.executable, "-m", "multimirror.cli", "run", "--no-leader-election", "--log-level", "warning"]
        self._process = await asyncio.create_subprocess_exec(*command, *flags, stdout=self._log, stderr=self._log)

    async def stop(self) -> None:
        """In order."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(30):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    async def close(self) -> None:
        """For good. What it complained about is shown."""
        await self.stop()
        self._log.seek(0)
        told = self._log.read().decode(errors="replace")
        self._log.close()
        if told.strip() and os.environ.get("BENCH_LOG"):
            print(told[-5000:], file=sys.stderr)

    async def metrics(self) -> dict[str, float]:
        """What it counts, by name and labels as /metrics shows them; empty while it does not answer."""
        text = await asyncio.to_thread(_fetched, f"http://127.0.0.1:{self._port}/metrics")
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}


def _fetched(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


class BenchFleet:
    """A management cluster, workers, and a dispatcher, ready; and how to measure them."""

    def __init__(self, clients: Mapping[str, Client], dispatcher: DispatcherProcess, meter: Meter) -> None:
        self.clients = dict(clients)
        self.dispatcher = dispatcher
        self.meter = meter

    @property
    def management(self) -> Client:
        """Of the management cluster."""
        return self.clients[MANAGEMENT]

    @property
    def workers(self) -> dict[str, Client]:
        """The others."""
        return {name: client for name, client in self.clients.items() if name != MANAGEMENT}

    async def set_queue(self, **spec: Any) -> None:
        """Change the queue that all Jobs go through."""
        await self.management.patch(MIRROR_QUEUES, QUEUE, {"spec": spec})

    async def connected(self) -> None:
        """Until every worker can take Jobs."""
        async with asyncio.timeout(_READY_SECONDS):
            for name in self.workers:
                while not await self.is_ready(name):
                    await asyncio.sleep(0.1)

    async def is_ready(self, worker: str, condition: str = "Ready") -> bool:
        """What a WorkerCluster says of itself."""
        cluster = await self.management.get(WORKER_CLUSTERS, worker)
        conditions = (cluster.get("status") or {}).get("conditions") or ()
        return any(each["type"] == condition and each["status"] == "True" for each in conditions)


class RealFleet(BenchFleet):
    """Real control planes."""

    local: LocalFleet


@asynccontextmanager
async def real_fleet(workers: int = 2) -> AsyncIterator[RealFleet]:
    """One management cluster and some workers of real control planes, with audit logs; the dispatcher is connected."""
    one_log = {APISERVER: ("--audit-log-maxsize=100000",)}  # one file, to be counted in
    options = LocalOptions(
        workers=workers, nodes=False, audit_log=True, controller_manager_qps=5000.0, extra_args=one_log
    )
    async with LocalFleet(options) as local, contextlib.AsyncExitStack() as stack:
        clusters = [local.management, *local.workers.values()]
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kubeconfigs = {cluster.name: await _account(cluster) for cluster in clusters}
        files = {name: _file(directory / name, kubeconfig) for name, kubeconfig in kubeconfigs.items()}
        clients = {
            name: await _client(stack, Connection.from_kubeconfig(kubeconfig, name=name))
            for name, kubeconfig in kubeconfigs.items()
        }
        nodes = await _nodes(stack, [str(files[name]) for name in local.workers])
        dispatcher = DispatcherProcess(files[MANAGEMENT])
        stack.push_async_callback(dispatcher.close)

        def pids() -> dict[str, list[int]]:
            found: dict[str, list[int]] = {DISPATCHER: [dispatcher.pid] if dispatcher.running else []}
            for cluster in clusters:
                for name, process in cluster.processes.items():
                    found.setdefault(name, []).extend([process.pid] if process.pid else [])
            return {**found, NODES: [nodes], GENERATOR: [os.getpid()]}

        meter = Meter(pids, {cluster.name: cluster.audit_log for cluster in clusters})
        fleet = RealFleet(clients, dispatcher, meter)
        fleet.local = local
        await _prepare(clients[MANAGEMENT], {name: kubeconfigs[name] for name in local.workers})
        await dispatcher.start()
        await fleet.connected()
        yield fleet


class EmbeddedServers:
    """Embedded clusters in another process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process

    async def requests(self) -> dict[Asked, int]:
        """Since they started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return {Asked(*key): count for *key, count in orjson.loads(await self._process.stdout.readline())}


class EmbeddedFleet(BenchFleet):
    """Embedded clusters."""

    servers: EmbeddedServers


@asynccontextmanager
async def embedded_fleet(workers: int) -> AsyncIterator[EmbeddedFleet]:
    """The same of embedded clusters; nobody runs the copies (see `standin`)."""
    async with contextlib.AsyncExitStack() as stack:
        command = [sys.executable, "-m", "bench.frame.servers", str(workers)]
        process = await _child(stack, command)
        assert process.stdout is not None
        kubeconfigs: dict[str, Json] = orjson.loads(await process.stdout.readline())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients = {
            name: await _client(stack, Connection.from_kubeconfig(config, name=name))
            for name, config in kubeconfigs.items()
        }
        dispatcher = DispatcherProcess(_file(directory / MANAGEMENT, kubeconfigs[MANAGEMENT]))
        stack.push_async_callback(dispatcher.close)

        def pids() -> dict[str, list[int]]:
            ours = [dispatcher.pid] if dispatcher.running else []
            return {DISPATCHER: ours, SERVERS: [process.pid], GENERATOR: [os.getpid()]}

        fleet = EmbeddedFleet(clients, dispatcher, Meter(pids, {}))
        fleet.servers = EmbeddedServers(process)
        await _prepare(
            clients[MANAGEMENT], {name: config for name, config in kubeconfigs.items() if name != MANAGEMENT}
        )
        await dispatcher.start()
        await fleet.connected()
        yield fleet


async def _client(stack: contextlib.AsyncExitStack, connection: Connection) -> Client:
    return await stack.enter_async_context(Client(connection, concurrency=16, timeout=60.0, user_agent="bench"))


async def _account(cluster: LocalCluster) -> Json:
    """A kubeconfig with a service account's token, as every process in a pod has it.

    A client certificate is verified anew for each request: 5 to 10 % of an API server's time, whoever shows it.
    """
    about = {"metadata": {"name": "bench"}}
    subject = {"kind": "ServiceAccount", "name": "bench", "namespace": "kube-system"}
    role = {"apiGroup": CLUSTER_ROLE_BINDINGS.group, "kind": "ClusterRole", "name": "cluster-admin"}
    async with Client(Connection.from_kubeconfig(cluster.kubeconfig), user_agent="bench") as client:
        await client.create(SERVICE_ACCOUNTS, about, "kube-system")
        await client.create(CLUSTER_ROLE_BINDINGS, {**about, "roleRef": role, "subjects": [subject]})
        path = f"{SERVICE_ACCOUNTS.path('kube-system', 'bench')}/token"
        answer = await client.request("POST", path, body={"spec": {"expirationSeconds": 7200}})
    return cluster.kubeconfig_with_token(orjson.loads(answer.body)["status"]["token"])


def _file(path: Path, kubeconfig: Json) -> Path:
    path.touch(mode=0o600)
    path.write_text(json.dumps(kubeconfig))
    return path


async def _nodes(stack: contextlib.AsyncExitStack, kubeconfigs: list[str]) -> int:
    process = await _child(stack, [sys.executable, "-m", "bench.frame.nodes", *kubeconfigs])
    assert process.stdout is not None
    if await process.stdout.readline() != b"up\n":
        raise RuntimeError("the simulated nodes did not come up")
    return process.pid


async def _child(stack: contextlib.AsyncExitStack, command: list[str]) -> asyncio.subprocess.Process:
    """A process that ends when its input does."""
    errors = None if os.environ.get("BENCH_LOG") else DEVNULL
    limit = 1 << 26  # kubeconfigs of 50 clusters in one line
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=errors, limit=limit)

    async def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(15):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    stack.push_async_callback(end)
    return process


async def _prepare(management: Client, workers: Mapping[str, Json]) -> None:
    """What `multimirror` needs: its definitions, a WorkerCluster for each worker, a queue."""
    with contextlib.suppress(AlreadyExists):
        await management.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    for definition in crds():
        await management.create(CRDS, definition)
    for resource in (WORKER_CLUSTERS, MIRROR_QUEUES, COHORTS):
        await _served(management, resource)
    for name, kubeconfig in workers.items():
        data = base64.b64encode(json.dumps(kubeconfig).encode()).decode()
        await management.create(SECRETS, {"metadata": {"name": name}, "data": {"kubeconfig": data}}, SYSTEM)
        # Simulated nodes take any number of pods, and so must we, or the comparison would be about that.
        capacity = {"mode": "Declared", "resources": {"cpu": "100000"}}
        spec: Json = {"kubeconfig": {"secret": {"name": name}}, "capacity": capacity}
        await management.create(WORKER_CLUSTERS, _ours(WORKER_CLUSTERS, name, spec))
    await management.create(MIRROR_QUEUES, _ours(MIRROR_QUEUES, QUEUE, {"retention": "0s"}))


async def _served(management: Client, resource: Resource) -> None:
    ends = time.monotonic() + _READY_SECONDS
    while True:
        try:
            await management.list(resource)
        except NotFound:
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(0.1)
        else:
            return


def _ours(resource: Resource, name: str, spec: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}

"""The dispatcher: API calls for one Job, how late the mirror is, and a restart with 20,000. Many at once: `full-life`.

The first two on real control planes (etcd, kube-apiserver, kube-controller-manager at client QPS 5000) with the
dispatcher as a process of its own; the last one on embedded clusters. Each figure stands beside its bar.
"""

import asyncio
import base64
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from clusters.embedded import EmbeddedFleet
from clusters.fleet import Cluster, Fleet, FleetOptions, unavailable
from clusters.local import LocalFleet, LocalOptions
from clusters.local.cluster import LocalCluster
from multimirror.api import MANAGED_BY, MIRROR_QUEUES, QUEUE_LABEL, WORKER_CLUSTERS, crds
from multimirror.batch import is_finished, make_copy
from multimirror.dispatch import Dispatcher, DispatcherOptions
from multimirror.kube import AlreadyExists, Client, Connection, NotFound, Resource
from multimirror.workers import identity_of

Json = dict[str, Any]
JOBS = Resource("batch", "v1", "jobs", "Job")
SECRETS = Resource("", "v1", "secrets", "Secret")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
SYSTEM = "multimirror-system"
QUEUE = "bench"
_HEARTBEATS = ("/version", "/api/v1/namespaces/kube-system")


PARTS = ("calls", "lateness", "restart")


def main(*parts: str) -> None:
    """Print the figures; of some parts only: `python -m bench.dispatcher calls`."""
    chosen = parts or PARTS
    reason = unavailable("local")
    if reason:
        print(f"  real control planes: left out, {reason}")
    elif set(chosen) - {"restart"}:
        asyncio.run(_real(chosen))
    if "restart" in chosen:
        asyncio.run(_restart())


def a_job(name: str, *, managed: bool = True) -> Json:
    """A Job with one pod that ends at once; as admission leaves it, or as it runs directly on a worker."""
    spec: Json = {
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}},
    }
    metadata: Json = {"name": name}
    if managed:
        spec |= {"managedBy": MANAGED_BY, "suspend": True}
        metadata["labels"] = {QUEUE_LABEL: QUEUE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


# --- real control planes ----------------------------------------------------------------------------------------------


async def _real(parts: Sequence[str]) -> None:
    options = LocalOptions(workers=2, audit_log=True, controller_manager_qps=5000.0)
    async with LocalFleet(options) as fleet, contextlib.AsyncExitStack() as stack:
        management = await _client(stack, fleet.management)
        workers = {name: await _client(stack, worker) for name, worker in fleet.workers.items()}
        await _prepare(management, fleet)
        async with _process(fleet):
            await _ready(management, list(workers))
            if "calls" in parts:
                await _calls(fleet, management)
            if "lateness" in parts:
                await _lateness(management, workers)


async def _calls(fleet: LocalFleet, management: Client) -> None:
    """Bar: management <= 6, chosen worker <= 3, other workers 0."""
    await _finished(management, [await management.create(JOBS, a_job("warm-up"), "default")])
    await asyncio.sleep(8)
    before = {cluster.name: len(_audited(cluster)) for cluster in _local(fleet)}
    await _finished(management, [await management.create(JOBS, a_job("counted"), "default")])
    await asyncio.sleep(8)  # the copy's deletion, our own objects' status, and the log itself
    print("  API calls for one Job (bars: management 6, chosen worker 3, others 0)")
    for cluster in _local(fleet):
        calls = _audited(cluster)[before[cluster.name] :]
        for_job = [call for call in calls if "/jobs" in call]
        other = [call for call in calls if "/jobs" not in call]
        print(f"    {cluster.name}: {len(for_job)}  {dict(Counter(for_job))}  other: {dict(Counter(other))}")


def _audited(cluster: LocalCluster) -> list[str]:
    """Our calls: no watches, no leases, no heartbeats, no events."""
    calls = []
    for line in cluster.audit_log.read_text().splitlines():
        entry = json.loads(line)
        path = entry["requestURI"].partition("?")[0]
        ours = entry.get("userAgent", "").startswith("multimirror") and entry["stage"] == "ResponseComplete"
        if ours and entry["verb"] != "watch" and path not in _HEARTBEATS:
            if "/leases/" not in path and "/events" not in path and "selfsubjectaccessreviews" not in path:
                calls.append(f"{entry['verb']} {path}")
    return calls


async def _lateness(management: Client, workers: dict[str, Client]) -> None:
    """Bar: p50 < 50 ms, p99 < 250 ms when idle. Both ends are watched from here."""
    seen: dict[str, dict[str, float]] = {"worker": {}, "management": {}}
    async with contextlib.AsyncExitStack() as stack:
        for client in workers.values():
            await stack.enter_async_context(_watching(client, seen["worker"]))
        await stack.enter_async_context(_watching(management, seen["management"]))
        for number in range(60):
            await _finished(management, [await management.create(JOBS, a_job(f"late-{number}"), "default")])
        await asyncio.sleep(1)
    late = [seen["management"][key] - moment for key, moment in seen["worker"].items() if key in seen["management"]]
    print(
        f"  mirror, idle: {len(late)} changes, p50 {_ms(late, 50)}, p99 {_ms(late, 99)}, "
        f"worst {max(late) * 1000:.0f} ms (bars: p50 50 ms, p99 250 ms)"
    )


@contextlib.asynccontextmanager
async def _watching(client: Client, seen: dict[str, float]) -> AsyncIterator[None]:
    async def follow() -> None:
        start = (await client.list(JOBS, "default")).resource_version
        while True:
            async with contextlib.aclosing(client.watch(JOBS, "default", resource_version=start)) as events:
                async for event in events:
                    start = event.object["metadata"]["resourceVersion"]
                    status = event.object.get("status") or {}  # a bookmark has none
                    if status.get("startTime"):
                        visible = [status.get(field) or 0 for field in ("active", "ready", "succeeded", "failed")]
                        key = f"{event.object['metadata']['name']} {visible} {is_finished(status)}"
                        seen.setdefault(key, time.perf_counter())

    task = asyncio.ensure_future(follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _process(fleet: LocalFleet) -> AsyncIterator[None]:
    """`multimirror run` beside us."""
    kubeconfig = str(fleet.management.kubeconfig_file)
    flags = ["--kubeconfig", kubeconfig, "--health-address", "127.0.0.1:0", "--log-level", "warning"]
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "multimirror.cli", "run", *flags]
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            if process.returncode or os.environ.get("BENCH_LOG"):
                log.seek(0)
                print(log.read().decode()[-5000:])


# --- 20,000 Jobs on embedded clusters ---------------------------------------------------------------------------------


async def _restart(count: int = 20_000) -> None:
    """Bar: ready again in < 15 s, without a single write that was not needed."""
    async with EmbeddedFleet(FleetOptions(workers=2, nodes=False)) as fleet, contextlib.AsyncExitStack() as stack:
        management = await _client(stack, fleet.management)
        workers = {name: await _client(stack, worker) for name, worker in fleet.workers.items()}
        await _prepare(management, fleet)
        await _populate(management, workers, count)
        writes: list[str] = []
        for cluster in (fleet.management, *fleet.workers.values()):
            assert cluster.server is not None
            kind = cluster.server.kinds.stored("batch", "jobs")
            assert kind is not None
            kind.table.subscribers.append(lambda event: writes.append(str(event)[:200]))
        own = await stack.enter_async_context(
            Client(Connection.from_kubeconfig(fleet.management.kubeconfig, name="management"))
        )
        started = time.perf_counter()
        dispatcher = Dispatcher(own, DispatcherOptions(namespace=SYSTEM))
        async with dispatcher:
            ready = time.perf_counter() - started
            await dispatcher.idle()
            settled = time.perf_counter() - started
            print(
                f"  restart with {count} Jobs: decides after {ready:.1f} s, looked at every Job after {settled:.1f} s "
                f"(bar: 15 s), {len(writes)} writes to Jobs (bar: 0)"
            )


async def _populate(management: Client, workers: dict[str, Client], count: int) -> None:
    """A tenth runs, a tenth waits (the queue is full), the rest has finished; of those a tenth still has its copy."""
    origin = await identity_of(management)
    await management.patch(MIRROR_QUEUES, QUEUE, {"spec": {"quota": {"jobs": count // 10}, "retention": "1h"}})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    running: Json = {"startTime": now, "active": 1, "ready": 1, "terminating": 0, "uncountedTerminatedPods": {}}
    ended: Json = {
        "startTime": now,
        "completionTime": now,
        "succeeded": 1,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
            for kind in ("SuccessCriteriaMet", "Complete")
        ],
    }
    names = list(workers)

    async def one(number: int) -> None:
        job, worker = a_job(f"job-{number}"), names[number % len(names)]
        if number % 10 == 1:
            await management.create(JOBS, job, "default")
            return
        job["spec"]["suspend"] = False
        job["metadata"]["annotations"] = {"multimirror.dev/cluster": worker, "multimirror.dev/attempt": "1"}
        made = await management.create(JOBS, job, "default")
        status = running if number % 10 == 0 else ended
        body = {"status": status}
        await management.patch(JOBS, f"job-{number}", body, "default", subresource="status")
        if number % 10 in (0, 2):
            copy = make_copy(made, origin=origin, attempt=1)
            await workers[worker].create(JOBS, copy, "default")
            await workers[worker].patch(JOBS, f"job-{number}", body, "default", subresource="status")

    for first in range(0, count, 500):
        await asyncio.gather(*(one(number) for number in range(first, min(count, first + 500))))


# --- common -----------------------------------------------------------------------------------------------------------


async def _client(stack: contextlib.AsyncExitStack, cluster: Cluster) -> Client:
    connection = Connection.from_kubeconfig(cluster.kubeconfig, name=cluster.name)
    return await stack.enter_async_context(Client(connection, concurrency=32, user_agent="bench"))


async def _prepare(management: Client, fleet: Fleet) -> None:
    with contextlib.suppress(AlreadyExists):
        await management.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    for definition in crds():
        await management.create(CRDS, definition)
    for resource in (WORKER_CLUSTERS, MIRROR_QUEUES):
        while True:
            try:
                await management.list(resource)
            except NotFound:
                await asyncio.sleep(0.1)
            else:
                break
    for name, worker in fleet.workers.items():
        data = base64.b64encode(json.dumps(worker.kubeconfig).encode()).decode()
        await management.create(SECRETS, {"metadata": {"name": name}, "data": {"kubeconfig": data}}, SYSTEM)
        header = {"apiVersion": WORKER_CLUSTERS.api_version, "kind": WORKER_CLUSTERS.kind, "metadata": {"name": name}}
        # Simulated nodes take any number of pods, and so must we, or the comparison would be about that.
        capacity = {"mode": "Declared", "resources": {"cpu": "1000"}}
        spec: Json = {"kubeconfig": {"secret": {"name": name}}, "capacity": capacity}
        await management.create(WORKER_CLUSTERS, {**header, "spec": spec})
    header = {"apiVersion": MIRROR_QUEUES.api_version, "kind": MIRROR_QUEUES.kind, "metadata": {"name": QUEUE}}
    await management.create(MIRROR_QUEUES, {**header, "spec": {"retention": "0s"}})


async def _ready(management: Client, names: list[str]) -> None:
    async with asyncio.timeout(60):
        for name in names:
            while True:
                cluster = await management.get(WORKER_CLUSTERS, name)
                conditions = (cluster.get("status") or {}).get("conditions") or ()
                if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                    break
                await asyncio.sleep(0.1)


async def _finished(client: Client, jobs: Sequence[Json]) -> None:
    for job in jobs:
        async with asyncio.timeout(120):
            found = job
            while not is_finished(found.get("status") or {}):
                await asyncio.sleep(0.02)
                found = await client.get(JOBS, job["metadata"]["name"], "default")


def _local(fleet: LocalFleet) -> list[LocalCluster]:
    return [fleet.management, *fleet.workers.values()]


def _ms(seconds: list[float], percent: int) -> str:
    return f"{statistics.quantiles(seconds, n=100)[percent - 1] * 1000:.0f} ms"


if __name__ == "__main__":
    main(*sys.argv[1:])

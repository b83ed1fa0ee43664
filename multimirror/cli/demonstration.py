"""`multimirror demo`: a whole fleet on this machine, a few dozen Jobs, and a worker that is cut off in the middle.

Everything in it is the real thing: clusters with a Kubernetes API each, admission by webhook, the dispatcher with its
own connections to the workers, Jobs run by our Job controller on simulated nodes. Only the time that the pods take is
made up. What is counted at the end is read from the clusters, not remembered.
"""

import asyncio
import base64
import contextlib
import logging
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import orjson
import structlog

from clusters.embedded import EmbeddedCluster
from clusters.fleet import Cluster, Fleet, FleetOptions, open_fleet
from clusters.local import LocalCluster
from clusters.nodes import PREFIX
from multimirror.admission import NAMESPACES, PATH, AdmissionServer, Registration, Webhook
from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION, MIRROR_QUEUES, QUEUE_LABEL, WORKER_CLUSTERS, crds
from multimirror.batch import Json, is_complete, is_failed, is_finished, is_suspended
from multimirror.dispatch import Dispatcher, DispatcherOptions
from multimirror.kube import ApiError, Client, Connection, Informer, Resource
from multimirror.workers import Pulse

JOBS: Final = Resource("batch", "v1", "jobs", "Job")
_CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
_SECRETS: Final = Resource("", "v1", "secrets", "Secret")
_CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_SYSTEM: Final = "multimirror-system"
_TEAM: Final = "default"
_LOST: Final = "worker-2"
_PATIENCE: Final = 120.0


def say(text: str = "") -> None:
    print(text, flush=True)  # noqa: T201 - showing things is what a demo is for


async def demo(kind: str, workers: int, *, keep: bool) -> int:
    """0 when every Job ended and none ran twice."""
    _only_our_own_words()
    started = time.monotonic()
    say(f"Starting one management cluster and {workers} workers ({kind}) ...")
    async with contextlib.AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(open_fleet(kind, FleetOptions(workers=workers, job_controller=True)))
        client = await stack.enter_async_context(_client(fleet.management))
        await stack.enter_async_context(_installed(client))
        await _join(client, fleet)
        await stack.enter_async_context(_dispatcher(fleet))
        say(f"  up in {time.monotonic() - started:.1f} s; queues: batch (spread), train (pack, at most 4 Jobs at once)")
        names = await _submit(client)
        jobs = Informer(client, JOBS, _TEAM)
        seen: set[str] = set()
        jobs.add_handler(lambda change: seen.add(change.object["metadata"]["name"]))
        await stack.enter_async_context(jobs)
        outcome = await _watch(client, fleet, jobs, names)
        await _report(fleet, jobs, names)
        ticks = sum(1 for name in seen if name.startswith("tick-"))
        say(f"The CronJob started {ticks} more (a Job a minute at most). All in {time.monotonic() - started:.0f} s.")
        if keep:
            await _stay(fleet)
    return outcome


def _only_our_own_words() -> None:
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _client(cluster: Cluster) -> Client:
    return Client(Connection.from_kubeconfig(cluster.kubeconfig, name=cluster.name), user_agent="demo")


@contextlib.asynccontextmanager
async def _installed(client: Client) -> AsyncIterator[None]:
    """Our kinds, our namespace, and admission, on the management cluster."""
    await client.create(NAMESPACES, {"metadata": {"name": _SYSTEM}})
    for definition in crds():
        await client.create(_CRDS, definition)
    for resource in (WORKER_CLUSTERS, MIRROR_QUEUES):
        await _served(client, resource)
    namespaces, queues = Informer(client, NAMESPACES), Informer(client, MIRROR_QUEUES)
    async with namespaces, queues, AdmissionServer(client, namespaces, queues, host="127.0.0.1", port=0) as server:
        registration = Registration(url=f"https://127.0.0.1:{server.port}{PATH}")
        async with Webhook(client, server, registration, secret=(_SYSTEM, "admission")) as webhook:
            async with asyncio.timeout(_PATIENCE):
                await webhook.registered()
            yield


async def _served(client: Client, resource: Resource) -> None:
    """A real API server takes a moment to serve a kind that was just defined, and says nothing when it does."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            with contextlib.suppress(ApiError):
                await client.list(resource)
                return
            await asyncio.sleep(0.05)


async def _join(client: Client, fleet: Fleet) -> None:
    for cluster in fleet.workers.values():
        data = base64.b64encode(orjson.dumps(cluster.kubeconfig)).decode()
        await client.create(_SECRETS, {"metadata": {"name": cluster.name}, "data": {"kubeconfig": data}}, _SYSTEM)
        await client.create(
            WORKER_CLUSTERS,
            {"metadata": {"name": cluster.name}, "spec": {"kubeconfig": {"secret": {"name": cluster.name}}}},
        )
    lost = {"after": "3s", "action": "Redispatch"}
    train = {"placement": "Pack", "quota": {"jobs": 4}, "retention": "5s", "onWorkerLost": lost}
    for name, spec in {
        "batch": {"placement": "Spread", "retention": "5s", "onWorkerLost": lost},
        "train": train,
    }.items():
        await client.create(MIRROR_QUEUES, {"metadata": {"name": name}, "spec": spec})


@contextlib.asynccontextmanager
async def _dispatcher(fleet: Fleet) -> AsyncIterator[None]:
    options = DispatcherOptions(namespace=_SYSTEM, pulse=Pulse(period=0.5, patience=1.0, misses=2))
    async with _client(fleet.management) as client, Dispatcher(client, options):
        yield


# --- the Jobs


def a_job(name: str, queue: str, spec: Json | None = None, **behaviour: str) -> Json:
    annotations = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in behaviour.items()}
    return {
        "metadata": {"name": name, "labels": {QUEUE_LABEL: queue}},
        "spec": {
            **(spec or {}),
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]},
            },
        },
    }


def workload() -> list[Json]:
    """A few dozen Jobs of every sort."""
    indexed = {"completionMode": "Indexed", "completions": 6, "parallelism": 3}
    first_is_enough = {**indexed, "successPolicy": {"rules": [{"succeededCount": 1}]}}
    return [
        *(a_job(f"report-{i:02}", "batch", duration=f"{2 + i % 6}s") for i in range(20)),
        *(a_job(f"train-{i}", "train", duration="3s") for i in range(8)),
        *(a_job(f"shards-{i}", "batch", indexed, duration="3s") for i in range(3)),
        a_job("any-of-six", "batch", first_is_enough, duration="2s"),
        a_job("second-time-lucky", "batch", {"backoffLimit": 3}, duration="1s", fail_first="1"),
        a_job("hopeless", "batch", {"backoffLimit": 0}, duration="1s", exit_code="7"),
    ]


async def _submit(client: Client) -> list[str]:
    jobs = workload()
    for job in jobs:
        await client.create(JOBS, job, _TEAM)
    template = a_job("tick", "batch", duration="1s")
    del template["metadata"]["name"]
    spec = {"schedule": "@every 5s", "jobTemplate": template}
    await client.create(_CRON_JOBS, {"metadata": {"name": "tick"}, "spec": spec}, _TEAM)
    say(f"  {len(jobs)} Jobs and a CronJob created on the management cluster")
    say()
    return [job["metadata"]["name"] for job in jobs]


# --- what is to be seen


async def _watch(client: Client, fleet: Fleet, jobs: Informer, names: list[str]) -> int:
    """A line a second until every Job has ended; the worker is cut off when about a third of them have."""
    await jobs.synced()
    began, cut = time.monotonic(), False
    say(f"  {'time':>5}  {'waiting':>7}  {'running':>7}  {'done':>4}  {'failed':>6}  on each worker")
    while True:
        states = [_state(jobs, name) for name in names]
        count = Counter(state for state, _ in states)
        places = Counter(where for state, where in states if state == "running")
        shown = "  ".join(f"{worker} {places[worker]}" for worker in fleet.workers)
        second = time.monotonic() - began
        numbers = f"{count['waiting']:7}  {count['running']:7}  {count['done']:4}  {count['failed']:6}"
        say(f"  {second:4.0f}s  {numbers}  {shown}")
        over = count["done"] + count["failed"]
        if over == len(names):
            break
        if second > _PATIENCE:
            say(f"not all Jobs ended within {_PATIENCE:.0f} s")
            return 1
        if not cut and over >= len(names) // 3 and _LOST in fleet.workers and places[_LOST]:
            say(f"         -- {_LOST} is cut off, with {places[_LOST]} Jobs on it --")
            await _cut_off(fleet.workers[_LOST])
            cut = True
        await asyncio.sleep(1.0)
    await client.delete(_CRON_JOBS, "tick", _TEAM)
    return 0


def _state(jobs: Informer, name: str) -> tuple[str, str | None]:
    job = jobs.get(f"{_TEAM}/{name}")
    if job is None:
        return "waiting", None
    status, where = job.get("status") or {}, _where(job)
    if is_complete(status):
        return "done", where
    if is_failed(status):
        return "failed", where
    return ("running", where) if where and not is_suspended(status) else ("waiting", None)


def _where(job: Json) -> str | None:
    place: str | None = (job["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION)
    return place


async def _cut_off(cluster: Cluster) -> None:
    """Its API server answers nobody any more."""
    if isinstance(cluster, LocalCluster):
        await cluster.processes["kube-apiserver"].pause()
    elif isinstance(cluster, EmbeddedCluster):
        await cluster.stop()


async def _report(fleet: Fleet, jobs: Informer, names: list[str]) -> None:
    """The end, counted in the clusters."""
    finished = [job for name in names if (job := jobs.get(f"{_TEAM}/{name}")) and is_finished(job["status"])]
    places = Counter(_where(job) for job in finished)
    moved = sum(1 for job in finished if job["metadata"]["annotations"].get(ATTEMPT_ANNOTATION, "1") != "1")
    live: Counter[str] = Counter()
    for name, cluster in fleet.workers.items():
        if name != _LOST:
            async with _client(cluster) as client:
                for copy in (await client.list(JOBS, _TEAM)).items:
                    live[copy["metadata"]["name"]] += not is_finished(copy.get("status") or {})
    twice = sum(1 for count in live.values() if count > 1)
    say()
    say(f"{len(finished)} of {len(names)} Jobs ended, {moved} of them after they had moved away from {_LOST}.")
    say("Where they ended: " + ", ".join(f"{place}: {count}" for place, count in sorted(places.items(), key=str)))
    say(f"Lost: {len(names) - len(finished)}. Running twice: {twice}.")


async def _stay(fleet: Fleet) -> None:
    directory = Path(tempfile.mkdtemp(prefix="multimirror-demo-"))
    say()
    say("The fleet stays up until Ctrl-C. Try:")
    for cluster in fleet.clusters():
        if cluster.name != _LOST:
            file = directory / f"{cluster.name}.kubeconfig"
            file.write_bytes(orjson.dumps(cluster.kubeconfig))
            say(f"  kubectl --kubeconfig {file} get jobs")
    await asyncio.Event().wait()

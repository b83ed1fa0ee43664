"""A dispatcher on virtual time, with a management cluster and two workers in memory, and somebody who watches.

Every write is looked at when it takes effect, as the API servers see it: what must never happen is noted in
`violations`, since an assertion inside a reconcile would only be one more failure to back off from.
"""

import asyncio
import base64
from collections.abc import Coroutine
from contextlib import ExitStack
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

from multimirror.api import (
    CLUSTER_ANNOTATION,
    CLUSTERS_ANNOTATION,
    HOLD_ANNOTATION,
    MANAGED_BY,
    MIRROR_QUEUES,
    ORIGIN_UID_LABEL,
    PREEMPTED_ANNOTATION,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    WORKER_CLUSTERS,
)
from multimirror.batch import is_finished
from multimirror.dispatcher import Dispatcher
from multimirror.kube import Client, Connection
from multimirror.kube.resources import JOBS, NAMESPACES, NODES, PODS, SECRETS
from multimirror.kube.write_guard import WriteGuard
from multimirror.options import DispatcherOptions
from multimirror.scheduling import scheduler
from tests.unit.kube.virtual_time import VirtualTimeLoop
from tests.unit.shell.fake_api import START, FakeCluster, Network, Request, timestamp

Json = dict[str, Any]
T = TypeVar("T")
SYSTEM = "multimirror-system"
TEAMS = ("t1", "t2")
WORKERS = ("w1", "w2")
QUEUES = ("a", "z")
OPTIONS = DispatcherOptions(
    namespace=SYSTEM,
    refusal_seconds=30.0,
    report_seconds=30.0,
    concurrency=4,
    worker_concurrency=2,
    plain_http=True,
)
_NOT_RANDOM = SimpleNamespace(Random=lambda: Random(1), uniform=lambda low, high: (low + high) / 2)
FORGED = "forged"
"""A label on what attackers put there: it is no copy, whatever else it says."""
_PATIENCE = 5.0
"""Seconds that a Job must have waited unchanged before anybody may complain that it was passed over."""


class World:
    """Everything around one dispatcher. `run` things on its loop; `close` it in the end."""

    def __init__(self) -> None:
        self.loop = VirtualTimeLoop(grace=0.0)
        self.hub = FakeCluster("hub", self.clock, on_write=self._on_hub_write)
        self.workers = {name: FakeCluster(name, self.clock, on_write=self._on_worker_write) for name in WORKERS}
        self.network = Network([self.hub, *self.workers.values()])
        self.violations: list[str] = []
        self.dispatcher: Dispatcher | None = None
        self.guard = WriteGuard(lambda: None)
        self._changed: dict[str, float] = {}  # uid: when its user last did something with it, or it lost its worker
        self._life: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._numbers = 0
        self._patches = ExitStack()
        for patch in (
            mock.patch("multimirror.kube.client.Http1Transport", self.network.transport),
            # The same steps give the same story: jitter is not random, and no slice ends because a machine is busy.
            mock.patch("multimirror.kube.queue.random", _NOT_RANDOM),
            mock.patch("multimirror.kube.backoff.random", _NOT_RANDOM),
            mock.patch("tenacity.wait.random", _NOT_RANDOM),
            mock.patch.object(scheduler, "_SLICE_SECONDS", float("inf")),
        ):
            self._patches.enter_context(patch)
        self.run(self._install())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def settle(self, seconds: float = 1.0) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        try:
            self.run(self.stop())
            self.run(self.loop.shutdown_asyncgens())
        finally:
            self._patches.close()
            self.loop.close()

    async def _install(self) -> None:
        for cluster in (self.hub, *self.workers.values()):
            for name in ("kube-system", SYSTEM, *TEAMS, "elsewhere"):
                cluster.put(NAMESPACES, {"metadata": {"name": name}})
        for name in WORKERS:
            data = {"kubeconfig": base64.b64encode(self.network.kubeconfig(name)).decode()}
            self.hub.put(SECRETS, {"metadata": {"name": name, "namespace": SYSTEM}, "data": data})
            spec = {"kubeconfig": {"secret": {"name": name}}}
            self.hub.put(WORKER_CLUSTERS, {"metadata": {"name": name, "generation": 1}, "spec": spec})
            self.set_nodes(name, 1)
        for name in QUEUES:
            rules = {"onWorkerLost": {"action": "Wait"}, "retention": "0s", "maxPriority": 9}
            self.hub.put(MIRROR_QUEUES, {"metadata": {"name": name, "generation": 1}, "spec": rules})
        await self.start()

    async def start(self) -> None:
        """A dispatcher that knows nothing yet."""
        self._stop, ready = asyncio.Event(), asyncio.Event()
        self._life = asyncio.ensure_future(self._dispatch(ready, self._stop))
        await asyncio.wait([self._life, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        self._stop.set()
        if self._life is not None:
            await self._life

    async def _dispatch(self, ready: asyncio.Event, stop: asyncio.Event) -> None:
        connection = Connection.strict(self.network.kubeconfig("hub"), name="management", plain_http=True)
        async with (
            Client(connection) as client,
            await Dispatcher.connect(client, OPTIONS, guard=self.guard, clock=self.clock) as self.dispatcher,
        ):
            ready.set()
            await stop.wait()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    # --- what users and operators do

    def submit(self, queue: str, team: str = "t1", priority: int = 0, cpus: int = 1) -> str:
        self._numbers += 1
        name = f"job-{self._numbers}"
        container = {"name": "main", "resources": {"requests": {"cpu": str(cpus)}}}
        job = {
            "metadata": {
                "name": name,
                "namespace": team,
                "labels": {QUEUE_LABEL: queue, PRIORITY_LABEL: str(priority)},
                "creationTimestamp": self.now(),
            },
            "spec": {
                "managedBy": MANAGED_BY,
                "suspend": True,
                "parallelism": 1,
                "completions": 1,
                "template": {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never"}},
            },
        }
        uid = self.hub.put(JOBS, job)["metadata"]["uid"]
        self._changed[uid] = self.loop.time()
        return name

    def edit(self, job: Json, **changes: Any) -> None:
        """`queue`, `hold`, `clusters`, `suspend`, `cpus` of a Job are others now."""

        def change(obj: Json) -> None:
            metadata, annotations = obj["metadata"], obj["metadata"].setdefault("annotations", {})
            if "queue" in changes:
                metadata["labels"] = {**metadata["labels"], QUEUE_LABEL: changes["queue"]}
            if changes.get("hold"):
                annotations[HOLD_ANNOTATION] = "true"
            elif "hold" in changes:
                annotations.pop(HOLD_ANNOTATION, None)
            if "clusters" in changes:
                annotations[CLUSTERS_ANNOTATION] = changes["clusters"]
            if "suspend" in changes:
                obj["spec"]["suspend"] = changes["suspend"]

        metadata = job["metadata"]
        self._changed[metadata["uid"]] = self.loop.time()
        self.hub.change(JOBS, metadata["name"], metadata["namespace"], change)

    def set_worker(self, name: str, **spec: Any) -> None:
        def change(obj: Json) -> None:
            obj["metadata"]["generation"] += 1
            obj["spec"] |= spec
            obj["spec"] = {key: value for key, value in obj["spec"].items() if value is not None}

        self.hub.change(WORKER_CLUSTERS, name, "", change)

    def set_nodes(self, worker: str, number: int) -> None:
        """Nodes of one cpu each."""
        cluster = self.workers[worker]
        for node in cluster.all(NODES):
            cluster.remove(NODES, node["metadata"]["name"])
        for each in range(number):
            status = {"allocatable": {"cpu": "1", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]}
            cluster.put(NODES, {"metadata": {"name": f"n{each}"}, "spec": {}, "status": status})

    # --- what workers do

    def start_copy(self, worker: str, copy: Json) -> None:
        self._set_status(worker, copy, {"startTime": self.now(), "active": 1, "ready": 1, "terminating": 0})

    def stop_copy(self, worker: str, copy: Json, pods: int = 0) -> None:
        """Its suspension is noticed, and so many pods of it are left."""
        suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": self.now()}
        self._set_status(worker, copy, {"conditions": [suspended], "active": 0, "ready": 0, "terminating": pods})

    def end_copy(self, worker: str, copy: Json) -> None:
        condition = {"status": "True", "lastProbeTime": self.now(), "lastTransitionTime": self.now()}
        conditions = [{"type": kind, **condition} for kind in ("SuccessCriteriaMet", "Complete")]
        start = (copy.get("status") or {}).get("startTime") or self.now()
        self._set_status(
            worker,
            copy,
            {
                "startTime": start,
                "completionTime": self.now(),
                "succeeded": 1,
                "active": 0,
                "ready": 0,
                "terminating": 0,
                "uncountedTerminatedPods": {},
                "conditions": conditions,
            },
        )

    def _set_status(self, worker: str, copy: Json, status: Json) -> None:
        metadata = copy["metadata"]

        def change(obj: Json) -> None:
            obj["status"] = status

        self.workers[worker].change(JOBS, metadata["name"], metadata["namespace"], change)

    # --- what is there

    def now(self) -> str:
        return timestamp(self.clock())

    def clock(self) -> float:
        return START + self.loop.time()

    def jobs(self) -> list[Json]:
        return self.hub.all(JOBS)

    def copies(self, uid: str | None = None) -> list[tuple[str, Json]]:
        return [
            (name, copy)
            for name, cluster in self.workers.items()
            for copy in cluster.all(JOBS)
            if uid is None or copy["metadata"]["labels"][ORIGIN_UID_LABEL] == uid
        ]

    def live_copies(self, uid: str | None = None) -> list[tuple[str, Json]]:
        return [
            (name, copy)
            for name, copy in self.copies(uid)
            if not is_finished(copy.get("status") or {}) and FORGED not in copy["metadata"]["labels"]
        ]

    # --- what must never happen

    def _on_worker_write(self, request: Request, before: Json | None, after: Json | None) -> None:
        if before is None and after is not None and request.collection == JOBS.path():
            uid = after["metadata"]["labels"][ORIGIN_UID_LABEL]
            live = self.live_copies(uid)
            if len(live) > 1:
                where = ", ".join(f"{name}/{copy['metadata']['namespace']}" for name, copy in live)
                self.violations.append(f"I1: {after['metadata']['name']} has live copies in {where}")

    def _on_hub_write(self, request: Request, before: Json | None, after: Json | None) -> None:
        if request.collection != JOBS.path() or before is None or after is None:
            return
        if CLUSTER_ANNOTATION in _annotations(before) and CLUSTER_ANNOTATION not in _annotations(after):
            self._changed[before["metadata"]["uid"]] = self.loop.time()  # it waits again
            self._check_room(before)
        chosen = _annotations(after).get(CLUSTER_ANNOTATION)
        if chosen is None or CLUSTER_ANNOTATION in _annotations(before):
            return
        name = before["metadata"]["name"]
        if _is_held(before):
            self.violations.append(f"I9: {name} was assigned although its user had held it")
        allowed = _annotations(before).get(CLUSTERS_ANNOTATION)
        if allowed is not None and chosen not in allowed.split(","):
            self.violations.append(f"I9: {name} was assigned to {chosen} although its user allows {allowed} only")
        if before["metadata"]["labels"].get(QUEUE_LABEL) not in QUEUES:
            self.violations.append(f"I9: {name} was assigned although it is in no queue")
        for other in self._passed_over(before, chosen):
            self.violations.append(f"{name} was assigned before {other['metadata']['name']} of higher priority")

    def _check_room(self, job: Json) -> None:
        """Whoever makes room for others is counted until no pod of it is left; unless nobody can tell."""
        worker = _annotations(job)[CLUSTER_ANNOTATION]
        if PREEMPTED_ANNOTATION not in _annotations(job):
            return
        for name, copy in self.live_copies(job["metadata"]["uid"]):
            status = copy.get("status") or {}
            pods = PODS.path() in self.workers[name].objects  # a test that has them lets them say it
            left = self.workers[name].all(PODS) if pods else status.get("active") or status.get("terminating")
            if name == worker and self.network.links[name].up and left:
                self.violations.append(f"P3: {copy['metadata']['name']} made room before its pods were gone")

    def _takes(self, worker: str, job: Json) -> bool:
        found = self.hub.get(WORKER_CLUSTERS, worker)
        namespaces = found["spec"].get("namespaces") if found is not None else None
        return namespaces is None or job["metadata"]["namespace"] in {each["name"] for each in namespaces}

    def _passed_over(self, job: Json, worker: str) -> list[Json]:
        """Those that have waited for a while, could go there, and come before it."""
        patient = self.loop.time() - _PATIENCE
        return [
            other
            for other in self.jobs()
            if _priority(other) > _priority(job)
            and _is_waiting(other)
            and self._takes(worker, other)
            and self._changed[other["metadata"]["uid"]] < patient
            and self.network.links["hub"].write_seconds == 0
        ]


def _annotations(obj: Json) -> Json:
    found: Json = obj["metadata"].get("annotations") or {}
    return found


def _is_held(job: Json) -> bool:
    return _annotations(job).get(HOLD_ANNOTATION) == "true" and bool(job["spec"]["suspend"])


def _is_waiting(job: Json) -> bool:
    return (
        CLUSTER_ANNOTATION not in _annotations(job)
        and CLUSTERS_ANNOTATION not in _annotations(job)
        and not _is_held(job)
        and job["metadata"]["labels"][QUEUE_LABEL] in QUEUES
        and not is_finished(job.get("status") or {})
    )


def _priority(job: Json) -> int:
    return int(job["metadata"]["labels"][PRIORITY_LABEL])

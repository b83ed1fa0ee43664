"""A Job that `logs -f` follows, on virtual time: clusters in memory; what dispatcher and nodes do is done by hand."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

from multimirror.api import (
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    COPY_UID_ANNOTATION,
    MANAGED_BY,
    ORIGIN_UID_LABEL,
    QUEUE_LABEL,
    WORKER_CLUSTERS,
)
from multimirror.cli.job_logs import follow
from multimirror.cli.logs import LogOptions
from multimirror.kube import Client, Connection
from multimirror.kube.resources import EVENTS, JOBS, NAMESPACES, PODS, SECRETS
from multimirror.kube.transport import TransportError
from tests.unit.kube.virtual_time import VirtualTimeLoop
from tests.unit.shell.fake_api import START, FakeCluster, Network, Refused, Request

Json = dict[str, Any]
T = TypeVar("T")
SYSTEM, TEAM = "multimirror-system", "team"
_NOT_RANDOM = SimpleNamespace(Random=lambda: Random(1), uniform=lambda low, high: (low + high) / 2)


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


@dataclass
class Run:
    """What one run of a container has written, and when."""

    lines: list[tuple[float, str]] = field(default_factory=list)
    ended: bool = False


@dataclass
class LogCluster(FakeCluster):
    """One whose pods have logs, as kubelets give them: from a whole second on."""

    runs: dict[str, list[Run]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.refuse = self._refuse

    def _refuse(self, request: Request) -> Refused | None:
        if request.subresource == "log" and (request.namespace, request.name) not in self.objects.get(PODS.path(), {}):
            return Refused(404, "NotFound", f'pods "{request.name}" not found')
        if request.subresource == "log" and request.query.get("previous") and len(self.runs[request.name]) < 2:
            return Refused(400, "BadRequest", "previous terminated container not found")
        return None

    def watch(self, request: Request, broken: Callable[[], bool]) -> AsyncIterator[bytes]:
        return self._log_of(request, broken) if request.subresource == "log" else super().watch(request, broken)

    async def _log_of(self, request: Request, broken: Callable[[], bool]) -> AsyncIterator[bytes]:
        query = request.query
        run = self.runs[request.name][-2 if query.get("previous") else -1]
        since = datetime.fromisoformat(query["sinceTime"]).timestamp() if "sinceTime" in query else 0.0
        position = max(0, len(run.lines) - int(query["tailLines"])) if "tailLines" in query else 0
        while True:
            while position < len(run.lines):
                written, text = run.lines[position]
                position += 1
                if written >= since:
                    half = len(line := f"{stamp(written)} {text}\n".encode()) // 2
                    yield line[:half]
                    if broken():
                        raise TransportError("the connection broke", sent=True)
                    yield line[half:]
            if run.ended or query.get("follow") != "true":
                return
            await self._changed.wait()
            if broken():
                raise TransportError("the connection broke", sent=True)


class LogWorld:
    """`followed()` starts the command's work; `out` and `notes` are what its user sees."""

    def __init__(self, **options: Any) -> None:
        self.loop = VirtualTimeLoop(grace=0.0)
        self.options = LogOptions(**options)
        self.hub, self.workers = LogCluster("hub", self.clock), {n: LogCluster(n, self.clock) for n in ("w1", "w2")}
        self.network = Network([self.hub, *self.workers.values()])
        self.out: list[str] = []
        self.notes: list[str] = []
        self.written: dict[int, list[str]] = {}  # by attempt
        self.task: asyncio.Task[None] | None = None
        self.attempt, self.worker, self._pods = 0, "", 0
        self._patches = ExitStack()
        for patch in (
            mock.patch("multimirror.kube.client.Http1Transport", self.network.transport),
            mock.patch("multimirror.kube.backoff.random", _NOT_RANDOM),
            mock.patch("tenacity.wait.random", _NOT_RANDOM),
        ):
            self._patches.enter_context(patch)
        self.run(self._install())

    async def _install(self) -> None:
        self.hub.put(NAMESPACES, {"metadata": {"name": "kube-system"}})
        for name in self.workers:
            data = {"kubeconfig": base64.b64encode(self.network.kubeconfig(name)).decode()}
            self.hub.put(SECRETS, {"metadata": {"name": name, "namespace": SYSTEM}, "data": data})
            way = {"kubeconfig": {"secret": {"name": name}}}
            self.hub.put(WORKER_CLUSTERS, {"metadata": {"name": name, "generation": 1}, "spec": way})
        metadata = {"name": "train", "namespace": TEAM, "labels": {QUEUE_LABEL: "q"}, "annotations": {}}
        spec = {"managedBy": MANAGED_BY, "suspend": True, "parallelism": 1, "completions": 1, "template": {}}
        self.original = self.hub.put(JOBS, {"metadata": metadata, "spec": spec, "status": {}})

    def clock(self) -> float:
        return START + self.loop.time()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def settle(self, seconds: float = 1.0) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        try:
            if self.task is not None and not self.task.done():
                self.task.cancel()
                self.run(asyncio.wait([self.task]))
            self.run(self.loop.shutdown_asyncgens())
        finally:
            self._patches.close()
            self.loop.close()

    # --- the user

    def followed(self) -> None:
        connection = Connection.strict(self.network.kubeconfig("hub"), name="management", plain_http=True)
        work = follow(
            lambda: Client(connection),
            self.original,
            self.options,
            system=SYSTEM,
            write=self.out.append,
            note=self.notes.append,
        )
        self.task = self.loop.create_task(work)
        self.settle()

    def has_ended(self) -> bool:
        assert self.task is not None
        if self.task.done():
            self.task.result()
        return self.task.done()

    # --- the dispatcher

    def place(self, worker: str) -> None:
        self.attempt, self.worker = self.attempt + 1, worker
        labels = {ORIGIN_UID_LABEL: self.original["metadata"]["uid"], ATTEMPT_LABEL: str(self.attempt)}
        copy = self.workers[worker].put(
            JOBS, {"metadata": {"name": f"train-{self.attempt}", "namespace": TEAM, "labels": labels}, "spec": {}}
        )
        notes = {CLUSTER_ANNOTATION: worker, ATTEMPT_ANNOTATION: str(self.attempt)}
        notes[COPY_UID_ANNOTATION] = self._copy_uid = copy["metadata"]["uid"]
        self._change(lambda job: (job["metadata"]["annotations"].update(notes), job["spec"].update(suspend=False)))

    def unplace(self, reason: str = "") -> None:
        self._change(lambda job: job["metadata"]["annotations"].pop(CLUSTER_ANNOTATION, None))
        if reason:
            self.event(reason, f"{reason} of attempt {self.attempt}")

    def event(self, reason: str, message: str) -> None:
        number = len(self.hub.all(EVENTS))
        about = {"kind": "Job", "name": "train", "uid": self.original["metadata"]["uid"]}
        metadata = {"name": f"train.{number}", "namespace": TEAM}
        body = {"metadata": metadata, "reason": reason, "message": message, "count": 1, "involvedObject": about}
        self.hub.put(EVENTS, {**body, "lastTimestamp": stamp(self.clock())})

    def end(self, kind: str = "Complete") -> None:
        """The Job has ended."""
        conditions = [{"type": kind, "status": "True", "reason": "R", "message": "m"}]
        self._change(lambda job: job["status"].update(conditions=conditions))

    def delete(self) -> None:
        self.hub.remove(JOBS, "train", TEAM)

    def _change(self, change: Callable[[Json], object]) -> None:
        self.hub.change(JOBS, "train", TEAM, lambda job: (change(job), None)[1])

    # --- the nodes

    def start_pod(self, **spec: Any) -> str:
        self._pods += 1
        name = f"pod-{self._pods}"
        labels = {"batch.kubernetes.io/controller-uid": self._copy_uid}
        self.workers[self.worker].runs[name] = [Run()]
        pod = {
            "metadata": {"name": name, "namespace": TEAM, "labels": labels},
            "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"} | spec,
            "status": _status("Running", {"running": {}}, 0),
        }
        self.workers[self.worker].put(PODS, pod)
        return name

    def write(self, pod: str, text: str | None = None) -> None:
        cluster = self.workers[self.worker]
        lines = self.written.setdefault(self.attempt, [])
        text = text or f"{pod} line {len(lines):03}"
        lines.append(text)
        cluster.runs[pod][-1].lines.append((self.clock(), text))
        cluster.wake()

    def end_pod(self, pod: str, code: int = 0) -> None:
        ended = {"terminated": {"exitCode": code}}
        count = len(self.workers[self.worker].runs[pod]) - 1
        self._end_run(pod)
        self._set(pod, _status("Succeeded" if code == 0 else "Failed", ended, count))

    def restart(self, pod: str) -> None:
        """Its container has failed, and is started again in the same pod."""
        self._end_run(pod)
        runs = self.workers[self.worker].runs[pod]
        self._set(pod, _status("Running", {"waiting": {}}, len(runs) - 1, {"terminated": {"exitCode": 1}}))
        runs.append(Run())
        self._set(pod, _status("Running", {"running": {}}, len(runs) - 1, {"terminated": {"exitCode": 1}}))

    def _end_run(self, pod: str) -> None:
        cluster = self.workers[self.worker]
        cluster.runs[pod][-1].ended = True
        cluster.wake()

    def _set(self, pod: str, status: Json) -> None:
        self.workers[self.worker].change(PODS, pod, TEAM, lambda obj: obj.update(status=status))

    # --- the network

    def cut(self, name: str) -> None:
        self.network.links[name].set_up(up=False)

    def hang(self, name: str) -> None:
        self.network.links[name].flows.clear()

    def mend(self, name: str) -> None:
        link = self.network.links[name]
        if not link.flows.is_set():
            link.set_up(up=False)  # connections that were silent for so long are dead
            link.flows.set()
        link.set_up(up=True)


def _status(phase: str, state: Json, restarts: int, last: Json | None = None) -> Json:
    container = {"name": "main", "state": state, "lastState": last or {}, "restartCount": restarts}
    return {"phase": phase, "containerStatuses": [container]}

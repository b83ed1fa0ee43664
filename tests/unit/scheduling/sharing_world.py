"""A whole dispatcher whose queues share, on virtual time, and somebody who watches what it does (sharing_checks.py).

Beside what tests/unit/shell/world.py has: trees of cohorts, two resources, workers of a declared size, and Job
controllers there that go on by themselves as time passes, whether the worker can be reached or not. Pods of a copy that
is suspended take `drain_seconds` to stop; a copy whose deadline is over ends, as a fence wants it. The dispatcher can
be made to end at any write of its own, which takes effect, and whose answer it never sees.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from multimirror.api import (
    COHORTS,
    HOLD_ANNOTATION,
    MANAGED_BY,
    MIRROR_QUEUES,
    ORIGIN_UID_LABEL,
    PREEMPTIBLE_LABEL,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    WORKER_CLUSTERS,
    CohortSpec,
    MirrorQueueSpec,
)
from multimirror.api.placement import fence_of
from multimirror.batch import find_condition, is_finished
from multimirror.batch.times import seconds_of
from multimirror.kube.resources import JOBS, NAMESPACES, SECRETS
from multimirror.kube.transport import TransportError
from multimirror.observe.reporter import Reporter
from multimirror.scheduling import scheduler
from multimirror.workers.options import Heartbeat
from tests.unit.scheduling.sharing_checks import Watch
from tests.unit.scheduling.sharing_nodes import Nodes
from tests.unit.shell import world
from tests.unit.shell.fake_api import Request
from tests.unit.shell.world import OPTIONS, SYSTEM, TEAMS, WORKERS, World

Json = dict[str, Any]
RESOURCES: Final = ("cpu", "nvidia.com/gpu")
LOST_SECONDS: Final = 60.0
"""After so long without contact Jobs are moved, in stories in which workers are lost."""
_CONTACT_SECONDS: Final = 20.0
"""Between two signs of life."""


class SharingWorld(World):
    """`queues`, `cohorts`: their specs. `capacities`: of the workers, by resource. `nodes`: theirs, where what is free
    is counted node by node; then that is what they have."""

    def __init__(
        self,
        queues: Mapping[str, Json],
        cohorts: Mapping[str, Json],
        capacities: Mapping[str, Mapping[str, int]],
        nodes: Mapping[str, Sequence[Mapping[str, int]]] | None = None,
    ) -> None:
        self._made, self._sizes = (queues, cohorts, capacities), nodes or {}
        self.nodes: dict[str, Nodes] = {}
        self.queues: dict[str, MirrorQueueSpec] = {}
        self.cohorts: dict[str, CohortSpec] = {}
        self.capacities = {name: dict(each) for name, each in capacities.items()}
        self.watch = Watch(self)
        self.started = 0.0
        self.longest_step = 5.0
        """Seconds after which Job controllers look at least."""
        self.drain_seconds = 0.0
        self.drains: dict[str, float] = {}
        """By the name of a Job: its own time, once."""
        self.cut_since: dict[str, float] = {}
        self._was_cut: dict[str, float] = {}
        """Of each worker that was out of reach: for how many seconds, and each time since the last sign of life."""
        self._drained_at: dict[str, float] = {}
        self._left_behind: list[tuple[float, str, Json]] = []
        """Until when, and where: copies that were deleted while they ran, for their pods take their time as well."""
        self._writes_left: int | None = None
        super().__init__()

    async def _install(self) -> None:
        queues, cohorts, capacities = self._made
        for patch in (
            mock.patch.object(scheduler, "time", SimpleNamespace(perf_counter=lambda: 0.0)),
            mock.patch.object(scheduler, "plan", self.watch.plan),
            mock.patch("multimirror.scheduling.sharing.find_preemption", self.watch.find_preemption),
            mock.patch.object(world, "OPTIONS", replace(OPTIONS, heartbeat=Heartbeat(period=_CONTACT_SECONDS))),
            mock.patch.object(Reporter, "_report_queues", self._reports()),
        ):
            self._patches.enter_context(patch)
        for cluster in (self.hub, *self.workers.values()):
            for name in ("kube-system", SYSTEM, *TEAMS):
                cluster.put(NAMESPACES, {"metadata": {"name": name}})
        for name in WORKERS:
            data = self.network.kubeconfig(name)
            self.hub.put(SECRETS, {"metadata": {"name": name, "namespace": SYSTEM}, "data": _secret(data)})
            capacity = {"mode": "Free"} if name in self._sizes else _declared(capacities[name])
            spec = {"kubeconfig": {"secret": {"name": name}}, "capacity": capacity}
            if name in self._sizes:
                self.nodes[name] = Nodes(self.workers[name], self._sizes[name])
            self.hub.put(WORKER_CLUSTERS, {"metadata": {"name": name, "generation": 1}, "spec": spec})
        for name, spec in cohorts.items():
            self.put_cohort(name, spec)
        for name, spec in queues.items():
            self.put_queue(name, spec)
        await self.start()

    def _reports(self) -> Callable[[Reporter], Awaitable[None]]:
        """On queues and cohorts. It costs as much as all the rest, so only where past use counts, which is found then,
        and lives in what is written."""
        report = Reporter._report_queues

        async def reports(reporter: Reporter) -> None:
            if any(spec.half_life is not None for spec in self.cohorts.values()):
                await report(reporter)

        return reports

    # --- what users do

    def submit(
        self,
        queue: str,
        team: str = "t1",
        priority: int = 0,
        cpus: int = 1,
        *,
        gpus: int = 0,
        pods: int = 1,
        preemptible: bool = True,
    ) -> str:
        self._numbers += 1
        name = f"job-{self._numbers:03}"
        requests = {name: str(amount) for name, amount in zip(RESOURCES, (cpus, gpus), strict=True) if amount}
        container = {"name": "main", "resources": {"requests": requests}}
        labels = {QUEUE_LABEL: queue, PRIORITY_LABEL: str(priority)}
        if not preemptible:
            labels[PREEMPTIBLE_LABEL] = "false"
        pod = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 30}
        self.hub.put(
            JOBS,
            {
                "metadata": {"name": name, "namespace": team, "labels": labels, "creationTimestamp": self.now()},
                "spec": {
                    "managedBy": MANAGED_BY,
                    "suspend": True,
                    "parallelism": pods,
                    "completions": pods,
                    "template": {"metadata": {}, "spec": pod},
                },
            },
        )
        self.watch.happened()
        return name

    def user_deletes(self, job: Json) -> None:
        self.hub.remove(JOBS, job["metadata"]["name"], job["metadata"]["namespace"])
        self.watch.job_is_gone(job)

    def user_sets_priority(self, job: Json, priority: int) -> None:
        def change(obj: Json) -> None:
            obj["metadata"]["labels"] = {**obj["metadata"]["labels"], PRIORITY_LABEL: str(priority)}

        self._user_changes(job, change)

    def user_suspends(self, job: Json, *, suspend: bool) -> None:
        self._user_changes(job, lambda obj: obj["spec"].update(suspend=suspend))

    def user_holds(self, job: Json, *, hold: bool) -> None:
        def change(obj: Json) -> None:
            annotations = obj["metadata"].setdefault("annotations", {})
            if hold:
                annotations[HOLD_ANNOTATION] = "true"
            else:
                annotations.pop(HOLD_ANNOTATION, None)

        self._user_changes(job, change)

    def _user_changes(self, job: Json, change: Any) -> None:
        metadata = job["metadata"]
        self.hub.change(JOBS, metadata["name"], metadata["namespace"], change)
        self.watch.job_is_changed(metadata["uid"])

    # --- what operators do

    def put_queue(self, name: str, spec: Json) -> None:
        rules = {"retention": "0s", "maxPriority": 3, **spec}
        self._put(MIRROR_QUEUES, name, rules)
        self.queues = {**self.queues, name: MirrorQueueSpec.read({"spec": rules})}
        self.watch.rules_changed()

    def spec_of(self, queue: str) -> Json:
        found = self.hub.get(MIRROR_QUEUES, queue)
        assert found is not None
        spec: Json = found["spec"]
        return spec

    def put_cohort(self, name: str, spec: Json) -> None:
        self._put(COHORTS, name, spec)
        self.cohorts = {**self.cohorts, name: CohortSpec.read({"metadata": {"name": name}, "spec": spec})}
        self.watch.rules_changed()

    def _put(self, resource: Any, name: str, spec: Json) -> None:
        before = self.hub.get(resource, name)
        generation = before["metadata"]["generation"] + 1 if before is not None else 1
        metadata = {**(before["metadata"] if before is not None else {}), "name": name, "generation": generation}
        self.hub.put(resource, {**(before or {}), "metadata": metadata, "spec": spec})

    def set_capacity(self, worker: str, capacity: Mapping[str, int]) -> None:
        self.set_worker(worker, capacity=_declared(capacity))
        self.capacities = {**self.capacities, worker: dict(capacity)}
        self.watch.rules_changed()

    def cordon(self, worker: str, *, cordoned: bool) -> None:
        self.set_worker(worker, cordoned=cordoned)
        self.watch.rules_changed()

    def set_link(self, worker: str, *, up: bool) -> None:
        if self.network.links[worker].up == up:
            return
        self.network.links[worker].set_up(up=up)
        if up:
            self._was_cut[worker] = self._cut_seconds(worker)
            self.cut_since.pop(worker, None)
        else:
            self.cut_since[worker] = self.clock()
            self._was_cut.setdefault(worker, 0.0)
        self.watch.rules_changed()

    # --- the dispatcher ends

    def crash_after(self, writes: int) -> None:
        """With this one of its writes to a Job anywhere; 0: with none."""
        self._writes_left = writes or None

    def _wrote(self) -> None:
        if self._writes_left is None:
            return
        self._writes_left -= 1
        if self._writes_left <= 0:
            self._writes_left = None
            self._ended = True
            for link in self.network.links.values():
                link.set_up(up=False)
            raise TransportError("the process ended", sent=True)

    _ended = False

    def begin_again(self) -> None:
        """Somebody starts it anew, if it has ended."""
        if self._ended:
            self.start_anew()

    def start_anew(self) -> None:
        self._writes_left = None
        self.run(self.stop())
        self._ended = False
        for name, link in self.network.links.items():
            link.set_up(up=name not in self.cut_since)
        self.run(self.start())
        self.started = self.clock()

    # --- time, and what Job controllers do in it

    def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            step = min(seconds, self.longest_step)
            self.settle(step)
            self.begin_again()
            self.controllers()
            seconds -= step

    def controllers(self) -> None:
        for until, worker, copy in self._left_behind:
            if self.clock() >= until and worker in self.nodes:
                self.nodes[worker].keep(copy["metadata"]["uid"], copy["metadata"]["namespace"], 0, {})
        for worker, copy in self.live_copies():
            spec, status = copy["spec"], copy.get("status") or {}
            started, suspended = status.get("startTime"), _is_suspended(status)
            if spec.get("suspend"):
                self._stop_pods(worker, copy, status, suspended=suspended)
            elif started is None or suspended:
                self.watch.pods_start(worker, copy)
                self._run_pods(worker, copy, status.get("succeeded", 0), self.now())
            elif self._is_too_late(spec, started):
                self._fail(worker, copy, status)

    def _stop_pods(self, worker: str, copy: Json, status: Json, *, suspended: bool) -> None:
        uid, pods = copy["metadata"]["uid"], (status.get("active") or 0) + (status.get("terminating") or 0)
        if not suspended:
            seconds = self.drains.pop(copy["metadata"]["name"], self.drain_seconds)
            self._drained_at[uid] = self.clock() + seconds
        if suspended and (not pods or self.clock() < self._drained_at.get(uid, 0.0)):
            return
        left = pods if self.clock() < self._drained_at.get(uid, 0.0) else 0
        since = find_condition(status.get("conditions") or (), "Suspended") if suspended else None
        when = since["lastTransitionTime"] if since is not None else self.now()
        condition = {"type": "Suspended", "status": "True", "lastTransitionTime": when}
        counts = {"active": 0, "ready": 0, "terminating": left, "succeeded": status.get("succeeded", 0)}
        self._set_status(worker, copy, {"conditions": [condition], **counts})

    def _run_pods(self, worker: str, copy: Json, succeeded: int, started: str) -> None:
        active = copy["spec"]["completions"] - succeeded
        counts = {"active": active, "ready": active, "terminating": 0, "succeeded": succeeded}
        self._set_status(worker, copy, {"startTime": started, **counts})

    def _is_too_late(self, spec: Json, started: str) -> bool:
        deadline = spec.get("activeDeadlineSeconds")
        return deadline is not None and self.clock() >= seconds_of(started, 0.0) + deadline

    def _fail(self, worker: str, copy: Json, status: Json) -> None:
        when = {"status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": self.now()}
        conditions = [{"type": kind, **when} for kind in ("FailureTarget", "Failed")]
        counts = {"active": 0, "ready": 0, "terminating": 0, "failed": 1, "succeeded": status.get("succeeded", 0)}
        self._set_status(worker, copy, {"startTime": status["startTime"], "conditions": conditions, **counts})

    def _set_status(self, worker: str, copy: Json, status: Json) -> None:
        super()._set_status(worker, copy, status)
        if worker in self.nodes:
            left = 0 if is_finished(status) else (status.get("active") or 0) + (status.get("terminating") or 0)
            self.nodes[worker].keep(copy["metadata"]["uid"], copy["metadata"]["namespace"], left, requests_of(copy))

    def foreign_pods(self, worker: str, number: int) -> None:
        """So many, of one cpu each, are there that are not ours."""
        if worker in self.nodes:
            self.nodes[worker].keep("foreign", "kube-system", number, {RESOURCES[0]: 1})
            self.watch.rules_changed()

    def succeed(self, worker: str, copy: Json) -> None:
        """One more pod of it has done its work; the last one ends it."""
        status = copy.get("status") or {}
        done, all_of_it = status.get("succeeded", 0) + 1, copy["spec"]["completions"]
        if done < all_of_it:
            self._run_pods(worker, copy, done, status["startTime"])
        else:
            self.end_copy(worker, copy)
        self.watch.happened()

    def end_copy(self, worker: str, copy: Json) -> None:
        super().end_copy(worker, copy)
        ended = self.workers[worker].get(JOBS, copy["metadata"]["name"], copy["metadata"]["namespace"])
        assert ended is not None
        self._set_status(worker, ended, {**ended["status"], "succeeded": copy["spec"]["completions"]})
        self.watch.happened()

    def running(self) -> list[tuple[str, Json]]:
        return [(worker, copy) for worker, copy in self.live_copies() if (copy.get("status") or {}).get("active")]

    # --- what is told to the one who watches

    def _on_worker_write(self, request: Request, before: Json | None, after: Json | None) -> None:
        if request.collection == JOBS.path():
            if before is None and after is not None:
                self.watch.copy_made(after)
            if before is not None and after is None:
                worker = next(name for name in WORKERS if before["metadata"]["uid"].startswith(f"{name}-"))
                self._left_behind.append((self.clock() + self.drain_seconds, worker, before))
            self._wrote()

    def _on_hub_write(self, request: Request, before: Json | None, after: Json | None) -> None:
        if request.collection == JOBS.path() and before is not None and after is not None:
            self.watch.original_written(before, after)
            self._wrote()

    def pods_there(self, uid: str, worker: str | None = None, attempt: str | None = None) -> list[tuple[str, Json]]:
        """The copies of an original that have pods, or have left some."""
        left = [
            (name, copy)
            for until, name, copy in self._left_behind
            if self.clock() < until and (copy.get("status") or {}).get("active")
        ]
        return [
            (name, copy)
            for name, copy in (*self.copies(uid), *left)
            if copy["metadata"]["labels"][ORIGIN_UID_LABEL] == uid
            and (worker is None or name == worker)
            and (attempt is None or copy["metadata"]["labels"]["multimirror.dev/attempt"] == attempt)
            and _pods(copy)
        ]

    def was_cut(self, worker: str) -> bool:
        """In this story."""
        return worker in self._was_cut

    def was_lost(self, worker: str) -> bool:
        """It was out of reach for so long, all in all, that its Jobs may have been moved."""
        return self._cut_seconds(worker) >= LOST_SECONDS

    def _cut_seconds(self, worker: str) -> float:
        before, since = self._was_cut.get(worker, 0.0), self.cut_since.get(worker)
        return before if since is None else before + self.clock() - since + _CONTACT_SECONDS

    def is_fenced(self, uid: str) -> bool:
        return any(job["metadata"]["uid"] == uid and fence_of(job) is not None for job in self.jobs())


def _pods(copy: Json) -> int:
    status = copy.get("status") or {}
    return 0 if is_finished(status) else (status.get("active") or 0) + (status.get("terminating") or 0)


def _is_suspended(status: Json) -> bool:
    found = find_condition(status.get("conditions") or (), "Suspended")
    return found is not None and found["status"] == "True"


def requests_of(job: Json) -> dict[str, int]:
    """What one of its pods asks for."""
    requests = job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return {name: int(amount) for name, amount in requests.items()}


def _declared(capacity: Mapping[str, int]) -> Json:
    return {"mode": "Declared", "resources": {name: str(amount) for name, amount in capacity.items()}}


def _secret(kubeconfig: bytes) -> Json:
    return {"kubeconfig": base64.b64encode(kubeconfig).decode()}

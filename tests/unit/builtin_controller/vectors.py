"""One sync on paper: a Job and its pods in; pods to create, delete and release, and statuses to write, out."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from builtin_controller.backoff import Record
from builtin_controller.deciding import Decision, Observed, decide
from builtin_controller.job import Job
from builtin_controller.options import Options
from builtin_controller.pods import Pod
from builtin_controller.times import format_time
from builtin_controller.tracking import Outcome, Tracking, settle, track
from multimirror.batch import Json

NOW = 1_790_000_000.0
FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def at(seconds: float) -> str:
    """That many seconds after now."""
    return format_time(NOW + seconds)


def a_job(*, status: Json | None = None, deleting: bool = False, template: Json | None = None, **spec: Any) -> Json:
    """A Job as the server stores it; `completions=None` makes a work queue."""
    spec = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed", **spec}
    pod_spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "job-uid",
            "resourceVersion": "7",
            **({"deletionTimestamp": at(-1)} if deleting else {}),
        },
        "spec": {
            **{key: value for key, value in spec.items() if value is not None},
            "selector": {"matchLabels": {"controller-uid": "job-uid"}},
            "template": {"metadata": {"labels": {"controller-uid": "job-uid"}}, "spec": pod_spec | (template or {})},
        },
        "status": {"startTime": at(-100), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
        if status is None
        else status,
    }


def indexed(count: int, parallelism: int | None = None, **more: Any) -> Json:
    """An Indexed Job."""
    return a_job(completionMode="Indexed", completions=count, parallelism=parallelism or count, **more)


def running(**status: Any) -> Json:
    """A status that was written before."""
    return {"startTime": at(-100), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}, **status}


def a_pod(
    name: str,
    phase: str = "Running",
    *,
    index: int | str | None = None,
    ready: bool = False,
    deleting: bool = False,
    tracked: bool = True,
    ended: float | None = None,
    exit_code: int | None = None,
    container: str = "main",
    conditions: Sequence[Json] = (),
    annotations: Json | None = None,
    restarts: int = 0,
    node: str = "n",
    created: float = -50,
) -> Json:
    """A pod of the Job. Its UID is its name."""
    notes = dict(annotations or {})
    if index is not None:
        notes[INDEX] = str(index)
    status: Json = {"phase": phase, "conditions": list(conditions)}
    if ready:
        status["conditions"].append({"type": "Ready", "status": "True", "lastTransitionTime": at(-10)})
    if phase in ("Failed", "Succeeded"):
        terminated = {"exitCode": exit_code or 0, "finishedAt": at(ended if ended is not None else -5)}
        status["containerStatuses"] = [{"name": container, "state": {"terminated": terminated}}]
    elif restarts:
        status["containerStatuses"] = [{"name": container, "restartCount": restarts}]
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": at(created),
            "labels": {"controller-uid": "job-uid"},
            "annotations": notes,
            "finalizers": [FINALIZER] if tracked else [],
            **({"deletionTimestamp": at(-60), "deletionGracePeriodSeconds": 0} if deleting else {}),
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "job-uid", "controller": True}],
        },
        "spec": {"nodeName": node},
        "status": status,
    }


@dataclass
class Synced:
    """What one sync did."""

    decision: Decision
    tracking: Tracking
    created: list[Json] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    first: Json | None = None
    last: Json | None = None
    finished: bool = False

    @property
    def status(self) -> Json:
        """What the Job's status is afterwards."""
        return self.last or self.first or self.decision.observed.job.status

    @property
    def indexes(self) -> list[int]:
        """The indexes of the created pods."""
        return [int(pod["metadata"]["annotations"][INDEX]) for pod in self.created]

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """Type and status."""
        return [(c["type"], c["status"]) for c in self.status.get("conditions") or ()]

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Type and reason."""
        return [(c["type"], c.get("reason", "")) for c in self.status.get("conditions") or ()]


def sync(
    job: Json,
    pods: Sequence[Json] = (),
    *,
    settled: bool = True,
    removing: Collection[str] = (),
    record: Record | None = None,
    refuse_creates_after: int | None = None,
    undeletable: Collection[str] = (),
    unpatchable: Collection[str] = (),
    pod_group: str | None = None,
    **options: Any,
) -> Synced:
    """One sync in which every call succeeds, but for those named."""
    seen = Observed(
        job=Job.of(job),
        pods=[Pod(raw) for raw in pods],
        now=NOW,
        options=Options(**options),
        settled=settled,
        removing=frozenset(removing),
        record=record or Record(),
        pod_group=pod_group,
    )
    decision = decide(seen)
    work = decision.work
    created = list(work.create)[:refuse_creates_after]
    killed = [pod for pod in work.kill if pod.name not in undeletable]
    removed = [pod for pod in work.remove if pod.name not in undeletable]
    ready = decision.ready if work.kill else sum(pod.ready for pod in removed)
    outcome = Outcome(created=len(created), deleted=len(killed) + len(removed), ready=ready)
    tracking = track(decision, outcome, NOW)
    released = [pod.name for pod in tracking.release if pod.name not in unpatchable]
    held = tracking.status if tracking.flush else seen.job.status
    last = settle(tracking, held, set(released), failed=len(released) < len(tracking.release), now=NOW)
    return Synced(
        decision,
        tracking,
        created=created,
        killed=[pod.name for pod in killed],
        removed=[pod.name for pod in removed],
        released=released,
        first=tracking.status if tracking.flush else None,
        last=last.status if last.flush else None,
        finished=last.finished,
    )

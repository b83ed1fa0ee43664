"""Jobs, clusters, queues and cohorts as rows of a table: where a Job is, in which state, and why. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from multimirror.api import CONNECTED, MANAGED_BY, QUEUE_LABEL, READY, WAITS_FOR_ANNOTATION
from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json, find_condition, is_complete, is_failed
from multimirror.kinds import JOB, is_held
from multimirror.kinds.reserved import reserved_of
from multimirror.kube import key_of
from multimirror.workers import out_of_reach

WAITING: Final = "Waiting"
WAITING_EVENTS: Final = f"reason={WAITING},involvedObject.kind=Job"
"""Selects the events that say why Jobs wait."""
_BUILT_IN: Final = "kubernetes.io/job-controller"

JOB_TITLES: Final = ("NAME", "QUEUE", "CLUSTER", "STATUS", "DONE", "AGE", "MANAGED-BY", "WHY")
JOB_WIDE: Final = (*JOB_TITLES[:-1], "ATTEMPT", "PRIORITY", "WHY")
CLUSTER_TITLES: Final = ("NAME", "READY", "CORDONED", "JOBS", "VERSION", "AGE", "WHY")
CLUSTER_WIDE: Final = (*CLUSTER_TITLES[:-1], "LATENCY", "WEIGHT", "MAX-JOBS", "LABELS", "NAMESPACES", "WHY")
QUEUE_TITLES: Final = ("NAME", "PLACEMENT", "PENDING", "RUNNING", "FINISHED", "AGE", "WHY")
QUEUE_WIDE: Final = (*QUEUE_TITLES[:-1], "WHERE", "QUOTA", "IF-LOST", "RETENTION", "WHY")

COHORT_TITLES: Final = ("NAME", "PARENT", "READY", "QUEUES", "AGE", "WHY")
COHORT_WIDE: Final = (*COHORT_TITLES[:-1], "WEIGHT", "OWN", "USED", "BORROWED", "LENT", "WHY")


@dataclass(frozen=True, slots=True)
class JobContext:
    """What explains a Job, beside itself."""

    waiting: Mapping[str, Json] = field(default_factory=dict)
    """The newest event that says why a Job waits, by uid."""
    queues: Mapping[str, Json] = field(default_factory=dict)
    clusters: Mapping[str, Json] = field(default_factory=dict)


def newest(events: Iterable[Json]) -> dict[str, Json]:
    """The newest event about each object, by uid."""
    found: dict[str, Json] = {}
    for event in events:
        uid = (event.get("involvedObject") or {}).get("uid", "")
        if uid not in found or time_of(event) >= time_of(found[uid]):
            found[uid] = event
    return found


def time_of(event: Json) -> str:
    """When an event was last seen; the API has four fields for that."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def state_of(job: Json) -> str:
    status, spec = job.get("status") or {}, job["spec"]
    if is_complete(status):
        return "Complete"
    if is_failed(status):
        return "Failed"
    if "deletionTimestamp" in job["metadata"]:
        return "Deleting"
    if is_ours(job) and cluster_of(job) is None:
        return WAITING
    if spec.get("suspend"):
        return "Suspended"
    return "Running" if status.get("startTime") else "Starting"


def is_ours(job: Json) -> bool:
    """multimirror looks after it, under whatever name it was told to use. Other controllers have Jobs too."""
    manager, metadata = job["spec"].get("managedBy") or _BUILT_IN, job["metadata"]
    if manager in {_BUILT_IN, MANAGED_BY}:
        return manager == MANAGED_BY
    return QUEUE_LABEL in (metadata.get("labels") or {}) or attempt_of(job) > 0


def why(job: Json, context: JobContext) -> str:
    """Why it waits, or failed, or does not move; nothing when all is as it should be."""
    state, status = state_of(job), job.get("status") or {}
    queue = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    if state == "Failed":
        failed = find_condition(status.get("conditions") or (), "Failed") or {}
        return ": ".join(part for part in (failed.get("reason"), failed.get("message")) if part)
    if state in {"Complete", "Deleting"}:
        return ""
    if queue is not None and not is_ours(job):
        return "asks for a queue, but was not made ours when it was created"
    if state == WAITING:
        return _why_waiting(job, queue, context)
    cluster = context.clusters.get(cluster_of(job) or "")
    if cluster is None:
        return f"there is no WorkerCluster {cluster_of(job)}" if is_ours(job) and context.clusters else ""
    connected = find_condition((cluster.get("status") or {}).get("conditions") or (), CONNECTED)
    if connected is not None and connected.get("status") == "False":
        return out_of_reach(str(cluster_of(job)), connected.get("reason", ""), connected.get("message", ""))
    return _why_not_larger(job, context)


def _why_not_larger(job: Json, context: JobContext) -> str:
    """It runs, and asks for more pods at once than are reserved for it."""
    reserved = reserved_of(job)
    if reserved is None or all(count <= reserved.granted.get(name, 0) for name, count in JOB.pod_counts(job).items()):
        return ""
    event = context.waiting.get(job["metadata"]["uid"])
    if event is not None and waiting_reason(job, context).startswith("Growth"):
        return str(event.get("message", ""))
    return "waits to grow"


def waiting_reason(job: Json, context: JobContext) -> str:
    """Why it waits, in one CamelCase word (multimirror.api.reasons); empty where nobody has said."""
    event = context.waiting.get(job["metadata"]["uid"])
    if event is not None:
        return str((event["metadata"].get("annotations") or {}).get(WAITS_FOR_ANNOTATION, ""))
    queue = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    if context.queues and queue is not None and queue not in context.queues:
        return "QueueMissing"
    head = (context.queues.get(queue or "", {}).get("status") or {}).get("head") or {}
    return str(head.get("reason", "")) if head.get("job") == key_of(job) else ""


def _why_waiting(job: Json, queue: str | None, context: JobContext) -> str:
    if is_held(JOB, job):
        return "held, as its user asked"
    event = context.waiting.get(job["metadata"]["uid"])
    if event is not None:
        return str(event.get("message", ""))
    if queue is None:
        return "names no queue; see its namespace's default"
    if context.queues and queue not in context.queues:
        return f"there is no MirrorQueue {queue}"
    head = (context.queues.get(queue, {}).get("status") or {}).get("head") or {}
    if not head:
        return ""
    message = str(head.get("message", ""))
    return message if head.get("job") == key_of(job) else f"behind {head.get('job')}: {message}"


def job_row(job: Json, context: JobContext, now: datetime, *, wide: bool) -> list[object]:
    status, spec, metadata = job.get("status") or {}, job["spec"], job["metadata"]
    labels = metadata.get("labels") or {}
    row: list[object] = [
        metadata["name"],
        labels.get(QUEUE_LABEL),
        cluster_of(job),
        state_of(job),
        _done(spec, status),
        age(metadata.get("creationTimestamp"), now),
        _manager(spec.get("managedBy"), wide=wide),
    ]
    if wide:
        row += [attempt_of(job) or None, labels.get("multimirror.dev/priority") or "0"]
    return [*row, why(job, context) or "-"]


def _done(spec: Json, status: Json) -> str:
    """As `kubectl get jobs` has it: a work queue is done when one of its pods is."""
    succeeded, completions = status.get("succeeded") or 0, spec.get("completions")
    if completions is not None:
        return f"{succeeded}/{completions}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _manager(name: str | None, *, wide: bool) -> str:
    if wide:
        return name or _BUILT_IN
    return {None: "kubernetes", _BUILT_IN: "kubernetes", MANAGED_BY: "multimirror"}.get(name, name or "")


def cluster_row(cluster: Json, now: datetime, *, wide: bool) -> list[object]:
    status, spec = cluster.get("status") or {}, cluster.get("spec") or {}
    ready = find_condition(status.get("conditions") or (), READY)
    holds = ready is not None and ready.get("status") == "True"
    row: list[object] = [
        cluster["metadata"]["name"],
        holds if ready is not None else "unknown",
        bool(spec.get("cordoned")),
        status.get("jobs", 0),
        status.get("version"),
        age(cluster["metadata"].get("creationTimestamp"), now),
    ]
    if wide:
        latency = status.get("latencyMilliseconds")
        row += [
            f"{latency}ms" if latency is not None else None,
            spec.get("weight", 1),
            spec.get("maxJobs"),
            _joined(f"{key}={value}" for key, value in sorted((spec.get("labels") or {}).items())),
            _joined(_mapped(each) for each in spec.get("namespaces") or ()) or "<all>",
        ]
    if holds:
        return [*row, "-"]
    return [*row, ready.get("message", "") if ready is not None else "no dispatcher has looked at it yet"]


def queue_row(queue: Json, now: datetime, *, wide: bool) -> list[object]:
    status, spec = queue.get("status") or {}, queue.get("spec") or {}
    ready = find_condition(status.get("conditions") or (), READY)
    head = status.get("head") or {}
    row: list[object] = [
        queue["metadata"]["name"],
        spec.get("placement", "Spread"),
        status.get("pending", 0),
        status.get("running", 0),
        status.get("finished", 0),
        age(queue["metadata"].get("creationTimestamp"), now),
    ]
    if wide:
        quota = spec.get("quota") or {}
        limits = {**({"jobs": quota["jobs"]} if "jobs" in quota else {}), **(quota.get("resources") or {})}
        row += [
            _joined(f"{each['name']}:{each.get('running', 0)}" for each in status.get("workers") or ()),
            _amounts(limits),
            (spec.get("onWorkerLost") or {}).get("action", "Redispatch"),
            spec.get("retention", "10m"),
        ]
    if ready is not None and ready.get("status") == "False":
        return [*row, ready.get("message", "")]
    return [*row, head.get("message") or "-"]


def cohort_row(cohort: Json, now: datetime, *, wide: bool) -> list[object]:
    status, spec = cohort.get("status") or {}, cohort.get("spec") or {}
    ready = find_condition(status.get("conditions") or (), READY)
    holds = ready is not None and ready.get("status") == "True"
    row: list[object] = [
        cohort["metadata"]["name"],
        spec.get("parent"),
        holds if ready is not None else "unknown",
        status.get("queues", 0),
        age(cohort["metadata"].get("creationTimestamp"), now),
    ]
    if wide:
        row += [spec.get("weight", 1), *(_amounts(status.get(key)) for key in ("own", "used", "borrowed", "lent"))]
    if holds:
        return [*row, "-"]
    return [*row, ready.get("message", "") if ready is not None else "no dispatcher has looked at it yet"]


def age(created: str | None, now: datetime) -> str | None:
    """As kubectl has it: the two largest units, coarser the older."""
    if created is None:
        return None
    seconds = max(0, int((now - datetime.fromisoformat(created).astimezone(UTC)).total_seconds()))
    for size, unit, below in ((1, "s", 120), (60, "m", 180 * 60), (3600, "h", 48 * 3600)):
        if seconds < below:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def _mapped(entry: Json) -> str:
    there = entry.get("workerNamespace") or entry["name"]
    return str(entry["name"]) if there == entry["name"] else f"{entry['name']}={there}"


def _amounts(amounts: Mapping[str, object] | None) -> str | None:
    return _joined(f"{key}={value}" for key, value in (amounts or {}).items())


def _joined(parts: Iterable[str]) -> str | None:
    return ",".join(parts) or None

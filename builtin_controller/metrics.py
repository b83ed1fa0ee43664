"""What is counted, under the names, labels and buckets of kube-controller-manager, so that existing boards work."""

from typing import Final

from prometheus_client import Counter, Histogram

from builtin_controller.indexes import read_indexes
from builtin_controller.job import Job
from multimirror.batch import Json

_SYNC: Final = ("completion_mode", "result", "action")


def _counter(name: str, stability: str, text: str, labels: tuple[str, ...]) -> Counter:
    return Counter(f"job_controller_{name}", f"[{stability}] {text}", labels)


SYNC_SECONDS: Final = Histogram(
    "job_controller_job_sync_duration_seconds",
    "[STABLE] Time that syncs of Jobs took",
    _SYNC,
    buckets=[0.004 * 2**k for k in range(15)],
)
SYNCS: Final = _counter("job_syncs_total", "STABLE", "Syncs of Jobs", _SYNC)
JOBS_FINISHED: Final = _counter(
    "jobs_finished_total", "STABLE", "Jobs that finished", ("completion_mode", "result", "reason")
)
PODS_FINISHED: Final = _counter(
    "job_pods_finished_total", "STABLE", "Pods that finished and are counted", ("completion_mode", "result")
)
EXTERNAL: Final = _counter(
    "jobs_by_external_controller_total", "ALPHA", "Jobs that another controller manages", ("controller_name",)
)
POLICY_ACTIONS: Final = _counter(
    "pod_failures_handled_by_failure_policy_total",
    "BETA",
    "Failed pods by the action of the podFailurePolicy rule that they matched: FailJob, FailIndex, Ignore, Count",
    ("action",),
)
TERMINATED_TRACKED: Final = _counter(
    "terminated_pods_tracking_finalizer_total",
    "BETA",
    "Ended pods that got (add) or lost (delete) the state of carrying the job-tracking finalizer",
    ("event",),
)
INDEXES_FINISHED: Final = _counter(
    "job_finished_indexes_total", "ALPHA", "Indexes that succeeded or failed", ("status", "backoffLimit")
)
PODS_CREATED: Final = _counter(
    "job_pods_creation_total",
    "ALPHA",
    "Pods created, by why (new, recreate_terminating_or_failed, recreate_failed) and whether that worked",
    ("reason", "status"),
)
STALE_SKIPS: Final = _counter(
    "stale_sync_skips_total", "ALPHA", "Syncs that were put off because a cache was behind", ("group", "resource")
)


def count_progress(job: Job, before: Json, after: Json) -> None:
    """Pods and indexes that were counted between two statuses."""
    failed = (after.get("failed") or 0) - (before.get("failed") or 0)
    if not job.indexed:
        succeeded = (after.get("succeeded") or 0) - (before.get("succeeded") or 0)
    else:
        # Not the counters: these shrink when the Job is scaled down.
        succeeded = _grown(job, before, after, "completedIndexes")
        limit = "perIndex" if job.per_index else "global"
        INDEXES_FINISHED.labels("succeeded", limit).inc(max(0, succeeded))
        if job.per_index:
            INDEXES_FINISHED.labels("failed", limit).inc(max(0, _grown(job, before, after, "failedIndexes")))
    PODS_FINISHED.labels(job.mode, "succeeded").inc(max(0, succeeded))
    PODS_FINISHED.labels(job.mode, "failed").inc(max(0, failed))


def _grown(job: Job, before: Json, after: Json, field: str) -> int:
    if before.get(field) == after.get(field):
        return 0
    return len(read_indexes(after.get(field), job.index_count)) - len(read_indexes(before.get(field), job.index_count))


def count_creations(job: Job, *, failed_so_far: int, terminating: int, created: int, refused: int) -> None:
    """Pods that were created, or refused, by why they were needed."""
    if job.spec.get("podReplacementPolicy") == "Failed" and failed_so_far > 0:
        reason = "recreate_failed"
    elif failed_so_far > 0 or terminating > 0:
        reason = "recreate_terminating_or_failed"
    else:
        reason = "new"
    if created:
        PODS_CREATED.labels(reason, "succeeded").inc(created)
    if refused:
        PODS_CREATED.labels(reason, "failed").inc(refused)

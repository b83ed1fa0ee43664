"""Jobs that do not get on, and copies that nobody starts, as they were read. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from multimirror.api import ORIGIN_LABEL, QUEUE_LABEL
from multimirror.api.placement import cluster_of
from multimirror.batch import Json, is_finished
from multimirror.cli.doctor.findings import Finding, fault, ok, warning
from multimirror.cli.rows import JobContext, is_ours, waiting_reason, why
from multimirror.kinds import JOB, is_held
from multimirror.kube import key_of

PROBE: Final = "multimirror-doctor"
_NAMED: Final = 3
_NEVER: Final = frozenset({"NeverFits", "Invalid", "QueueMissing"})
"""Reasons for waiting that nothing but a change of the Job, or of its queue, will help."""


def probe_job(labels: dict[str, str] | None = None, **spec: str) -> Json:
    """For dry runs: what would the API server make of it?"""
    pod = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]}
    return {
        "metadata": {"generateName": f"{PROBE}-", "labels": labels or {}},
        "spec": {**spec, "suspend": True, "template": {"spec": pod}},
    }


def check_jobs(jobs: Iterable[Json], context: JobContext, now: datetime, stuck_after: timedelta) -> list[Finding]:
    """Jobs that do not get on, by the way in which they do not."""
    groups: dict[str, list[Json]] = {
        "stray": [],
        "nowhere": [],
        "hopeless": [],
        "waiting": [],
        "silent": [],
        "deleting": [],
    }
    count = 0
    for job in jobs:
        if is_finished(job.get("status") or {}) or ORIGIN_LABEL in (job["metadata"].get("labels") or {}):
            continue
        count += 1
        kind = _trouble(job, context, now, stuck_after)
        if kind:
            groups[kind].append(job)
    found = [_finding(kind, those, context, stuck_after) for kind, those in groups.items() if those]
    return found or [ok("Jobs", "Jobs", f"{count} not finished, none of them stuck")]


def _trouble(job: Json, context: JobContext, now: datetime, stuck_after: timedelta) -> str:
    metadata, status = job["metadata"], job.get("status") or {}
    if not is_ours(job):
        return "stray" if QUEUE_LABEL in (metadata.get("labels") or {}) else ""
    if "deletionTimestamp" in metadata:
        return "deleting" if _old(metadata["deletionTimestamp"], now, stuck_after) else ""
    cluster, old = cluster_of(job), _old(metadata.get("creationTimestamp"), now, stuck_after)
    if cluster is None and is_held(JOB, job):
        return ""
    if cluster is None:
        if waiting_reason(job, context) in _NEVER:
            return "hopeless"
        return "waiting" if old else ""
    if cluster not in context.clusters:
        return "nowhere"
    return "silent" if old and not status.get("startTime") and not job["spec"].get("suspend") else ""


def _finding(kind: str, jobs: list[Json], context: JobContext, stuck_after: timedelta) -> Finding:
    names = ", ".join(sorted(key_of(job) for job in jobs)[:_NAMED]) + (" ..." if len(jobs) > _NAMED else "")
    first = min(jobs, key=key_of)
    look = f"`multimirror explain job/{first['metadata']['name']} -n {first['metadata']['namespace']}` says more."
    span = f"{stuck_after.total_seconds():g} s"
    match kind:
        case "stray":
            message = f"{len(jobs)} ask for a queue, but run on this cluster: {names}"
            remedy = "Nobody made them ours when they were created (see Admission); delete them and create them anew."
            return fault("Jobs", "Jobs", message, remedy)
        case "nowhere":
            message = f"{len(jobs)} are on a worker whose WorkerCluster is gone: {names}"
            return fault("Jobs", "Jobs", message, "Join that worker again under its name, or delete the Jobs.")
        case "hopeless":
            return fault("Jobs", "Jobs", f"{len(jobs)} can never start: {names}: {why(first, context)}", look)
        case "waiting":
            return warning(
                "Jobs", "Jobs", f"{len(jobs)} wait for more than {span}: {names}: {why(first, context)}", look
            )
        case "silent":
            message = f"{len(jobs)} were given to a worker, and have not started for more than {span}: {names}"
            return fault("Jobs", "Jobs", message, f"{look} Does the worker's Job controller run?")
        case _:
            message = f"{len(jobs)} have been deleted for more than {span}, and are still there: {names}"
            return warning("Jobs", "Jobs", message, "Something holds them by a finalizer: `kubectl get job -o yaml`.")


def check_copies(subject: str, copies: Iterable[Json], now: datetime, patience: timedelta) -> list[Finding]:
    """Does the worker's Job controller work? Copies that wait for it say so."""
    known = list(copies)
    idle = [
        copy
        for copy in known
        if not copy["spec"].get("suspend")
        and not (copy.get("status") or {}).get("startTime")
        and "deletionTimestamp" not in copy["metadata"]
        and _old(copy["metadata"].get("creationTimestamp"), now, patience)
    ]
    if idle:
        message = f"its Job controller does nothing: {len(idle)} copies were never started, {key_of(idle[0])} first"
        remedy = (
            "Look at its kube-controller-manager, or run `builtin-controller` there where that one is switched off."
        )
        return [fault("JobController", subject, message, remedy)]
    return [ok("JobController", subject, f"{len(known)} copies of ours, none of them left lying")] if known else []


def _old(when: str | None, now: datetime, than: timedelta) -> bool:
    return when is not None and now - datetime.fromisoformat(when) > than

"""Judgements that need no cluster: versions, clocks, credentials, queues, Jobs. Pure."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from multimirror.api import (
    DEFAULT_QUEUE_LABEL,
    ORIGIN_LABEL,
    QUEUE_LABEL,
    READY,
    MirrorQueueSpec,
    SpecError,
    WorkerClusterSpec,
)
from multimirror.api.placement import cluster_of
from multimirror.batch import Json, find_condition, is_finished
from multimirror.cli.doctor.findings import Finding, fault, ok, warning
from multimirror.cli.rows import JobContext, is_ours, why
from multimirror.kinds import JOB, is_held
from multimirror.kube import key_of

SKEW_WARNING: Final = 5.0
SKEW_FAULT: Final = 30.0
"""The default grace of a fence, and longer than a lease."""
_EXPIRES_SOON: Final = timedelta(days=14)
_MANAGED_BY_SINCE: Final = (1, 32)
_NAMED: Final = 3
_HOPELESS: Final = ("is large enough", "more than the whole quota", "there is no MirrorQueue", "may not be used")
"""What the dispatcher says about Jobs that nothing but a change of them, or of their queue, will help."""


def minor(version: str) -> tuple[int, int]:
    """`v1.36.4+x` as (1, 36); (0, 0) if it is none."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def judge_version(version: str) -> Finding:
    """Of the management cluster."""
    if minor(version) < _MANAGED_BY_SINCE:
        message = f"Kubernetes {version or 'unknown'}: Jobs have spec.managedBy by default from 1.32 on"
        remedy = "Upgrade it; with 1.30 and 1.31 switch the feature gate JobManagedBy on (API server and controllers)."
        return fault("Version", "management", message, remedy)
    return ok("Version", "management", f"Kubernetes {version}")


def skew(date: str | None, before: datetime, after: datetime) -> float | None:
    """Seconds that a server's clock is ahead of ours, to about a second; None when it does not tell."""
    try:
        told = parsedate_to_datetime(date or "")
    except (TypeError, ValueError):
        return None
    middle = before + (after - before) / 2
    apart = (told - middle).total_seconds() + 0.5  # the header has whole seconds, cut off
    return 0.0 if abs(apart) <= 1 + (after - before).total_seconds() / 2 else apart


def judge_skew(subject: str, seconds: float | None, against: str) -> list[Finding]:
    """How far two clocks are apart."""
    if seconds is None or abs(seconds) < SKEW_WARNING:
        return [] if seconds is None else [ok("Clock", subject, f"its clock and that of {against} agree")]
    ahead = "ahead of" if seconds > 0 else "behind"
    message = f"its clock is {abs(seconds):.0f} s {ahead} that of {against}"
    remedy = "Let both take their time from the same source (NTP): fences, leases and tokens are judged by it."
    return [(fault if abs(seconds) >= SKEW_FAULT else warning)("Clock", subject, message, remedy)]


def judge_end(subject: str, name: str, end: datetime | None, now: datetime) -> Finding:
    """When a worker's credentials end."""
    remedy = f"`multimirror join {name} --kubeconfig ... --new-token` renews them."
    if end is None:
        return ok("Credentials", subject, "its credentials do not expire")
    if end <= now:
        return fault("Credentials", subject, f"its credentials expired on {end:%Y-%m-%d %H:%M} UTC", remedy)
    if end - now < _EXPIRES_SOON:
        days = max(0, (end - now).days)
        return warning("Credentials", subject, f"its credentials expire in {days} days", remedy)
    return ok("Credentials", subject, f"its credentials are good until {end:%Y-%m-%d}")


def judge_queues(queues: Iterable[Json], clusters: Mapping[str, Json]) -> list[Finding]:
    """Is there a way from each queue to a worker?"""
    found = [_queue(queue, clusters) for queue in queues]
    if not found:
        remedy = "Make a MirrorQueue: `kubectl explain mirrorqueue.spec` describes it."
        return [warning("Queues", "queues", "there is no MirrorQueue: no Job can be sent anywhere", remedy)]
    return found


def _queue(queue: Json, clusters: Mapping[str, Json]) -> Finding:
    name = queue["metadata"]["name"]
    subject = f"queue {name}"
    try:
        spec = MirrorQueueSpec.read(queue)
    except SpecError as error:
        return fault("Queues", subject, str(error), f"`kubectl edit mirrorqueue {name}`.")
    members = [each for each, cluster in clusters.items() if _selected(spec, each, cluster)]
    missing = [each for each in spec.workers.names if each not in clusters]
    if not members:
        named = f": there is no WorkerCluster {', '.join(missing)}" if missing else ""
        remedy = "Join one (`multimirror join`), or change spec.workers; `multimirror get clusters -o wide` has labels."
        return fault("Queues", subject, f"it has no worker clusters{named}", remedy)
    able = [each for each in members if _is_ready(clusters[each])]
    if not able:
        remedy = "`multimirror get clusters` says why; `multimirror uncordon` if they are only cordoned."
        return fault("Queues", subject, f"none of its workers is ready ({', '.join(sorted(members))})", remedy)
    if missing:
        remedy = "Join it, or take its name out of spec.workers.names."
        return warning("Queues", subject, f"it names a WorkerCluster that is not there: {', '.join(missing)}", remedy)
    return ok("Queues", subject, f"{len(able)} of its {len(members)} workers ready")


def _selected(spec: MirrorQueueSpec, name: str, cluster: Json) -> bool:
    try:
        return spec.workers.include(name, WorkerClusterSpec.read(cluster).labels)
    except SpecError:
        return name in spec.workers.names


def _is_ready(cluster: Json) -> bool:
    ready = find_condition((cluster.get("status") or {}).get("conditions") or (), READY)
    return ready is not None and ready.get("status") == "True"


def judge_namespaces(namespaces: Iterable[Json], queues: Iterable[str]) -> list[Finding]:
    """Default queues that are none."""
    known = set(queues)
    found = []
    for namespace in namespaces:
        queue = (namespace["metadata"].get("labels") or {}).get(DEFAULT_QUEUE_LABEL)
        if queue and queue not in known:
            name = namespace["metadata"]["name"]
            message = f"its default queue {queue} does not exist: Jobs cannot be created there"
            remedy = f"Make the MirrorQueue, or `kubectl label namespace {name} {DEFAULT_QUEUE_LABEL}-`."
            found.append(fault("Namespaces", f"namespace {name}", message, remedy))
    return found


def judge_jobs(jobs: Iterable[Json], context: JobContext, now: datetime, stuck_after: timedelta) -> list[Finding]:
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
    found = [_jobs(kind, those, context, stuck_after) for kind, those in groups.items() if those]
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
        if any(part in why(job, context) for part in _HOPELESS):
            return "hopeless"
        return "waiting" if old else ""
    if cluster not in context.clusters:
        return "nowhere"
    return "silent" if old and not status.get("startTime") and not job["spec"].get("suspend") else ""


def _jobs(kind: str, jobs: list[Json], context: JobContext, stuck_after: timedelta) -> Finding:
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


def judge_copies(subject: str, copies: Iterable[Json], now: datetime, patience: timedelta) -> list[Finding]:
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

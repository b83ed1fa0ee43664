"""What a CronJob needs next: a pure function of the CronJob, its Jobs and the time, equal to Kubernetes' own
controller.

The plan holds the status as it should be, Jobs to delete (history limits, `Replace`), the Job to start if one is due,
the events to tell, and when to look again. `Forbid` goes by the active list, and a Job leaves that list only with its
terminal condition: while the last pods of a failed run still terminate, the next run waits.

Missed activations are not made up one by one: only the most recent one within `startingDeadlineSeconds` is started. A
Job's name is its CronJob's with the scheduled minute, so that a start that took effect without our knowing is found,
not repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from clusters.jobapi import cron

Json = dict[str, Any]

SCHEDULED_AT: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_SLACK: Final = timedelta(milliseconds=100)
"""Looked at this much after an activation, so that clocks read in whole seconds do not look too early."""
_MANY: Final = 100


class Note(NamedTuple):
    """An event to tell about the CronJob."""

    type: str
    reason: str
    message: str


@dataclass(slots=True)
class Plan:
    status: Json
    """The status as it should be before `start` is carried out."""
    history: list[Json] = field(default_factory=list)
    """Finished Jobs beyond the history limits."""
    replaced: list[Json] = field(default_factory=list)
    """References to active Jobs that `start` replaces."""
    start: Json | None = None
    """The Job to create; `scheduled` then becomes `status.lastScheduleTime`."""
    scheduled: datetime | None = None
    notes: list[Note] = field(default_factory=list)
    look_again: datetime | None = None


class _Missed(Enum):
    NONE = 0
    FEW = 1
    MANY = 2


class _Recent(NamedTuple):
    earliest: datetime
    latest: datetime | None
    missed: _Missed


class _NeverFiresError(ValueError):
    """The schedule never fires."""


def plan(cronjob: Json, jobs: Sequence[Json], now: datetime) -> Plan:
    """`jobs`: every Job that this CronJob controls, as stored now."""
    result = Plan(status={**cronjob.get("status", {})})
    jobs = _trim_history(cronjob, jobs, result)
    _follow(jobs, result)
    if cronjob["metadata"].get("deletionTimestamp"):
        return result
    spec = cronjob["spec"]
    zone = _zone(spec.get("timeZone"), result)
    if zone is None or spec.get("suspend"):
        return result
    if "TZ" in spec["schedule"]:
        result.notes.append(Note("Warning", "UnsupportedSchedule", _unsupported(spec["schedule"])))
    try:
        schedule = cron.parse(spec["schedule"])
    except cron.ScheduleError as error:
        text = f'unparseable schedule: "{spec["schedule"]}" : {error}'
        result.notes.append(Note("Warning", "UnparseableSchedule", text))
        return result
    try:
        recent = _most_recent(cronjob, result.status, now, schedule, zone, with_deadline=True)
    except _NeverFiresError as error:
        result.notes.append(Note("Warning", "InvalidSchedule", f"invalid schedule: {spec['schedule']} : {error}"))
        return result
    result.look_again = next_look(cronjob, result.status, now, schedule, zone)
    if recent.latest is None:
        return result
    if recent.missed is _Missed.MANY:
        result.notes.append(Note("Warning", "TooManyMissedTimes", _TOO_MANY))
    _start(cronjob, recent.latest, zone, now, result)
    if result.start is not None:
        started = {**result.status, "lastScheduleTime": _text(recent.latest)}
        result.look_again = next_look(cronjob, started, now, schedule, zone)
    return result


def finished_condition(job: Json) -> str:
    """`Complete` or `Failed`, whichever the Job has first, or nothing."""
    for condition in job.get("status", {}).get("conditions", ()):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return ""


def next_look(cronjob: Json, status: Json, now: datetime, schedule: cron.Schedule, zone: tzinfo) -> datetime | None:
    """When the schedule's next activation is due; None if it never is."""
    try:
        recent = _most_recent(cronjob, status, now, schedule, zone, with_deadline=False)
    except _NeverFiresError:
        base = now
    else:
        base = recent.latest or (recent.earliest if recent.missed is _Missed.NONE else now)
    due = schedule.next(base, zone)
    return None if due is None else due + _SLACK


def next_activation(cronjob: Json, now: datetime) -> datetime | None:
    """When a CronJob whose schedule has just changed is due; None if that has to be looked into."""
    zone = _zone(cronjob["spec"].get("timeZone"), Plan(status={}))
    try:
        schedule = cron.parse(cronjob["spec"]["schedule"])
    except cron.ScheduleError:
        return None
    return next_look(cronjob, cronjob.get("status", {}), now, schedule, zone) if zone else None


def reference(job: Json) -> Json:
    """The Job as `status.active` lists it."""
    meta = job["metadata"]
    return {
        "kind": "Job",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": meta["resourceVersion"],
    }


def job_name(cronjob: Json, scheduled: datetime) -> str:
    return f"{cronjob['metadata']['name']}-{int(scheduled.timestamp()) // 60}"


def _trim_history(cronjob: Json, jobs: Sequence[Json], result: Plan) -> list[Json]:
    """Chooses the finished Jobs to delete, oldest first; returns those that stay."""
    spec = cronjob["spec"]
    limits = {"Complete": spec.get("successfulJobsHistoryLimit"), "Failed": spec.get("failedJobsHistoryLimit")}
    for condition, limit in limits.items():
        if limit is None:
            continue
        done = sorted((job for job in jobs if finished_condition(job) == condition), key=_by_start)
        result.history.extend(done[: max(len(done) - limit, 0)])
    gone = {job["metadata"]["uid"] for job in result.history}
    result.status["active"] = [ref for ref in result.status.get("active", ()) if ref["uid"] not in gone]
    return [job for job in jobs if job["metadata"]["uid"] not in gone]


def _by_start(job: Json) -> tuple[bool, str, str]:
    start = job.get("status", {}).get("startTime")
    return start is None, start or "", job["metadata"]["name"]


def _follow(jobs: Sequence[Json], result: Plan) -> None:
    """Brings the active list and lastSuccessfulTime up to what the Jobs say."""
    known = {ref["uid"] for ref in result.status["active"]}
    done: set[str] = set()
    for job in jobs:
        name, uid, condition = job["metadata"]["name"], job["metadata"]["uid"], finished_condition(job)
        if uid not in known and not condition:
            text = f"Saw a job that the controller did not create or forgot: {name}"
            result.notes.append(Note("Warning", "UnexpectedJob", text))
        elif uid in known and condition:
            done.add(uid)
            text = f"Saw completed job: {name}, condition: {condition}"
            result.notes.append(Note("Normal", "SawCompletedJob", text))
        completed = job["status"].get("completionTime") if condition == "Complete" else None
        if completed and completed > result.status.get("lastSuccessfulTime", ""):
            result.status["lastSuccessfulTime"] = completed
    here = {job["metadata"]["uid"] for job in jobs}
    for ref in result.status["active"]:
        if ref["uid"] not in here:
            result.notes.append(Note("Normal", "MissingJob", f"Active job went missing: {ref['name']}"))
    result.status["active"] = [ref for ref in result.status["active"] if ref["uid"] in here - done]


def _zone(name: str | None, result: Plan) -> tzinfo | None:
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        text = f'invalid timeZone: "{name}": unknown time zone {name}'
        result.notes.append(Note("Warning", "UnknownTimeZone", text))
        return None


def _most_recent(
    cronjob: Json, status: Json, now: datetime, schedule: cron.Schedule, zone: tzinfo, *, with_deadline: bool
) -> _Recent:
    """The latest activation that is due, and roughly how many were missed before it."""
    earliest = _time(status.get("lastScheduleTime") or cronjob["metadata"]["creationTimestamp"])
    deadline = cronjob["spec"].get("startingDeadlineSeconds")
    if with_deadline and deadline is not None:
        earliest = max(earliest, now - timedelta(seconds=deadline))
    first = schedule.next(earliest, zone)
    if first is None:
        raise _NeverFiresError("time difference between two schedules is less than 1 second")
    if now < first:
        return _Recent(earliest, None, _Missed.NONE)
    second = schedule.next(first, zone)
    if second is None or now < second:
        return _Recent(earliest, first, _Missed.NONE)
    gap = timedelta(seconds=max(round((second - first).total_seconds()), 1))
    count = (now - first) // gap + 1
    # One gap back from the estimate, so that uneven schedules are not overshot; `@every` keeps its beat.
    latest, candidate = None, schedule.next(first + (count - 2) * gap, zone)
    while candidate is not None and candidate <= now:
        latest, candidate = candidate, schedule.next(candidate, zone)
    return _Recent(earliest, latest, _Missed.MANY if count > _MANY else _Missed.FEW)


def _start(cronjob: Json, scheduled: datetime, zone: tzinfo, now: datetime, result: Plan) -> None:
    """Decides whether the activation starts a Job."""
    spec, status = cronjob["spec"], result.status
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None and scheduled + timedelta(seconds=deadline) < now:
        when = scheduled.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        result.notes.append(Note("Warning", "MissSchedule", f"Missed scheduled time to start a job: {when}"))
        return
    name = job_name(cronjob, scheduled)
    if status.get("lastScheduleTime") == _text(scheduled) or any(ref["name"] == name for ref in status["active"]):
        return
    policy = spec.get("concurrencyPolicy")
    if policy == "Forbid" and status["active"]:
        result.notes.append(Note("Normal", "JobAlreadyActive", _FORBIDDEN))
        return
    if policy == "Replace":
        result.replaced = list(status["active"])
    result.start, result.scheduled = _job(cronjob, name, scheduled, zone), scheduled


def _job(cronjob: Json, name: str, scheduled: datetime, zone: tzinfo) -> Json:
    template, meta = cronjob["spec"]["jobTemplate"], cronjob["metadata"]
    template_meta = template.get("metadata", {})
    local = scheduled.astimezone(zone).isoformat(timespec="seconds")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            **({"labels": {**template_meta["labels"]}} if template_meta.get("labels") else {}),
            "annotations": {**template_meta.get("annotations", {}), SCHEDULED_AT: local.replace("+00:00", "Z")},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template["spec"],
    }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_TOO_MANY: Final = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
_FORBIDDEN: Final = "Not starting job because prior execution is running and concurrency policy is Forbid"


def _unsupported(schedule: str) -> str:
    return (
        f'CRON_TZ or TZ used in schedule "{schedule}" is not officially supported, '
        "see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
    )

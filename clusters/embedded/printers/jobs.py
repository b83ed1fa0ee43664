"""Jobs and CronJobs in tables."""

from typing import Any, Final

from clusters.embedded.printers.columns import (
    AGE,
    CONTAINERS,
    NAME,
    NONE,
    Column,
    Printer,
    age,
    age_of,
    container_cells,
    human_duration,
    is_true,
    seconds,
    selector_text,
)
from clusters.embedded.store import Object


def _job(obj: Object, now: float) -> list[Any]:
    spec = obj["spec"]
    row = [obj["metadata"]["name"], _job_status(obj), _completions(obj), _duration(obj, now), age_of(obj, now)]
    return [*row, *container_cells(spec["template"]["spec"]), selector_text(spec.get("selector"))]


def _job_status(obj: Object) -> str:
    for condition in ("Complete", "Failed"):
        if is_true(obj, condition):
            return condition
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(obj, condition):
            return condition
    return "Running"


def _completions(obj: Object) -> str:
    spec, done = obj["spec"], obj.get("status", {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _duration(obj: Object, now: float) -> str:
    status = obj.get("status", {})
    if not status.get("startTime"):
        return ""
    end = seconds(status["completionTime"]) if status.get("completionTime") else now
    return human_duration(end - seconds(status["startTime"]))


def _cronjob(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    row = [
        obj["metadata"]["name"],
        spec.get("schedule", ""),
        spec.get("timeZone", NONE),
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        last,
        age_of(obj, now),
    ]
    job = spec["jobTemplate"]["spec"]
    return [*row, *container_cells(job["template"]["spec"]), selector_text(job.get("selector"))]


JOBS: Final = Printer(
    (
        NAME,
        Column("Status", description="How far the Job is."),
        Column("Completions", description="How many pods succeeded, and how many should."),
        Column("Duration", description="How long the Job ran, or has been running."),
        AGE,
        *CONTAINERS,
    ),
    _job,
)
CRONJOBS: Final = Printer(
    (
        NAME,
        Column("Schedule", description="When Jobs are created, as in cron."),
        Column("Timezone", description="The time zone of the schedule."),
        Column("Suspend", "boolean", description="Whether no Jobs are created for now."),
        Column("Active", "integer", description="How many of its Jobs are running."),
        Column("Last Schedule", description="When a Job was last created."),
        AGE,
        *CONTAINERS,
    ),
    _cronjob,
)

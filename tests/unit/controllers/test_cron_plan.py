"""A CronJob's plan, on virtual time: what is started, what is deleted, what is told, and when it is looked at again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.embedded.controllers import cron_plan

Json = dict[str, Any]


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-16T{text}+00:00")


def a_cronjob(
    schedule: str = "*/10 * * * *", *, created: str = "10:00:00", status: Json | None = None, **spec: Any
) -> Json:
    return {
        "metadata": {
            "name": "nightly",
            "namespace": "default",
            "uid": "cj",
            "creationTimestamp": f"2026-11-16T{created}Z",
        },
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Allow",
            "suspend": False,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {"app": "x"}}, "spec": {"completions": 1}},
            **spec,
        },
        "status": status or {},
    }


def a_job(name: str, *, condition: str = "", started: str | None = "10:00:00", completed: str = "10:05:00") -> Json:
    status: Json = {"startTime": f"2026-11-16T{started}Z"} if started else {}
    if condition:
        status["conditions"] = [{"type": condition, "status": "True"}]
    if condition == "Complete":
        status["completionTime"] = f"2026-11-16T{completed}Z"
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"},
        "status": status,
    }


def active(*jobs: Json) -> list[Json]:
    return [cron_plan.reference(job) for job in jobs]


def reasons(plan: cron_plan.Plan) -> list[str]:
    return [note.reason for note in plan.notes]


def test_before_its_time_nothing_happens_and_it_is_looked_at_when_due() -> None:
    plan = cron_plan.plan(a_cronjob(), [], at("10:03:00"))
    assert plan.start is None
    assert plan.notes == []
    assert plan.look_again == at("10:10:00") + timedelta(milliseconds=100)


def test_when_due_a_job_is_started_from_the_template_and_named_for_its_minute() -> None:
    plan = cron_plan.plan(a_cronjob(timeZone="Asia/Tokyo"), [], at("10:10:00"))
    minute = int(at("10:10:00").timestamp()) // 60
    assert plan.scheduled == at("10:10:00")
    assert plan.start == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"nightly-{minute}",
            "namespace": "default",
            "labels": {"app": "x"},
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-11-16T19:10:00+09:00"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": "nightly",
                    "uid": "cj",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"completions": 1},
    }
    assert plan.look_again == at("10:20:00") + timedelta(milliseconds=100)


def test_without_a_zone_the_scheduled_time_is_written_in_utc() -> None:
    plan = cron_plan.plan(a_cronjob(), [], at("10:10:00"))
    assert plan.start is not None
    assert plan.start["metadata"]["annotations"][cron_plan.SCHEDULED_AT] == "2026-11-16T10:10:00Z"


def test_a_start_that_is_already_recorded_is_not_repeated() -> None:
    done = a_cronjob(status={"lastScheduleTime": "2026-11-16T10:10:00Z"})
    assert cron_plan.plan(done, [], at("10:10:30")).start is None


def test_a_job_of_that_minute_in_the_active_list_is_not_started_again() -> None:
    job = a_job(cron_plan.job_name(a_cronjob(), at("10:10:00")))
    assert cron_plan.plan(a_cronjob(status={"active": active(job)}), [job], at("10:10:30")).start is None


def test_of_many_missed_activations_only_the_latest_is_started() -> None:
    plan = cron_plan.plan(a_cronjob("* * * * *", created="06:00:00"), [], at("10:00:30"))
    assert plan.scheduled == at("10:00:00")
    assert reasons(plan) == ["TooManyMissedTimes"]


def test_every_keeps_its_beat_after_missed_activations() -> None:
    plan = cron_plan.plan(a_cronjob("@every 7m", created="10:00:00"), [], at("10:30:00"))
    assert plan.scheduled == at("10:28:00")


def test_a_starting_deadline_forgets_what_is_older() -> None:
    late = cron_plan.plan(a_cronjob("0 * * * *", created="08:30:00", startingDeadlineSeconds=60), [], at("09:05:00"))
    assert late.start is None
    assert late.look_again == at("10:00:00") + timedelta(milliseconds=100)
    in_time = cron_plan.plan(
        a_cronjob("0 * * * *", created="08:30:00", startingDeadlineSeconds=600), [], at("09:05:00")
    )
    assert in_time.scheduled == at("09:00:00")


def test_suspended_it_starts_nothing_but_still_follows_its_jobs() -> None:
    job = a_job("one", condition="Complete")
    plan = cron_plan.plan(a_cronjob(suspend=True, status={"active": active(job)}), [job], at("10:10:00"))
    assert plan.start is None
    assert plan.look_again is None
    assert plan.status == {"active": [], "lastSuccessfulTime": "2026-11-16T10:05:00Z"}
    assert plan.notes == [("Normal", "SawCompletedJob", "Saw completed job: one, condition: Complete")]


def test_forbid_waits_for_the_terminal_condition() -> None:
    going = a_job("one")
    going["status"]["conditions"] = [{"type": "FailureTarget", "status": "True"}]
    held = cron_plan.plan(
        a_cronjob(concurrencyPolicy="Forbid", status={"active": active(going)}), [going], at("10:10:00")
    )
    assert held.start is None
    assert reasons(held) == ["JobAlreadyActive"]
    gone = a_job("one", condition="Failed")
    freed = cron_plan.plan(
        a_cronjob(concurrencyPolicy="Forbid", status={"active": active(gone)}), [gone], at("10:10:00")
    )
    assert freed.start is not None


def test_replace_deletes_what_is_active_and_starts() -> None:
    job = a_job("one")
    plan = cron_plan.plan(a_cronjob(concurrencyPolicy="Replace", status={"active": active(job)}), [job], at("10:10:00"))
    assert plan.replaced == active(job)
    assert plan.start is not None


def test_history_limits_delete_the_oldest_finished_jobs() -> None:
    jobs = [a_job(f"done-{hour}", condition="Complete", started=f"0{hour}:00:00") for hour in (4, 2, 3, 1, 5)]
    jobs += [a_job("failed-old", condition="Failed", started="01:00:00"), a_job("failed-new", condition="Failed")]
    jobs += [a_job("unstarted", condition="Failed", started=None)]
    plan = cron_plan.plan(a_cronjob(), jobs, at("10:03:00"))
    assert [job["metadata"]["name"] for job in plan.history] == ["done-1", "done-2", "failed-old", "failed-new"]


def test_jobs_that_went_missing_leave_the_active_list() -> None:
    plan = cron_plan.plan(a_cronjob(status={"active": active(a_job("gone"))}), [], at("10:03:00"))
    assert plan.status["active"] == []
    assert plan.notes == [("Normal", "MissingJob", "Active job went missing: gone")]


def test_a_running_job_that_it_does_not_know_is_told_and_left_alone() -> None:
    plan = cron_plan.plan(a_cronjob(), [a_job("stray")], at("10:03:00"))
    assert reasons(plan) == ["UnexpectedJob"]
    assert plan.status["active"] == []


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        pytest.param(
            {"schedule": "61 * * * *"},
            "UnparseableSchedule",
            'unparseable schedule: "61 * * * *" : end of range (61) above maximum (59): 61',
            id="no schedule",
        ),
        pytest.param(
            {"timeZone": "Mars/Base"},
            "UnknownTimeZone",
            'invalid timeZone: "Mars/Base": unknown time zone Mars/Base',
            id="no such zone",
        ),
        pytest.param(
            {"schedule": "59 23 31 2 *"},
            "InvalidSchedule",
            "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second",
            id="a day that never comes",
        ),
    ],
)
def test_a_cronjob_that_can_never_run_says_why(spec: Json, reason: str, message: str) -> None:
    plan = cron_plan.plan(a_cronjob(**spec), [], at("10:10:00"))
    assert plan.notes == [("Warning", reason, message)]
    assert plan.start is None
    assert plan.look_again is None


def test_while_being_deleted_it_starts_nothing() -> None:
    leaving = a_cronjob()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-16T10:09:00Z"
    assert cron_plan.plan(leaving, [], at("10:10:00")).start is None


def test_a_day_of_activations_starts_each_exactly_once() -> None:
    cronjob = a_cronjob("*/30 * * * *", created="00:00:00")
    now, started = at("00:00:00"), []
    while now < datetime(2026, 11, 17, tzinfo=UTC):
        plan = cron_plan.plan(cronjob, [], now)
        if plan.start is not None and plan.scheduled is not None:
            started.append(plan.scheduled)
            cronjob["status"] = {"lastScheduleTime": plan.scheduled.strftime("%Y-%m-%dT%H:%M:%SZ")}
        assert plan.look_again is not None
        now = plan.look_again
    assert started == [at("00:30:00") + timedelta(minutes=30) * step for step in range(47)]

"""The rules of a CronJob."""

from typing import Any

import pytest

from clusters.jobapi import default_cronjob, validate_cronjob_create, validate_cronjob_update
from multimirror.batch import Json
from tests.unit.batch.builders import a_job, causes


def a_cronjob(name: str = "nightly", job: Json | None = None, **spec: Any) -> Json:
    template = {"spec": (job or a_job())["spec"]}
    return {
        "metadata": {"name": name, "namespace": "default", "resourceVersion": "1"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": template, **spec},
    }


def test_what_is_left_out_is_filled_in() -> None:
    spec = default_cronjob(a_cronjob())["spec"]

    assert spec["concurrencyPolicy"] == "Allow"
    assert spec["suspend"] is False
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)
    assert spec["jobTemplate"]["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"


def test_the_jobs_own_defaults_wait_until_a_job_is_made() -> None:
    assert "backoffLimit" not in default_cronjob(a_cronjob())["spec"]["jobTemplate"]["spec"]


@pytest.mark.parametrize(
    ("cronjob", "expected"),
    [
        pytest.param(a_cronjob(), [], id="an ordinary one"),
        pytest.param(a_cronjob(schedule=""), [("Required", "spec.schedule")], id="no schedule"),
        pytest.param(a_cronjob(schedule="* * * *"), [("Invalid", "spec.schedule")], id="four fields"),
        pytest.param(
            a_cronjob(schedule="TZ=UTC 0 3 * * *"), [("Invalid", "spec.schedule")], id="a zone in the schedule"
        ),
        pytest.param(a_cronjob(timeZone="Europe/Berlin"), [], id="a time zone"),
        pytest.param(a_cronjob(timeZone=""), [("Invalid", "spec.timeZone")], id="an empty time zone"),
        pytest.param(a_cronjob(timeZone="Local"), [("Invalid", "spec.timeZone")], id="the server's time zone"),
        pytest.param(
            a_cronjob(timeZone="local"), [("Invalid", "spec.timeZone")] * 2, id="in small letters: no zone either"
        ),
        pytest.param(a_cronjob(timeZone="../etc/passwd"), [("Invalid", "spec.timeZone")], id="a path as time zone"),
        pytest.param(a_cronjob(timeZone="Mars/Base"), [("Invalid", "spec.timeZone")], id="a zone of nowhere"),
        pytest.param(
            a_cronjob(concurrencyPolicy="Sometimes"),
            [("NotSupported", "spec.concurrencyPolicy")],
            id="a policy unknown",
        ),
        pytest.param(
            a_cronjob(startingDeadlineSeconds=-1), [("Invalid", "spec.startingDeadlineSeconds")], id="negative"
        ),
        pytest.param(
            a_cronjob(successfulJobsHistoryLimit=-1, failedJobsHistoryLimit=-1),
            [("Invalid", "spec.successfulJobsHistoryLimit"), ("Invalid", "spec.failedJobsHistoryLimit")],
            id="negative histories",
        ),
        pytest.param(
            a_cronjob(job=a_job(managedBy="nobody", manualSelector=True, selector={})),
            [
                ("Invalid", "spec.jobTemplate.spec.managedBy"),
                ("Invalid", "spec.jobTemplate.spec.selector"),
                ("NotSupported", "spec.jobTemplate.spec.manualSelector"),
            ],
            id="the rules of the Job inside",
        ),
        pytest.param(a_cronjob("n" * 52), [], id="the longest name"),
        pytest.param(a_cronjob("n" * 53), [("Invalid", "metadata.name")], id="no room for the time in the name"),
    ],
)
def test_creating(cronjob: Json, expected: list[tuple[str, str]]) -> None:
    assert causes(validate_cronjob_create(default_cronjob(cronjob))) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(a_cronjob(), a_cronjob(schedule="@daily"), [], id="another schedule"),
        pytest.param(a_cronjob(), a_cronjob(job=a_job(managedBy="acme.io/x")), [], id="the manager may change"),
        pytest.param(
            a_cronjob(schedule="TZ=UTC 0 3 * * *"), a_cronjob(schedule="TZ=UTC 0 4 * * *"), [], id="an old habit kept"
        ),
        pytest.param(
            a_cronjob(schedule="TZ=UTC 0 3 * * *"),
            a_cronjob(schedule="TZ=UTC 0 3 * * *", timeZone="UTC"),
            [("Invalid", "spec.schedule")],
            id="both ways to name a zone",
        ),
        pytest.param(a_cronjob(timeZone="Mars/Base"), a_cronjob(timeZone="Mars/Base"), [], id="a bad zone, left alone"),
    ],
)
def test_updating(old: Json, new: Json, expected: list[tuple[str, str]]) -> None:
    assert causes(validate_cronjob_update(default_cronjob(new), default_cronjob(old))) == expected

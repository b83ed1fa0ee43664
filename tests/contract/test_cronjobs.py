"""CronJobs: defaults and rules of the API (when they fire is the controller's affair)."""

import pytest

from tests.contract.objects import cronjob, template
from tests.contract.wire import Api, Object


async def test_a_cronjob_gets_its_defaults(api: Api) -> None:
    body = cronjob("a")
    del body["spec"]["suspend"]
    made = await api.made("cronjobs", body)
    spec = {key: value for key, value in made["spec"].items() if key != "jobTemplate"}
    assert spec == {
        "schedule": "0 0 1 1 *",
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    assert made["metadata"]["generation"] == 1
    assert made["status"] == {}
    pod = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 30
    assert made["spec"]["jobTemplate"]["spec"] == {"template": made["spec"]["jobTemplate"]["spec"]["template"]}


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        (
            {"schedule": "every now and then"},
            [
                'spec.schedule: Invalid value: "every now and then": expected exactly 5 fields, found 4: '
                "[every now and then]"
            ],
        ),
        ({"schedule": ""}, ["spec.schedule: Required value"]),
        (
            {"schedule": "61 * * * *"},
            ['spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61'],
        ),
        (
            {"concurrencyPolicy": "Maybe"},
            ['spec.concurrencyPolicy: Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace"'],
        ),
        ({"concurrencyPolicy": ""}, None),
        (
            {"timeZone": "Mars/Olympus"},
            ['spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus'],
        ),
        (
            {"timeZone": "Local"},
            [
                'spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones'
            ],
        ),
        (
            {"successfulJobsHistoryLimit": -1},
            ["spec.successfulJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"startingDeadlineSeconds": -1},
            ["spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"jobTemplate": {"spec": {"template": template(restartPolicy="Always")}}},
            ['spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
        ),
    ],
    ids=lambda value: next(iter(value.items()))[0] if isinstance(value, dict) else "",
)
async def test_a_cronjob_that_breaks_a_rule_is_refused_to_the_letter(
    api: Api, spec: Object, errors: list[str] | None
) -> None:
    answer = await api.post(api.at("cronjobs"), cronjob("a", **spec))
    if errors is None:
        answer.ok(201)
        return
    status = answer.refused(422, "Invalid")
    assert [f"{cause['field']}: {cause['message']}" for cause in status["details"]["causes"]] == errors
    assert status["details"]["kind"] == "CronJob"


async def test_a_name_that_leaves_no_room_for_the_jobs_is_refused(api: Api) -> None:
    await api.made("cronjobs", cronjob("x" * 52))
    status = (await api.post(api.at("cronjobs"), cronjob("x" * 53))).refused(422, "Invalid")
    assert status["details"]["causes"][0] == {
        "reason": "FieldValueInvalid",
        "message": f'Invalid value: "{"x" * 53}": must be no more than 52 characters',
        "field": "metadata.name",
    }


async def test_the_time_zone_is_not_written_into_the_schedule(api: Api) -> None:
    answer = await api.post(api.at("cronjobs"), cronjob("a", schedule="TZ=Europe/Berlin 0 0 * * *"))
    status = answer.refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.schedule"


async def test_the_status_of_a_cronjob_is_its_controllers(api: Api) -> None:
    await api.made("cronjobs", cronjob("a"))
    written = (
        await api.patch(api.at("cronjobs", "a", "status"), {"status": {"lastScheduleTime": "2026-11-01T10:00:00Z"}})
    ).ok()
    assert written["status"] == {"lastScheduleTime": "2026-11-01T10:00:00Z"}
    ignored = (await api.patch(api.at("cronjobs", "a"), {"status": {"lastScheduleTime": None}})).ok()
    assert ignored["status"] == written["status"]


async def test_a_change_of_the_schedule_is_a_new_generation(api: Api) -> None:
    await api.made("cronjobs", cronjob("a"))
    changed = (await api.patch(api.at("cronjobs", "a"), {"spec": {"schedule": "@yearly"}})).ok()
    assert changed["metadata"]["generation"] == 2

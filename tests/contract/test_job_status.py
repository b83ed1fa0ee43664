"""The rules for a Job's status, as a controller meets them."""

import pytest

from tests.contract.objects import job
from tests.contract.wire import Api, Object

START, LATER = "2026-11-01T10:00:00Z", "2026-11-01T10:05:00Z"


def condition(kind: str, status: str = "True") -> Object:
    return {"type": kind, "status": status, "lastProbeTime": LATER, "lastTransitionTime": LATER}


def conditions(*kinds: str) -> list[Object]:
    return [condition(kind) for kind in kinds]


DONE: Object = {
    "startTime": START,
    "completionTime": LATER,
    "succeeded": 1,
    "conditions": conditions("SuccessCriteriaMet", "Complete"),
}


async def write(api: Api, status: Object, *, code: int = 200) -> Object:
    """Replace the whole status, as stored otherwise."""
    stored = await api.read("jobs", "a")
    return (await api.put(api.at("jobs", "a", "status"), {**stored, "status": status})).ok(code)


async def test_a_job_is_completed_in_one_write(api: Api) -> None:
    await api.made("jobs", job("a"))
    assert (await write(api, DONE))["status"] == DONE


async def test_zero_counters_are_dropped_and_pointers_are_kept(api: Api) -> None:
    await api.made("jobs", job("a"))
    sent = {"active": 0, "succeeded": 0, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {"failed": []}}
    assert (await write(api, sent))["status"] == {"ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}


@pytest.mark.parametrize(
    ("before", "after", "errors"),
    [
        (
            {},
            {**DONE, "conditions": conditions("Complete")},
            [
                "status.conditions: Invalid value: cannot set Complete=True condition without the "
                "SuccessCriteriaMet=true condition"
            ],
        ),
        (
            {},
            {"startTime": START, "conditions": conditions("Failed")},
            [
                "status.conditions: Invalid value: cannot set Failed=True condition without the "
                "FailureTarget=true condition"
            ],
        ),
        (
            {},
            {key: DONE[key] for key in ("startTime", "conditions")},
            ["status.completionTime: Required value: completionTime is required for Complete jobs"],
        ),
        (
            {},
            {key: DONE[key] for key in ("completionTime", "conditions")},
            ["status.startTime: Required value: startTime is required for finished job"],
        ),
        ({}, {**DONE, "active": 1}, ["status.active: Invalid value: 1: active>0 is invalid for finished job"]),
        (
            {},
            {**DONE, "terminating": 1},
            ["status.terminating: Invalid value: 1: terminating>0 is invalid for finished job"],
        ),
        (
            {},
            {**DONE, "startTime": LATER, "completionTime": START},
            [f'status.completionTime: Invalid value: "{START}": must be equal to or after `startTime`'],
        ),
        (
            {},
            {"completionTime": LATER},
            [
                f'status.completionTime: Invalid value: "{LATER}": cannot set completionTime when there is no '
                "Complete=True condition"
            ],
        ),
        ({}, {"active": 1, "ready": 2}, ["status.ready: Invalid value: 2: cannot set more ready pods than active"]),
        ({}, {"active": -1}, ["status.active: Invalid value: -1: must be greater than or equal to 0"]),
        (
            {"failed": 3, "succeeded": 3},
            {"failed": 2, "succeeded": 2},
            [
                "status.failed: Invalid value: 2: cannot decrease the failed counter",
                "status.succeeded: Invalid value: 2: cannot decrease the succeeded counter",
            ],
        ),
        (
            {"startTime": START},
            {"startTime": LATER},
            [f'status.startTime: Invalid value: "{LATER}": field is immutable for unsuspended job once set'],
        ),
        (
            {"startTime": START},
            {},
            ["status.startTime: Invalid value: null: field is immutable for unsuspended job once set"],
        ),
        (
            {"startTime": START, "conditions": conditions("FailureTarget", "Failed")},
            {"startTime": START, "conditions": conditions("FailureTarget")},
            ["status.conditions: Invalid value: cannot disable the terminal Failed=True condition"],
        ),
        (
            {"conditions": conditions("FailureTarget")},
            {"conditions": conditions("FailureTarget", "SuccessCriteriaMet")},
            ["status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"],
        ),
        (
            {},
            {"completedIndexes": "0"},
            [
                'status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed '
                "completion mode"
            ],
        ),
        (
            {},
            {"failedIndexes": "0"},
            [
                'status.failedIndexes: Invalid value: "0": cannot set non-null failedIndexes when backoffLimitPerIndex '
                "is null"
            ],
        ),
    ],
    ids=[
        "complete without its cause",
        "failed without its cause",
        "complete at no time",
        "finished without a start",
        "finished with active pods",
        "finished with terminating pods",
        "done before it began",
        "done but not complete",
        "more ready than active",
        "less than none",
        "counters go down",
        "another start",
        "no start any more",
        "not failed any more",
        "both failing and succeeding",
        "indexes of a plain job",
        "failed indexes without a limit",
    ],
)
async def test_a_status_that_breaks_a_rule_is_refused_to_the_letter(
    api: Api, before: Object, after: Object, errors: list[str]
) -> None:
    await api.made("jobs", job("a"))
    if before:
        await write(api, before)
    status = await write(api, after, code=422)
    assert [f"{cause['field']}: {cause['message']}" for cause in status["details"]["causes"]] == errors
    assert status["reason"] == "Invalid"


async def test_a_suspended_job_may_start_anew(api: Api) -> None:
    await api.made("jobs", job("a", suspend=True))
    await write(api, {"startTime": START})
    assert "startTime" not in (await write(api, {}))["status"]


async def test_a_finished_job_stays_finished_but_may_be_told_more(api: Api) -> None:
    await api.made("jobs", job("a"))
    await write(api, DONE)
    more = {**DONE, "conditions": [*DONE["conditions"], condition("Noted")]}
    assert len((await write(api, more))["status"]["conditions"]) == 3
    await write(api, {**DONE, "conditions": [condition("Noted")]}, code=422)


async def test_two_writers_of_one_status_conflict(api: Api) -> None:
    made = await api.made("jobs", job("a"))
    await write(api, {"active": 1})
    answer = await api.put(api.at("jobs", "a", "status"), {**made, "status": {"active": 2}})
    answer.refused(409, "Conflict")


async def test_the_status_of_no_job_cannot_be_written(api: Api) -> None:
    (await api.patch(api.at("jobs", "nope", "status"), {"status": {"active": 1}})).refused(404, "NotFound")

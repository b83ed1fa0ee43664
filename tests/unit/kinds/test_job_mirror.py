"""What a user sees on the Job where it was created, for what happens to its copy elsewhere."""

import json
from typing import Any

import pytest

from multimirror.batch import Json
from multimirror.kinds import Rejection
from multimirror.kinds.job.mirror import mirror_status
from tests.unit.batch.builders import T0, T1, T2, a_stored_job, conditions, indexed

RUNNING = {"startTime": T0, "active": 1, "ready": 1, "terminating": 0, "uncountedTerminatedPods": {}}


def done(*types: str, **fields: Any) -> Json:
    return {"startTime": T0, "conditions": conditions(*types), "ready": 0, "terminating": 0, **fields}


COMPLETE = done("SuccessCriteriaMet", "Complete", completionTime=T1, succeeded=1, uncountedTerminatedPods={})
FAILED = done("FailureTarget", "Failed", failed=7, uncountedTerminatedPods={})


@pytest.mark.parametrize(
    ("current", "observed"),
    [
        pytest.param({}, RUNNING, id="started"),
        pytest.param(RUNNING, COMPLETE, id="completed"),
        pytest.param({}, COMPLETE, id="completed before anybody looked"),
        pytest.param(RUNNING, FAILED, id="failed"),
        pytest.param(RUNNING, done("FailureTarget", terminating=1), id="about to fail"),
    ],
)
def test_what_the_copy_says_is_what_the_user_sees(current: Json, observed: Json) -> None:
    assert mirror_status(a_stored_job(status=current), observed) == observed


@pytest.mark.parametrize(
    ("current", "observed"),
    [
        pytest.param(RUNNING, RUNNING, id="the same"),
        pytest.param(COMPLETE, RUNNING, id="a finished Job stays as it is, whatever the copy says"),
        pytest.param(COMPLETE, FAILED, id="even that it failed"),
        pytest.param({}, {}, id="nothing yet"),
        pytest.param({}, {"active": 0, "conditions": []}, id="nothing in other words"),
        pytest.param(
            RUNNING, RUNNING | {"uncountedTerminatedPods": {"succeeded": ["a"]}}, id="the worker's bookkeeping alone"
        ),
        pytest.param(
            {"conditions": [{"type": "Suspended", "status": "False", "lastProbeTime": None}]},
            {"conditions": [{"type": "Suspended", "status": "False"}]},
            id="a null that the server adds",
        ),
    ],
)
def test_where_nothing_changed_nothing_is_written(current: Json, observed: Json) -> None:
    assert mirror_status(a_stored_job(status=current), observed) is None


def mirrored(original: Json, observed: Any) -> Json:
    status = mirror_status(original, observed)
    assert isinstance(status, dict), status
    return status


def test_counters_never_go_down_when_the_job_starts_again_elsewhere() -> None:
    job = a_stored_job(completions=5, status={"startTime": T0, "succeeded": 3, "failed": 2})

    status = mirrored(job, {"startTime": T2, "active": 1, "succeeded": 1, "failed": 4})

    assert (status["succeeded"], status["failed"]) == (3, 4)


def test_a_start_time_that_is_held_fast_stays() -> None:
    job = a_stored_job(status={"startTime": T0})

    assert mirrored(job, RUNNING | {"startTime": T2})["startTime"] == T0


@pytest.mark.parametrize(
    ("spec", "current", "observed"),
    [
        pytest.param({"suspend": True}, {"startTime": T0}, {"startTime": T2, "active": 1}, id="while suspended"),
        pytest.param(
            {},
            {"startTime": T0, "conditions": conditions("Suspended")},
            {"startTime": T2, "conditions": conditions(Suspended="False")},
            id="when the copy says that it resumed",
        ),
        pytest.param(
            {},
            {"startTime": T0, "conditions": conditions("Suspended")},
            {"startTime": T2, "active": 1},
            id="when a new copy was never suspended",
        ),
    ],
)
def test_a_new_start_shows_after_a_suspension(spec: Json, current: Json, observed: Json) -> None:
    assert mirrored(a_stored_job(status=current, **spec), observed)["startTime"] == T2


@pytest.mark.parametrize(
    ("start", "since"),
    [
        pytest.param(T2, T2, id="since its copy started"),
        pytest.param(T0, T1, id="not before it was suspended, whatever the worker's clock says"),
    ],
)
def test_a_job_that_waited_is_resumed_when_its_copy_starts(start: str, since: str) -> None:
    waited = [{**conditions("Suspended")[0], "reason": "JobSuspended", "message": "Job suspended: it waits"}]
    job = a_stored_job(status={"conditions": waited, "ready": 0, "terminating": 0})

    assert mirror_status(job, {}) is None, "a copy that has not begun has nothing to tell"
    (resumed,) = mirrored(job, RUNNING | {"startTime": start})["conditions"]

    assert (resumed["status"], resumed["reason"], resumed["message"]) == ("False", "JobResumed", "Job resumed")
    assert resumed["lastTransitionTime"] == since


def test_a_job_suspended_by_its_user_loses_its_start_and_pods() -> None:
    job = a_stored_job(suspend=True, status=RUNNING)

    status = mirrored(job, {"conditions": conditions("Suspended"), "terminating": 1})

    assert status == {"conditions": conditions("Suspended"), "terminating": 1}


def test_completion_never_precedes_the_start_though_clocks_differ() -> None:
    job = a_stored_job(status={"startTime": T2, "active": 1})

    assert mirrored(job, COMPLETE)["completionTime"] == T2


@pytest.mark.parametrize(
    ("old_worker", "expected"),
    [
        (done("Complete", completionTime=T1, succeeded=1), ["SuccessCriteriaMet", "Complete"]),
        (done("Failed", failed=1), ["FailureTarget", "Failed"]),
    ],
)
def test_a_worker_too_old_for_interim_conditions_still_finishes(old_worker: Json, expected: list[str]) -> None:
    assert [c["type"] for c in mirrored(a_stored_job(), old_worker)["conditions"]] == expected


@pytest.mark.parametrize(
    "left", [{"active": 1}, {"terminating": 1}, {"uncountedTerminatedPods": {"failed": ["a"]}}], ids=str
)
def test_the_end_waits_until_no_pod_is_left(left: Json) -> None:
    status = mirrored(a_stored_job(), done("Failed", failed=1) | left)

    assert [c["type"] for c in status["conditions"]] == ["FailureTarget"]
    assert mirrored(a_stored_job(status=status), done("Failed", failed=1))["conditions"][-1]["type"] == "Failed"


def test_indexes_beyond_a_job_made_smaller_are_left_out() -> None:
    job = indexed(3, 3, backoffLimitPerIndex=1, status={"startTime": T0, "succeeded": 4, "completedIndexes": "0-3"})

    status = mirrored(job, {"startTime": T0, "completedIndexes": "0,1,4", "failedIndexes": "2,5", "succeeded": 3})

    assert (status["completedIndexes"], status["failedIndexes"]) == ("0,1", "2")
    assert status["succeeded"] == 3


def test_an_elastic_job_forgets_what_it_no_longer_has_and_nothing_else() -> None:
    job = indexed(2, 2, status={"startTime": T0, "succeeded": 4, "completedIndexes": "0-3"})

    assert mirrored(job, {"startTime": T0, "completedIndexes": "0,1", "succeeded": 2})["succeeded"] == 2
    assert mirrored(job, {"startTime": T0, "active": 2})["succeeded"] == 2


def test_our_own_conditions_on_the_job_stay_and_cannot_come_from_a_worker() -> None:
    ours = {"type": "multimirror.dev/Dispatched", "status": "True"}
    job = a_stored_job(status={"conditions": [ours]})

    status = mirrored(job, RUNNING | {"conditions": [{"type": "multimirror.dev/Hijacked", "status": "True"}]})

    assert status["conditions"] == [ours]


def test_what_is_no_status_field_does_not_pass() -> None:
    observed = RUNNING | {
        "conditions": [
            {"type": "Suspended", "status": "False", "extra": 1},
            {"type": "example.com/Mine", "status": "True"},
            {"type": "Suspended", "status": "True", "message": "once more"},
        ],
        "spec": {},
        "secret": "x",
    }

    assert mirrored(a_stored_job(), observed) == RUNNING | {"conditions": [{"type": "Suspended", "status": "False"}]}


@pytest.mark.parametrize(
    "observed",
    [
        RUNNING | {"conditions": [{"type": "X" * 400, "status": "True"}]},
        RUNNING | {"conditions": [{"type": "X", "status": "Perhaps"}, {"status": "True"}, 7, None]},
        RUNNING | {"succeeded": -1, "failed": True},
        RUNNING | {"succeeded": 2**31, "failed": "many"},
        RUNNING | {"completionTime": T1, "completedIndexes": "0-9", "failedIndexes": "x"},
        RUNNING | {"ready": 99},
    ],
    ids=[
        "long type",
        "half conditions",
        "odd numbers",
        "large numbers",
        "fields of other Jobs",
        "more ready than active",
    ],
)
def test_nonsense_is_left_out_and_the_rest_mirrored(observed: Json) -> None:
    assert mirrored(a_stored_job(), observed) == RUNNING


def test_long_texts_and_lists_are_cut() -> None:
    condition = {"type": "Suspended", "status": "False", "reason": "r" * 10_000, "message": "m" * 100_000}
    uids = [f"uid-{i}" for i in range(5000)]

    status = mirrored(
        a_stored_job(), RUNNING | {"conditions": [condition] * 100, "uncountedTerminatedPods": {"failed": uids}}
    )

    assert len(status["conditions"]) == 1
    assert (len(status["conditions"][0]["reason"]), len(status["conditions"][0]["message"])) == (128, 1024)
    assert len(status["uncountedTerminatedPods"]["failed"]) == 12, "it has one pod at a time"


def test_messages_have_a_kibibyte_and_nothing_that_a_terminal_obeys() -> None:
    condition = {"type": "Suspended", "status": "False", "message": "\x1b]52;c;\x07" + "ä" * 2000}
    status = mirrored(a_stored_job(), RUNNING | {"conditions": [condition]})
    message = status["conditions"][0]["message"]
    assert len(message.encode()) <= 1024
    assert message.isprintable()


def test_a_worker_cannot_write_more_onto_a_job_than_the_job_can_need() -> None:
    everything = {
        "conditions": [
            {"type": kind, "status": "False", "reason": "r" * 10_000, "message": "m" * 100_000}
            for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet", *map(str, range(1000)))
        ],
        "completedIndexes": ",".join(map(str, range(0, 200_000, 2))),
        "failedIndexes": ",".join(map(str, range(1, 200_000, 2))),
        "uncountedTerminatedPods": {key: [f"{key}-{i:060}" for i in range(5000)] for key in ("succeeded", "failed")},
        "active": 1,
    }
    small = mirrored(a_stored_job(completions=2, completionMode="Indexed", backoffLimitPerIndex=1), everything)
    assert len(json.dumps(small)) < 8 * 1024


@pytest.mark.parametrize(
    ("current", "observed", "rule"),
    [
        pytest.param(
            done("FailureTarget"), RUNNING, "cannot disable the terminal FailureTarget=True condition", id="taken back"
        ),
        pytest.param(
            done("SuccessCriteriaMet"),
            FAILED,
            "cannot disable the SuccessCriteriaMet=True condition",
            id="the other end",
        ),
        pytest.param(
            {},
            {"conditions": conditions("SuccessCriteriaMet", "Complete"), "completionTime": T1},
            "startTime is required for finished job",
            id="finished without having started",
        ),
        pytest.param(
            {},
            done("Complete", "Failed", completionTime=T1),
            "cannot set Complete=True and Failed=true conditions",
            id="both ends at once",
        ),
    ],
)
def test_what_no_rule_lets_through_is_refused_with_the_rule(current: Json, observed: Json, rule: str) -> None:
    refusal = mirror_status(a_stored_job(status=current), observed)

    assert isinstance(refusal, Rejection)
    assert rule in str(refusal)

"""Conditions, and the life of a Job in them."""

import pytest

from multimirror.batch import (
    Phase,
    is_complete,
    is_failed,
    is_finished,
    is_suspended,
    may_become,
    phase,
    with_condition,
)
from tests.unit.batch.builders import T0, T1, conditions


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), Phase.RUNNING),
        (("Suspended",), Phase.RUNNING),
        (("FailureTarget",), Phase.FAILURE_TARGET),
        (("FailureTarget", "Failed"), Phase.FAILED),
        (("SuccessCriteriaMet",), Phase.SUCCESS_CRITERIA_MET),
        (("SuccessCriteriaMet", "Complete"), Phase.COMPLETE),
    ],
)
def test_the_phase_is_the_furthest_true_condition(types: tuple[str, ...], expected: Phase) -> None:
    assert phase({"conditions": conditions(*types)}) is expected


def test_a_condition_that_is_not_true_says_nothing() -> None:
    status = {"conditions": conditions(Complete="False", Failed="Unknown", Suspended="False")}

    assert (is_complete(status), is_failed(status), is_finished(status), is_suspended(status)) == (False,) * 4


def test_the_ways_of_a_job_are_those_of_the_diagram_with_steps_unseen() -> None:
    ways = {(now, later) for now in Phase for later in Phase if now is not later and may_become(now, later)}

    assert ways == {
        (Phase.RUNNING, Phase.FAILURE_TARGET),
        (Phase.RUNNING, Phase.FAILED),
        (Phase.RUNNING, Phase.SUCCESS_CRITERIA_MET),
        (Phase.RUNNING, Phase.COMPLETE),
        (Phase.FAILURE_TARGET, Phase.FAILED),
        (Phase.SUCCESS_CRITERIA_MET, Phase.COMPLETE),
    }


def test_a_condition_set_again_to_the_same_keeps_its_times() -> None:
    first = with_condition([], "Suspended", "True", now=T0, reason="JobSuspended", message="Job suspended")

    assert with_condition(first, "Suspended", "True", now=T1, reason="JobSuspended", message="Job suspended") is first


def test_a_changed_condition_takes_its_old_place_with_new_times() -> None:
    before = [*with_condition([], "Suspended", "True", now=T0), {"type": "Custom", "status": "True"}]

    after = with_condition(before, "Suspended", "False", now=T1, reason="JobResumed")

    assert after == [
        {
            "type": "Suspended",
            "status": "False",
            "lastProbeTime": T1,
            "lastTransitionTime": T1,
            "reason": "JobResumed",
        },
        {"type": "Custom", "status": "True"},
    ]
    assert before[0]["status"] == "True"

"""Suspend, resume, and what that does to the clock."""

from typing import Any

import pytest

from multimirror.batch import Json
from tests.unit.builtin_controller.vectors import a_job, a_pod, at, running, sync

SUSPENDED = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
RESUMED = {"type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed"}
TWO: dict[str, Any] = {"completions": 2, "parallelism": 2}


def bare(condition: Json) -> Json:
    return {key: value for key, value in condition.items() if not key.startswith("last")}


def test_a_job_created_suspended_says_so_and_does_not_start() -> None:
    result = sync(a_job(suspend=True, status={}))
    assert "startTime" not in result.status
    assert [bare(c) for c in result.status["conditions"]] == [SUSPENDED]
    assert result.tracking.events == [("Suspended", "Job suspended")]
    assert result.status["ready"] == 0


def test_suspending_a_running_job_takes_its_start_time_back() -> None:
    result = sync(a_job(suspend=True, status=running(active=2), **TWO), [a_pod("a", ready=True), a_pod("b")])
    assert sorted(result.removed) == ["a", "b"]
    assert "startTime" not in result.status
    assert (result.status.get("active", 0), result.status["ready"], result.status["terminating"]) == (0, 0, 2)


@pytest.mark.parametrize("left", [2, 1, 0])
def test_pods_that_a_suspension_stops_are_counted_until_they_are_gone(left: int) -> None:
    status = running(active=0, terminating=2, conditions=[SUSPENDED])
    pods = [a_pod(f"{each}", deleting=True) for each in range(left)]
    result = sync(a_job(suspend=True, status=status, **TWO), pods)
    assert (result.status.get("active", 0), result.status["terminating"]) == (0, left)
    assert result.created == []


def test_the_start_time_stays_with_the_gate_off() -> None:
    gates = {"MutableSchedulingDirectivesForSuspendedJobs": False}
    assert sync(a_job(suspend=True), [], gates=gates).status["startTime"] == at(-100)


def test_counters_survive_a_suspension() -> None:
    status = running(succeeded=1, failed=2, uncountedTerminatedPods={"succeeded": ["x"]})
    result = sync(a_job(completions=5, suspend=True, status=status), [a_pod("x", "Succeeded")])
    assert (result.status["succeeded"], result.status["failed"]) == (2, 2)


def test_resuming_starts_the_clock_anew() -> None:
    result = sync(a_job(status=running(conditions=[SUSPENDED]), **TWO))
    assert len(result.created) == 2
    assert [bare(c) for c in result.status["conditions"]] == [RESUMED]
    assert result.status["startTime"] == at(0)
    assert result.tracking.events == [("Resumed", "Job resumed")]


def test_a_job_that_was_never_suspended_has_no_such_condition() -> None:
    assert "conditions" not in sync(a_job()).status


@pytest.mark.parametrize(
    ("job", "options"),
    [
        pytest.param(a_job(suspend=True, status=running(conditions=[SUSPENDED])), {}, id="suspended already"),
        pytest.param(a_job(status=running(conditions=[RESUMED])), {}, id="resumed already"),
        pytest.param(a_job(suspend=True), {"settled": False}, id="the cache is behind"),
        pytest.param(a_job(suspend=True, deleting=True), {}, id="the Job is being deleted"),
        pytest.param(a_job(suspend=True, completions=0), {}, id="the Job is complete"),
    ],
)
def test_nothing_is_told(job: Json, options: dict[str, Any]) -> None:
    result = sync(job, **options)
    assert result.tracking.events == []


def test_a_suspended_job_can_complete() -> None:
    assert sync(a_job(suspend=True), [a_pod("a", "Succeeded")]).finished


def test_suspended_pods_are_not_counted_as_failed() -> None:
    result = sync(a_job(suspend=True, **TWO), [a_pod("a", deleting=True, tracked=False)])
    assert result.status.get("failed", 0) == 0

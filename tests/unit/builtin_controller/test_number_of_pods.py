"""How many pods a sync creates or removes."""

from typing import Any

import pytest

from builtin_controller.backoff import Record
from multimirror.batch import Json
from tests.unit.builtin_controller.vectors import NOW, a_job, a_pod, at, indexed, running, sync


def pods(count: int, phase: str = "Running", **more: Any) -> list[Json]:
    return [a_pod(f"p{number}", phase, **more) for number in range(count)]


def ended(count: int, phase: str = "Succeeded", **more: Any) -> list[Json]:
    return [a_pod(f"e{number}", phase, **more) for number in range(count)]


@pytest.mark.parametrize(
    ("job", "there", "created"),
    [
        pytest.param(a_job(), [], 1, id="a new Job gets its pod"),
        pytest.param(a_job(completions=5, parallelism=2), [], 2, id="no more than parallelism at once"),
        pytest.param(a_job(completions=2, parallelism=5), [], 2, id="no more than completions are needed"),
        pytest.param(a_job(completions=5, parallelism=3), pods(2), 1, id="what runs already is counted"),
        pytest.param(a_job(completions=5, parallelism=5), ended(3), 2, id="what succeeded is not repeated"),
        pytest.param(
            a_job(completions=5, parallelism=5, status=running(succeeded=3)), [], 2, id="nor what was counted"
        ),
        pytest.param(
            a_job(completions=5, parallelism=5, status=running(uncountedTerminatedPods={"succeeded": ["x", "y"]})),
            [],
            3,
            id="nor what is listed and not counted yet",
        ),
        pytest.param(a_job(completions=2, parallelism=0), [], 0, id="parallelism 0 holds the Job"),
        pytest.param(a_job(completions=0, parallelism=2), [], 0, id="completions 0 needs no pods"),
        pytest.param(a_job(completions=None, parallelism=3), [], 3, id="a work queue gets parallelism pods"),
        pytest.param(
            a_job(completions=None, parallelism=3), pods(1) + ended(1), 0, id="a work queue with a success is drained"
        ),
        pytest.param(a_job(completions=2, parallelism=2, suspend=True), [], 0, id="a suspended Job gets none"),
        pytest.param(a_job(deleting=True), [], 0, id="a Job that is being deleted gets none"),
        pytest.param(
            a_job(completions=3, parallelism=3), pods(1, deleting=True), 3, id="a terminating pod is replaced at once"
        ),
        pytest.param(
            a_job(completions=3, parallelism=3, podReplacementPolicy="Failed"),
            pods(1, deleting=True),
            2,
            id="a terminating pod holds its place with podReplacementPolicy Failed",
        ),
        pytest.param(
            a_job(completions=3, parallelism=3, podFailurePolicy={"rules": []}),
            pods(2, deleting=True),
            1,
            id="a terminating pod holds its place with a podFailurePolicy",
        ),
        pytest.param(a_job(completions=900, parallelism=900), [], 500, id="no more than 500 in one sync"),
        pytest.param(indexed(900), [], 500, id="no more than 500 of an Indexed Job in one sync"),
        pytest.param(a_job(completions=4, parallelism=4), pods(1, "Pending"), 3, id="a pending pod is active"),
        pytest.param(a_job(completions=4, parallelism=4), pods(1, "Unknown"), 3, id="a pod of unknown phase is active"),
    ],
)
def test_pods_are_created(job: Json, there: list[Json], created: int) -> None:
    assert len(sync(job, there).created) == created


@pytest.mark.parametrize(
    ("job", "there", "removed"),
    [
        pytest.param(a_job(completions=5, parallelism=2), pods(4), 2, id="parallelism was lowered"),
        pytest.param(a_job(completions=5, parallelism=0), pods(2), 2, id="parallelism 0 removes all"),
        pytest.param(
            a_job(completions=3, parallelism=3, status=running(succeeded=2)), pods(2), 1, id="more than are left to do"
        ),
        pytest.param(
            a_job(completions=2, parallelism=2, suspend=True), pods(2), 2, id="a suspended Job loses its pods"
        ),
        pytest.param(
            a_job(completions=900, parallelism=900, suspend=True), pods(700), 700, id="suspension has no limit per sync"
        ),
        pytest.param(a_job(completions=900, parallelism=1), pods(700), 500, id="surplus is removed 500 at a time"),
        pytest.param(a_job(completions=None, parallelism=1), pods(3), 2, id="a work queue with too many"),
        pytest.param(
            a_job(completions=None, parallelism=1), pods(3) + ended(1), 0, id="a drained work queue keeps what runs"
        ),
    ],
)
def test_surplus_pods_are_removed(job: Json, there: list[Json], removed: int) -> None:
    result = sync(job, there)
    assert len(result.removed) == removed
    assert not result.created


def test_a_sync_that_removes_creates_nothing() -> None:
    result = sync(indexed(3), [a_pod("a", index=0), a_pod("b", index=0)])
    assert len(result.removed) == 1
    assert not result.created


@pytest.mark.parametrize(
    ("there", "goes"),
    [
        pytest.param([a_pod("old", node="n"), a_pod("new", node="")], "new", id="unscheduled before scheduled"),
        pytest.param([a_pod("r"), a_pod("p", "Pending")], "p", id="pending before running"),
        pytest.param([a_pod("r"), a_pod("u", "Unknown")], "u", id="unknown before running"),
        pytest.param([a_pod("r", ready=True), a_pod("n")], "n", id="not ready before ready"),
        pytest.param([a_pod("calm"), a_pod("restless", restarts=3)], "restless", id="more restarts before fewer"),
        pytest.param([a_pod("old", created=-90), a_pod("young", created=-10)], "young", id="younger before older"),
        pytest.param([a_pod("u", node=""), a_pod("p", "Pending")], "u", id="unscheduled beats phase"),
        pytest.param([a_pod("p", "Pending", ready=False), a_pod("r", restarts=9)], "p", id="phase beats restarts"),
    ],
)
def test_the_pod_with_the_least_work_in_it_goes_first(there: list[Json], goes: str) -> None:
    assert sync(a_job(completions=5, parallelism=1), there).removed == [goes]


def test_the_one_that_is_ready_for_longer_stays() -> None:
    ready = {"type": "Ready", "status": "True"}
    fresh = a_pod("fresh", conditions=[{**ready, "lastTransitionTime": at(-1)}])
    old = a_pod("old", conditions=[{**ready, "lastTransitionTime": at(-60)}])
    assert sync(a_job(completions=5, parallelism=1), [old, fresh]).removed == ["fresh"]


@pytest.mark.parametrize("there", [[], pods(3)], ids=["none to create", "none to remove"])
def test_nothing_is_managed_while_the_cache_is_behind(there: list[Json]) -> None:
    result = sync(a_job(completions=2, parallelism=2), there, settled=False)
    assert (result.created, result.removed, result.decision.work.action) == ([], [], "reconciling")


@pytest.mark.parametrize(
    ("job", "there", "action"),
    [
        pytest.param(a_job(), [], "pods_created", id="created"),
        pytest.param(a_job(completions=3, parallelism=1), pods(2), "pods_deleted", id="deleted"),
        pytest.param(a_job(), pods(1), "tracking", id="neither"),
        pytest.param(a_job(suspend=True), [], "pods_deleted", id="suspended, even without pods"),
        pytest.param(a_job(deleting=True), pods(1), "reconciling", id="not managed"),
    ],
)
def test_the_sync_says_what_it_did(job: Json, there: list[Json], action: str) -> None:
    assert sync(job, there).decision.work.action == action


@pytest.mark.parametrize(
    ("failures", "ago", "wait"),
    [
        pytest.param(1, 3, 7, id="10 s after the first failure"),
        pytest.param(2, 3, 17, id="20 s after the second"),
        pytest.param(3, 3, 37, id="40 s after the third"),
        pytest.param(6, 0, 320, id="320 s after the sixth"),
        pytest.param(7, 0, 600, id="at most ten minutes"),
        pytest.param(100, 0, 600, id="ever"),
    ],
)
def test_creation_waits_after_failures(failures: int, ago: float, wait: float) -> None:
    result = sync(a_job(backoffLimit=1000), record=Record(failures, NOW - ago))
    assert not result.created
    assert result.decision.work.wait == wait
    assert result.decision.work.action == "pods_created"


def test_waiting_leaves_the_active_count_alone() -> None:
    """What runs goes on running while its neighbour's replacement waits."""
    job = a_job(completions=2, parallelism=2)
    result = sync(job, [a_pod("a", ready=True), a_pod("b", "Failed", ended=-1)])
    assert (result.status["active"], result.status["ready"]) == (1, 1)


def test_creation_goes_on_when_the_wait_is_over() -> None:
    assert len(sync(a_job(), record=Record(1, NOW - 11)).created) == 1


def test_the_wait_can_be_tuned() -> None:
    assert sync(a_job(), record=Record(2, NOW), pod_backoff_base=1.0).decision.work.wait == 2


def test_refused_pods_are_not_counted_as_active() -> None:
    result = sync(a_job(completions=5, parallelism=5), refuse_creates_after=1)
    assert result.status["active"] == 1


def test_limits_per_sync_can_be_tuned() -> None:
    assert len(sync(a_job(completions=50, parallelism=50), max_pods_per_sync=10).created) == 10

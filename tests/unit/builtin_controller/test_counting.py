"""Tracking with finalizers: what is listed, released and counted in one sync."""

from typing import Any

import pytest

from multimirror.batch import Json
from tests.unit.builtin_controller.vectors import a_job, a_pod, at, indexed, running, sync

MANY: dict[str, Any] = {"completions": 9, "parallelism": 3}


@pytest.mark.parametrize(
    ("pod", "listed"),
    [
        pytest.param(a_pod("p", "Succeeded"), {"succeeded": ["p"]}, id="succeeded"),
        pytest.param(a_pod("p", "Failed"), {"failed": ["p"]}, id="failed"),
        pytest.param(a_pod("p", deleting=True), {"failed": ["p"]}, id="terminating counts as failed at once"),
        pytest.param(a_pod("p", "Pending", deleting=True), {"failed": ["p"]}, id="so does a pending one"),
        pytest.param(a_pod("p", "Succeeded", deleting=True), {"succeeded": ["p"]}, id="succeeded, then deleted"),
        pytest.param(a_pod("p", "Failed", deleting=True), {"failed": ["p"]}, id="failed, then deleted"),
        pytest.param(a_pod("p"), {}, id="running"),
        pytest.param(a_pod("p", "Succeeded", tracked=False), {}, id="counted before"),
        pytest.param(a_pod("p", "Failed", tracked=False), {}, id="failed and counted before"),
        pytest.param(a_pod("p", deleting=True, tracked=False), {}, id="terminating without the finalizer"),
    ],
)
def test_ended_pods_are_listed_before_their_finalizer_goes(pod: Json, listed: Json) -> None:
    result = sync(a_job(**MANY), [pod])
    assert result.first is not None
    assert result.first["uncountedTerminatedPods"] == listed
    assert result.released == (["p"] if listed else [])


@pytest.mark.parametrize(
    ("pod", "released"),
    [
        pytest.param(a_pod("p", deleting=True), [], id="not while it terminates"),
        pytest.param(a_pod("p", "Failed", deleting=True), ["p"], id="once it failed"),
        pytest.param(a_pod("p", "Succeeded", deleting=True), ["p"], id="or succeeded after all"),
    ],
)
def test_with_replacement_policy_failed_a_terminating_pod_is_not_counted_yet(pod: Json, released: list[str]) -> None:
    assert sync(a_job(podReplacementPolicy="Failed", **MANY), [pod]).released == released


def test_counters_go_up_after_the_finalizers_went() -> None:
    pods = [a_pod("a", "Succeeded"), a_pod("b", "Failed"), a_pod("c", "Succeeded")]
    result = sync(a_job(**MANY, status=running(succeeded=1, failed=2)), pods)
    assert result.first is not None
    assert (result.first["succeeded"], result.first["failed"]) == (1, 2)
    assert result.last is not None
    assert (result.last["succeeded"], result.last["failed"]) == (3, 3)
    assert result.last["uncountedTerminatedPods"] == {}


def test_a_finalizer_that_cannot_be_removed_leaves_its_pod_listed() -> None:
    result = sync(a_job(**MANY), [a_pod("a", "Succeeded"), a_pod("b", "Succeeded")], unpatchable=["b"])
    assert result.status["succeeded"] == 1
    assert result.status["uncountedTerminatedPods"] == {"succeeded": ["b"]}
    assert not result.finished


@pytest.mark.parametrize(
    ("there", "counted"),
    [
        pytest.param([], {"succeeded": 4, "failed": 2}, id="the pods are gone"),
        pytest.param(
            [a_pod("a", "Succeeded", tracked=False)], {"succeeded": 4, "failed": 2}, id="the finalizer is gone"
        ),
        pytest.param([a_pod("a", "Succeeded")], {"succeeded": 4, "failed": 2}, id="it still has to go"),
    ],
)
def test_pods_listed_by_a_process_that_died_are_counted_once(there: list[Json], counted: Json) -> None:
    status = running(succeeded=3, failed=1, uncountedTerminatedPods={"succeeded": ["a"], "failed": ["b"]})
    result = sync(a_job(completions=99, parallelism=1, status=status), there)
    assert {kind: result.status[kind] for kind in ("succeeded", "failed")} == counted
    assert result.status["uncountedTerminatedPods"] == {}


def test_a_listed_pod_is_not_listed_twice() -> None:
    status = running(uncountedTerminatedPods={"succeeded": ["a"]})
    result = sync(a_job(**MANY, status=status), [a_pod("a", "Succeeded"), a_pod("b", "Succeeded")])
    assert result.first is not None
    assert result.first["uncountedTerminatedPods"] == {"succeeded": ["a", "b"]}
    assert result.status["succeeded"] == 2


def test_a_pod_listed_as_failed_stays_failed_when_it_succeeds_later() -> None:
    status = running(uncountedTerminatedPods={"failed": ["a"]})
    result = sync(a_job(**MANY, status=status), [a_pod("a", "Succeeded")])
    assert (result.status.get("succeeded", 0), result.status["failed"]) == (0, 1)


def test_a_pod_whose_finalizer_we_took_off_is_not_counted_again() -> None:
    result = sync(a_job(**MANY, status=running(succeeded=1)), [a_pod("a", "Succeeded")], removing=["a"])
    assert result.released == []
    assert result.status["succeeded"] == 1


def test_no_more_pods_are_listed_than_the_cap() -> None:
    pods = [a_pod(f"p{n}", "Succeeded") for n in range(7)]
    result = sync(a_job(completions=7, parallelism=7), pods, max_uncounted_pods=3)
    assert len(result.released) == 3
    assert result.status["succeeded"] == 3
    assert not result.finished


def test_what_is_listed_already_counts_towards_the_cap() -> None:
    status = running(uncountedTerminatedPods={"succeeded": ["p0"], "failed": ["p1"]})
    pods = [a_pod("p0", "Succeeded"), a_pod("p1", "Failed"), a_pod("p2", "Succeeded"), a_pod("p3", "Succeeded")]
    result = sync(a_job(completions=9, parallelism=1, status=status), pods, max_uncounted_pods=3)
    assert result.released == ["p0", "p1", "p2"]


def test_a_failed_job_counts_its_running_pods_as_failed() -> None:
    job = a_job(completions=2, parallelism=2, backoffLimit=0)
    result = sync(job, [a_pod("a", "Failed"), a_pod("b", ready=True)])
    assert result.killed == ["b"]
    assert result.first is not None
    assert result.first["uncountedTerminatedPods"] == {"failed": ["a", "b"]}
    assert (result.status["failed"], result.status["terminating"], result.status.get("active", 0)) == (2, 1, 0)
    assert result.conditions == [("FailureTarget", "True")]


def test_a_succeeded_job_does_not_count_its_running_pods() -> None:
    job = indexed(3, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    result = sync(job, [a_pod("a", "Succeeded", index=0), a_pod("b", index=1), a_pod("c", "Failed", index=2)])
    assert result.killed == ["b"]
    assert sorted(result.released) == ["a", "b", "c"]
    assert (result.status["succeeded"], result.status["failed"]) == (1, 1)


def test_a_job_that_is_being_deleted_releases_all_of_its_pods() -> None:
    result = sync(a_job(deleting=True, **MANY), [a_pod("a"), a_pod("b", "Succeeded"), a_pod("c", deleting=True)])
    assert result.released == ["a", "b", "c"]
    assert not result.killed
    assert result.status["uncountedTerminatedPods"] == {}
    assert (result.status["succeeded"], result.status["failed"]) == (1, 1)


def test_removed_pods_are_never_counted() -> None:
    result = sync(a_job(completions=5, parallelism=1), [a_pod("a"), a_pod("b", "Pending")])
    assert result.removed == ["b"]
    assert result.released == []
    assert (result.status["active"], result.status["terminating"]) == (1, 1)


def test_the_first_status_of_a_running_job() -> None:
    result = sync(a_job(status={}))
    assert result.first == {
        "active": 1,
        "ready": 0,
        "terminating": 0,
        "startTime": at(0),
        "uncountedTerminatedPods": {},
    }
    assert result.last is None


def test_nothing_is_written_when_nothing_changed() -> None:
    result = sync(a_job(status=running(active=1, ready=1)), [a_pod("a", ready=True)])
    assert (result.first, result.last, result.released) == (None, None, [])


@pytest.mark.parametrize(
    ("status", "pod"),
    [
        pytest.param(running(active=1), a_pod("p", ready=True), id="ready"),
        pytest.param(running(), a_pod("p"), id="active"),
        pytest.param(running(active=1), a_pod("p", deleting=True, tracked=False), id="terminating"),
        pytest.param({"active": 1, "startTime": at(0)}, a_pod("p"), id="ready was never written"),
    ],
)
def test_a_changed_count_is_written(status: Json, pod: Json) -> None:
    assert sync(a_job(status=status), [pod], settled=False).first is not None


@pytest.mark.parametrize(
    ("status", "created"),
    [
        pytest.param(running(succeeded=-5), 2, id="a negative counter"),
        pytest.param(running(active=7, ready=9), 1, id="more ready than active"),
        pytest.param(running(uncountedTerminatedPods=None), 1, id="no lists"),
        pytest.param(running(uncountedTerminatedPods={"succeeded": None}), 1, id="a null list"),
        pytest.param({}, 1, id="nothing"),
    ],
)
def test_a_damaged_status_does_not_stop_the_sync(status: Json, created: int) -> None:
    result = sync(a_job(completions=3, parallelism=3, status=status), [a_pod("a"), a_pod("b", "Succeeded")])
    assert result.released == ["b"]
    assert len(result.created) == created
    assert (result.status["active"], result.status["ready"]) == (1 + created, 0)

"""backoffLimitPerIndex: each index fails for itself."""

from typing import Any

import pytest

from multimirror.batch import Json
from tests.unit.builtin_controller.vectors import FAILURES, IGNORED, a_pod, indexed, running, sync


def job(count: int = 3, limit: int = 1, **more: Any) -> Json:
    return indexed(count, backoffLimitPerIndex=limit, backoffLimit=2**31 - 1, **more)


def failed(
    name: str, index: int, failures: int | str | None = 0, *, ignored: int = 0, ended: float = -60, **more: Any
) -> Json:
    notes = {} if failures is None else {FAILURES: str(failures)}
    if ignored:
        notes[IGNORED] = str(ignored)
    return a_pod(name, "Failed", index=index, annotations=notes, ended=ended, **more)


IGNORE_42 = {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]}
FAIL_INDEX_7 = {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}}]}


@pytest.mark.parametrize(
    ("pod", "lost"),
    [
        pytest.param(failed("p", 0, 0), "", id="the first failure is forgiven"),
        pytest.param(failed("p", 0, 1), "0", id="the limit is reached"),
        pytest.param(failed("p", 0, 5), "0", id="the limit is exceeded"),
        pytest.param(failed("p", 0, None), "", id="no annotation reads as 0"),
        pytest.param(failed("p", 0, "x"), "", id="rubbish reads as 0"),
        pytest.param(failed("p", 0, -3), "", id="a negative count reads as 0"),
        pytest.param(failed("p", 0, 2**31), "", id="a count beyond 32 bits reads as 0"),
        pytest.param(failed("p", 9, 1), "", id="an index out of range is nobody's"),
        pytest.param(failed("p", 0, 1, tracked=False), "", id="a counted pod was judged before"),
    ],
)
def test_an_index_fails_when_its_pods_failed_too_often(pod: Json, lost: str) -> None:
    assert sync(job(), [pod]).status["failedIndexes"] == lost


def test_failed_indexes_appear_at_once_even_when_there_are_none() -> None:
    assert sync(job(status={})).status["failedIndexes"] == ""


def test_jobs_without_the_limit_have_none() -> None:
    assert "failedIndexes" not in sync(indexed(3, status={})).status


def test_failed_indexes_are_not_created_again() -> None:
    assert sync(job(4, status=running(failedIndexes="1"), limit=0), []).indexes == [0, 2, 3]


def test_failed_indexes_accumulate() -> None:
    assert sync(job(9, 0, status=running(failedIndexes="1,5")), [failed("p", 3)]).status["failedIndexes"] == "1,3,5"


def test_failed_indexes_beyond_the_range_are_forgotten() -> None:
    assert sync(job(3, status=running(failedIndexes="1,7")), []).status["failedIndexes"] == "1"


def test_a_fail_index_rule_fails_the_index_at_once() -> None:
    result = sync(job(limit=5, podFailurePolicy=FAIL_INDEX_7), [failed("p", 1, exit_code=7)])
    assert result.status["failedIndexes"] == "1"
    assert result.status["failed"] == 1


def test_an_ignored_failure_does_not_fail_the_index() -> None:
    result = sync(job(limit=0, podFailurePolicy=IGNORE_42), [failed("p", 1, exit_code=42)])
    assert result.status["failedIndexes"] == ""


@pytest.mark.parametrize(
    ("policy", "pod", "counted", "ignored"),
    [
        pytest.param(None, failed("p", 0, 0), "1", None, id="counted"),
        pytest.param(None, failed("p", 0, 2, ignored=1), "3", "1", id="both are handed on"),
        pytest.param(IGNORE_42, failed("p", 0, 0, exit_code=42), "0", "1", id="ignored"),
        pytest.param(IGNORE_42, failed("p", 0, 2, ignored=1, exit_code=42), "2", "2", id="ignored again"),
        pytest.param(IGNORE_42, failed("p", 0, 0, exit_code=1), "1", None, id="not matched, so counted"),
    ],
)
def test_the_replacement_carries_the_failures_of_its_index(
    policy: Json | None, pod: Json, counted: str, ignored: str | None
) -> None:
    made = sync(job(1, 9, podFailurePolicy=policy), [pod], pod_backoff_base=1.0).created[0]["metadata"]["annotations"]
    assert (made[FAILURES], made.get(IGNORED)) == (counted, ignored)


def test_the_first_pod_of_an_index_starts_at_zero() -> None:
    notes = sync(job(1)).created[0]["metadata"]["annotations"]
    assert notes[FAILURES] == "0"
    assert IGNORED not in notes


@pytest.mark.parametrize(
    ("others", "released"),
    [
        pytest.param([], [], id="kept until its replacement exists"),
        pytest.param([a_pod("next", index=0)], ["p"], id="released once it does"),
        pytest.param([a_pod("won", "Succeeded", index=0)], ["p", "won"], id="released when the index succeeded"),
    ],
)
def test_a_failed_pod_keeps_its_finalizer_until_it_is_replaced(others: list[Json], released: list[str]) -> None:
    result = sync(job(2, 5), [failed("p", 0), *others], settled=False)
    assert sorted(result.released) == released


def test_the_kept_pod_is_not_counted_yet() -> None:
    assert sync(job(2, 5), [failed("p", 0, ended=-1)]).status.get("failed", 0) == 0


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        pytest.param(failed("a", 0, 0), failed("b", 0, 1), "b", id="the one with more failures"),
        pytest.param(failed("a", 0, 1, ended=-5), failed("b", 0, 1, ended=-50), "a", id="then the later one"),
        pytest.param(failed("a", 0, 0, ignored=3), failed("b", 0, 1), "a", id="ignored failures count here"),
    ],
)
def test_of_several_failed_pods_the_last_is_kept(one: Json, other: Json, kept: str) -> None:
    result = sync(job(2, 9), [one, other], settled=False)
    assert kept not in result.released
    assert len(result.released) == 1


def test_an_index_in_back_off_takes_a_place() -> None:
    result = sync(indexed(5, 2, backoffLimitPerIndex=5), [failed("p", 0, ended=-1)])
    assert result.indexes == [1]


def test_when_all_wait_the_shortest_wait_counts() -> None:
    result = sync(indexed(2, 2, backoffLimitPerIndex=9), [failed("a", 0, 1, ended=-5), failed("b", 1, ended=-4)])
    assert not result.created
    assert result.decision.work.wait == 6


def test_the_wait_grows_with_the_failures_of_the_index() -> None:
    result = sync(indexed(1, 1, backoffLimitPerIndex=9), [failed("a", 0, 2, ignored=1, ended=0)])
    assert result.decision.work.wait == 80


@pytest.mark.parametrize(
    ("limit", "status", "reason"),
    [
        pytest.param(1, running(failedIndexes="0,1"), "MaxFailedIndexesExceeded", id="too many failed indexes"),
        pytest.param(2, running(failedIndexes="0,1"), None, id="just as many as allowed"),
        pytest.param(
            None, running(failedIndexes="0", completedIndexes="1-4"), "FailedIndexes", id="none is left to try"
        ),
        pytest.param(None, running(failedIndexes="0-4"), "FailedIndexes", id="all failed"),
        pytest.param(None, running(failedIndexes="0", completedIndexes="1-3"), None, id="one is left to try"),
        pytest.param(0, running(failedIndexes="0"), "MaxFailedIndexesExceeded", id="none may fail"),
    ],
)
def test_the_job_fails_over_its_indexes(limit: int | None, status: Json, reason: str | None) -> None:
    result = sync(job(5, maxFailedIndexes=limit, status=status))
    assert result.finished is (reason is not None)
    if reason is not None:
        assert result.reasons == [("FailureTarget", reason), ("Failed", reason)]


def test_the_global_limit_still_holds() -> None:
    result = sync(indexed(5, backoffLimitPerIndex=9, backoffLimit=1), [failed("a", 0), failed("b", 1)])
    assert ("FailureTarget", "BackoffLimitExceeded") in result.reasons

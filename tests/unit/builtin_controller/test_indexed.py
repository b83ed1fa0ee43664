"""Indexed Jobs: which index comes next, what is done, and what a damaged status means."""

import pytest

from builtin_controller.indexes import read_indexes
from multimirror.batch import Json
from tests.unit.builtin_controller.vectors import a_pod, indexed, running, sync


@pytest.mark.parametrize(
    ("job", "pods", "created"),
    [
        pytest.param(indexed(3), [], [0, 1, 2], id="all of them"),
        pytest.param(indexed(5, 2), [], [0, 1], id="the lowest first"),
        pytest.param(indexed(4, 3), [a_pod("a", index=1)], [0, 2], id="not those that run"),
        pytest.param(indexed(4), [a_pod("a", "Succeeded", index=1)], [0, 2, 3], id="not those that succeeded"),
        pytest.param(
            indexed(6, 3, status=running(completedIndexes="0,2")), [], [1, 3, 4], id="not those that were counted"
        ),
        pytest.param(indexed(9, 9, status=running(completedIndexes="0-3,5-7")), [], [4, 8], id="the gaps"),
        pytest.param(indexed(3), [a_pod("a", index=0, deleting=True)], [0, 1, 2], id="a terminating one is replaced"),
        pytest.param(
            indexed(3, podReplacementPolicy="Failed"),
            [a_pod("a", index=0, deleting=True)],
            [1, 2],
            id="not with replacement policy Failed",
        ),
        pytest.param(indexed(2, status=running(completedIndexes="0-9")), [], [], id="more are done than there are"),
    ],
)
def test_the_lowest_pending_indexes_are_created(job: Json, pods: list[Json], created: list[int]) -> None:
    assert sync(job, pods).indexes == created


@pytest.mark.parametrize(
    ("pods", "removed"),
    [
        pytest.param([a_pod("a", index=0), a_pod("b", "Pending", index=0)], ["b"], id="a duplicate"),
        pytest.param([a_pod("a"), a_pod("b", index=0)], ["a"], id="no index"),
        pytest.param([a_pod("a", index="x"), a_pod("b", index=0)], ["a"], id="no number"),
        pytest.param([a_pod("a", index=-1), a_pod("b", index=0)], ["a"], id="a negative index"),
        pytest.param([a_pod("a", index=7), a_pod("b", index=0)], ["a"], id="out of range"),
        pytest.param([a_pod("a", index=0), a_pod("b", index=1)], [], id="all in order"),
    ],
)
def test_pods_that_cannot_stay_are_removed(pods: list[Json], removed: list[str]) -> None:
    assert sync(indexed(3), pods).removed == removed


def test_of_three_with_one_index_the_furthest_stays() -> None:
    pods = [a_pod("a", "Pending", index=0), a_pod("b", index=0, ready=True), a_pod("c", index=0, node="")]
    assert sorted(sync(indexed(1), pods).removed) == ["a", "c"]


@pytest.mark.parametrize(
    ("pod", "done", "released"),
    [
        pytest.param(a_pod("p", "Succeeded", index=1), "1", True, id="a success"),
        pytest.param(a_pod("p", "Succeeded"), "", True, id="without an index: released and not counted"),
        pytest.param(a_pod("p", "Succeeded", index=9), "", True, id="out of range: released and not counted"),
        pytest.param(a_pod("p", "Succeeded", index=1, tracked=False), "", False, id="counted before"),
    ],
)
def test_succeeded_indexes_are_written_down(pod: Json, done: str, released: bool) -> None:
    result = sync(indexed(3), [pod])
    assert result.status.get("completedIndexes", "") == done
    assert result.released == (["p"] if released else [])
    assert "succeeded" not in result.status.get("uncountedTerminatedPods", {})


def test_only_one_pod_of_an_index_counts() -> None:
    result = sync(indexed(3, 1), [a_pod("a", "Succeeded", index=0), a_pod("b", "Succeeded", index=0)])
    assert result.status["succeeded"] == 1
    assert sorted(result.released) == ["a", "b"]


def test_an_index_that_is_done_already_counts_no_more() -> None:
    result = sync(indexed(3, 1, status=running(completedIndexes="0", succeeded=1)), [a_pod("a", "Succeeded", index=0)])
    assert (result.status["succeeded"], result.released) == (1, ["a"])


def test_successes_alone_need_one_write() -> None:
    result = sync(indexed(9, 1), [a_pod("a", "Succeeded", index=0)])
    assert result.first is not None
    assert result.last is None


def test_all_indexes_done_finish_the_job() -> None:
    result = sync(indexed(2), [a_pod("a", "Succeeded", index=0), a_pod("b", "Succeeded", index=1)])
    assert result.finished
    assert (result.status["completedIndexes"], result.status["succeeded"]) == ("0,1", 2)


def test_indexes_are_released_in_order_up_to_the_cap() -> None:
    pods = [a_pod(f"p{n}", "Succeeded", index=n) for n in (4, 2, 0, 3, 1)]
    result = sync(indexed(9, 5), pods, max_uncounted_pods=2)
    assert result.released == ["p0", "p1"]
    assert result.status["completedIndexes"] == "0-4"


def test_failed_pods_without_a_valid_index_are_released_and_not_counted() -> None:
    result = sync(indexed(2), [a_pod("a", "Failed"), a_pod("b", "Failed", index=5)])
    assert sorted(result.released) == ["a", "b"]
    assert result.status.get("failed", 0) == 0


@pytest.mark.parametrize(
    ("count", "pods", "done", "removed"),
    [
        pytest.param(2, [a_pod("a", index=3)], "0", ["a"], id="scaled down: surplus goes, the rest is forgotten"),
        pytest.param(9, [a_pod("a", index=3)], "0,5", [], id="scaled up: all is remembered"),
    ],
)
def test_an_elastic_job(count: int, pods: list[Json], done: str, removed: list[str]) -> None:
    result = sync(indexed(count, status=running(completedIndexes="0,5", succeeded=2)), pods)
    assert result.status["completedIndexes"] == done
    assert result.removed == removed


def test_scaling_to_zero_completes_the_job() -> None:
    result = sync(indexed(0, status=running(completedIndexes="0", succeeded=1)))
    assert result.finished
    assert "completedIndexes" not in result.status


@pytest.mark.parametrize(
    ("text", "read"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param(None, "", id="null"),
        pytest.param("1,3-5,7", "1,3-5,7", id="as it is written"),
        pytest.param("0,1,2", "0-2", id="neighbours are joined"),
        pytest.param("1-2,3", "1-3", id="intervals are joined"),
        pytest.param("x,2", "2", id="a bad fragment is passed over"),
        pytest.param("1-x,2", "2", id="so is a bad end"),
        pytest.param("-1,2", "2", id="and a negative one"),
        pytest.param("1,,2", "1,2", id="and an empty one"),
        pytest.param("8,10,3", "8", id="reading stops beyond the end"),
        pytest.param("7-99", "7-9", id="an end is clipped"),
        pytest.param("5-3,7", "7", id="backwards is nothing"),
    ],
)
def test_indexes_are_read_as_far_as_they_can_be(text: str | None, read: str) -> None:
    assert str(read_indexes(text, 10)) == read


def test_a_corrupt_list_of_completed_indexes_is_repaired() -> None:
    result = sync(indexed(5, status=running(completedIndexes="0,rubbish,3")), [])
    assert result.indexes == [1, 2, 4]
    assert result.status["completedIndexes"] == "0,3"

"""Which worker takes a candidate, and what its user is told."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from multimirror.scheduling.candidates import WorkerSnapshot
from multimirror.scheduling.order import Waiting
from multimirror.scheduling.plan import Waits, plan
from multimirror.scheduling.usage import UsageSums
from multimirror.workers import WorkerState
from tests.unit.scheduling.builders import TWO, a_candidate, planned, queue, used, where, why, worker


@pytest.mark.parametrize(
    ("placement", "held", "expected"),
    [
        pytest.param("Spread", ["w1"], "w2", id="Spread takes the worker with fewer Jobs"),
        pytest.param("Pack", ["w2"], "w2", id="Pack takes the worker with more Jobs"),
        pytest.param("Ordered", ["w2", "w2"], "w2", id="Ordered takes the first of the list, however many it has"),
        pytest.param(
            "Weighted", ["w1", "w1", "w2"], "w1", id="Weighted takes the worker with fewer Jobs for its weight"
        ),
    ],
)
def test_a_queue_chooses_by_its_placement(placement: str, held: list[str], expected: str) -> None:
    spec = queue(placement=placement, workers={"names": ["w2", "w1"]})
    workers = [worker("w1", weight=4), worker("w2", weight=1)]
    assert where(planned([a_candidate("a")], spec, workers, used(*held))) == [("a", expected)]


def test_spread_looks_at_room_first() -> None:
    workers = [worker("w1", capacity=2), worker("w2", capacity=100)]
    usage = used("w2", "w2")
    assert where(planned([a_candidate("a", cpu=1)], queue(), workers, usage)) == [("a", "w2")]


def test_equal_workers_are_taken_by_name_always_the_same() -> None:
    assert where(planned([a_candidate("a")], queue(), [worker("w2"), worker("w1")])) == [("a", "w1")]


@pytest.mark.parametrize(
    ("view", "job", "reason"),
    [
        pytest.param(worker("w1", cordoned=True), {}, "cordoned", id="a cordoned worker"),
        pytest.param(worker("w1", WorkerState(message="no answer")), {}, "no answer", id="a worker that is away"),
        pytest.param(
            worker("w1", WorkerState(connected=True, missing=("create jobs.batch",))), {}, "may not", id="no rights"
        ),
        pytest.param(
            worker("w1"), {"clusters": frozenset({"w9"})}, "multimirror.dev/clusters", id="not allowed by the user"
        ),
        pytest.param(worker("w1", namespaces={"other": "other"}), {}, "takes no Jobs from", id="not our namespace"),
        pytest.param(
            worker("w1", WorkerState(connected=True, namespaces=frozenset())),
            {},
            "has no namespace team",
            id="no namespace",
        ),
        pytest.param(
            worker("w1"), {"avoid": {"w1": "a Job of that name is there"}}, "of that name", id="it refused before"
        ),
        pytest.param(worker("w1", capacity=1), {"cpu": 2}, "has 1 cpu in all", id="too small"),
    ],
)
def test_a_worker_that_cannot_take_a_job_says_why(view: WorkerSnapshot, job: dict[str, Any], reason: str) -> None:
    steps = planned([a_candidate("a", **job)], queue(), [view])
    assert isinstance(steps[0], Waits)
    assert reason in why(steps)
    assert "w1" in why(steps)


def test_a_job_too_large_for_every_worker_never_fits() -> None:
    steps = planned([a_candidate("a", cpu=9)], queue(), [worker("w1", capacity=8)])
    assert steps[0].decision.reason == "NeverFits"


def test_two_jobs_of_one_pass_do_not_count_on_the_same_room() -> None:
    steps = planned([a_candidate("a", cpu=1), a_candidate("bb", cpu=1)], queue(), [worker("w1", capacity=1)])
    assert where(steps) == [("a", "w1"), ("bb", None)]


def test_a_workers_limit_of_jobs_holds() -> None:
    steps = planned([a_candidate("a"), a_candidate("bb"), a_candidate("ccc")], queue(), [worker("w1", max_jobs=2)])
    assert [chosen for _, chosen in where(steps)] == ["w1", "w1", None]


def test_a_queues_quota_of_jobs_and_of_resources_holds() -> None:
    assert [c for _, c in where(planned([a_candidate("a"), a_candidate("bb")], queue(quota={"jobs": 1}), TWO))] == [
        "w1",
        None,
    ]
    spec = queue(quota={"resources": {"cpu": "3"}})
    jobs = [a_candidate("a", cpu=2), a_candidate("bb", cpu=2), a_candidate("ccc", cpu=1)]
    assert where(planned(jobs, spec, TWO)) == [("a", "w1"), ("bb", None), ("ccc", "w2")]


def test_nothing_starves_behind_a_job_that_does_not_fit_unless_the_queue_is_strict() -> None:
    jobs = [a_candidate("a", cpu=2), a_candidate("bb", cpu=1)]
    quota = {"resources": {"cpu": "3"}}
    usage = used("w1", "w1")
    assert where(planned(jobs, queue(quota=quota), TWO, usage)) == [("a", None), ("bb", "w2")]
    usage = used("w1", "w1")
    strict = planned(jobs, queue(quota=quota, queueingStrategy="StrictFIFO"), TWO, usage)
    assert where(strict) == [("a", None), ("bb", None)]
    assert strict[1].decision.reason == "BlockedByQueue"
    assert str(strict[1].decision) == "queue q is strictly first in, first out, and team/a is first"


def test_a_job_that_never_fits_blocks_not_even_a_strict_queue() -> None:
    spec = queue(quota={"resources": {"cpu": "3"}}, queueingStrategy="StrictFIFO")
    assert where(planned([a_candidate("a", cpu=9), a_candidate("bb", cpu=1)], spec, TWO)) == [("a", None), ("bb", "w1")]


def test_a_queue_that_does_not_exist_is_named() -> None:
    assert why(planned([a_candidate("a", queue="other")], queue(), TWO)) == "there is no MirrorQueue other"


def test_a_pass_over_jobs_of_many_shapes_stops_after_each_decision() -> None:
    jobs = [a_candidate(str(number), created=f"{number:05}", cpu=number + 2) for number in range(3000)]
    full = {each.name: each for each in (worker("w1", capacity=1), worker("w2", cordoned=True))}
    steps = plan(Waiting(jobs).snapshot(), {"q": queue()}, full, UsageSums())
    first = [step for step in islice(steps, 100) if step is not None]
    assert [step.candidate.name for step in first] == [str(number) for number in range(len(first))]
    assert 90 < len(first) <= 100
    assert len([step for step in steps if step is not None]) == 3000 - len(first)


def test_a_pass_over_many_jobs_that_do_not_fit_asks_once_for_each_shape() -> None:
    jobs = [a_candidate(str(number), created=f"{number:05}") for number in range(3000)]
    steps = planned(jobs, queue(quota={"jobs": 1}), TWO)
    assert [step.decision.chosen for step in steps].count(None) == 2999
    assert len({id(step.decision) for step in steps}) == 2


def test_a_queue_with_a_fence_takes_no_worker_whose_connection_is_not_on_record() -> None:
    workers = [replace(worker("w1"), recorded=False), worker("w2")]
    fenced = queue(fence={"timeout": "60s"}, workers={"names": ["w1", "w2"]})
    steps = planned([a_candidate("a")], fenced, workers)
    assert where(steps) == [("a", "w2")]
    assert "does not say yet that it is connected" in str(steps[0].decision)
    assert where(planned([a_candidate("a")], replace(fenced, fence=None), workers)) == [("a", "w1")]


def test_of_many_workers_the_chosen_one_is_told_first_and_only_a_few_of_the_others() -> None:
    many = [worker(f"w{number:02}") for number in range(1, 51)]
    usage = used(*(each.name for each in many if each.name != "w33"))
    told = why(planned([a_candidate("a")], queue(), many, usage))
    assert told.startswith("w33: 0 Jobs there; w01: 1 Job there; ")
    assert told.endswith("; w07: 1 Job there; and 42 more")

"""Which worker takes a candidate, and what its user is told."""

from dataclasses import replace
from decimal import Decimal
from itertools import islice
from typing import Any

import pytest

from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import WorkerSnapshot
from multimirror.scheduling.decisions import Waits
from multimirror.scheduling.plan import plan
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.waiting import Waiting
from multimirror.workers import WorkerState
from tests.unit.scheduling.builders import TWO, a_candidate, planned, queue, used, where, why, worker

FOUND = WorkerState(connected=True, capacity={"cpu": Decimal(4), "memory": Decimal(2**30)})
"""Of its nodes."""
THERE = WorkerState(connected=True, namespaces=frozenset({"team"}))


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
            worker("w1", cordoned=False),
            {"clusters": frozenset({"w2", "w9"})},
            "w1: not among the Job's multimirror.dev/clusters",
            id="not allowed by the user",
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
    steps = planned([a_candidate("a", **job)], queue(), [view, worker("w2", cordoned=True)])
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


def on_two(*, w1: int = 4, w2: int = 4, **more: Any) -> list[WorkerSnapshot]:
    """Workers of so many cpus."""
    return [worker("w1", capacity=w1, **more), worker("w2", capacity=w2)]


_AWAY = WorkerState(message="no answer")
_W1 = frozenset({"w1"})


@pytest.mark.parametrize(
    ("first", "workers", "there", "quota"),
    [
        pytest.param({"cpu": 9}, TWO, (), 3, id="more than the whole quota"),
        pytest.param({"cpu": 9}, on_two(), (), 20, id="more than any worker has"),
        pytest.param({"requests": {"example.com/gpu": 1}}, [worker("w1", FOUND)], (), 3, id="what no worker has"),
        pytest.param({"clusters": frozenset({"no-such"})}, TWO, (), 3, id="a cluster that nobody has made"),
        pytest.param({"clusters": frozenset({"no-such"}), "cpu": 2}, TWO, ("w1", "w1"), 3, id="the same, quota used"),
        pytest.param({"clusters": _W1}, [worker("w1", cordoned=True), worker("w2")], (), 3, id="a cordoned cluster"),
        pytest.param({"clusters": _W1}, [worker("w1", _AWAY), worker("w2")], (), 3, id="a cluster that is lost"),
        pytest.param(
            {"clusters": _W1}, [worker("w1", max_jobs=1), worker("w2")], ("w1",), 3, id="its own choice: full"
        ),
        pytest.param(
            {"clusters": _W1, "cpu": 2}, on_two(w1=2), ("w1",), 9, id="no room where it wants to go, room elsewhere"
        ),
        pytest.param({"clusters": _W1, "cpu": 3}, on_two(w1=2), (), 9, id="larger than the cluster that it wants"),
        pytest.param({"namespace": "nowhere"}, [worker("w1", THERE)], (), 3, id="a namespace that no worker has"),
        pytest.param({"avoid": {"w1": "no", "w2": "no"}}, TWO, (), 3, id="every worker refused it"),
        pytest.param({"avoid": {"w1": "no"}, "cpu": 4}, on_two(), ("w2",), 9, id="the worker with room refused it"),
        pytest.param({"problem": "not readable"}, TWO, (), 3, id="what cannot be read"),
    ],
)
def test_what_its_own_wishes_make_impossible_holds_up_not_even_a_strict_queue(
    first: dict[str, Any], workers: list[WorkerSnapshot], there: tuple[str, ...], quota: int
) -> None:
    spec = queue(quota={"resources": {"cpu": str(quota)}}, queueingStrategy="StrictFIFO")
    steps = planned([a_candidate("a", **first), a_candidate("bb", cpu=1)], spec, workers, used(*there))
    assert [(name, chosen is not None) for name, chosen in where(steps)] == [("a", False), ("bb", True)]


@pytest.mark.parametrize(
    ("first", "workers", "there", "quota"),
    [
        pytest.param({"cpu": 2}, TWO, ("w1", "w1"), 3, id="the quota is used"),
        pytest.param({"cpu": 2, "clusters": _W1}, TWO, ("w1", "w1"), 3, id="the quota is used, whatever it wants"),
        pytest.param({"cpu": 4}, on_two(), ("w1", "w2"), 20, id="no worker has room"),
        pytest.param({"cpu": 4, "clusters": _W1}, on_two(), ("w1", "w2"), 20, id="nor has any that it does not want"),
        pytest.param({"cpu": 4}, on_two(w2=2), ("w1",), 20, id="the only one that is large enough has no room"),
        pytest.param(
            {"cpu": 4, "avoid": {"w2": "no"}}, on_two(), ("w1", "w2"), 20, id="one refused, the other is full"
        ),
    ],
)
def test_what_others_would_have_to_wait_for_too_holds_up_a_strict_queue(
    first: dict[str, Any], workers: list[WorkerSnapshot], there: tuple[str, ...], quota: int
) -> None:
    spec = queue(quota={"resources": {"cpu": str(quota)}}, queueingStrategy="StrictFIFO")
    steps = planned([a_candidate("a", **first), a_candidate("bb", cpu=1)], spec, workers, used(*there))
    assert where(steps) == [("a", None), ("bb", None)]
    assert steps[1].decision.reason == "BlockedByQueue"


def test_a_job_that_names_clusters_of_which_its_queue_has_none_hears_that() -> None:
    spec = queue(workers={"names": ["w1"]})
    steps = planned([a_candidate("a", clusters=frozenset({"w2", "w9"}))], spec, TWO)
    assert steps[0].decision.reason == "NeverFits"
    assert why(steps) == "none of its multimirror.dev/clusters (w2, w9) is a worker of queue q"


# --- resources that are not listed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "view", "fits"),
    [
        pytest.param("example.com/gpu", worker("w1", FOUND), False, id="extended, on no node"),
        pytest.param("hugepages-2Mi", worker("w1", FOUND), False, id="hugepages, on no node"),
        pytest.param("ephemeral-storage", worker("w1", FOUND), True, id="a native one that nodes do not speak of"),
        pytest.param("example.com/gpu", worker("w1"), True, id="extended, and nobody knows the nodes"),
        pytest.param("example.com/gpu", worker("w1", capacity=4), True, id="extended, and not among what is declared"),
        pytest.param("example.com/gpu", worker("w1", FOUND, capacity=4), True, id="declared is what counts"),
    ],
)
def test_a_resource_that_is_not_listed(resource: str, view: WorkerSnapshot, fits: bool) -> None:
    steps = planned([a_candidate("a", requests={resource: nanos(1)})], queue(), [view])
    assert (steps[0].decision.chosen == "w1") == fits
    if not fits:
        assert steps[0].decision.reason == "NeverFits"
        text = f"no worker cluster of its queue has {resource} (w1: has 0 {resource} in all, the Job asks for 1)"
        assert why(steps) == text


def test_what_one_worker_has_and_another_has_not_is_no_reason_to_say_never() -> None:
    with_gpu = WorkerState(connected=True, capacity={"cpu": Decimal(4), "example.com/gpu": Decimal(1)})
    workers = [worker("w1", FOUND), worker("w2", with_gpu)]
    jobs = [a_candidate(name, requests={"example.com/gpu": nanos(1)}) for name in ("a", "bb")]
    steps = planned(jobs, queue(), workers)
    assert where(steps) == [("a", "w2"), ("bb", None)]
    assert steps[1].decision.reason == "NoWorkerFits"


def test_a_job_that_asks_for_more_different_resources_than_are_counted_never_fits() -> None:
    steps = planned([a_candidate("a", requests={f"example.com/r{n}": 1 for n in range(65)})], queue(), TWO)
    assert steps[0].decision.reason == "NeverFits"
    assert "65 different resources" in why(steps)


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

"""Which Jobs go next, and where."""

from decimal import Decimal
from typing import Any

import pytest

from multimirror.api import MirrorQueueSpec, WorkerClusterSpec
from multimirror.kinds.pod_sets import job_requests, pod_requests
from multimirror.scheduling.candidates import Candidate, WorkerView
from multimirror.scheduling.plan import Outcome, plan
from multimirror.scheduling.usage import Holding, Ledger
from multimirror.workers import WorkerState
from tests.unit.reconcile.builders import a_job

READY = WorkerState(connected=True)


def worker(name: str, state: WorkerState = READY, **spec: Any) -> WorkerView:
    return WorkerView(name=name, spec=WorkerClusterSpec(**spec), state=state)


def queue(**spec: Any) -> MirrorQueueSpec:
    return MirrorQueueSpec.read({"spec": spec})


def a_candidate(name: str, **more: Any) -> Candidate:
    cpu = more.pop("cpu", 0)
    requests = {"cpu": Decimal(cpu)} if cpu else {}
    fields = {"namespace": "team", "queue": "q", "created": f"2027-01-01T00:00:{len(name):02}Z", "requests": requests}
    return Candidate(uid=name, name=name, **(fields | more))


def holding(ledger: Ledger, *workers: str, namespace: str = "team", cpu: int = 1) -> Ledger:
    for number, name in enumerate(workers):
        ledger.put(f"held-{namespace}-{number}-{name}", Holding("q", namespace, name, {"cpu": Decimal(cpu)}))
    return ledger


def planned(
    jobs: list[Candidate], spec: MirrorQueueSpec, workers: list[WorkerView], ledger: Ledger | None = None
) -> list[Outcome]:
    return plan(jobs, {"q": spec}, {each.name: each for each in workers}, ledger or Ledger())


def where(outcomes: list[Outcome]) -> list[tuple[str, str | None]]:
    return [(outcome.job.name, outcome.explanation.chosen) for outcome in outcomes]


def why(outcomes: list[Outcome]) -> str:
    return str(outcomes[0].explanation)


TWO = [worker("w1"), worker("w2")]


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
    assert where(planned([a_candidate("a")], spec, workers, holding(Ledger(), *held))) == [("a", expected)]


def test_spread_looks_at_room_first() -> None:
    small = {"cpu": Decimal(2)}
    large = {"cpu": Decimal(100)}
    workers = [worker("w1", capacity=small), worker("w2", capacity=large)]
    ledger = holding(Ledger(), "w2", "w2")
    assert where(planned([a_candidate("a", cpu=1)], queue(), workers, ledger)) == [("a", "w2")]


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
        pytest.param(worker("w1", capacity={"cpu": Decimal(1)}), {"cpu": 2}, "has 1 cpu in all", id="too small"),
    ],
)
def test_a_worker_that_cannot_take_a_job_says_why(view: WorkerView, job: dict[str, Any], reason: str) -> None:
    outcomes = planned([a_candidate("a", **job)], queue(), [view])
    assert outcomes[0].explanation.chosen is None
    assert reason in why(outcomes)
    assert "w1" in why(outcomes)


def test_a_job_too_large_for_every_worker_never_fits() -> None:
    outcomes = planned([a_candidate("a", cpu=9)], queue(), [worker("w1", capacity={"cpu": Decimal(8)})])
    assert outcomes[0].explanation.reason == "NeverFits"


def test_two_jobs_of_one_pass_do_not_count_on_the_same_room() -> None:
    outcomes = planned(
        [a_candidate("a", cpu=1), a_candidate("bb", cpu=1)], queue(), [worker("w1", capacity={"cpu": Decimal(1)})]
    )
    assert where(outcomes) == [("a", "w1"), ("bb", None)]


def test_a_workers_limit_of_jobs_holds() -> None:
    outcomes = planned([a_candidate("a"), a_candidate("bb"), a_candidate("ccc")], queue(), [worker("w1", max_jobs=2)])
    assert [chosen for _, chosen in where(outcomes)] == ["w1", "w1", None]


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
    ledger = holding(Ledger(), "w1", "w1")
    assert where(planned(jobs, queue(quota=quota), TWO, ledger)) == [("a", None), ("bb", "w2")]
    ledger = holding(Ledger(), "w1", "w1")
    strict = planned(jobs, queue(quota=quota, queueingStrategy="StrictFIFO"), TWO, ledger)
    assert where(strict) == [("a", None), ("bb", None)]
    assert "strictly first in, first out" in str(strict[1].explanation)


def test_a_job_that_never_fits_holds_up_not_even_a_strict_queue() -> None:
    spec = queue(quota={"resources": {"cpu": "3"}}, queueingStrategy="StrictFIFO")
    assert where(planned([a_candidate("a", cpu=9), a_candidate("bb", cpu=1)], spec, TWO)) == [("a", None), ("bb", "w1")]


def test_priority_goes_before_age() -> None:
    jobs = [a_candidate("a"), a_candidate("bb", priority=5), a_candidate("ccc", priority=5)]
    assert [name for name, _ in where(planned(jobs, queue(), TWO))] == ["bb", "ccc", "a"]


def test_namespaces_of_one_queue_take_turns() -> None:
    crowd = [a_candidate("a" * n, namespace="crowd") for n in range(1, 5)]
    late = [a_candidate("b" * 9, namespace="late"), a_candidate("b" * 10, namespace="late")]
    order = [outcome.job.namespace for outcome in planned(crowd + late, queue(), TWO)]
    assert order == ["crowd", "late", "crowd", "late", "crowd", "crowd"]


def test_a_namespace_that_holds_much_already_comes_after_one_that_holds_nothing() -> None:
    jobs = [a_candidate("a", namespace="crowd"), a_candidate("bb", namespace="late")]
    ledger = holding(Ledger(), "w1", "w1", namespace="crowd")
    assert [name for name, _ in where(planned(jobs, queue(quota={"jobs": 3}), TWO, ledger))] == ["bb", "a"]


def test_a_namespace_that_waited_goes_before_one_whose_job_has_just_ended() -> None:
    ledger, one = Ledger(), queue(quota={"jobs": 1})
    backlog = [a_candidate("x" * number, namespace="large") for number in range(1, 4)]
    newest = a_candidate("x" * 9, namespace="small")
    waiting, order = [*backlog, newest], []
    while waiting:
        chosen = next(outcome.job for outcome in planned(waiting, one, TWO, ledger) if outcome.explanation.chosen)
        order.append(chosen)
        waiting.remove(chosen)
        ledger.put(chosen.uid, None)  # it ends, and the next pass begins
    assert order == [backlog[0], newest, backlog[1], backlog[2]]


def test_a_queue_that_does_not_exist_is_named() -> None:
    assert why(planned([a_candidate("a", queue="other")], queue(), TWO)) == "there is no MirrorQueue other"


def test_a_pass_over_many_jobs_that_do_not_fit_asks_once_for_each_shape() -> None:
    jobs = [Candidate(uid=str(n), name=str(n), namespace="team", queue="q", created=f"{n:05}") for n in range(3000)]
    outcomes = planned(jobs, queue(quota={"jobs": 1}), TWO)
    assert [o.explanation.chosen for o in outcomes].count(None) == 2999
    assert len({id(o.explanation) for o in outcomes}) == 2


def test_a_pods_requests_are_counted_as_the_scheduler_counts_them() -> None:
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": "1"}}},
        ],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"resources": {"requests": {"memory": "4Gi"}}},
        ],
        "overhead": {"cpu": "50m"},
    }
    assert pod_requests(spec) == {"cpu": Decimal("1.65"), "memory": Decimal(4 * 2**30)}


def test_a_jobs_requests_are_those_of_the_pods_that_run_at_once() -> None:
    job = a_job().spec(parallelism=10, completions=3).job
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    assert job_requests(job) == {"cpu": Decimal(6), "pods": Decimal(3)}


def test_the_ledger_forgets_what_it_is_told_to_forget() -> None:
    ledger = Ledger()
    one = Holding("q", "team", "w1", {"cpu": Decimal(2)})
    assert ledger.put("a", one)
    assert not ledger.put("a", one)
    assert (ledger.queue("q").jobs, ledger.worker("w1").of("cpu")) == (1, Decimal(2))
    assert ledger.on("w1") == ["a"]
    ledger.put("a", None)
    assert (ledger.queue("q").jobs, ledger.worker("w1").of("cpu"), ledger.namespaces("q")["team"]) == (0, Decimal(0), 0)


def test_of_many_workers_the_chosen_one_is_told_first_and_only_a_few_of_the_others() -> None:
    many = [worker(f"w{number:02}") for number in range(1, 51)]
    ledger = holding(Ledger(), *(each.name for each in many if each.name != "w33"))
    told = why(planned([a_candidate("a")], queue(), many, ledger))
    assert told.startswith("w33: 0 Jobs there; w01: 1 Job there; ")
    assert told.endswith("; w07: 1 Job there; and 42 more")

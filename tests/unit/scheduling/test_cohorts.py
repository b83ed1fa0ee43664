"""Queues that share: what fits, who goes first, and what a user is told."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.kinds.pod_sets import nanos
from multimirror.kinds.reserved import Reserved, ReservedPods
from multimirror.scheduling.candidates import Candidate, Growth
from multimirror.scheduling.decisions import Step
from multimirror.scheduling.order import QUANTUM
from multimirror.scheduling.plan import plan
from multimirror.scheduling.shared_quota import quota_tree
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting
from tests.unit.scheduling.builders import a_candidate, placed, queue, ref, where, worker

ROOMY = worker("w1", capacity=1000)


def member(own: int = 0, cohort: str | None = "research", **spec: Any) -> MirrorQueueSpec:
    """`borrow` and `lend` are numbers of cpu."""
    quota: dict[str, Any] = {"resources": {"cpu": str(own)}}
    for name in ("borrow", "lend"):
        if name in spec:
            quota[name] = {"cpu": str(spec.pop(name))}
    jobs = spec.pop("jobs", None)
    if jobs is not None:
        quota["jobs"] = jobs
    if cohort is not None:
        spec["cohort"] = cohort
    return queue(quota=quota, **spec)


def cohort(parent: str | None = None, own: int = 0, **spec: Any) -> CohortSpec:
    quota = {"resources": {"cpu": str(own)}}
    return CohortSpec.read({"metadata": {"name": "x"}, "spec": {"parent": parent, "quota": quota, **spec}})


def using(**cpus: int) -> UsageCache:
    """By queue: what Jobs of it use, on w1."""
    usage = UsageCache()
    for name, cpu in cpus.items():
        usage.put(ref(f"of-{name}"), Reservation(name.replace("_", "-"), "team", "w1", {"cpu": nanos(cpu)}))
    return usage


def decided(
    jobs: Iterable[Candidate],
    queues: Mapping[str, MirrorQueueSpec],
    usage: UsageCache | None = None,
    cohorts: Mapping[str, CohortSpec] | None = None,
) -> list[Step]:
    sums, tree = (usage or UsageCache()).snapshot(), quota_tree(queues, cohorts or {})
    steps = plan(Waiting(jobs).snapshot(), queues, {"w1": ROOMY}, sums, tree=tree)
    return [step for step in steps if step is not None]


def reason(steps: list[Step], name: str) -> tuple[str, str]:
    decision = next(step.decision for step in steps if step.candidate.name == name)
    return decision.reason, str(decision)


A, B = "a", "b"


def job(name: str, queue: str, cpu: int = 1, **more: Any) -> Candidate:
    return a_candidate(name, queue=queue, cpu=cpu, **more)


def test_a_queue_uses_what_another_one_of_its_cohort_leaves() -> None:
    queues = {A: member(4), B: member(6)}
    steps = decided([job("x", A, 10)], queues)
    assert where(steps) == [("x", "w1")]
    assert where(decided([job("x", A, 10)], {A: member(4), B: member(6, cohort="others")})) == [("x", None)]


def test_what_is_never_lent_is_not_borrowed() -> None:
    queues = {A: member(4), B: member(6, lend=1)}
    assert where(decided([job("x", A, 5)], queues)) == [("x", "w1")]
    assert reason(decided([job("x", A, 6)], queues), "x") == (
        "NeverFits",
        "it asks for 6 cpu; queue a can have 5 at most (own 4, cohort research has no more to lend). Raise quotas of "
        "the cohort, or ask for less",
    )


def test_who_asks_for_more_than_the_queue_may_ever_borrow_is_told_what_it_may_have() -> None:
    steps = decided([job("x", A, 9)], {A: member(4, borrow=3), B: member(6)})
    assert reason(steps, "x") == (
        "NeverFits",
        "it asks for 9 cpu; queue a can have 7 at most (own 4, borrow 3). Raise quota.borrow, or ask for less",
    )


def test_the_queues_own_limit_is_named_where_that_is_what_is_short() -> None:
    steps = decided([job("x", A, 2)], {A: member(4, borrow=3), B: member(60)}, using(a=6))
    assert reason(steps, "x") == (
        "QuotaExceeded",
        "it asks for 2 cpu. Queue a has 1 left: own 4 all used, 2 more borrowed of at most 3. Raise quota.borrow to "
        "let it have more",
    )


def test_the_cohort_is_named_where_others_have_what_is_short() -> None:
    queues = {A: member(4), B: member(2), "c": member(2), "d": member(0, "elsewhere")}
    steps = decided([job("x", A, 3)], queues, using(a=3, b=3, c=1, d=9))
    assert reason(steps, "x") == (
        "CohortFull",
        "it asks for 3 cpu; queue a uses 3 of its own 4, and cohort research has 1 left: queue b uses 3 of its 2, "
        "queue c uses 1 of its 2",
    )


def test_a_cohort_inside_another_one_is_named_where_its_limit_is_what_is_short() -> None:
    cohorts = {"research": cohort("company", quota={"borrow": {"cpu": "2"}}), "company": cohort(own=50)}
    steps = decided([job("x", A, 2)], {A: member(4), B: member(1)}, using(a=4, b=2), cohorts)
    assert reason(steps, "x") == (
        "CohortFull",
        "it asks for 2 cpu; queue a uses 4 of its own 4, and cohort research has 1 left (own 5, borrow 2): queue b "
        "uses 2 of its 1",
    )


def test_the_number_of_jobs_is_a_limit_that_is_never_borrowed() -> None:
    steps = decided([job("x", A)], {A: member(4, jobs=1), B: member(9, jobs=9)}, using(a=1))
    assert reason(steps, "x") == ("QuotaExceeded", "queue a runs 1 Job, as many as its quota allows (quota.jobs)")


def test_cohorts_that_are_each_others_parents_place_nothing_and_say_so() -> None:
    cohorts = {"research": cohort("company"), "company": cohort("research")}
    steps = decided([job("x", A)], {A: member(4)}, cohorts=cohorts)
    found, words = reason(steps, "x")
    assert (found, "research in company in research" in words) == ("Cycle", True)


def test_who_does_not_borrow_goes_before_who_does_whatever_their_priorities() -> None:
    queues = {A: member(0, maxPriority=9), B: member(1)}
    steps = decided([job("x", A, priority=9), job("yyyy", B)], queues)
    assert placed(steps) == ["yyyy"]


def test_of_those_who_borrow_the_one_with_the_smaller_share_for_its_weight_goes_first() -> None:
    pool = {"research": cohort(own=9)}
    jobs = [job(f"{each}{'x' * number}", each) for each in (A, B) for number in range(9)]
    steps = decided(jobs, {A: member(0), B: member(0, weight=2)}, cohorts=pool)
    counts = [sum(name.startswith(each) for name in placed(steps)) for each in (A, B)]
    assert counts == [3, 6]


def test_one_that_was_overtaken_hears_by_whom_and_what_was_compared() -> None:
    pool = {"research": cohort(own=4)}
    steps = decided([job("x", A, 2), job("yyy", B, 2)], {A: member(0), B: member(1)}, using(a=2), pool)
    assert placed(steps) == ["yyy"]
    assert reason(steps, "x") == (
        "OthersFirst",
        "it fitted, but queue b was next for what is shared: its share is 200 of 1000, that of queue a would be 800 of "
        "1000. Now 1 cpu are left of the 2 that it asks for",
    )


def test_one_that_must_not_be_stopped_does_not_borrow() -> None:
    queues = {A: member(4), B: member(6)}
    assert where(decided([job("x", A, 2, preemptible=False)], queues, using(a=2))) == [("x", "w1")]
    steps = decided([job("x", A, 3, preemptible=False)], queues, using(a=2))
    assert reason(steps, "x") == (
        "OwnQuotaOnly",
        'it is never to be stopped (multimirror.dev/preemptible: "false"), so it is placed on its queue\'s own quota '
        "only: it asks for 3 cpu, and 2 of the 4 of queue a are free",
    )


def test_one_that_was_stopped_three_times_while_it_borrowed_does_not_borrow_again() -> None:
    queues = {A: member(4), B: member(6)}
    assert where(decided([job("x", A, 3, preemptions=2)], queues, using(a=2))) == [("x", "w1")]
    steps = decided([job("x", A, 3, preemptions=3)], queues, using(a=2))
    assert reason(steps, "x") == (
        "OwnQuotaOnly",
        "it was stopped 3 times while it borrowed, and now waits for its queue's own quota: it asks for 3 cpu, and 2 "
        "of the 4 of queue a are free",
    )


@pytest.mark.parametrize(("hold", "found", "how"), [("Hold", "Held", "held"), ("Drain", "Draining", "drained")])
@pytest.mark.parametrize("with_cohort", ["research", None])
def test_a_queue_that_is_held_places_nothing_and_lends_its_quota(
    hold: str, found: str, how: str, with_cohort: str | None
) -> None:
    queues = {A: member(4, with_cohort, hold=hold), B: member(1)}
    steps = decided([job("x", A), job("xx", A), job("yyy", B, 5)], queues)
    assert placed(steps) == (["yyy"] if with_cohort else [])
    assert reason(steps, "x") == (
        found,
        f"queue a is {how} (spec.hold is {hold}): nothing of it is placed until that is None; 2 Jobs wait",
    )


def test_a_job_of_a_held_queue_does_not_grow() -> None:
    growing = a_candidate("x", queue=A, requests={"cpu": nanos(1)}, growth=growth(1, 2))
    assert reason(decided([growing], {A: member(9, hold="Hold")}), "x")[0] == "GrowthWaits"


def growth(before: int, after: int) -> Growth:
    sizes = [Reserved("t", (ReservedPods("main", count, {"cpu": nanos(1)}),)) for count in (before, after)]
    return Growth.of("w1", *sizes)


def test_one_that_grows_asks_the_cohort_for_the_difference() -> None:
    growing = a_candidate("x", queue=A, requests={"cpu": nanos(3)}, growth=growth(2, 5))
    queues = {A: member(2), B: member(4)}
    assert where(decided([growing], queues, using(a=2, b=1))) == [("x", "w1")]
    found, words = reason(decided([growing], queues, using(a=2, b=2)), "x")
    assert found == "GrowthWaits"
    assert "cohort research has 2 left" in words
    assert reason(decided([growing], {A: member(2), B: member(2)}, using(a=2)), "x")[0] == "GrowthNeverFits"


def test_one_that_does_not_fit_lets_others_of_its_queue_and_its_tree_go_on() -> None:
    queues = {A: member(4, borrow=0), B: member(4)}
    jobs = [job("x", A, 3), job("xx", A, 1), job("yyy", B, 4)]
    assert placed(decided(jobs, queues, using(a=2))) == ["yyy", "xx"]


def test_a_strict_queue_blocks_itself_and_nobody_else() -> None:
    queues = {A: member(4, borrow=0, queueingStrategy="StrictFIFO"), B: member(4)}
    jobs = [job("x", A, 3), job("xx", A, 1), job("yyy", B, 6)]
    steps = decided(jobs, queues, using(a=2))
    assert placed(steps) == ["yyy"], "what the strict queue does not use is lent"
    assert reason(steps, "xx")[0] == "BlockedByQueue"


def test_a_lender_that_cannot_get_it_back_keeps_its_own_quota_for_its_first_job() -> None:
    jobs = [job("x", A, 4), job("yyy", B, 3)]
    steps = decided(jobs, {A: member(4, borrow=0, preempts=[]), B: member(1, preempts=[])}, using(a=2))
    assert reason(steps, "yyy") == (
        "OthersFirst",
        "3 cpu are left for queue b, but only 1 of that are not kept for Jobs that come first, and it asks for 3",
    )
    assert placed(decided(jobs, {A: member(4, borrow=0), B: member(1)}, using(a=2))) == ["yyy"], "it can reclaim it"


def test_between_trees_and_queues_that_share_with_nobody_priority_and_age_decide() -> None:
    queues = {
        A: member(9, maxPriority=9),
        B: member(9, "others", maxPriority=9),
        "c": member(9, None, maxPriority=9),
        "d": member(9, None, preempts=["Priority"], maxPriority=9),
    }
    jobs = [
        job("aaaaa", A),
        job("bbb", B),
        job("c", "c"),
        job("cccc", "c"),
        job("dd", "d"),
        job("a" * 9, A, priority=5),
    ]
    assert placed(decided(jobs, queues)) == ["a" * 9, "c", "dd", "bbb", "cccc", "aaaaa"]


def test_a_queue_that_may_stop_its_own_jobs_has_the_quota_of_one_that_may_not() -> None:
    alone = member(4, None)
    stops = member(4, None, preempts=["Priority"])
    for cpu in (2, 3, 5):
        plain, other = (decided([job("x", A, cpu)], {A: spec}, using(a=2)) for spec in (alone, stops))
        assert [(step.decision.chosen, reason([step], "x")) for step in plain] == [
            (step.decision.chosen, reason([step], "x")) for step in other
        ]


def test_thousands_that_do_not_fit_do_not_go_before_those_of_others_that_do() -> None:
    """The crowd's queue borrows nothing, so its Jobs would always come first."""
    crowd = [job("x" * number, A, namespace="crowd", clusters=frozenset({"w9"})) for number in range(1, 60)]
    patient = job("y" * 59, B, namespace="small")
    queues = {A: member(100), B: member(0)}
    steps = decided([*crowd, patient], queues)
    assert placed(steps) == ["y" * 59]
    assert [step.candidate for step in steps].index(patient) == QUANTUM


def test_who_was_refused_in_one_tree_keeps_its_place_in_another() -> None:
    """The crowd's many cannot go anywhere; its one Job that asks for no more than its queue's own still goes first."""
    crowd = [job("x" * number, A, namespace="crowd", clusters=frozenset({"w9"})) for number in range(1, 60)]
    own = job("y" * 60, "c", 2, namespace="crowd")
    borrows = job("z" * 61, "d", 2, namespace="small")
    queues = {A: member(100), "c": member(2, "others"), "d": member(0, "others")}
    assert placed(decided([*crowd, own, borrows], queues)) == [own.name]


def test_those_for_whom_no_worker_has_room_do_not_compete() -> None:
    """Whatever they ask for: that is known before, so they come right after the one before them in their queue."""
    jobs = [job("x", A, 2), job("yy", B, 2), job("xxx", A, 3), job("yyyy", B, 3)]
    queues, full = {A: member(9), B: member(9)}, using(others=999)
    assert [step.candidate.name for step in decided(jobs, queues, full)] == ["x", "xxx", "yy", "yyyy"]
    steps = decided([*jobs, job("xxxxx", A, 1)], queues, full)
    assert [step.candidate.name for step in steps] == ["x", "xxx", "yy", "yyyy", "xxxxx"]
    assert placed(steps) == ["xxxxx"]

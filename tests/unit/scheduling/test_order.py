"""Who is next, and that a snapshot of those who wait stays as it was."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.order import FRONT, QueueOrder, in_order
from multimirror.scheduling.plan import plan
from multimirror.scheduling.usage import Reservation, UsageCache, UsageSums
from multimirror.scheduling.waiting import Waiter, Waiting, WaitingSnapshot, position_of
from tests.unit.scheduling.builders import TWO, a_candidate, placed, planned, queue, ref, used, where, worker


def names(snapshot: WaitingSnapshot, *, strict: bool = False) -> list[str]:
    found = in_order(snapshot, UsageSums(), lambda _: QueueOrder(strict, max_priority=99))
    return [waiter.name for waiter in found if waiter is not None]


def test_a_backlog_in_one_queue_does_not_keep_another_queue_from_what_they_share() -> None:
    backlog = [a_candidate("a" * age, queue="a") for age in range(2, 20)]
    older = a_candidate("z", queue="z")
    steps = planned([*backlog, older], {"a": queue(), "z": queue()}, [worker("w1", max_jobs=3)])
    assert placed(steps) == ["z", "aa", "aaa"]


def test_that_it_has_another_version_is_no_news_of_one_that_waits() -> None:
    waiting = Waiting()
    assert waiting.put(a_candidate("a", version="1"))
    assert not waiting.put(a_candidate("a", version="2")), "we may have written ourselves that it waits"
    found = waiting.get(ref("a"))
    assert found is not None
    assert found.version == "2"
    assert waiting.put(a_candidate("a", version="3", priority=1))


def test_over_all_queues_the_highest_priority_goes_first() -> None:
    waiting = [a_candidate("a", queue="a"), a_candidate("zz", queue="z", priority=5)]
    up_to_nine = queue(maxPriority=9)
    assert placed(planned(waiting, {"a": up_to_nine, "z": up_to_nine}, [worker("w1", max_jobs=1)])) == ["zz"]


def test_a_queue_whose_first_does_not_fit_lets_the_others_go_on() -> None:
    waiting = [a_candidate("a", queue="a", cpu=2), a_candidate("aaa", queue="a", cpu=2), a_candidate("zz", queue="z")]
    queues = {"a": queue(quota={"resources": {"cpu": "3"}}, queueingStrategy="StrictFIFO"), "z": queue()}
    assert where(planned(waiting, queues, TWO)) == [("a", "w1"), ("zz", "w2"), ("aaa", None)]


def test_priority_goes_before_age() -> None:
    jobs = [a_candidate("a"), a_candidate("bb", priority=5), a_candidate("ccc", priority=5)]
    assert [name for name, _ in where(planned(jobs, queue(), TWO))] == ["bb", "ccc", "a"]


def test_namespaces_of_one_queue_take_turns() -> None:
    crowd = [a_candidate("a" * n, namespace="crowd") for n in range(1, 5)]
    late = [a_candidate("b" * 9, namespace="late"), a_candidate("b" * 10, namespace="late")]
    order = [step.candidate.namespace for step in planned(crowd + late, queue(), TWO)]
    assert order == ["crowd", "late", "crowd", "late", "crowd", "crowd"]


def test_namespaces_take_turns_at_a_lower_priority_by_what_they_were_given_at_a_higher_one() -> None:
    urgent = [a_candidate("a" * n, namespace="crowd", priority=9) for n in range(1, 3)]
    rest = [a_candidate("bbb", namespace="crowd"), a_candidate("cccc", namespace="late")]
    order = [step.candidate.name for step in planned(urgent + rest, queue(maxPriority=9), TWO)]
    assert order == ["a", "aa", "cccc", "bbb"]


def test_in_a_strict_queue_only_priority_and_age_count() -> None:
    crowd = [a_candidate("a" * n, namespace="crowd") for n in range(1, 5)]
    late = [a_candidate("b" * 9, namespace="late"), a_candidate("b" * 10, namespace="late", priority=1)]
    strict = queue(queueingStrategy="StrictFIFO", maxPriority=1)
    order = [step.candidate.name for step in planned(crowd + late, strict, TWO)]
    assert order == ["b" * 10, "a", "aa", "aaa", "aaaa", "b" * 9]


def test_a_namespace_that_has_much_already_comes_after_one_that_has_nothing() -> None:
    jobs = [a_candidate("a", namespace="crowd"), a_candidate("bb", namespace="late")]
    usage = used("w1", "w1", namespace="crowd")
    assert [name for name, _ in where(planned(jobs, queue(quota={"jobs": 3}), TWO, usage))] == ["bb", "a"]


def test_a_namespace_that_waited_goes_before_one_whose_job_has_just_ended() -> None:
    usage, one = UsageCache(), queue(quota={"jobs": 1})
    backlog = [a_candidate("x" * number, namespace="large") for number in range(1, 4)]
    newest = a_candidate("x" * 9, namespace="small")
    waiting, order = [*backlog, newest], []
    while waiting:
        (name,) = placed(planned(waiting, one, TWO, usage))
        chosen = next(each for each in waiting if each.name == name)
        order.append(chosen)
        waiting.remove(chosen)
        usage.put(chosen.ref, Reservation("q", chosen.namespace, "w1", {}))
        usage.put(chosen.ref, None)  # it ends, and the next pass begins
    assert order == [backlog[0], newest, backlog[1], backlog[2]]


def test_one_that_changes_is_in_line_once_and_where_it_belongs_now() -> None:
    waiting = Waiting([a_candidate("a"), a_candidate("bb")])
    assert not waiting.put(a_candidate("bb"))
    assert waiting.put(a_candidate("bb", priority=7))
    assert names(waiting.snapshot()) == ["bb", "a"]
    assert waiting.put(a_candidate("bb", queue="other"))
    assert (waiting.count("q"), waiting.count("other"), len(waiting)) == (1, 1, 2)
    assert waiting.remove(ref("bb")) == a_candidate("bb", queue="other")
    assert waiting.remove(ref("bb")) is None
    assert (waiting.get(ref("bb")), waiting.count("other"), [each.name for each in waiting]) == (None, 0, ["a"])


def test_the_first_of_a_queue_of_very_many_namespaces_is_found_in_small_steps() -> None:
    lonely = [a_candidate(f"{number:04}", namespace=f"team-{number}") for number in range(2000)]
    found = in_order(Waiting(lonely).snapshot(), UsageSums(), lambda _: QueueOrder())
    checkpoints = list(takewhile(lambda waiter: waiter is None, found))
    assert len(checkpoints) > 2000 / 300


CANDIDATES = st.builds(
    lambda name, queue, namespace, priority, created: a_candidate(
        name, queue=queue, namespace=namespace, priority=priority, created=created
    ),
    st.sampled_from("abcdefg"),
    st.sampled_from("pq"),
    st.sampled_from(("x", "y")),
    st.integers(0, 2),
    st.sampled_from(("1", "2", "3")),
)


@given(st.lists(st.tuples(CANDIDATES | st.sampled_from("abcdefg"), st.booleans()), max_size=40), st.booleans())
def test_the_order_is_that_of_those_who_wait_however_they_came(
    changes: list[tuple[Candidate | str, bool]], strict: bool
) -> None:
    waiting, there = Waiting(), dict[str, Candidate]()
    snapshots: list[tuple[WaitingSnapshot, list[str]]] = []
    for change, look in changes:
        if isinstance(change, Candidate):
            waiting.put(change)
            there[change.name] = change
        else:
            assert waiting.remove(ref(change)) == there.pop(change, None)
        if look:
            snapshot = waiting.snapshot()
            snapshots.append((snapshot, names(snapshot, strict=strict)))
    assert names(waiting.snapshot(), strict=strict) == names(Waiting(there.values()).snapshot(), strict=strict)
    assert sorted(names(waiting.snapshot())) == sorted(there)
    assert {each.name for each in waiting} == set(there)
    for snapshot, then in snapshots:
        assert names(snapshot, strict=strict) == then


@given(st.lists(CANDIDATES, max_size=20, unique_by=lambda each: each.name))
def test_with_nothing_placed_all_go_by_priority_and_age(candidates: list[Candidate]) -> None:
    strict = QueueOrder(strict=True, max_priority=9)
    found = [waiter for waiter in in_order(Waiting(candidates).snapshot(), UsageSums(), lambda _: strict) if waiter]
    assert found == sorted(found, key=_by_priority_and_age)


def _by_priority_and_age(waiter: Waiter) -> tuple[int, object]:
    return -waiter.candidate.priority, waiter.age


# --- priorities that anybody may write --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize(
    ("most", "order"),
    [
        pytest.param(None, ["own", "rival", "own-old"], id="a queue that sets no maxPriority: among one's own only"),
        pytest.param(0, ["own", "rival", "own-old"], id="0: the same"),
        pytest.param(9, ["own", "own-old", "rival"], id="up to maxPriority: over other namespaces, too"),
    ],
)
def test_how_far_a_priority_counts(most: int | None, order: list[str], strategy: str) -> None:
    jobs = [
        a_candidate("own", namespace="pushy", priority=9, created="1"),
        a_candidate("own-old", namespace="pushy", priority=5, created="3"),
        a_candidate("rival", namespace="meek", created="2"),
    ]
    spec = queue(queueingStrategy=strategy) if most is None else queue(queueingStrategy=strategy, maxPriority=most)
    assert [step.candidate.name for step in planned(jobs, spec, TWO)] == order


def test_a_priority_above_the_highest_that_counts_counts_as_that_one() -> None:
    jobs = [
        a_candidate("greedy", namespace="pushy", priority=999_999_999, created="2"),
        a_candidate("older", namespace="meek", priority=3, created="1"),
    ]
    assert [step.candidate.name for step in planned(jobs, queue(maxPriority=3), TWO)] == ["older", "greedy"]


def test_one_queue_s_priorities_do_not_beat_another_queue_that_has_none() -> None:
    jobs = [a_candidate("z" * 5, queue="z", priority=999_999_999), a_candidate("a", queue="a")]
    assert [step.candidate.name for step in planned(jobs, {"a": queue(), "z": queue()}, TWO)] == ["a", "z" * 5]


# --- bursts -----------------------------------------------------------------------------------------------------------


def test_namespaces_of_different_queues_take_turns_in_one_pass() -> None:
    crowd = [a_candidate("a" * n, queue="a", namespace="crowd") for n in range(1, 6)]
    late = [a_candidate("z" * n, queue="z", namespace="late") for n in range(8, 10)]
    order = [step.candidate.namespace for step in planned(crowd + late, {"a": queue(), "z": queue()}, TWO)]
    assert order == ["crowd", "late", "crowd", "late", "crowd", "crowd", "crowd"]


def test_whose_assignments_are_not_written_yet_comes_after_those_who_have_none() -> None:
    crowd = [a_candidate("a", queue="a", namespace="crowd")]
    late = [a_candidate("z" * 9, queue="z", namespace="late")]
    waiting, queues = Waiting(crowd + late).snapshot(), {"a": queue(), "z": queue()}
    workers = {each.name: each for each in TWO}
    steps = plan(waiting, queues, workers, UsageSums(), in_flight={"crowd": 1})
    assert [step.candidate.namespace for step in steps if step is not None] == ["late", "crowd"]


# --- thousands that do not fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("other", [pytest.param("q", id="same queue"), pytest.param("z", id="another queue")])
def test_a_newcomer_is_looked_at_before_thousands_of_another_namespace_that_do_not_fit(
    strategy: str, other: str
) -> None:
    crowd = [a_candidate(f"{n:04}", namespace="crowd", created=f"{n:04}", cpu=n + 5) for n in range(2000)]
    newcomer = a_candidate("newcomer", namespace="late", queue=other, created="9", cpu=1)
    spec = queue(queueingStrategy=strategy)
    steps = planned([*crowd, newcomer], {"q": spec, "z": spec}, [worker("w1", capacity=4)])
    assert placed(steps) == ["newcomer"]
    assert [step.candidate.name for step in steps].index("newcomer") <= FRONT + 1
    assert len(steps) == 2001, "and all others, after it"


def test_a_pass_that_is_taken_up_again_looks_at_the_first_of_each_and_then_goes_on_where_it_was() -> None:
    jobs = [a_candidate(f"{n:04}", created=f"{n:04}", cpu=n + 5) for n in range(1000)]
    snapshot = Waiting(jobs).snapshot()
    resume = {("q", "team"): position_of(jobs[500])}
    steps = plan(snapshot, {"q": queue()}, {"w1": worker("w1", capacity=4)}, UsageSums(), resume=resume)
    found = [int(step.candidate.name) for step in steps if step is not None]
    assert found == [*range(FRONT), *range(501, 1000)]
    assert snapshot.end_of(("q", "team")) == position_of(jobs[-1])
    assert snapshot.end_of(("q", "nobody")) is None


def test_in_a_strict_queue_nobody_is_left_out() -> None:
    jobs = [a_candidate(f"{n:04}", created=f"{n:04}", cpu=n + 5) for n in range(200)]
    resume = {("q", "team"): position_of(jobs[150])}
    strict, workers = queue(queueingStrategy="StrictFIFO"), {"w1": worker("w1", capacity=4)}
    steps = plan(Waiting(jobs).snapshot(), {"q": strict}, workers, UsageSums(), resume=resume)
    assert len([step for step in steps if step is not None]) == 200

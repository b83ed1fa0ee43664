"""What was used before: how it is counted, how it orders queues, and that nobody forgets it."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.batch import Json
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.decisions import Step
from multimirror.scheduling.parking import LONGEST_SECONDS, Parking
from multimirror.scheduling.past_use import (
    NO_PAST,
    WHOLE,
    Past,
    PastUse,
    PastUses,
    members,
    part_used,
    remaining,
)
from multimirror.scheduling.plan import plan
from multimirror.scheduling.preempting import RunningState
from multimirror.scheduling.quota import QuotaTree, QuotaUsage
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.shared_quota import quota_tree
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting
from tests.unit.scheduling.builders import placed, ref, worker
from tests.unit.scheduling.test_cohorts import A, B, cohort, job, member, reason, using
from tests.unit.scheduling.test_preempting import stops

NOW = 1_800_000_000.0
HOUR = 3600
ONE = WHOLE * WHOLE
"""A past use of 1."""

seconds = st.integers(0, 10**8)
parts = st.integers(0, WHOLE)
half_lives = st.integers(60, 8760 * HOUR)


def micros(value: float) -> int:
    return int(value * 10**6)


# --- arithmetic -------------------------------------------------------------------------------------------------------


@given(elapsed=st.integers(0, 10**15), half_life=st.integers(60, 8760 * HOUR))
def test_a_half_is_left_after_each_half_life(elapsed: int, half_life: int) -> None:
    left = Fraction(remaining(elapsed, half_life * 10**6), 2**96)
    assert float(left) == pytest.approx(0.5 ** (elapsed / (half_life * 10**6)), rel=1e-9, abs=1e-25)


def test_who_has_everything_for_one_half_life_has_a_half() -> None:
    past = PastUse(0, WHOLE, micros(NOW))
    assert past.value_at(micros(NOW + HOUR), HOUR) == ONE // 2
    assert past.value_at(micros(NOW + 2 * HOUR), HOUR) == ONE * 3 // 4
    used = past.then(0, micros(NOW + 2 * HOUR), HOUR)
    assert used.value_at(micros(NOW + 3 * HOUR), HOUR) == ONE * 3 // 8


@given(value=st.integers(0, ONE), history=st.lists(st.tuples(seconds, parts), max_size=20), half_life=half_lives)
def test_it_stays_between_nothing_and_all(value: int, history: list[tuple[int, int]], half_life: int) -> None:
    at, past = micros(NOW), PastUse(value, 0, micros(NOW))
    for after, part in history:
        at += after * 10**6
        past = past.then(part, at, half_life)
        assert 0 <= past.value <= ONE
    assert 0 <= past.value_at(at + 10**15, half_life) <= ONE


@given(value=st.integers(0, ONE), part=parts, first=seconds, second=seconds, half_life=half_lives)
def test_two_steps_are_one_long_one(value: int, part: int, first: int, second: int, half_life: int) -> None:
    start, between, end = micros(NOW), micros(NOW + first), micros(NOW + first + second)
    past = PastUse(value, part, start)
    step = PastUse(past.value_at(between, half_life), part, between)
    assert abs(step.value_at(end, half_life) - past.value_at(end, half_life)) <= 100_000, "of 10 ** 18: roundings"


@given(value=st.integers(0, ONE), part=parts, asked=st.lists(seconds, max_size=10), half_life=half_lives)
def test_how_often_and_in_which_order_it_is_asked_for_does_not_matter(
    value: int, part: int, asked: list[int], half_life: int
) -> None:
    past, at = PastUse(value, part, micros(NOW)), micros(NOW + 10**8)
    alone = past.value_at(at, half_life)
    for after in asked:
        past.value_at(micros(NOW + after), half_life)
        past = past.then(part, micros(NOW + after), half_life)
    assert past.value_at(at, half_life) == alone


def test_a_clock_that_goes_back_changes_nothing() -> None:
    past = PastUse(ONE // 2, WHOLE, micros(NOW))
    assert past.value_at(micros(NOW - HOUR), HOUR) == ONE // 2
    assert past.then(0, micros(NOW - HOUR), HOUR) == PastUse(ONE // 2, 0, micros(NOW))


def test_small_parts_of_a_long_half_life_add_up() -> None:
    """A busy queue changes every second: what that is of a year must not be rounded away."""
    year, past = 8760 * HOUR, PastUse(0, WHOLE - 1, micros(NOW))
    for second in range(1, HOUR + 1):
        past = past.then(WHOLE - second % 2, micros(NOW + second), year)
    assert past.value == pytest.approx(PastUse(0, WHOLE, micros(NOW)).value_at(micros(NOW + HOUR), year), rel=1e-6)


# --- the order --------------------------------------------------------------------------------------------------------

POOL = {"research": cohort(own=4, halfLife="1h")}


def past_of(now: float = NOW, **values: float) -> Past:
    """By queue; cohorts have a capital letter."""
    return Past(
        {
            (name.islower(), name.lower().replace("_", "-")): PastUse(int(value * WHOLE) * WHOLE, 0, micros(now))
            for name, value in values.items()
        },
        now,
    )


def decided(
    jobs: list[Candidate],
    queues: Mapping[str, MirrorQueueSpec],
    cohorts: Mapping[str, CohortSpec],
    past: Past,
    usage: UsageCache | None = None,
    **more: Any,
) -> list[Step]:
    tree, sums = quota_tree(queues, cohorts), (usage or UsageCache()).snapshot()
    room = {"w1": worker("w1", capacity=1000)}
    steps = plan(Waiting(jobs).snapshot(), queues, room, sums, tree=tree, past=past, **more)
    return [step for step in steps if step is not None]


JOBS = [job("old", A, 4), job("younger", B, 4)]
"""The shorter name is the older Job; there is room for one of them."""
TWO = {A: member(), B: member()}


def test_who_used_less_before_goes_first() -> None:
    assert placed(decided(JOBS, TWO, POOL, past_of(a=0.3, b=0.2))) == ["younger"]
    assert placed(decided(JOBS, TWO, POOL, past_of(a=0.2, b=0.3))) == ["old"]
    assert placed(decided(JOBS, TWO, POOL, past_of(a=0.3, b=0.3))) == ["old"], "then age, as ever"


def test_without_a_half_life_it_does_not_count() -> None:
    assert placed(decided(JOBS, TWO, {"research": cohort(own=4)}, past_of(a=0.9, b=0.0))) == ["old"]


def test_it_counts_by_weight() -> None:
    heavy = {A: member(weight=4), B: member()}
    assert placed(decided([job("old", A, 1), job("younger", B, 1)], heavy, POOL, past_of(a=0.4, b=0.2)))[0] == "old"


def test_all_for_one_half_life_counts_as_much_as_borrowing_all_now() -> None:
    """a had everything for an hour; b borrows everything but what its next Job asks for."""
    usage, small = using(b=3), [job("old", A, 1), job("younger", B, 1)]
    assert placed(decided(small, TWO, POOL, past_of(a=0.5 + 0.13), usage)) == ["younger"], "1000 and 250 of 1260"
    assert placed(decided(small, TWO, POOL, past_of(a=0.5 - 0.13), usage)) == ["old"], "740 and 250 of 1000"


def test_who_need_not_borrow_goes_first_whatever_was_used_before() -> None:
    owner = {A: member(4), B: member()}
    assert placed(decided(JOBS, owner, {"research": cohort(halfLife="1h")}, past_of(a=1.0, b=0.0)))[0] == "old"


def test_in_a_tree_the_nearest_half_life_counts_at_each_fork() -> None:
    queues = {A: member(cohort="left"), B: member(cohort="right")}
    below = {"left": cohort("company"), "right": cohort("company")}
    cohorts = {"company": cohort(own=4, halfLife="1h"), **below}
    assert placed(decided(JOBS, queues, cohorts, past_of(Left=0.5, Right=0.1))) == ["younger"]
    assert placed(decided(JOBS, queues, cohorts, past_of(a=0.9, b=0.1))) == ["old"], "at that fork cohorts are compared"
    tree = quota_tree(queues, cohorts | {"left": cohort("company", halfLife="2h")})
    assert {name: node.half_life for name, node in tree.cohorts.items()} == {
        "company": HOUR,
        "left": 2 * HOUR,
        "right": HOUR,
    }
    assert not quota_tree(queues, below | {"company": cohort(own=4)}).decays


def test_weight_0_makes_nothing_infinite_before_it_borrows() -> None:
    tree = quota_tree({A: member(weight=0)}, POOL)
    assert past_of(a=0.25).counted(tree.queues[A]).thousandths == 500


def test_nobody_is_stopped_for_what_he_used_before() -> None:
    """b has the larger share, a third queue had much more before: b gives."""
    queues = {A: member(preempts=["FairShare"]), B: member(minRuntime="0s"), "c": member(minRuntime="0s")}
    running = [
        RunningJob(uid=uid, queue=of, requests={"cpu": nanos(1)}, placed=NOW - 9000, worker="w1", name=f"t/{uid}")
        for uid, of in (("b1", B), ("b2", B), ("b3", B), ("c1", "c"))
    ]
    usage = UsageCache()
    for each in running:
        usage.put(ref(each.uid), Reservation(each.queue, "team", each.worker, each.requests))
    state = RunningState(running=RunningJobs(running).snapshot(), now=NOW)
    steps = decided([job("new", A, 1)], queues, POOL, past_of(c=1.0, a=1.0), usage, state=state)
    assert [each[0] for each in stops(steps)["new"]] == ["b"]


def test_who_was_passed_for_it_hears_both_numbers() -> None:
    why, words = reason(decided(JOBS, TWO, POOL, past_of(a=0.3, b=0.2)), "old")
    assert why == "OthersFirst"
    assert (
        "it fitted, but queue b was next for what is shared: its share is 1000 of 1000 and 400 of 1000 for what it "
        "used before, that of queue a would be 1000 of 1000 and 600 of 1000; what was used before decided. Now 0 cpu "
        "are left of the 4 that it asks for"
    ) in words
    _, words = reason(decided(JOBS, TWO, POOL, past_of(a=0.3, b=0.3)), "younger")
    assert "and 600 of 1000; of equal sums priority decides, then age. Now" in words


def test_a_tree_that_rests_wakes_with_the_order_of_the_moment_and_rests_not_for_ever() -> None:
    """c has everything; when it is gone, a has forgotten more than b has."""
    queues = {**TWO, "c": member()}
    tree, waiting, workers, parking = quota_tree(queues, POOL), Waiting(JOBS), {"w1": worker("w1")}, Parking()
    known = {(True, A): PastUse(ONE // 2, 0, micros(NOW)), (True, B): PastUse(0, WHOLE // 4, micros(NOW))}

    def looked_at(usage: UsageCache, now: float) -> list[Step]:
        sums, state = usage.snapshot(), RunningState(now=now)
        awake = parking.awake(waiting.snapshot(), queues, workers, sums, tree=tree, state=state)
        past = Past(known, now)
        steps = [each for each in plan(awake, queues, workers, sums, tree=tree, state=state, past=past) if each]
        for step in steps:
            if step.decision.chosen is None:
                parking.refused(step.candidate, step.decision)
        return steps

    busy = using(c=4)
    assert [step.candidate.name for step in looked_at(busy, NOW)] == ["younger", "old"]
    assert looked_at(busy, NOW + 1) == [], "they rest"
    again = looked_at(busy, NOW + LONGEST_SECONDS)
    assert [step.candidate.name for step in again] == ["younger", "old"]
    assert placed(looked_at(UsageCache(), NOW + 2 * HOUR)) == ["old"], "0.125 against 0.1875"


# --- who remembers ----------------------------------------------------------------------------------------------------


class Statuses:
    """What the API server has, and one dispatcher after the other."""

    def __init__(self, queues: Mapping[str, MirrorQueueSpec], cohorts: Mapping[str, CohortSpec]) -> None:
        self.tree: QuotaTree = quota_tree(queues, cohorts)
        self.written: dict[tuple[bool, str], Json | None] = {}
        self.restart()

    def restart(self) -> None:
        self.uses = PastUses(lambda is_queue, name: self.written.get((is_queue, name)))

    def observe(self, now: float, *, write: bool = True, **cpus: int) -> None:
        usage = QuotaUsage(self.tree, {name: {"cpu": nanos(cpu)} for name, cpu in cpus.items()})
        list(self.uses.observe([(node, part_used(usage, node)) for node in members(self.tree)], now))
        if write:
            past = self.uses.at(self.tree, now)
            self.written = {(node.is_queue, node.name): past.written(node) for node in members(self.tree)}

    def value(self, queue: str, now: float) -> float:
        return self.uses.at(self.tree, now).value(self.tree.queues[queue]) / ONE


def test_a_restart_forgets_nothing() -> None:
    there = Statuses(TWO, POOL)
    there.observe(NOW, a=4)
    there.restart()
    assert there.value(A, NOW + HOUR) == pytest.approx(0.5), "before anything is observed"
    there.observe(NOW + HOUR, a=0, b=4)
    there.restart()
    assert there.value(A, NOW + 2 * HOUR) == pytest.approx(0.25)
    assert there.value(B, NOW + 2 * HOUR) == pytest.approx(0.5)


def test_what_ended_while_nobody_led_was_used_until_somebody_looks() -> None:
    """The status tells what was used, not only what had been: it need not be written as time goes by."""
    there = Statuses(TWO, POOL)
    there.observe(NOW, a=4)
    there.restart()
    there.observe(NOW + 2 * HOUR, a=0)
    assert there.value(A, NOW + 2 * HOUR) == pytest.approx(0.75)


def test_of_what_is_known_and_what_is_written_the_later_counts() -> None:
    """One that led before, and leads again."""
    there = Statuses(TWO, POOL)
    there.observe(NOW, a=4)
    former = there.uses
    there.restart()
    there.observe(NOW + HOUR, a=0, b=4)
    there.uses = former
    there.observe(NOW + 2 * HOUR, b=4)
    assert there.value(A, NOW + 2 * HOUR) == pytest.approx(0.25)
    there.observe(NOW + 3 * HOUR, write=False, b=0)
    there.observe(NOW + 4 * HOUR, write=False, b=0)
    assert there.value(B, NOW + 4 * HOUR) == pytest.approx(0.375), "what is written is older than that"


@pytest.mark.parametrize(
    "written",
    [
        None,
        "0.5",
        {},
        {"value": "x", "using": "0", "at": "2027-01-15T08:00:00Z"},
        {"value": "2", "using": "0", "at": "2027-01-15T08:00:00Z"},
        {"value": "0.5", "using": "-1", "at": "2027-01-15T08:00:00Z"},
        {"value": "0.5", "using": "0", "at": "yesterday"},
        {"value": 0.5, "using": "0", "at": "2027-01-15T08:00:00Z"},
    ],
)
def test_what_nobody_can_read_is_not_there(written: object) -> None:
    assert PastUse.read(written, NOW) is None


def test_a_time_that_is_still_to_come_is_now() -> None:
    written = PastUse(ONE // 2, WHOLE, 0).written(NOW + 10**6, HOUR)
    found = PastUse.read(written, NOW)
    assert found is not None
    assert found.at == micros(NOW)


@given(value=st.integers(0, ONE), part=parts, half_life=half_lives)
def test_what_is_written_is_read_again(value: int, part: int, half_life: int) -> None:
    past = PastUse(value, part, micros(NOW))
    found = PastUse.read(past.written(NOW, half_life), NOW)
    assert found == PastUse(value // WHOLE * WHOLE, part, micros(NOW))


def test_trees_without_a_half_life_have_no_past() -> None:
    tree = quota_tree(TWO, {"research": cohort(own=4)})
    assert PastUses().at(tree, NOW) is NO_PAST
    assert list(members(tree)) == []


def test_a_cohort_uses_what_its_queues_take_of_what_is_above_it() -> None:
    queues = {A: member(cohort="left"), B: member(cohort="right")}
    cohorts = {"company": cohort(own=4, halfLife="1h"), "left": cohort("company"), "right": cohort("company")}
    there = Statuses(queues, cohorts)
    there.observe(NOW, a=2)
    written = there.written[False, "left"]
    assert written is not None
    assert (written["value"], written["using"]) == ("0", "0.5")

"""Trees of quota: what is available to whom."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import CohortSpec
from multimirror.scheduling.quota import Node, QuotaTree, QuotaUsage, Short
from tests.unit.scheduling.trees import cohort, of, queue, random_jobs, random_tree, usage

UNIT = 10**9


def available(found: QuotaUsage, name: str, resource: str = "cpu") -> float | None:
    amount = found.available(name, resource)
    return None if amount is None else amount / UNIT


def most(found: QuotaUsage, name: str, resource: str = "cpu") -> float | None:
    amount = found.most(name, resource)
    return None if amount is None else amount / UNIT


def test_without_a_cohort_the_quota_is_the_limit() -> None:
    found = usage({"a": queue(5, None), "b": queue(7, None)}, a=2)
    assert (available(found, "a"), available(found, "b"), most(found, "a")) == (3, 7, 5)


def test_what_others_do_not_use_is_borrowed() -> None:
    found = usage({"a": queue(5), "b": queue(5)}, a=2)
    assert (available(found, "a"), available(found, "b"), most(found, "a")) == (8, 8, 10)


def test_no_more_is_borrowed_than_the_queue_may() -> None:
    found = usage({"a": queue(5, borrow=2), "b": queue(5)}, a=6)
    assert (available(found, "a"), most(found, "a")) == (1, 7)


def test_no_more_is_lent_than_the_queue_gives() -> None:
    found = usage({"a": queue(5), "b": queue(5, lend=1)})
    assert (available(found, "a"), available(found, "b")) == (6, 10)


def test_what_is_not_lent_is_used_first_and_is_nobody_elses_matter() -> None:
    found = usage({"a": queue(5), "b": queue(5, lend=1)}, b=4)
    assert (available(found, "a"), available(found, "b")) == (6, 6)
    found.add("b", of(2))
    assert (available(found, "a"), available(found, "b")) == (4, 4)


def test_a_cohorts_pool_comes_on_top_of_its_members_quota() -> None:
    found = usage({"a": queue(5), "b": queue(5)}, {"all": cohort(3)})
    assert available(found, "a") == 13


def test_limits_of_a_cohort_hold_for_all_below_it() -> None:
    cohorts = {"left": cohort(None, "root", borrow=1, lend=2), "right": cohort(None, "root")}
    found = usage({"a": queue(5, "left"), "b": queue(5, "left"), "c": queue(5, "right")}, cohorts)
    assert (available(found, "a"), available(found, "c")) == (11, 7)


def test_whoever_uses_more_than_there_is_leaves_nothing_to_anybody() -> None:
    found = usage({"a": queue(5), "b": queue(5, borrow=0, lend=0)}, a=20)
    assert (available(found, "a"), available(found, "b")) == (0, 0)


def test_a_cohort_that_is_only_named_is_a_root_without_quota() -> None:
    tree = QuotaTree({"a": queue(5, "named")}, {"other": cohort(3)})
    node = tree.cohorts["named"]
    assert (node.parent, node.quotas["cpu"].own, node.quotas["cpu"].subtree) == (None, 0, 5 * UNIT)


def test_a_parent_that_is_only_named_joins_its_children() -> None:
    found = usage(
        {"a": queue(5, "left"), "b": queue(5, "right")}, {"left": cohort(parent="x"), "right": cohort(parent="x")}
    )
    assert available(found, "a") == 10


def test_a_queue_and_a_cohort_may_have_the_same_name() -> None:
    found = usage({"all": queue(2), "b": queue(3)}, {"all": cohort(1)})
    assert available(found, "all") == 6


CYCLE = {"x": cohort(5, "y"), "y": cohort(5, "x"), "below": cohort(5, "y"), "root": cohort(5)}
AROUND = {"in": queue(5, "x"), "under": queue(5, "below"), "out": queue(5, "root")}


class TestCycle:
    def test_nothing_is_available_to_queues_on_a_cycle_or_below_one(self) -> None:
        found = usage(AROUND, CYCLE)
        assert [available(found, name) for name in AROUND] == [0, 0, 10]
        assert [most(found, name) for name in AROUND] == [0, 0, 10]
        assert not found.fits("in", of(1))
        assert found.fits("in", {})

    def test_nothing_of_a_resource_without_limit_either(self) -> None:
        assert not usage(AROUND, CYCLE).fits("in", of({"gpu": 1}))

    def test_says_which_cohorts_make_it(self) -> None:
        tree = QuotaTree(AROUND, CYCLE)
        cycle = tree.queues["under"].cycle
        assert cycle is not None
        assert set(cycle.cohorts) == {"x", "y"}
        assert str(cycle) in (
            "cohorts are each other's parents: x in y in x",
            "cohorts are each other's parents: y in x in y",
        )
        assert tree.queues["out"].cycle is None

    def test_is_over_when_one_of_them_has_another_parent(self) -> None:
        found = usage(AROUND, CYCLE | {"x": cohort(5)})
        assert available(found, "in") == 25

    def test_a_cohort_may_be_its_own_parent_and_harms_only_itself(self) -> None:
        found = usage({"a": queue(5, "x"), "b": queue(5, "root")}, {"x": cohort(5, "x")})
        assert (available(found, "a"), available(found, "b")) == (0, 5)


class TestUnlistedResource:
    """Against Kueue, where nothing of it is given."""

    def test_is_not_limited(self) -> None:
        found = usage({"a": queue(5, None), "b": queue(5)})
        assert available(found, "a", "gpu") is None
        assert available(found, "b", "gpu") is None
        assert found.fits("a", of({"gpu": 1000}))

    def test_is_neither_limited_nor_counted_where_only_other_queues_list_it(self) -> None:
        found = usage({"a": queue({"cpu": 5}), "b": queue({"cpu": 5, "gpu": 8})}, a={"gpu": 100})
        assert available(found, "a", "gpu") is None
        assert available(found, "b", "gpu") == 8

    def test_is_borrowed_from_a_pool_above(self) -> None:
        found = usage({"a": queue({"cpu": 5}), "b": queue({"cpu": 5})}, {"all": cohort({"gpu": 8})}, a={"gpu": 5})
        assert (available(found, "a", "gpu"), available(found, "b", "gpu")) == (3, 3)

    def test_a_queue_that_may_borrow_some_lists_it(self) -> None:
        found = usage({"a": queue({"cpu": 5}, borrow={"gpu": 2}), "b": queue({"gpu": 8})})
        assert available(found, "a", "gpu") == 2


def test_short_says_what_is_missing_and_what_there_is() -> None:
    found = usage({"a": queue({"cpu": 5, "gpu": 1}), "b": queue({"cpu": 1, "gpu": 1})}, a={"cpu": 4})
    assert found.short("a", of({"cpu": 3, "gpu": 2, "memory": 9})) == (Short("cpu", 3 * UNIT, 2 * UNIT),)
    assert found.above_most("a", of({"cpu": 7, "gpu": 2})) == (Short("cpu", 7 * UNIT, 6 * UNIT),)
    assert found.above_own("a", of({"cpu": 2, "gpu": 1})) == (Short("cpu", 2 * UNIT, UNIT),)


@pytest.mark.parametrize(("asked", "distance"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (60, 3)])
def test_distance_is_the_height_of_the_lowest_cohort_that_holds_it(asked: int, distance: int) -> None:
    cohorts = {"low": cohort(2, "middle"), "middle": cohort(2, "high"), "high": cohort(2)}
    assert usage({"a": queue(1, "low")}, cohorts).distance("a", of(asked)) == distance


def test_what_a_queue_does_not_lend_is_used_before_it_borrows() -> None:
    found = usage({"a": queue(3, "low", lend=1)}, {"low": cohort(2, "high"), "high": cohort(2)})
    assert [found.distance("a", of(size)) for size in (3, 5, 6)] == [0, 1, 2]


def test_amounts_beyond_64_bits_are_counted_exactly() -> None:
    found = usage({"a": queue(10)})
    found.add("a", of("9223372036855775"))  # type: ignore[arg-type]
    found.remove("a", of("9223372036855774"))  # type: ignore[arg-type]
    assert available(found, "a") == 9


def test_a_queue_that_there_is_not_uses_nothing() -> None:
    found = usage({"a": queue(5)}, gone=3)
    assert available(found, "a") == 5


def test_forks_do_not_see_each_others_changes() -> None:
    first = usage({"a": queue(5), "b": queue(5)}, a=1)
    second = first.fork()
    first.add("a", of(2))
    second.add("b", of(4))
    third = second.fork()
    second.remove("b", of(3))
    assert [available(each, "a") for each in (first, second, third)] == [7, 8, 5]


def _shown(found: QuotaUsage) -> dict[Node, dict[str, int]]:
    return {node: {name: found.used(node, name) for name in node.quotas} for node in found.tree.nodes}


seeds = st.integers(0, 10**6)


@settings(max_examples=60)
@given(seeds)
def test_adding_and_removing_leaves_no_trace(seed: int) -> None:
    random = Random(seed)
    found = QuotaUsage(QuotaTree(*random_tree(random, ("cpu", "gpu"))))
    jobs = random_jobs(random, found.tree.queues, ("cpu", "gpu"), 12)
    for each in jobs[::2]:
        found.add(each.queue, each.requests)
    before = _shown(found)
    for each in jobs[1::2]:
        found.add(each.queue, each.requests)
    for each in random.sample(jobs[1::2], len(jobs[1::2])):
        found.remove(each.queue, each.requests)
    assert _shown(found) == before


@settings(max_examples=60)
@given(seeds)
def test_cohorts_use_what_their_members_use_beyond_their_local_part(seed: int) -> None:
    random = Random(seed)
    found = QuotaUsage(QuotaTree(*random_tree(random, ("cpu", "gpu"))))
    for each in random_jobs(random, found.tree.queues, ("cpu", "gpu"), 20):
        found.add(each.queue, each.requests)
    for node in found.tree.nodes:
        for name in node.quotas if not node.is_queue else ():
            members = [child for child in node.children if name in child.quotas]
            beyond = (max(0, found.used(each, name) - each.quotas[name].local) for each in members)
            assert found.used(node, name) == sum(beyond)


@settings(max_examples=60)
@given(seeds)
def test_what_fits_is_what_is_available_and_never_more_than_the_most(seed: int) -> None:
    """And P1: by placing what fits, no limit is ever broken."""
    random = Random(seed)
    queues, cohorts = random_tree(random, ("cpu", "gpu"))
    found = QuotaUsage(QuotaTree(queues, cohorts))
    for each in random_jobs(random, queues, ("cpu", "gpu"), 30):
        for name in ("cpu", "gpu"):
            left = found.available(each.queue, name)
            could = found.most(each.queue, name)
            assert left is not None
            assert could is not None
            assert 0 <= left <= could
            assert found.fits(each.queue, {name: left})
            assert not found.fits(each.queue, {name: left + 1})
        if found.fits(each.queue, each.requests):
            found.add(each.queue, each.requests)
        _within_limits(found)


def _within_limits(found: QuotaUsage) -> None:
    for node in found.tree.nodes:
        for name, quota in node.quotas.items():
            if node.parent is None:
                assert found.used(node, name) <= quota.subtree
            elif quota.borrow is not None:
                assert found.used(node, name) <= quota.subtree + quota.borrow


@settings(max_examples=60)
@given(seeds)
def test_reaching_is_what_adding_does(seed: int) -> None:
    random = Random(seed)
    found = QuotaUsage(QuotaTree(*random_tree(random, ("cpu", "gpu"))))
    for each in random_jobs(random, found.tree.queues, ("cpu", "gpu"), 10):
        before = _shown(found)
        reaching = {node: dict(adds) for node, adds in found.reaching(each.queue, each.requests)}
        found.add(each.queue, each.requests)
        for node, used in _shown(found).items():
            for name, amount in used.items():
                assert amount == before[node][name] + reaching.get(node, {}).get(name, 0)


def test_the_default_cohort_is_one_that_is_only_named() -> None:
    named = usage({"a": queue(5), "b": queue(5)})
    made = usage({"a": queue(5), "b": queue(5)}, {"all": CohortSpec()})
    assert available(named, "a") == available(made, "a") == 10

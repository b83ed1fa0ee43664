"""Shares, and who is next by them."""

from fractions import Fraction
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.scheduling.heads import Head, HeadOrder, Precedence
from multimirror.scheduling.quota import QuotaTree, QuotaUsage
from multimirror.scheduling.shares import NO_SHARE, Share, share, share_of_cohort, share_of_queue
from tests.unit.scheduling.trees import Given, cohort, of, queue, random_jobs, random_tree, usage


def test_who_is_within_its_quota_has_no_share() -> None:
    found = share_of_queue(usage({"a": queue(5), "b": queue(5)}, a=5), "a")
    assert (found.thousandths, found.borrows, found.resource) == (0, False, "")


def test_a_share_is_what_is_borrowed_of_what_could_be_lent_by_weight() -> None:
    found = usage({"a": queue(2), "b": queue(8, weight="2")}, a=4, b=9)
    assert (share_of_queue(found, "a").thousandths, share_of_queue(found, "b").thousandths) == (200, 50)


def test_the_resource_with_the_largest_part_counts() -> None:
    found = share_of_queue(
        usage({"a": queue({"cpu": 0, "gpu": 0}), "b": queue({"cpu": 100, "gpu": 4})}, a={"cpu": 10, "gpu": 1}), "a"
    )
    assert (found.thousandths, found.resource) == (250, "gpu")


def test_of_equal_parts_the_first_name_is_told() -> None:
    both = usage({"a": queue({"x": 0, "b": 0}), "b": queue({"x": 4, "b": 4})}, a={"x": 1, "b": 1})
    assert share_of_queue(both, "a").resource == "b"


def test_what_is_shown_is_rounded_up() -> None:
    assert share_of_queue(usage({"a": queue(0), "b": queue(3)}, a=1), "a").thousandths == 334


def test_a_cohort_has_a_share_in_its_parent() -> None:
    found = usage({"a": queue(0, "x")}, {"x": cohort(0, "root", weight="2"), "root": cohort(10)}, a=2)
    assert share_of_cohort(found, "x").thousandths == 100
    assert share_of_cohort(found, "root").thousandths == 0


def test_nothing_that_could_be_lent_is_no_share_but_it_borrows() -> None:
    found = share_of_queue(usage({"a": queue(0), "b": queue(0)}, a=1), "a")
    assert (found.thousandths, found.borrows) == (0, True)


def test_weight_0_is_infinite_while_it_borrows_and_then_compared_without_weight() -> None:
    found = usage({"a": queue(1, weight="0"), "b": queue(1, weight="0"), "c": queue(8)}, a=2, b=3, c=1)
    a, b, c = (share_of_queue(found, name) for name in "abc")
    assert (a.thousandths, str(a)) == (None, "infinite")
    assert c < a < b
    assert share_of_queue(usage({"a": queue(1, weight="0")}, a=1), "a") == NO_SHARE


def test_shares_that_differ_by_less_than_any_float_are_told_apart() -> None:
    big = 10**30
    assert Share(big, 3 * big - 1, borrows=True) > Share(big, 3 * big, borrows=True)
    assert Share(1, 3, borrows=True) == Share(big, 3 * big, borrows=True)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 4), st.integers(1, 3)), max_size=8))
def test_shares_are_in_the_order_of_their_fractions(drawn: list[tuple[int, int, int, int]]) -> None:
    def exact(over: int, lendable: int, weight: Fraction) -> tuple[bool, Fraction]:
        return not weight, Fraction(over, lendable) / (weight or 1)

    given_ = [(over, lendable, Fraction(n, d)) for over, lendable, n, d in drawn]
    shares = sorted(given_, key=lambda each: Share(*each, borrows=True))
    assert [exact(*each) for each in shares] == sorted(exact(*each) for each in given_)


def order(found: QuotaUsage, *heads: Head) -> list[str]:
    """By queue; each is placed when it is next."""
    heap = HeadOrder(found)
    for head in heads:
        heap.put(head.queue, head)
    told = []
    while (head := heap.best()) is not None:  # type: ignore[assignment]
        told.append(head.queue)
        found.add(head.queue, head.requests)
        heap.put(head.queue, None)
    return told


def head(name: str, size: Given, priority: int = 0, age: int = 0, precedence: Precedence = Precedence.NONE) -> Head:
    return Head(name, of(size), (-priority, age, name), precedence)


def test_who_stays_within_its_quota_goes_before_who_borrows() -> None:
    found = usage({"a": queue(5), "b": queue(5)}, a=5)
    assert order(found, head("a", 1, priority=9), head("b", 5)) == ["b", "a"]


def test_within_means_of_what_is_asked() -> None:
    found = usage({"a": queue({"cpu": 5, "gpu": 0}), "b": queue({"cpu": 0, "gpu": 5})}, a={"gpu": 4})
    assert order(found, head("b", {"cpu": 1}), head("a", {"cpu": 5})) == ["a", "b"]


def test_who_borrows_less_after_it_goes_first_by_weight() -> None:
    found = usage({"a": queue(0), "b": queue(0, weight="2"), "c": queue(9)}, a=1)
    assert order(found, head("a", 1, priority=9), head("b", 3)) == ["b", "a"]


def test_on_equal_shares_priority_decides_then_age() -> None:
    queues = {name: queue(0) for name in "abcd"} | {"lends": queue(9)}
    found = usage(queues)
    assert order(found, head("a", 1, age=2), head("b", 1, age=1), head("c", 1, priority=1, age=3)) == ["c", "b", "a"]


def test_at_each_fork_the_sides_are_compared() -> None:
    """The cohort of b and c has used its part, though c itself has nothing."""
    cohorts = {"x": cohort(parent="root"), "y": cohort(parent="root"), "root": cohort(20)}
    found = usage({"a": queue(0, "x"), "b": queue(0, "y"), "c": queue(0, "y")}, cohorts, a=4, b=8)
    assert order(found, head("a", 1), head("c", 1, priority=9)) == ["a", "c"]


def test_between_trees_only_priority_and_age_count() -> None:
    found = usage({"a": queue(0, "x"), "rich": queue(9, "x"), "b": queue(9, None)}, a=4)
    assert order(found, head("a", 1, priority=1), head("b", 1)) == ["a", "b"]
    full = usage({"a": queue(1, None), "b": queue(9, None)}, a=1)
    assert order(full, head("a", 1, priority=1), head("b", 1)) == ["a", "b"]


def test_who_waits_for_victims_goes_first() -> None:
    found = usage({"a": queue(0), "b": queue(9)}, a=4)
    heads = head("b", 1, priority=9), head("a", 1, precedence=Precedence.WAITS_FOR_VICTIMS)
    assert order(found, *heads) == ["a", "b"]


def test_after_a_placement_the_next_job_of_the_queue_competes_at_once() -> None:
    found = usage({"a": queue(0), "b": queue(0), "lends": queue(9)})
    heap = HeadOrder(found)
    heap.put("a", head("a", 1, priority=1))
    heap.put("b", head("b", 1))
    told = []
    for _ in range(4):
        best = heap.best()
        assert best is not None
        told.append(best.queue)
        found.add(best.queue, best.requests)
        heap.put(best.queue, best)
    assert told == ["a", "b", "a", "b"]


def test_who_loses_something_comes_forward_when_that_is_said() -> None:
    found = usage({"a": queue(0), "b": queue(0), "lends": queue(9)}, a=3, b=2)
    heap = HeadOrder(found)
    heap.put("a", head("a", 1))
    heap.put("b", head("b", 1))
    found.remove("a", of(3))
    heap.refresh("a")
    best = heap.best()
    assert best is not None
    assert best.queue == "a"


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_the_heaps_say_what_comparing_everybody_says(seed: int) -> None:
    random = Random(seed)
    found = QuotaUsage(QuotaTree(*random_tree(random, ("cpu", "gpu"))))
    jobs = random_jobs(random, found.tree.queues, ("cpu", "gpu"), 25)
    lines: dict[str, list[Head]] = {name: [] for name in found.tree.queues}
    for each in jobs:
        lines[each.queue].append(Head(each.queue, each.requests, each.order))
    heap = HeadOrder(found)
    for name, line in lines.items():
        heap.put(name, line[0] if line else None)
    while (best := heap.best()) is not None:
        assert best is _best(found, {name: line[0] for name, line in lines.items() if line})
        found.add(best.queue, best.requests)
        lines[best.queue].pop(0)
        heap.put(best.queue, next(iter(lines[best.queue]), None))
    assert not any(lines.values())


def _best(found: QuotaUsage, heads: dict[str, Head]) -> Head:
    """By going through the whole tree."""

    def sent_up(node_index: int) -> Head | None:
        node = found.tree.nodes[node_index]
        if node.is_queue:
            return heads.get(node.name)
        best = None
        for child in node.children:
            one = sent_up(child.index)
            if one is None:
                continue
            fork = found.fork()
            fork.add(one.queue, one.requests)
            borrows = any(fork.over(child, name) > 0 for name in _reaches(found, fork, child.index, one))
            key = borrows, share(fork, child), one.order
            if best is None or key < best[0]:
                best = key, one
        return best[1] if best is not None else None

    roots = [sent_up(node.index) for node in found.tree.nodes if node.parent is None]
    return min((one for one in roots if one is not None), key=lambda one: one.order)


def _reaches(before: QuotaUsage, after: QuotaUsage, index: int, one: Head) -> list[str]:
    node = before.tree.nodes[index]
    return [name for name in one.requests if before.used(node, name) != after.used(node, name)]

"""Who has what of the quota, and of whom: as the status of queues and cohorts tells it."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import CohortSpec, MirrorQueueSpec, Preempts, Quota
from multimirror.kinds.pod_sets import Amounts, nanos
from multimirror.observe.fair_shares import Claim, dealt
from multimirror.observe.quotas import Quotas, in_proportion
from multimirror.observe.sharing import Overuse, QuotaView, sharing_conditions

CPU = "cpu"
GI = 2**30


def a_quota(own: int | None = None, borrow: int | None = None, lend: int | None = None, **more: Any) -> Quota:
    def of(amount: int | None) -> dict[str, Decimal]:
        return {CPU: Decimal(amount)} if amount is not None else {}

    return Quota(resources=of(own), borrow=of(borrow), lend=of(lend), **more)


def a_queue(
    own: int | None = None, *, cohort: str | None = "c", weight: float = 1, jobs: int | None = None, **limits: int
) -> MirrorQueueSpec:
    return MirrorQueueSpec(cohort=cohort, weight=Fraction(weight), quota=a_quota(own, jobs=jobs, **limits))


def reclaims(own: int) -> MirrorQueueSpec:
    return replace(a_queue(own), preempts=frozenset({Preempts.RECLAIM}))


def counted(
    queues: Mapping[str, MirrorQueueSpec],
    used: Mapping[str, int],
    *,
    cohorts: Mapping[str, CohortSpec] | None = None,
    waiting: Mapping[str, int] | None = None,
    jobs: int = 0,
) -> Quotas:
    def usage(queue: str) -> tuple[int, Amounts]:
        return jobs, {CPU: nanos(used.get(queue, 0))}

    quotas = Quotas(queues, cohorts or {})
    wanted = {queue: {CPU: nanos(amount)} for queue, amount in (waiting or {}).items()}
    for _ in quotas.count(usage, wanted):
        pass
    return quotas


def of(quotas: Quotas, queue: str) -> tuple[int, int, int, int]:
    """own, used, borrowed, lent."""
    view = quotas.queue(queue)
    assert view is not None
    return numbers(view)


def numbers(view: QuotaView | None) -> tuple[int, int, int, int]:
    assert view is not None
    parts = (view.own, view.used, view.borrowed, view.lent)
    own, used, borrowed, lent = (int(part.get(CPU, Decimal(0))) for part in parts)
    return own, used, borrowed, lent


def test_what_one_queue_borrows_another_lends() -> None:
    quotas = counted({"a": a_queue(16), "b": a_queue(16)}, {"a": 24, "b": 4})
    assert of(quotas, "a") == (16, 24, 8, 0)
    assert of(quotas, "b") == (16, 4, 0, 8)


def test_several_lenders_lend_in_proportion_to_what_they_have_left_and_whole_amounts_stay_whole() -> None:
    queues = {"a": a_queue(0), "b": a_queue(10), "c": a_queue(10), "d": a_queue(10, lend=5)}
    quotas = counted(queues, {"a": 8, "b": 6, "d": 5})
    assert [of(quotas, name)[3] for name in "abcd"] == [0, 1, 4, 3]


def test_what_may_not_be_lent_is_not_lent() -> None:
    quotas = counted({"a": a_queue(0), "b": a_queue(10, lend=0), "d": a_queue(10)}, {"a": 8})
    assert of(quotas, "b")[3] == 0
    assert of(quotas, "d")[3] == 8


def test_the_pool_of_a_cohort_is_lent_before_what_is_its_members_own() -> None:
    pool = {"c": CohortSpec(quota=a_quota(6))}
    quotas = counted({"a": a_queue(0), "b": a_queue(10)}, {"a": 8}, cohorts=pool)
    assert of(quotas, "b")[3] == 2


def test_cohorts_tell_what_goes_across_their_borders() -> None:
    cohorts = {"left": CohortSpec(parent="top"), "right": CohortSpec(parent="top", quota=a_quota(2))}
    queues = {"a": a_queue(4, cohort="left"), "b": a_queue(4, cohort="left"), "r": a_queue(1, cohort="right")}
    quotas = counted(queues, {"a": 1, "b": 6, "r": 5}, cohorts=cohorts)
    assert numbers(quotas.cohort("left")) == (8, 7, 0, 1)
    assert numbers(quotas.cohort("right")) == (3, 5, 2, 0), "its pool is its own"
    assert numbers(quotas.cohort("top")) == (11, 12, 0, 0)
    assert of(quotas, "a") == (4, 1, 0, 3)


def test_a_queue_without_a_cohort_borrows_nothing_and_has_no_share() -> None:
    quotas = counted({"a": a_queue(4, cohort=None)}, {"a": 6})
    view = quotas.queue("a")
    assert view is not None
    assert numbers(view) == (4, 6, 0, 0)
    assert (view.shares, view.fair_share) == (False, None)


def test_cohorts_that_are_each_others_parents_have_no_numbers() -> None:
    cohorts = {"c": CohortSpec(parent="d"), "d": CohortSpec(parent="c")}
    quotas = counted({"a": a_queue(4)}, {"a": 6}, cohorts=cohorts)
    assert quotas.cohort("c") is None
    assert of(quotas, "a") == (4, 6, 0, 0)


# --- shares -----------------------------------------------------------------------------------------------------------


def shares(quotas: Quotas, *queues: str) -> list[tuple[int | None, int | None]]:
    views = [quotas.queue(queue) for queue in queues]
    return [(view.share, view.fair_share) for view in views if view is not None]


def test_a_share_is_what_is_borrowed_of_what_can_be_lent_over_the_weight() -> None:
    queues = {"a": a_queue(10, weight=2), "b": a_queue(10), "idle": a_queue(0, weight=0)}
    assert shares(counted(queues, {"a": 14, "b": 2}), "a", "b", "idle")[0][0] == 100
    assert shares(counted(queues, {"idle": 2}), "idle")[0][0] is None, "infinite"


def test_what_is_left_over_is_due_by_weight_to_those_who_want_it() -> None:
    queues = {"pool": a_queue(12), "a": a_queue(0, weight=2), "b": a_queue(0)}
    quotas = counted(queues, {"a": 2, "b": 2}, waiting={"a": 100, "b": 100})
    assert [fair for _, fair in shares(quotas, "a", "b")] == [666, 333]


def test_what_others_do_not_ask_for_is_dealt_out_again() -> None:
    queues = {"pool": a_queue(12), "a": a_queue(0, weight=2), "b": a_queue(0)}
    quotas = counted(queues, {"a": 2, "b": 2}, waiting={"b": 100})
    assert [fair for _, fair in shares(quotas, "a", "b")] == [666, 833], "a could still ask for its part"


def test_nobody_is_due_more_than_it_may_borrow() -> None:
    queues = {"pool": a_queue(12), "a": a_queue(0, borrow=3), "b": a_queue(0)}
    quotas = counted(queues, {}, waiting={"a": 100, "b": 100})
    assert [fair for _, fair in shares(quotas, "a", "b")] == [250, 750]


def test_who_has_weight_0_is_due_what_nobody_else_wants() -> None:
    queues = {"pool": a_queue(12), "a": a_queue(0, weight=0), "b": a_queue(0)}
    quotas = counted(queues, {}, waiting={"a": 100, "b": 9})
    assert [fair for _, fair in shares(quotas, "a", "b")] == [250, 1000]


CLAIMS = st.lists(
    st.builds(Claim, st.sampled_from([0.5, 1.0, 2.0, 3.0]), st.integers(0, 40).map(float)), min_size=1, max_size=6
)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 60), CLAIMS)
def test_dealing_is_as_if_everybody_were_filled_little_by_little(surplus: int, claims: list[Claim]) -> None:
    for number, found in enumerate(dealt(float(surplus), claims)):
        wants = [claim.wants if each != number else float("inf") for each, claim in enumerate(claims)]
        low, high = 0.0, 1e6
        for _ in range(100):
            level = (low + high) / 2
            poured = sum(min(wants[each], level * claim.weight) for each, claim in enumerate(claims))
            low, high = (low, level) if poured > surplus else (level, high)
        assert found == pytest.approx(low * claims[number].weight, abs=1e-6)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_what_is_borrowed_is_what_is_lent(data: st.DataObject) -> None:
    amounts = st.integers(0, 8)
    names = "abcd"
    queues = {
        name: a_queue(
            data.draw(amounts),
            cohort=data.draw(st.sampled_from(["left", "right", "top"])),
            **({"lend": data.draw(amounts)} if data.draw(st.booleans()) else {}),
        )
        for name in names
    }
    cohorts = {name: CohortSpec(parent="top") for name in ("left", "right")}
    quotas = counted(queues, {name: data.draw(amounts) for name in names}, cohorts=cohorts)
    found = {name: of(quotas, name) for name in names}
    borrowed, lent = sum(each[2] for each in found.values()), sum(each[3] for each in found.values())
    overused = any(view.overused for name in names if (view := quotas.queue(name)) is not None)
    assert lent == borrowed or (overused and lent < borrowed)
    for own, used, _, lends in found.values():
        assert lends <= max(0, own - used)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(0, 300))
def test_parts_add_up_and_none_is_larger_than_its_size(sizes: list[int], total: int) -> None:
    total = min(total, sum(sizes))
    parts = in_proportion(nanos(total), [nanos(size) for size in sizes])
    assert sum(parts) == nanos(total)
    assert all(0 <= part <= nanos(size) and part % nanos(1) == 0 for part, size in zip(parts, sizes, strict=True))


# --- conditions -------------------------------------------------------------------------------------------------------


def conditions(quotas: Quotas, queue: str) -> dict[str, tuple[bool, str]]:
    return {kind: (holds, message) for kind, holds, _, message in sharing_conditions(quotas.queue(queue))}


def test_a_queue_that_borrows_says_how_much_of_what() -> None:
    found = conditions(counted({"a": a_queue(16), "b": reclaims(16)}, {"a": 24}), "a")
    assert found["Borrowing"] == (
        True,
        "it uses 24 cpu, 16 its own; 8 may be taken back at any time, by queue b first",
    )
    assert found["Overused"] == (False, "it uses no more than it may have")


def test_who_takes_back_first_is_the_nearest_who_lends_most_and_may() -> None:
    queues = {"a": a_queue(4), "b": reclaims(8), "c": a_queue(9), "d": reclaims(2)}
    found = conditions(counted(queues, {"a": 12}), "a")
    assert found["Borrowing"][1] == "it uses 12 cpu, 4 its own; 8 may be taken back at any time, by queue b first"
    queues = {"a": a_queue(4), "c": a_queue(9)}
    found = conditions(counted(queues, {"a": 12}), "a")
    assert found["Borrowing"][1] == "it uses 12 cpu, 4 its own; 8 may be taken back at any time"


@pytest.mark.parametrize(
    ("queues", "used", "overused"),
    [
        pytest.param({"a": a_queue(4, cohort=None)}, 6, [Overuse(CPU, Decimal(6), Decimal(4))], id="no cohort"),
        pytest.param({"a": a_queue(4, cohort=None)}, 4, [], id="all that it has"),
        pytest.param(
            {"a": a_queue(4, borrow=1), "b": a_queue(9)},
            6,
            [Overuse(CPU, Decimal(6), Decimal(5))],
            id="more than borrow",
        ),
        pytest.param(
            {"a": a_queue(4), "b": a_queue(1)}, 6, [Overuse(CPU, Decimal(6), Decimal(5), "c")], id="the cohort's total"
        ),
        pytest.param({"a": a_queue(6), "b": a_queue(1)}, 6, [], id="its own, whatever the cohort has"),
        pytest.param({"a": a_queue(cohort=None, jobs=1)}, 6, [Overuse("", Decimal(2), Decimal(1))], id="Jobs"),
    ],
)
def test_a_queue_is_overused_when_it_has_more_than_it_may(
    queues: dict[str, MirrorQueueSpec], used: int, overused: list[Overuse]
) -> None:
    view = counted(queues, {"a": used}, jobs=2).queue("a")
    assert view is not None
    assert list(view.overused) == overused


def test_overuse_is_told_with_both_numbers() -> None:
    found = conditions(counted({"a": a_queue(4, cohort=None)}, {"a": 6}), "a")
    assert found == {
        "Overused": (
            True,
            "it uses 6 cpu and may have 4, since quota was taken away. Nothing is stopped for that, and nothing more "
            "is placed until less is used",
        )
    }


def test_a_queue_that_limits_nothing_has_neither_condition() -> None:
    assert conditions(counted({"a": a_queue(cohort=None)}, {"a": 6}), "a") == {}

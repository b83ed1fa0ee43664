"""Whom to stop so that a Job can run."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import CohortSpec, MirrorQueueSpec, Preempts
from multimirror.scheduling.preemption import MOST_CHECKS, find_preemption, kept_free
from multimirror.scheduling.quota import Node, QuotaTree, QuotaUsage, Short
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.sharing import PassQuota
from multimirror.scheduling.simulation import SimulatedJob, Simulation
from multimirror.scheduling.trial import AmountsRoom
from multimirror.scheduling.victims import (
    NobodyToStop,
    OwnQuotaOnly,
    Plan,
    Preemption,
    Preemptor,
    Protected,
    Standing,
    Surroundings,
)
from tests.unit.scheduling.trees import (
    ALL,
    FAIR,
    PRIORITY,
    RECLAIM,
    cohort,
    job,
    of,
    queue,
    random_jobs,
    random_tree,
    search,
    victims,
)

UNIT = 10**9


class TestReclaim:
    def test_own_quota_is_taken_back_whatever_the_priority(self) -> None:
        queues = {"a": queue(4, preempts=[RECLAIM]), "b": queue(4)}
        found = search(queues, [job("b1", "b", 4, 9), job("b2", "b", 4, 8)], ("a", 3))
        assert victims(found) == {"b2": "Reclaim"}

    def test_who_is_within_its_own_quota_loses_nothing(self) -> None:
        queues = {"a": queue(4, preempts=ALL), "b": queue(2), "c": queue(0)}
        found = search(queues, [job("b1", "b", 2, -9), job("c1", "c", 3)], ("a", 4))
        assert victims(found) == {"c1": "Reclaim"}

    def test_only_for_what_is_within_the_own_quota(self) -> None:
        queues = {"a": queue(4, preempts=[RECLAIM]), "b": queue(4)}
        assert isinstance(search(queues, [job("b1", "b", 8)], ("a", 5)), NobodyToStop)

    def test_the_largest_share_gives_first_then_the_latest_placed(self) -> None:
        queues = {"a": queue(4, preempts=[RECLAIM]), "b": queue(0), "c": queue(0), "d": queue(6)}
        running = [job("b1", "b", 4), *(job(f"c{n}", "c", 2, placed=n) for n in (1, 2, 3))]
        assert victims(search(queues, running, ("a", 2))) == {"c3": "Reclaim"}

    def test_weights_say_whose_share_is_larger(self) -> None:
        queues = {"a": queue(4, preempts=[RECLAIM]), "b": queue(0), "c": queue(0, weight="3"), "d": queue(6)}
        running = [*(job(f"b{n}", "b", 2) for n in (1, 2)), *(job(f"c{n}", "c", 2) for n in (1, 2, 3))]
        assert victims(search(queues, running, ("a", 2))) == {"b1": "Reclaim"}

    def test_the_nearest_fork_gives_first(self) -> None:
        """Those of the own cohort, though somebody farther away has more."""
        cohorts = {"near": cohort(parent="root"), "root": cohort(0)}
        queues = {"a": queue(4, "near", preempts=[RECLAIM]), "b": queue(0, "near"), "c": queue(6, "root")}
        running = [job("b1", "b", 2), job("c1", "c", 2), job("c2", "c", 6)]
        assert victims(search(queues, running, ("a", 2), cohorts)) == {"b1": "Reclaim"}

    def test_a_cohorts_pool_is_its_queues_to_take_back(self) -> None:
        cohorts = {"ours": cohort(3, "root"), "root": cohort(0)}
        queues = {"a": queue(0, "ours", preempts=[RECLAIM]), "b": queue(0, "root")}
        assert victims(search(queues, [job("b1", "b", 3)], ("a", 3), cohorts)) == {"b1": "Reclaim"}

    def test_a_side_within_its_quota_is_spared_though_a_queue_in_it_borrows(self) -> None:
        cohorts = {"theirs": cohort(3, "root"), "root": cohort(0)}
        queues = {"a": queue(2, "root", preempts=ALL), "b": queue(0, "theirs"), "c": queue(0, "root")}
        running = [job("b1", "b", 3), job("c1", "c", 2, 9)]
        assert victims(search(queues, running, ("a", 2), cohorts)) == {"c1": "Reclaim"}

    def test_who_uses_nothing_contended_is_left_alone(self) -> None:
        queues = {"a": queue({"cpu": 4, "gpu": 0}, preempts=[RECLAIM]), "b": queue({"cpu": 4, "gpu": 4})}
        running = [job("b1", "b", {"gpu": 2}, -9), job("b2", "b", {"cpu": 8})]
        assert victims(search(queues, running, ("a", {"cpu": 4}))) == {"b2": "Reclaim"}

    def test_a_side_has_to_be_over_in_what_its_job_uses(self) -> None:
        """b borrows cpu within its cohort, which itself borrows only gpu."""
        cohorts = {"theirs": cohort({"cpu": 4, "gpu": 0}, "root"), "root": cohort({"cpu": 0, "gpu": 0})}
        queues = {
            "a": queue({"cpu": 2, "gpu": 2}, "root", preempts=[RECLAIM]),
            "b": queue({"cpu": 0, "gpu": 0}, "theirs"),
            "c": queue({"cpu": 0, "gpu": 0}, "root"),
        }
        running = [job("b1", "b", {"cpu": 4}, -9), job("b2", "b", {"gpu": 2}), job("c1", "c", {"cpu": 2}, 9)]
        found = search(queues, running, ("a", {"cpu": 2, "gpu": 2}), cohorts)
        assert victims(found) == {"b2": "Reclaim", "c1": "Reclaim"}

    def test_a_queue_keeps_its_own_of_one_resource_though_it_borrows_another(self) -> None:
        cohorts = {"theirs": cohort({"cpu": 0, "gpu": 0}, "root"), "root": cohort({"cpu": 0, "gpu": 0})}
        queues = {
            "a": queue({"cpu": 2, "gpu": 1}, "root", preempts=[RECLAIM]),
            "b": queue({"cpu": 4, "gpu": 0}, "theirs"),
            "c": queue({"cpu": 0, "gpu": 0}, "theirs"),
        }
        running = [job("b1", "b", {"cpu": 4}, -9), job("b2", "b", {"gpu": 1}), job("c1", "c", {"cpu": 2}, 9)]
        found = search(queues, running, ("a", {"cpu": 2, "gpu": 1}), cohorts)
        assert victims(found) == {"b2": "Reclaim", "c1": "Reclaim"}

    def test_on_equal_shares_a_cohort_gives_before_a_queue(self) -> None:
        cohorts = {"x": cohort(0, "root"), "root": cohort(0)}
        queues = {"a": queue(4, "root", preempts=[RECLAIM]), "b": queue(0, "root"), "c": queue(0, "x")}
        running = [job("b1", "b", 2, -9), job("c1", "c", 2, 9)]
        assert victims(search(queues, running, ("a", 2), cohorts)) == {"c1": "Reclaim"}

    def test_on_equal_shares_of_queues_the_lower_priority_gives_first(self) -> None:
        queues = {"a": queue(4, preempts=[RECLAIM]), "b": queue(0), "c": queue(0)}
        running = [job("b1", "b", 2, 5), job("c1", "c", 2, 4)]
        assert victims(search(queues, running, ("a", 2))) == {"c1": "Reclaim"}
        running = [job("b1", "b", 2, 3), job("c1", "c", 2, 4)]
        assert victims(search(queues, running, ("a", 2))) == {"b1": "Reclaim"}

    def test_who_is_not_needed_after_all_is_spared(self) -> None:
        queues = {"a": queue(3, preempts=[RECLAIM]), "b": queue(3), "c": queue(3)}
        running = [job("b1", "b", 2), job("b2", "b", 3), job("c1", "c", 3), job("c2", "c", 1)]
        assert victims(search(queues, running, ("a", 3))) == {"c1": "Reclaim"}

    def test_the_numbers_that_were_compared_are_told(self) -> None:
        found = search(
            {"a": queue(4, preempts=[RECLAIM]), "b": queue(4)}, [job("b1", "b", 7), job("a1", "a", 1)], ("a", 3)
        )
        assert isinstance(found, Preemption)
        compared = found.victims[0].compared
        assert compared is not None
        assert (compared.resource, compared.asked) == ("cpu", 3 * UNIT)
        assert compared.taker == Standing("a", True, 1 * UNIT, 4 * UNIT)
        assert compared.giver == Standing("b", True, 7 * UNIT, 4 * UNIT)
        assert (found.plan, found.contended) == (Plan.RECLAIM, ("cpu",))


class TestPriority:
    def test_lower_ones_of_the_own_queue_make_room(self) -> None:
        queues = {"a": queue(6, None, preempts=[PRIORITY])}
        running = [job("low", "a", 1, -1), job("mid", "a", 2), job("high", "a", 3, 1)]
        assert victims(search(queues, running, ("a", 2, 1))) == {"mid": "Priority"}

    def test_equals_are_not_stopped(self) -> None:
        queues = {"a": queue(4, None, preempts=[PRIORITY])}
        assert isinstance(search(queues, [job("a1", "a", 4, 1)], ("a", 1, 1)), NobodyToStop)

    def test_other_queues_are_not_asked(self) -> None:
        queues = {"a": queue(4, preempts=[PRIORITY]), "b": queue(4)}
        assert isinstance(search(queues, [job("b1", "b", 8, -9)], ("a", 4, 9)), NobodyToStop)

    def test_it_buys_no_larger_share(self) -> None:
        queues = {"a": queue(2, preempts=[PRIORITY]), "b": queue(2)}
        running = [job("a1", "a", 1), job("b1", "b", 1)]
        assert isinstance(search(queues, running, ("a", 4, 9)), NobodyToStop)
        assert isinstance(search(queues, running, ("a", 3, 9)), NobodyToStop)

    def test_not_even_of_a_resource_that_is_free(self) -> None:
        queues = {"a": queue({"cpu": 2, "gpu": 1}, preempts=[PRIORITY]), "b": queue({"cpu": 0, "gpu": 4})}
        running = [job("a1", "a", {"cpu": 2})]
        assert isinstance(search(queues, running, ("a", {"cpu": 2, "gpu": 2}, 9)), NobodyToStop)
        assert victims(search(queues, running, ("a", {"cpu": 2, "gpu": 1}, 9))) == {"a1": "Priority"}


class TestFairShare:
    QUEUE = staticmethod(lambda: {name: queue(3, preempts=[FAIR, RECLAIM]) for name in "abc"})

    def test_is_taken_down_to_what_is_left_to_the_other(self) -> None:
        running = [*(job(f"a{n}", "a", 1) for n in range(6)), *(job(f"b{n}", "b", 1) for n in range(3))]
        assert victims(search(self.QUEUE(), running, ("b", 1))) == {"a0": "FairShare"}
        running = [*(job(f"a{n}", "a", 1) for n in range(5)), *(job(f"b{n}", "b", 1) for n in range(4))]
        assert isinstance(search(self.QUEUE(), running, ("b", 1)), NobodyToStop)

    def test_one_too_large_is_passed_over_for_one_that_leaves_enough(self) -> None:
        running = [job("a1", "a", 5), job("a2", "a", 1, 9), job("b1", "b", 3)]
        assert victims(search(self.QUEUE(), running, ("b", 1))) == {"a2": "FairShare"}

    def test_weight_0_gives_all_that_it_borrows_but_nothing_of_its_own(self) -> None:
        queues = {"a": queue(3, weight="0"), "b": queue(1, preempts=[FAIR])}
        assert victims(search(queues, [job("a1", "a", 3), job("a2", "a", 1)], ("b", 1))) == {"a1": "FairShare"}
        assert isinstance(search(queues, [job("a1", "a", 3), job("b1", "b", 1)], ("b", 1)), NobodyToStop)

    def test_weight_0_gives_even_to_one_that_borrows_then_more_than_it(self) -> None:
        queues = {"a": queue(0, weight="0"), "b": queue(0, preempts=[FAIR]), "pool": queue(2)}
        assert victims(search(queues, [job("a1", "a", 2)], ("b", 1))) == {"a1": "FairShare"}

    def test_what_is_contended_counts_by_itself(self) -> None:
        """Their share is larger for another resource; of what we ask for, they would have less than we."""
        queues = {
            "a": queue({"cpu": 0, "gpu": 0}, preempts=[FAIR]),
            "b": queue({"cpu": 0, "gpu": 0}),
            "c": queue({"cpu": 4, "gpu": 4}),
        }
        running = [
            job("a1", "a", {"cpu": 1}),
            job("b1", "b", {"cpu": 2}),
            job("b2", "b", {"gpu": 4}),
            job("c1", "c", {"cpu": 1}),
        ]
        assert isinstance(search(queues, running, ("a", {"cpu": 1})), NobodyToStop)

    def test_weight_0_takes_nothing_from_who_has_a_weight(self) -> None:
        queues = {"a": queue(1, weight="0", preempts=[FAIR]), "b": queue(1)}
        assert isinstance(
            search(queues, [job("a1", "a", 1), job("b1", "b", 1), job("b2", "b", 0.5)], ("a", 1)), NobodyToStop
        )

    def test_what_one_has_much_of_otherwise_counts_too(self) -> None:
        """Our share of gpu is larger than theirs of cpu."""
        queues = {
            "a": queue({"cpu": 0, "gpu": 0}, preempts=[FAIR]),
            "b": queue({"cpu": 0, "gpu": 4}),
            "c": queue({"cpu": 4}),
        }
        running = [job("a1", "a", {"gpu": 4}), job("b1", "b", {"cpu": 2}), job("b2", "b", {"cpu": 2})]
        assert isinstance(search(queues, running, ("a", {"cpu": 1})), NobodyToStop)
        assert victims(search(queues, running[1:], ("a", {"cpu": 1}))) == {"b1": "FairShare"}

    def test_shares_are_compared_below_the_fork_where_two_meet(self) -> None:
        """b has more than a, but their cohort has less than c."""
        cohorts = {"x": cohort(parent="root"), "root": cohort(12)}
        queues = {"a": queue(0, "x", preempts=[FAIR]), "b": queue(0, "x"), "c": queue(0, "root")}
        running = [*(job(f"b{n}", "b", 1) for n in range(4)), *(job(f"c{n}", "c", 1) for n in range(8))]
        assert victims(search(queues, running, ("a", 1), cohorts)) == {"c0": "FairShare"}

    def test_the_shares_are_told(self) -> None:
        found = search(self.QUEUE(), [job(f"a{n}", "a", 1) for n in range(9)], ("b", 4))
        assert isinstance(found, Preemption)
        compared = found.victims[0].compared
        assert compared is not None
        assert (compared.taker_share.thousandths, compared.giver_share.thousandths) == (112, 223)


class TestAgainstKueue:
    """Where we decide otherwise, and mean it."""

    def test_no_rule_b_a_victim_that_would_leave_its_queue_with_less_than_ours_stays(self) -> None:
        queues = {name: queue(3, preempts=[RECLAIM, FAIR]) for name in "abc"}
        running = [job(f"{name}{n}", name, size) for name in "bc" for n, size in ((1, 2), (2, 2.5))]
        assert isinstance(search(queues, running, ("a", 3.5)), NobodyToStop)

    def test_own_and_fair_victims_are_never_in_one_set(self) -> None:
        """Stopping its own would let it take more from others, and the others could take it back."""
        queues = {"a": queue(0, preempts=ALL), "b": queue(0), "pool": queue(8)}
        running = [job("a1", "a", 2, -1), *(job(f"b{n}", "b", 2) for n in range(3))]
        assert isinstance(search(queues, running, ("a", 4, 5)), NobodyToStop)

    def test_between_queues_the_share_counts_not_the_priority(self) -> None:
        queues = {"a": queue(4, preempts=[RECLAIM]), "b": queue(0), "c": queue(0), "d": queue(6)}
        running = [job("b1", "b", 4, -9), job("c1", "c", 2, 5), job("c2", "c", 4, 9)]
        assert victims(search(queues, running, ("a", 2))) == {"c1": "Reclaim"}

    def test_own_lower_ones_alone_come_before_a_mixed_set(self) -> None:
        queues = {"a": queue(4, preempts=[RECLAIM, PRIORITY]), "b": queue(2)}
        running = [job("a1", "a", 1, -2), job("a2", "a", 3, -1), job("b1", "b", 1), job("b2", "b", 1)]
        found = search(queues, running, ("a", 3, 1))
        assert victims(found) == {"a2": "Priority"}
        assert isinstance(found, Preemption)
        assert found.plan is Plan.PRIORITY

    def test_reclaim_is_for_jobs_within_quota_of_everything_they_ask_for(self) -> None:
        queues = {"a": queue({"cpu": 4, "gpu": 0}, preempts=[RECLAIM]), "b": queue({"cpu": 0, "gpu": 4})}
        running = [job("b1", "b", {"cpu": 2})]
        assert victims(search(queues, running, ("a", {"cpu": 4}))) == {"b1": "Reclaim"}
        assert isinstance(search(queues, running, ("a", {"cpu": 4, "gpu": 1})), NobodyToStop)

    def test_a_borrower_may_stop_its_own_lower_ones_to_keep_what_it_has(self) -> None:
        queues = {"a": queue(2, preempts=[RECLAIM, PRIORITY]), "b": queue(5)}
        running = [job("a1", "a", 2), job("a2", "a", 3, 3), job("b1", "b", 2, 1)]
        assert victims(search(queues, running, ("a", 5, 4))) == {"a1": "Priority", "a2": "Priority"}


def test_both_own_lower_ones_until_the_queue_is_within_its_quota_then_others() -> None:
    queues = {"a": queue(4, preempts=[RECLAIM, PRIORITY]), "b": queue(2)}
    running = [job("a1", "a", 1, -1), job("a2", "a", 1, 5), job("b1", "b", 4)]
    found = search(queues, running, ("a", 3))
    assert victims(found) == {"a1": "Priority", "b1": "Reclaim"}
    assert isinstance(found, Preemption)
    assert found.plan is Plan.BOTH


def test_sending_back_an_own_one_that_makes_the_others_illegal_is_not_done() -> None:
    """b1 alone would make room, but with a1 the queue would be above its own quota, and may take nothing back."""
    queues = {"a": queue(4, preempts=[RECLAIM, PRIORITY]), "b": queue(2)}
    running = [job("a1", "a", 2, -1), job("b1", "b", 4)]
    assert victims(search(queues, running, ("a", 3))) == {"a1": "Priority", "b1": "Reclaim"}


def test_a_queue_that_may_stop_nobody_stops_nobody() -> None:
    found = search({"a": queue(4), "b": queue(4)}, [job("b1", "b", 8)], ("a", 4))
    assert found == NobodyToStop((Short("cpu", 4 * UNIT, 0),))


class TestGates:
    QUEUES = staticmethod(lambda: {"a": queue(4, preempts=[RECLAIM]), "b": queue(4)})

    def test_who_must_not_be_stopped_is_not(self) -> None:
        running = [job("b1", "b", 4, preemptible=False), job("b2", "b", 4, 9)]
        assert victims(search(self.QUEUES(), running, ("a", 4))) == {"b2": "Reclaim"}

    def test_who_is_leaving_is_not_stopped_again_and_counts_as_gone(self) -> None:
        running = [job("b1", "b", 2), job("b2", "b", 2), job("b3", "b", 4, 9)]
        assert victims(search(self.QUEUES(), running, ("a", 4), leaving={"b1"})) == {"b2": "Reclaim"}

    @pytest.mark.parametrize(("preempts", "size", "until"), [(RECLAIM, 4, 150), (FAIR, 4, 200)])
    def test_who_has_not_run_long_enough_is_left_alone_until_then(
        self, preempts: Preempts, size: int, until: int
    ) -> None:
        queues = {"a": queue(4, preempts=[preempts]), "b": queue(4)}
        running = [job("b1", "b", 8, placed=100.0)]
        around: dict[str, Any] = {"min_runtime": {"b": 100.0}}
        found = search(queues, running, ("a", size), now=until - 1.0, **around)
        assert isinstance(found, Protected)
        assert ([each.name for each in found.jobs], found.until) == (["b1"], until)
        assert victims(search(queues, running, ("a", size), now=float(until), **around)) == {"b1": str(preempts)}

    def test_somebody_else_who_ran_long_enough_goes_instead(self) -> None:
        running = [job("b1", "b", 4, placed=100.0), job("b2", "b", 4, 9, placed=0.0)]
        found = search(self.QUEUES(), running, ("a", 4), now=110.0, min_runtime={"b": 60.0})
        assert victims(found) == {"b2": "Reclaim"}

    def test_it_is_not_said_that_time_helps_where_it_does_not(self) -> None:
        running = [job("b1", "b", 4, placed=100.0), job("b2", "b", 4, preemptible=False)]
        found = search(
            {"a": queue(9, preempts=[RECLAIM]), "b": queue(0)}, running, ("a", 9), now=110.0, min_runtime={"b": 60.0}
        )
        assert isinstance(found, NobodyToStop)


class TestOwnQuotaOnly:
    def test_takes_its_own_back(self) -> None:
        queues = {"a": queue(4, preempts=ALL), "b": queue(4)}
        assert victims(search(queues, [job("b1", "b", 8)], ("a", 4), own_quota_only=True)) == {"b1": "Reclaim"}

    def test_does_not_borrow_and_says_so(self) -> None:
        queues = {"a": queue(4, preempts=ALL), "b": queue(4)}
        running = [job("a1", "a", 3), job("b1", "b", 1), job("b2", "b", 4)]
        found = search(queues, running, ("a", 2), own_quota_only=True)
        assert found == OwnQuotaOnly((Short("cpu", 2 * UNIT, 1 * UNIT),))

    def test_not_from_the_pool_of_a_cohort_either(self) -> None:
        cohorts = {"ours": cohort(3, "root"), "root": cohort(0)}
        queues = {"a": queue(0, "ours", preempts=[RECLAIM]), "b": queue(0, "root")}
        found = search(queues, [job("b1", "b", 3)], ("a", 3), cohorts, own_quota_only=True)
        assert isinstance(found, OwnQuotaOnly)

    def test_is_placed_only_within_the_own_quota(self) -> None:
        quota = PassQuota(QuotaUsage(QuotaTree({"a": queue(4), "b": queue(4)}), {"a": of(3)}))
        asks = Preemptor(uid="x", queue="a", requests=of(2))
        assert quota.fits(asks)
        assert not quota.fits(Preemptor(uid="x", queue="a", requests=of(2), own_quota_only=True))
        assert quota.fits(Preemptor(uid="x", queue="a", requests=of(1), own_quota_only=True))


class TestRooms:
    """Quota and room on a worker are one search."""

    QUEUES = staticmethod(lambda: {"a": queue(8, preempts=ALL), "b": queue(8)})

    @staticmethod
    def room(worker: str, free: float, needed: float = 4, score: float = 0.0) -> AmountsRoom:
        return AmountsRoom(worker, of(needed), of(free), score)

    def test_victims_are_on_the_worker_that_gets_the_job(self) -> None:
        running = [job("b1", "b", 6, -9, worker="east"), job("b2", "b", 10, worker="west")]
        found = search(self.QUEUES(), running, ("a", 4), rooms=[self.room("west", 0)])
        assert victims(found) == {"b2": "Reclaim"}
        assert isinstance(found, Preemption)
        assert found.worker == "west"

    def test_quota_victims_elsewhere_only_for_what_is_missing(self) -> None:
        running = [job("b1", "b", 2, worker="west"), *(job(f"e{n}", "b", 2, worker="east") for n in range(7))]
        found = search(self.QUEUES(), running, ("a", 4), rooms=[self.room("west", 2)])
        assert victims(found) == {"b1": "Reclaim", "e0": "Reclaim"}

    def test_where_there_is_room_anybody_may_give_quota_back(self) -> None:
        running = [job("b1", "b", 6, 5, worker="west"), job("b2", "b", 10, worker="east")]
        found = search(self.QUEUES(), running, ("a", 4), rooms=[self.room("west", 9)])
        assert victims(found) == {"b2": "Reclaim"}
        assert isinstance(found, Preemption)
        assert found.worker == "west"

    def test_room_alone_may_be_short(self) -> None:
        """Quota is there; only who borrows is stopped for room."""
        queues = {"a": queue(8, preempts=[RECLAIM]), "b": queue(2), "c": queue(4)}
        running = [job("c1", "c", 4, -9, worker="west"), job("b1", "b", 4, worker="west")]
        assert victims(search(queues, running, ("a", 4), rooms=[self.room("west", 0)])) == {"b1": "Reclaim"}
        assert isinstance(search(queues, running[:1], ("a", 4), rooms=[self.room("west", 0)]), NobodyToStop)

    def test_the_worker_with_the_fewest_victims_is_chosen(self) -> None:
        running = [*(job(f"e{n}", "b", 2, worker="east") for n in range(4)), job("w", "b", 8, worker="west")]
        found = search(self.QUEUES(), running, ("a", 4), rooms=[self.room("east", 0), self.room("west", 0, score=9)])
        assert victims(found) == {"w": "Reclaim"}
        assert isinstance(found, Preemption)
        assert (found.worker, found.tried) == ("west", (("east", 2),))

    def test_then_the_one_where_least_work_is_lost(self) -> None:
        running = [
            job("e", "b", 8, worker="east", placed=50.0, pods=4),
            job("w", "b", 8, worker="west", placed=10.0, pods=2),
        ]
        rooms = [self.room("east", 0), self.room("west", 0, score=9)]
        assert victims(search(self.QUEUES(), running, ("a", 4), rooms=rooms, now=100.0)) == {"w": "Reclaim"}

    def test_then_by_score(self) -> None:
        running = [job("e", "b", 8, worker="east"), job("w", "b", 8, worker="west")]
        rooms = [self.room("east", 0, score=2), self.room("west", 0, score=1)]
        assert victims(search(self.QUEUES(), running, ("a", 4), rooms=rooms)) == {"w": "Reclaim"}

    def test_nobody_is_stopped_where_all_together_make_too_little_room(self) -> None:
        running = [job("w", "b", 3, worker="west"), job("e", "b", 13, worker="east")]
        assert isinstance(search(self.QUEUES(), running, ("a", 4), rooms=[self.room("west", 0)]), NobodyToStop)

    def test_own_lower_ones_make_room_on_a_worker(self) -> None:
        queues = {"a": queue(8, None, preempts=[PRIORITY])}
        running = [job("e", "a", 4, -2, worker="east"), job("w", "a", 4, -1, worker="west")]
        assert victims(search(queues, running, ("a", 4), rooms=[self.room("west", 0)])) == {"w": "Priority"}

    def test_on_a_worker_that_is_not_ready_nobody_is_stopped_unless_only_quota_is_short(self) -> None:
        running = [
            job("w", "b", 6, worker="west"),
            job("n", "b", 6, 5, worker="north"),
            job("e", "b", 4, 9, worker="east"),
        ]
        around: dict[str, Any] = {"unready": {"west"}}
        needs_room, has_room = self.room("east", 2, 6), self.room("east", 6, 6)
        found = search(self.QUEUES(), running, ("a", 6), rooms=[needs_room], **around)
        assert victims(found) == {"e": "Reclaim", "n": "Reclaim"}
        assert victims(search(self.QUEUES(), running, ("a", 6), rooms=[has_room], **around)) == {"w": "Reclaim"}


class TestKeptFree:
    @staticmethod
    def kept(size: float, *preempts: Preempts, used: float = 3, own: float = 5) -> dict[str, int]:
        found = QuotaUsage(QuotaTree({"a": queue(own), "b": queue(5)}), {"a": of(used)})
        return kept_free(found, Preemptor(uid="x", queue="a", requests=of(size), preempts=frozenset(preempts)))

    def test_what_is_left_of_the_own_quota(self) -> None:
        assert self.kept(4) == of(2)
        assert self.kept(1) == of(1)
        assert self.kept(4, used=6) == {}

    def test_nothing_for_one_that_is_larger_than_the_quota(self) -> None:
        assert self.kept(6) == {}

    def test_nothing_where_it_can_be_taken_back(self) -> None:
        assert self.kept(4, RECLAIM) == {}
        assert self.kept(4, PRIORITY) == of(2)


class TestPassQuota:
    """What is free, and for whom."""

    def setup_method(self) -> None:
        self.queues = {"a": queue(4, preempts=[RECLAIM]), "b": queue(4), "c": queue(0)}
        self.leaving = job("b1", "b", 6)
        used = {"b": of(6)}
        self.usage = QuotaUsage(QuotaTree(self.queues), used)
        self.preemptor = Preemptor(uid="p", queue="a", requests=of(4))

    def test_what_victims_free_is_kept_for_whom_they_are_stopped(self) -> None:
        quota = PassQuota(self.usage, [self.leaving], [self.preemptor])
        other = Preemptor(uid="o", queue="c", requests=of(2))
        assert quota.fits(other)  # what is free already, and not needed for the other one
        quota.place(other)
        assert not quota.fits(Preemptor(uid="x", queue="c", requests=of(1)))

    def test_nothing_is_placed_on_what_is_still_charged(self) -> None:
        quota = PassQuota(self.usage, [self.leaving])
        assert not quota.fits(self.preemptor)
        assert quota.fits_later(self.preemptor)

    def test_a_queue_loses_nothing_to_others_for_what_it_will_have_only_when_its_job_is_placed(self) -> None:
        queues = {"a": queue(2), "b": queue(3, preempts=[RECLAIM])}
        stays, waits = job("a1", "a", 1), Preemptor(uid="a2", queue="a", requests=of(2))
        running = RunningJobs([stays, job("b1", "b", 1)])
        usage = QuotaUsage(QuotaTree(queues), {"a": of(1), "b": of(3)})
        quota = PassQuota(usage, [job("b2", "b", 2)], [waits])
        asks = Preemptor(uid="b3", queue="b", requests=of(2), preempts=frozenset({RECLAIM}))
        around = Surroundings(running=running.snapshot(), leaving={"b2"})
        assert isinstance(quota.search(asks, around), NobodyToStop)
        quota.place(waits)
        assert victims(quota.search(asks, around)) == {"a1": "Reclaim"}

    def test_it_fits_as_soon_as_they_are_gone(self) -> None:
        quota = PassQuota(QuotaUsage(QuotaTree(self.queues)), (), [self.preemptor])
        assert quota.fits(self.preemptor)
        quota.place(self.preemptor)
        assert quota.later.available("a", "cpu") == quota.now.available("a", "cpu") == 4 * UNIT

    def test_what_a_blocked_job_keeps_is_free_for_its_own_queue(self) -> None:
        quota = PassQuota(QuotaUsage(QuotaTree({"a": queue(5), "b": queue(1)}), {"a": of(3)}))
        assert quota.keep(Preemptor(uid="x", queue="a", requests=of(4))) == of(2)
        assert quota.fits(Preemptor(uid="y", queue="b", requests=of(1)))
        assert not quota.fits(Preemptor(uid="y", queue="b", requests=of(2)))
        small = Preemptor(uid="z", queue="a", requests=of(1))
        assert quota.fits(small)
        quota.place(small)
        assert quota.fits(Preemptor(uid="w", queue="a", requests=of(1)))
        assert quota.fits(Preemptor(uid="y", queue="b", requests=of(1)))
        assert not quota.fits(Preemptor(uid="y", queue="b", requests=of(2)))


def test_a_search_among_very_many_ends_and_says_that_it_did_not_see_all() -> None:
    queues = {f"q{n}": queue(0) for n in range(MOST_CHECKS)} | {"a": queue(10**6, preempts=[RECLAIM])}
    running = [job(f"{name}-{n}", name, 1) for name in queues if name != "a" for n in range(2)]
    used = QuotaUsage(QuotaTree(queues), {"a": of(0)})
    for each in running:
        used.add(each.queue, each.requests)
    asks = Preemptor(uid="x", queue="a", requests=of(10**6), preempts=frozenset({RECLAIM}))
    found = find_preemption(asks, used, Surroundings(running=RunningJobs(running).snapshot()))
    assert isinstance(found, NobodyToStop)
    assert found.cut


seeds = st.integers(0, 10**6)


def _fits(used: QuotaUsage, asks: Preemptor, gone: Mapping[str, RunningJob]) -> bool:
    fork = used.fork()
    for each in gone.values():
        fork.remove(each.queue, each.requests)
    return fork.fits(asks.queue, asks.requests)


@settings(max_examples=150)
@given(seeds, st.sampled_from([("cpu",), ("cpu", "gpu")]))
def test_victims_make_room_are_lower_or_borrow_and_none_is_too_many(seed: int, resources: tuple[str, ...]) -> None:
    """P2 and P7, judged by hand: usage is counted anew for every part of the set."""
    random = Random(seed)
    queues, cohorts = random_tree(random, resources)
    used, running = QuotaUsage(QuotaTree(queues, cohorts)), {}
    for each in random_jobs(random, queues, resources, 30):
        if used.fits(each.queue, each.requests):
            used.add(each.queue, each.requests)
            running[each.name] = RunningJob(
                uid=each.name, name=each.name, queue=each.queue, requests=each.requests, priority=each.priority
            )
    for each in random_jobs(random, queues, resources, 8):
        asks = Preemptor(
            uid="asks",
            queue=each.queue,
            requests=each.requests,
            priority=each.priority,
            preempts=queues[each.queue].preempts,
        )
        if used.fits(asks.queue, asks.requests) or used.above_most(asks.queue, asks.requests):
            continue
        found = find_preemption(asks, used, Surroundings(running=RunningJobs(running.values()).snapshot()))
        if isinstance(found, Preemption):
            _judge(used, asks, found)


def _judge(used: QuotaUsage, asks: Preemptor, found: Preemption) -> None:
    chosen = {each.job.name: each.job for each in found.victims}
    assert chosen
    assert _fits(used, asks, chosen)
    for each in found.victims:
        assert each.reason in asks.preempts
        if each.reason is PRIORITY:
            assert (each.job.queue, each.job.priority < asks.priority) == (asks.queue, True)
        else:
            node = used.tree.queues[each.job.queue]
            assert each.job.queue != asks.queue
            assert any(used.over(node, name) > 0 for name in found.contended if each.job.requests.get(name))
    without = {name: {k: v for k, v in chosen.items() if k != name} for name in chosen}
    for name, rest in without.items():
        assert not _fits(used, asks, rest) or not _is_legal(used, asks, found, rest), name
    assert _is_legal(used, asks, found, chosen)


def _is_legal(used: QuotaUsage, asks: Preemptor, found: Preemption, gone: Mapping[str, RunningJob]) -> bool:
    """The rules for a set in the end, from their wording, for the plan that was chosen."""
    end = used.fork()
    for each in gone.values():
        end.remove(each.queue, each.requests)
    end.add(asks.queue, asks.requests)
    ours = used.tree.queues[asks.queue]
    asked = [name for name, amount in asks.requests.items() if amount]
    if found.plan is Plan.PRIORITY:
        own = {name: ours.quotas[name].own for name in asked}
        return all(end.used(ours, name) <= max(used.used(ours, name), own[name]) for name in asked)
    if found.plan is Plan.BOTH and any(end.over(ours, name) > 0 for name in asked):
        return False
    for victim in found.victims:
        if victim.job.name not in gone or victim.reason is PRIORITY:
            continue
        theirs = used.tree.queues[victim.job.queue]
        fork = next(node for node in theirs.path if node in ours.path)
        our_side, their_side = ours.below(fork), theirs.below(fork)
        if found.plan is not Plan.FAIR_SHARE:
            if any(end.over(our_side, name) > 0 for name in asked):
                return False
        elif their_side.weight or not our_side.weight:
            for names in (list(our_side.quotas), found.contended):
                if _share(end, our_side, names) > _share(end, their_side, names):
                    return False
    return True


def _share(end: QuotaUsage, node: Node, names: Sequence[str]) -> tuple[bool, float]:
    assert node.parent is not None
    parts = [
        max(0, end.over(node, name)) / lendable
        for name in names
        if name in node.quotas and (lendable := node.parent.quotas[name].most)
    ]
    largest = max(parts, default=0.0)
    return (largest > 0 and not node.weight), largest / float(node.weight or 1)


@settings(max_examples=40)
@given(seeds, st.sampled_from([("cpu",), ("cpu", "gpu")]))
def test_it_comes_to_rest(seed: int, resources: tuple[str, ...]) -> None:
    """P4 and P6: without anything new, there is an end; P1 holds all the time."""
    random = Random(seed)
    queues, cohorts = random_tree(random, resources)
    simulation = Simulation(queues, cohorts)
    for each in random_jobs(random, queues, resources, 24):
        simulation.jobs[each.name] = each
        if random.random() < 0.3:
            assert simulation.settle()
            _within_limits(simulation.usage())
    assert simulation.settle()
    _within_limits(simulation.usage())
    assert all(each.stops <= 3 for each in simulation.jobs.values())


def _within_limits(used: QuotaUsage) -> None:
    for node in used.tree.nodes:
        for name, quota in node.quotas.items():
            if node.parent is None:
                assert used.used(node, name) <= quota.subtree
            elif quota.borrow is not None:
                assert used.used(node, name) <= quota.subtree + quota.borrow


@settings(max_examples=40)
@given(seeds)
def test_who_waits_for_victims_is_placed_when_they_are_gone(seed: int) -> None:
    """P5: whatever else waits, and however long stopping takes."""
    random = Random(seed)
    queues, cohorts = random_tree(random, ("cpu",))
    simulation = Simulation(queues, cohorts)
    simulation.slow_evictions = True
    for each in random_jobs(random, queues, ("cpu",), 24):
        simulation.jobs[each.name] = each
        leaving = [name for name, other in simulation.jobs.items() if other.leaving and random.random() < 0.4]
        simulation.finish_evictions(leaving)
        first = {name for name, other in simulation.jobs.items() if simulation.waits_for_victims(other)}
        result = simulation.run_pass()
        if not any(other.leaving for other in simulation.jobs.values()):
            assert first <= {placed.name for placed in result.placed}
        still = {name for name, other in simulation.jobs.items() if simulation.waits_for_victims(other)}
        assert first <= still | {placed.name for placed in result.placed}


def test_a_set_is_as_small_as_the_rules_allow_in_one_queue() -> None:
    """Among Jobs of one queue, no smaller set that is part of it would do."""
    queues: dict[str, MirrorQueueSpec] = {"a": queue(10, None, preempts=[PRIORITY])}
    cohorts: dict[str, CohortSpec] = {}
    running = [job(f"a{n}", "a", size, n) for n, size in enumerate((1, 2, 3, 4))]
    chosen = victims(search(queues, running, ("a", 5, 9), cohorts))
    sizes = {f"a{n}": size for n, size in enumerate((1, 2, 3, 4))}
    assert sum(sizes[name] for name in chosen) >= 5
    for count in range(len(chosen)):
        assert all(sum(sizes[name] for name in part) < 5 for part in combinations(chosen, count))


def test_a_stopped_job_goes_back_to_its_place_by_age() -> None:
    simulation = Simulation({"a": queue(1, None, preempts=[PRIORITY])}, {})
    for number, priority in enumerate((0, 0, 1)):
        simulation.jobs[f"j{number}"] = SimulatedJob(
            name=f"j{number}", queue="a", requests=of(1), priority=priority, age=number
        )
        assert simulation.settle()
    assert [each.name for each in simulation.jobs.values() if each.runs] == ["j2"]
    simulation.remove("j2")
    assert simulation.settle()
    assert [each.name for each in simulation.jobs.values() if each.runs] == ["j0"]

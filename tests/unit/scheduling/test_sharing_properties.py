"""The properties of sharing (P1 to P14), over the whole planner, while Jobs come and go, pods take time to stop,
workers are cordoned, quotas are edited and the dispatcher is started again. (P7, P8 and P12 are not looked at here.)

A few hundred stories in each run; MULTIMIRROR_SHARING_EXAMPLES asks for more. That they can fail is shown by
planners that are broken on purpose (`MUTANTS`).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.scheduling import plan as planning
from multimirror.scheduling import shared_quota
from multimirror.scheduling.preempting import Preempting
from multimirror.scheduling.preemption import _Search
from multimirror.scheduling.quota import Node, QuotaUsage
from multimirror.scheduling.sharing import PassQuota
from multimirror.scheduling.usage import Usage
from tests.unit.scheduling.fleet_model import Fleet, Job, a_fleet

EXAMPLES: Final = int(os.environ.get("MULTIMIRROR_SHARING_EXAMPLES", "150"))
FACTS: Final = frozenset({"NeverFits", "Held", "Draining", "Cycle"})
"""Why a Job may wait for ever."""
NAMES: Final = ("a", "b", "c")

quantities = st.integers(0, 6)
limits = st.sampled_from([None, None, None, 1, 3])
policies = st.sampled_from(
    [["Reclaim"], ["Reclaim", "Priority"], ["Reclaim", "FairShare", "Priority"], ["FairShare"], []]
)


waves = st.tuples(
    st.sampled_from(NAMES), st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=2, max_size=8)
)


def _quota(own: int, borrow: int | None, lend: int | None) -> dict[str, Any]:
    parts = {"resources": own, "borrow": borrow, "lend": lend}
    return {part: {"cpu": str(amount)} for part, amount in parts.items() if amount is not None}


@st.composite
def queues(draw: st.DrawFn) -> MirrorQueueSpec:
    spec = {
        "cohort": draw(st.sampled_from(["left", "right"])),
        "quota": _quota(draw(quantities), draw(limits), draw(limits)),
        "weight": draw(st.sampled_from([0, 1, 1, 2])),
        "preempts": draw(policies),
        "maxPriority": 3,
        "minRuntime": draw(st.sampled_from(["0s", "0s", "60s"])),
    }
    return MirrorQueueSpec.read({"spec": spec})


@st.composite
def cohorts(draw: st.DrawFn) -> dict[str, CohortSpec]:
    def one(parent: str | None) -> CohortSpec:
        limited = parent is not None
        quota = _quota(draw(quantities), draw(limits) if limited else None, draw(limits) if limited else None)
        spec = {"quota": quota} | ({"parent": parent} if parent is not None else {})
        return CohortSpec.read({"metadata": {"name": "x"}, "spec": spec})

    below = draw(st.sampled_from(["root", None]))
    return {"left": one(below), "right": one("root"), "root": one(None)}


class Sharing(RuleBasedStateMachine):
    fleet: Fleet

    @initialize(
        specs=st.tuples(queues(), queues(), queues()),
        above=cohorts(),
        capacities=st.lists(st.integers(6, 20), min_size=1, max_size=2),
        waves=st.lists(waves, min_size=2, max_size=3),
    )
    def begin(
        self,
        specs: tuple[MirrorQueueSpec, ...],
        above: dict[str, CohortSpec],
        capacities: list[int],
        waves: list[tuple[str, list[tuple[int, int]]]],
    ) -> None:
        """One queue after the other sends Jobs: the first ones borrow, and others want theirs back."""
        self.fleet = a_fleet(dict(zip(NAMES, specs, strict=True)), above, capacities)
        for queue, jobs in waves:
            for cpu, priority in jobs:
                self.fleet.submit(queue, cpu, priority)
            self.run_pass(seconds=1)
            self.run_pass(seconds=60)

    @rule(
        queue=st.sampled_from(NAMES),
        cpu=st.integers(1, 4),
        priority=st.integers(0, 3),
        preemptible=st.integers(0, 9).map(bool),
        number=st.integers(1, 5),
    )
    def submit(self, queue: str, cpu: int, priority: int, preemptible: bool, number: int) -> None:
        for _ in range(number):
            self.fleet.submit(queue, cpu, priority, preemptible=preemptible)
            self.fleet.now += 1
        self.run_pass(seconds=1)

    @rule(seconds=st.sampled_from([1, 6, 6, 60]))
    def run_pass(self, seconds: int) -> None:
        self.fleet.now += seconds
        self.fleet.run_pass()
        self.check()

    @rule(seconds=st.sampled_from([5, 20, 60, 700]))
    def time_passes(self, seconds: int) -> None:
        self.fleet.now += seconds

    @precondition(lambda self: self.fleet.leaving())
    @rule(data=st.data())
    def pods_are_gone(self, data: st.DataObject) -> None:
        self.fleet.pods_gone(data.draw(st.sampled_from(self.fleet.leaving())))

    @precondition(lambda self: self.fleet.jobs)
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        self.fleet.end(data.draw(st.sampled_from(list(self.fleet.jobs.values()))))

    @rule(queue=st.sampled_from(NAMES), spec=queues())
    def quota_is_edited(self, queue: str, spec: MirrorQueueSpec) -> None:
        before = self.fleet.queues[queue]
        self.fleet.queues[queue] = replace(spec, cohort=before.cohort, quota=spec.quota)
        self.fleet.disturbed()

    @rule(data=st.data(), cordoned=st.booleans())
    def worker_comes_or_goes(self, data: st.DataObject, cordoned: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.fleet.workers)))
        before = self.fleet.workers[name]
        self.fleet.workers[name] = replace(before, spec=replace(before.spec, cordoned=cordoned))
        self.fleet.disturbed()

    @rule()
    def restart(self) -> None:
        self.fleet.restart()

    def check(self) -> None:
        assert not self.fleet.violations, self.fleet.violations

    def teardown(self) -> None:
        """With nothing more from outside there is rest (P4); what can run does in the end (P9)."""
        if not hasattr(self, "fleet"):
            return
        fleet = self.fleet
        for name, each in fleet.workers.items():
            fleet.workers[name] = replace(each, spec=replace(each.spec, cordoned=False))
        fleet.disturbed()
        fleet.now += 700
        assert fleet.settle(), "P4: no rest"
        self.check()
        for _ in range(len(fleet.jobs) + 1):
            for job in fleet.assigned():
                fleet.end(job)
            assert fleet.settle(), "P4: no rest"
            self.check()
        stuck = [job for job in fleet.waiting() if not _waits_for_ever(fleet, job)]
        assert stuck == [], "P9"


def _waits_for_ever(fleet: Fleet, job: Job) -> bool:
    own = fleet.usage().tree.queues[job.queue].quotas["cpu"].own
    return job.reason in FACTS or (job.reason == "OwnQuotaOnly" and job.requests["cpu"] > own)


def _settings(examples: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )


# --- planners that are broken on purpose ------------------------------------------------------------------------------


def _patched(where: object, name: str, value: object) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: mock.patch.object(where, name, value)


@contextmanager
def _limits_do_not_count() -> Iterator[None]:
    available = QuotaUsage._available

    def unlimited(self: QuotaUsage, node: Node, resource: str) -> int:
        return available(self, node, resource) + 2 * 10**9

    with mock.patch.object(QuotaUsage, "_available", unlimited):
        yield


@contextmanager
def _who_leaves_is_gone() -> Iterator[None]:
    """What victims have on their worker is free when they are told, not when their pods are gone."""

    def kept_on(self: Preempting, worker: str) -> Usage:
        gone = [job for job in self._leaving.values() if job.worker == worker]
        kept = Usage()
        for job in gone:
            kept = kept.plus(job.requests, -1)
        return kept

    with mock.patch.object(Preempting, "kept_on", kept_on):
        yield


@contextmanager
def _nothing_is_kept() -> Iterator[None]:
    with (
        mock.patch.object(Preempting, "kept_on", return_value=Usage()),
        mock.patch.object(PassQuota, "wait"),
        mock.patch.object(planning, "_ahead", return_value={}),
    ):
        yield


MUTANTS: Final = {
    "P1: limits do not count": _limits_do_not_count,
    "P3: victims are not charged while they stop": _who_leaves_is_gone,
    "P5: nothing is kept for who waits": _nothing_is_kept,
    "P6: there is no shortest run time": _patched(_Search, "protected_until", lambda *_: 0.0),
    "P6: nobody is stopped too often": _patched(shared_quota, "MOST_STOPS", 10**6),
    "P6: all may be stopped": _patched(_Search, "_may_stop", lambda self, job, *_: job.uid not in self._around.leaving),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planner_that_is_broken_is_found(mutant: str) -> None:
    with MUTANTS[mutant](), pytest.raises(AssertionError, match=mutant[:2]):
        run_state_machine_as_test(
            Sharing, settings=_settings(300, derandomize=True, phases=[Phase.generate], database=None)
        )


def test_the_properties_hold_whatever_happens() -> None:
    run_state_machine_as_test(Sharing, settings=_settings(EXAMPLES))

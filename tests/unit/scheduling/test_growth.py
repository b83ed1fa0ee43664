"""Whether a Job that runs may have more pods, and what its user is told where not."""

from dataclasses import replace
from typing import Any

import pytest

from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION, RESERVED_ANNOTATION
from multimirror.kinds import KINDS, Ref
from multimirror.kinds.pod_sets import nanos
from multimirror.kinds.reserved import Reserved, ReservedPods, reserved_of
from multimirror.scheduling.assignments import Assignments
from multimirror.scheduling.candidates import Candidate, Growth, WorkerSnapshot
from multimirror.scheduling.waiting import Waiting
from multimirror.workers import WorkerState
from tests.unit.reconcile.builders import a_job
from tests.unit.scheduling.builders import a_candidate, planned, queue, ref, used, where, why, worker

Json = dict[str, Any]


def reserved(pods: int, cpu: int = 1) -> Reserved:
    return Reserved("t", (ReservedPods("main", pods, {"cpu": nanos(cpu)}),))


def growing(name: str, before: int, after: int, **more: Any) -> Candidate:
    """From so many pods of one cpu to so many, on w1."""
    growth = Growth.of("w1", reserved(before), reserved(after))
    return replace(a_candidate(name, **more), requests=growth.requests, growth=growth)


CPU4 = queue(quota={"resources": {"cpu": "4"}})


def test_the_difference_is_asked_for() -> None:
    candidate = growing("a", 1, 3)
    assert candidate.requests == {"cpu": nanos(2), "pods": nanos(2)}
    assert where(planned([candidate], CPU4, [worker("w1")], used("w1", "w1"))) == [("a", "w1")]


@pytest.mark.parametrize(
    ("after", "workers", "there", "reason", "words"),
    [
        pytest.param(
            5, [worker("w1")], 1, "GrowthNeverFits", "5 cpu, more than the whole quota of queue q (4)", id="all"
        ),
        pytest.param(
            4, [worker("w1")], 2, "GrowthWaits", "queue q has 2 cpu left of its quota, it asks for 3", id="left"
        ),
        pytest.param(
            4, [worker("w1", capacity=3)], 1, "GrowthNeverFits", "has 3 cpu in all, it asks for 4", id="small"
        ),
        pytest.param(3, [worker("w1", capacity=2)], 0, "GrowthNeverFits", "has 2 cpu in all", id="smaller"),
        pytest.param(4, [worker("w1", cordoned=True)], 1, "GrowthWaits", "cordoned", id="cordoned"),
        pytest.param(4, [worker("w1", WorkerState(message="no answer"))], 1, "GrowthWaits", "no answer", id="away"),
        pytest.param(4, [], 1, "GrowthWaits", "no such WorkerCluster", id="gone"),
    ],
)
def test_what_there_is_no_room_for_waits_in_words(
    after: int, workers: list[WorkerSnapshot], there: int, reason: str, words: str
) -> None:
    steps = planned([growing("a", 1, after)], CPU4, workers, used(*["w1"] * there))
    assert steps[0].decision.reason == reason
    assert words in why(steps)
    assert f"room for 1 pod, and waits to grow to {after}" in why(steps)


def test_a_worker_that_is_full_of_others_is_waited_for() -> None:
    workers, other = [worker("w1", capacity=6)], used(*["w1"] * 4)
    steps = planned([growing("a", 1, 4)], queue(), workers, other)
    assert "has 2 cpu left, it asks for 3 more" in why(steps)


def test_what_one_was_given_the_next_does_not_get() -> None:
    steps = planned([growing("a", 1, 3), growing("bb", 1, 3)], CPU4, [worker("w1")], used("w1", "w1"))
    assert where(steps) == [("a", "w1"), ("bb", None)]


def test_growth_stands_in_line_with_those_that_want_a_worker() -> None:
    first = a_candidate("new", cpu=2, priority=5)
    limited = queue(quota={"resources": {"cpu": "4"}}, maxPriority=9)
    steps = planned([growing("a", 1, 3), first], limited, [worker("w1")], used("w1", "w1"))
    assert where(steps) == [("new", "w1"), ("a", None)]


def test_growth_takes_no_place_of_a_job_and_holds_up_nobody() -> None:
    strict = queue(quota={"resources": {"cpu": "4"}, "jobs": 3}, queueingStrategy="StrictFIFO")
    steps = planned([growing("a", 1, 9), a_candidate("bb", cpu=1)], strict, [worker("w1")], used("w1", "w1"))
    assert where(steps) == [("a", None), ("bb", "w1")]


def test_those_that_wait_to_grow_do_not_wait_for_a_worker() -> None:
    waiting = Waiting([growing("a", 1, 2), a_candidate("bb")])
    assert (len(waiting), waiting.count("q")) == (2, 1)
    waiting.remove(ref("bb"))
    assert waiting.count("q") == 0
    waiting.remove(ref("a"))
    assert waiting.count("q") == 0


# --- from the decision until the cache shows it


class Scene:
    """One Job on w1 with one pod of one cpu, whose growth to three is decided."""

    def __init__(self) -> None:
        self.again: list[Ref] = []
        self.assignments = Assignments(KINDS, lambda _: "q", self.again.append)
        self.job = a_job("a").asking("1").of_size(1, 9).on("w1").job
        self.ref = Ref("jobs.batch", "uid-a")
        self.assignments.observe(self.ref, self.job)
        self.before = self.job["metadata"]["annotations"][RESERVED_ANNOTATION]
        self.after = a_job("a").asking("1").of_size(3, 9).on("w1").job["metadata"]["annotations"][RESERVED_ANNOTATION]
        candidate = growing("a", 1, 3)
        growth = Growth.of("w1", self._read(self.before), self._read(self.after))
        self.candidate = replace(candidate, ref=self.ref, growth=growth)
        assert self.assignments.grow(self.candidate, self.job)

    @staticmethod
    def _read(text: str) -> Reserved:
        found = reserved_of({"metadata": {"annotations": {RESERVED_ANNOTATION: text}}})
        assert found is not None
        return found

    def shows(self, version: str, **annotations: str | None) -> None:
        self.job["metadata"]["resourceVersion"] = version
        self.job["metadata"]["annotations"] |= annotations
        self.assignments.observe(self.ref, self.job)

    @property
    def cpus(self) -> int:
        return self.assignments.usage.sums.queue("q").of("cpu") // nanos(1)


def test_it_counts_from_the_decision_on() -> None:
    scene = Scene()
    assert scene.cpus == 3
    assert scene.assignments.usage.sums.queue("q").jobs == 1


def test_other_changes_of_the_job_do_not_matter_meanwhile() -> None:
    scene = Scene()
    scene.shows("5")
    assert (scene.cpus, scene.again) == (3, [])


def test_when_the_cache_shows_it_the_job_itself_says_what_it_has() -> None:
    scene = Scene()
    scene.assignments.grown(scene.ref, "7")
    scene.shows("6")
    assert scene.cpus == 3, "older than what was written"
    scene.shows("7", **{RESERVED_ANNOTATION: scene.after})
    assert scene.cpus == 3
    assert scene.assignments.is_settled(scene.ref)


def test_what_somebody_else_wrote_over_it_counts() -> None:
    scene = Scene()
    scene.assignments.grown(scene.ref, "7")
    scene.shows("8")
    assert scene.cpus == 1


def test_a_job_that_lost_its_worker_does_not_grow_there() -> None:
    scene = Scene()
    scene.job["metadata"]["annotations"].pop(CLUSTER_ANNOTATION)
    scene.shows("8")
    assert scene.cpus == 0
    scene = Scene()
    scene.shows("8", **{ATTEMPT_ANNOTATION: "2"})
    assert scene.cpus == 1


def test_what_is_dropped_is_given_back_and_looked_at_again() -> None:
    scene = Scene()
    scene.assignments.drop_growth(scene.ref, scene.job)
    assert (scene.cpus, scene.again) == (1, [scene.ref])

"""A pass that makes room by stopping others: who asks, who is chosen, who waits for them, and what is kept."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from multimirror.api import MirrorQueueSpec
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.decisions import Preempts, Step
from multimirror.scheduling.plan import plan
from multimirror.scheduling.preempting import Awaited, RunningState
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting
from tests.unit.scheduling.builders import a_candidate, placed, ref, worker
from tests.unit.scheduling.test_cohorts import member, reason

NOW = 1_798_761_700.0
"""A minute and more after all of them were created."""
A, B = "a", "b"


class Scene:
    """Queues, workers, and what runs on them."""

    def __init__(self, queues: Mapping[str, MirrorQueueSpec], *workers: WorkerSnapshot) -> None:
        self.queues = dict(queues)
        self.workers = {each.name: each for each in workers or (worker("w1", capacity=1000),)}
        self.running: list[RunningJob] = []
        self.leaving: list[RunningJob] = []
        self.awaited: dict[Any, Awaited] = {}
        self.waiting: list[Candidate] = []

    def runs(self, name: str, queue: str, cpu: int = 1, **more: Any) -> RunningJob:
        fields: dict[str, Any] = {"placed": NOW - 3600, "worker": "w1", "name": f"team/{name}"} | more
        job = RunningJob(uid=name, queue=queue, requests={"cpu": nanos(cpu)}, **fields)
        self.running.append(job)
        return job

    def waits(self, name: str, queue: str, cpu: int = 1, **more: Any) -> Candidate:
        candidate = a_candidate(name, queue=queue, cpu=cpu, **more)
        self.waiting.append(candidate)
        return candidate

    def stopped_for(
        self, candidate: Candidate, *jobs: RunningJob, worker: str | None = "w1", gone: tuple[str, ...] = ()
    ) -> None:
        """Those are being stopped for it."""
        self.leaving += jobs
        self.running = [job for job in self.running if job not in jobs]
        self.awaited[candidate.ref] = Awaited(candidate, worker, NOW - 10, jobs, gone)

    def steps(self, now: float = NOW) -> list[Step]:
        usage = UsageCache()
        for job in (*self.running, *self.leaving):
            usage.put(ref(job.uid), Reservation(job.queue, "team", job.worker, job.requests))
        state = RunningState(
            running=RunningJobs(self.running).snapshot(), leaving=tuple(self.leaving), awaited=self.awaited, now=now
        )
        found = plan(Waiting(self.waiting).snapshot(), self.queues, self.workers, usage.snapshot(), state=state)
        return [step for step in found if step is not None]


def stops(steps: Iterable[Step]) -> dict[str, list[str]]:
    return {
        step.candidate.name: sorted(victim.job.uid for victim in step.preemption.victims)
        for step in steps
        if isinstance(step, Preempts)
    }


def lent() -> Scene:
    """b has borrowed what is a's."""
    scene = Scene({A: member(4), B: member(2)})
    scene.runs("b1", B, 2)
    scene.runs("b2", B, 2)
    scene.runs("b3", B, 2)
    return scene


def test_a_queue_takes_its_own_quota_back_and_says_whom_it_stops() -> None:
    scene = lent()
    scene.waits("x", A, 2)
    steps = scene.steps()
    assert stops(steps) == {"x": ["b1"]}
    assert reason(steps, "x") == (
        "WaitsForVictims",
        "stops team/b1 to run on worker w1 (2 cpu), the fewest that make room",
    )


def test_nobody_is_stopped_for_one_that_has_just_come() -> None:
    scene = lent()
    scene.waits("x", A, 2)
    (step,) = scene.steps(now=1_798_761_603.0)
    assert not isinstance(step, Preempts)
    assert (step.decision.reason, step.decision.again) == ("CohortFull", 1_798_761_606.0)


def test_what_became_free_is_for_the_one_whose_victims_are_gone() -> None:
    scene = Scene({A: member(2), B: member(2), "c": member(0)})
    first, due = scene.waits("early", A, 1), scene.waits("late", B, 2)
    scene.stopped_for(first, scene.runs("c1", "c", 2))
    scene.stopped_for(due, gone=("team/c2",))
    steps = scene.steps()
    assert placed(steps) == ["late"]
    assert reason(steps, "early")[0] == "WaitsForVictims", "those that are stopped for it are there still"


def test_nobody_of_the_queue_takes_the_own_quota_that_one_waits_for_which_may_not_borrow() -> None:
    scene = Scene({A: member(2, preempts=["Priority"]), B: member(4)})
    first = scene.waits("x", A, 2, priority=2, preemptible=False)
    scene.stopped_for(first, scene.runs("a1", A, 2))
    scene.waits("later", A, 2)
    scene.waits("other", B, 2)
    steps = scene.steps()
    assert placed(steps) == ["other"]
    assert reason(steps, "x")[0] == "WaitsForVictims"
    assert reason(steps, "later")[1].startswith(
        "2 cpu are left for queue a, but only 0 of that are not kept for Jobs that come first, and it asks for 2"
    )


def test_a_queue_that_may_not_stops_nobody() -> None:
    scene = Scene({A: member(4, preempts=[]), B: member(2)})
    scene.runs("b1", B, 6)
    scene.waits("x", A, 2)
    assert stops(scene.steps()) == {}


def test_a_queue_stops_others_for_one_job_at_a_time() -> None:
    scene = lent()
    scene.waits("x", A, 2)
    scene.waits("xx", A, 2)
    steps = scene.steps()
    assert stops(steps) == {"x": ["b1"]}
    assert reason(steps, "xx")[0] == "CohortFull"


def test_in_a_queue_a_higher_priority_stops_a_lower_one_up_to_the_one_that_counts() -> None:
    def asked(**spec: Any) -> dict[str, list[str]]:
        scene = Scene({A: member(4, None, preempts=["Priority"], **spec)})
        scene.runs("low", A, 4, priority=1)
        scene.waits("x", A, 2, priority=7)
        return stops(scene.steps())

    assert asked(maxPriority=5) == {"x": ["low"]}
    assert asked(maxPriority=1) == {}
    assert asked() == {}, "anybody may write any priority"


def test_room_on_a_worker_is_made_as_quota_is() -> None:
    scene = Scene({A: member(9), B: member(0)}, worker("w1", capacity=4), worker("w2", capacity=4))
    scene.runs("b1", B, 2)
    scene.runs("b2", B, 2)
    scene.runs("b3", B, 4, worker="w2")
    scene.waits("x", A, 3)
    steps = scene.steps()
    assert stops(steps) == {"x": ["b3"]}, "one is fewer than two"
    assert "w1 would have needed 2" in reason(steps, "x")[1]


def test_one_that_has_not_run_long_enough_is_left_alone_and_the_pass_looks_again_then() -> None:
    scene = Scene({A: member(4), B: member(2, minRuntime="20m")})
    scene.runs("b1", B, 6, placed=NOW - 60)
    scene.waits("x", A, 2)
    (step,) = scene.steps()
    assert (step.decision.reason, step.decision.again) == ("Protected", NOW + 540)
    assert str(step.decision) == (
        "team/b1 could make room, but has run 60 s of the 10 min that minRuntime of queue b gives it; again in 9 min, "
        "at 2027-01-01T00:10:40Z"
    )


def test_one_that_must_not_be_stopped_is_not_and_its_lender_hears_so() -> None:
    scene = Scene({A: member(4), B: member(2)})
    scene.runs("b1", B, 6, preemptible=False)
    scene.waits("x", A, 2)
    found, words = reason(scene.steps(), "x")
    assert found == "NobodyToStop"
    assert "queue b uses 6 of its 2. Nobody may be stopped for it" in words


def test_who_is_passed_by_one_that_others_were_stopped_for_is_told_so_and_not_of_shares() -> None:
    scene = Scene({A: member(1, preempts=[]), "c": member(0)})
    waiting = scene.waits("xxxx", "c", 1)
    scene.waits("y", A, 1)
    scene.stopped_for(waiting, gone=("team/b0",))
    assert reason(scene.steps(), "y") == (
        "OthersFirst",
        "it fitted, but a Job of queue c came first: others were stopped for it. Now 0 cpu are left of the 1 that it "
        "asks for",
    )


def test_where_what_is_there_is_not_its_cohorts_it_is_told_of_workers_and_not_of_victims() -> None:
    scene = Scene({A: member(4), B: member(2), "alone": member(9, None)}, worker("w1", capacity=4))
    scene.runs("x1", "alone", 3)
    scene.waits("x", A, 2)
    found, words = reason(scene.steps(), "x")
    assert found == "NoWorkerFits"
    assert words == "no worker cluster can take it now (w1: has 1 cpu left, the Job asks for 2)"


def test_nor_is_it_told_of_victims_where_no_worker_that_is_open_could_take_it() -> None:
    scene = Scene({A: member(4), B: member(4)}, worker("w1", capacity=8, cordoned=True), worker("w2", capacity=1))
    scene.runs("b1", B, 1, worker="w2")
    scene.waits("x", A, 2)
    found, words = reason(scene.steps(), "x")
    assert found == "NoWorkerFits"
    assert "w1: cordoned; w2: has 1 cpu in all, the Job asks for 2" in words


def test_where_nobody_may_be_stopped_the_worker_is_told_on_which_its_cohort_runs_anything() -> None:
    """Though another one, where only others do, is nearer to have room for it."""
    scene = Scene(
        {A: member(4), B: member(4), "alone": member(9, None)}, worker("w1", capacity=4), worker("w2", capacity=4)
    )
    scene.runs("x1", "alone", 3)
    scene.runs("b1", B, 4, worker="w2")
    scene.waits("x", A, 2)
    found, words = reason(scene.steps(), "x")
    assert found == "NobodyToStop"
    assert "Nobody may be stopped for it on worker w2: queue b has 4 cpu there, all of it within its own" in words


def test_one_that_waits_for_its_victims_stops_nobody_else_and_says_for_whom_it_waits() -> None:
    scene = lent()
    waiting = scene.waits("x", A, 2)
    scene.stopped_for(waiting, scene.running[0], gone=("team/b0",))
    steps = scene.steps()
    assert stops(steps) == {}
    found, words = reason(steps, "x")
    assert found == "WaitsForVictims"
    assert words.startswith("1 Job is being stopped for it to run on worker w1, since ")
    assert words.endswith(": team/b1 and team/b0 (gone)")


def test_what_the_victims_free_is_for_the_one_that_they_were_stopped_for() -> None:
    """Whoever is older, of higher priority, or borrows less, in its tree and out of it."""
    scene = Scene({A: member(4, maxPriority=9), B: member(2), "c": member(9, None)}, worker("w1", capacity=6))
    scene.runs("b1", B, 4)
    waiting = scene.waits("xxxx", A, 2)
    for name, queue in (("b", B), ("aa", A), ("ccc", "c")):
        scene.waits(name, queue, 2, priority=9)
    scene.stopped_for(waiting, gone=("team/b0",))
    assert placed(scene.steps()) == ["xxxx"]


def test_while_a_victim_is_there_others_get_what_is_beyond_what_it_will_free() -> None:
    scene = Scene({A: member(4), B: member(4)}, worker("w1", capacity=8))
    scene.runs("b1", B, 6)
    waiting = scene.waits("xx", A, 3)
    scene.stopped_for(waiting, scene.running[0])
    scene.waits("y", B, 2)
    assert placed(scene.steps()) == ["y"]
    scene.waiting[1:] = [a_candidate("y", queue=B, cpu=3)]
    assert placed(scene.steps()) == [], "not even quota is there"


def test_room_that_is_on_its_way_is_waited_for_and_nobody_is_stopped_for_it() -> None:
    scene = lent()
    first = scene.waits("x", A, 1)
    scene.stopped_for(first, scene.running[0])
    scene.waits("xx", A, 1)
    steps = scene.steps()
    assert stops(steps) == {}
    found, words = reason(steps, "xx")
    assert found == "WaitsForVictims"
    assert words.endswith("It will fit when the Jobs that are being stopped are gone")


@pytest.mark.parametrize("why", ["its worker is cordoned", "ten minutes have passed"])
def test_one_whose_victims_help_it_no_longer_looks_for_others(why: str) -> None:
    w1 = worker("w1", capacity=6, cordoned=why.startswith("its"))
    scene = Scene({A: member(4), B: member(2)}, w1, worker("w2", capacity=6))
    stuck = scene.runs("b1", B, 3)
    scene.runs("b2", B, 3, worker="w2")
    waiting = scene.waits("x", A, 4)
    scene.stopped_for(waiting, stuck)
    later = NOW + (600 if why.startswith("ten") else 0)
    assert stops(scene.steps(later)) == {"x": ["b2"]}


def test_a_strict_queue_whose_first_waits_for_victims_lets_nobody_pass() -> None:
    scene = Scene({A: member(4, queueingStrategy="StrictFIFO"), B: member(2)})
    scene.runs("b1", B, 4)
    scene.waits("x", A, 3)
    scene.waits("xx", A, 1)
    steps = scene.steps()
    assert stops(steps) == {"x": ["b1"]}
    assert (placed(steps), reason(steps, "xx")[0]) == ([], "BlockedByQueue")


def test_a_pass_stops_no_more_than_it_may() -> None:
    queues = {f"q{number}": member(1) for number in range(30)} | {B: member(0)}
    scene = Scene(queues)
    for number in range(30):
        scene.runs(f"b{number}", B, 1)
        scene.waits(f"x{number}", f"q{number}", 1)
    assert len(stops(scene.steps())) == 20


@pytest.mark.parametrize("on", ["w1", "w2"])
def test_one_that_is_never_stopped_takes_the_own_quota_of_lower_ones_though_there_is_room_and_something_to_borrow(
    on: str,
) -> None:
    queues = {A: member(1), B: member(3, preempts=["Priority"], maxPriority=9)}
    scene = Scene(queues, worker("w1", capacity=3), worker("w2", capacity=2))
    scene.runs("high", B, 2, worker="w1" if on == "w2" else "w2", priority=5)
    scene.runs("low", B, 1, worker=on)
    scene.waits("firm", B, 1, priority=5, preemptible=False)
    assert stops(scene.steps()) == {"firm": ["low"]}
    scene.waiting = []
    scene.waits("equal", B, 1, preemptible=False)
    assert stops(scene.steps()) == {}

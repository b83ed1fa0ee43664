"""When one that waits could start, by the deadlines of what runs."""

from collections.abc import Mapping
from typing import Any

import pytest

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.api.placement import cluster_of
from multimirror.batch import is_finished
from multimirror.kinds import JOB
from multimirror.kinds.pod_sets import nanos
from multimirror.kube.resources import JOBS
from multimirror.scheduling.candidates import WorkerSnapshot
from multimirror.scheduling.deadlines import MOST_ENDING, starts_by_deadlines
from multimirror.scheduling.preempting import RunningState
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.shared_quota import quota_tree
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting
from tests.unit.scheduling.builders import queue, ref, worker
from tests.unit.scheduling.sharing_stories import AMPLE
from tests.unit.scheduling.sharing_world import SharingWorld
from tests.unit.scheduling.test_cohorts import A, B, cohort, job, member

NOW = 1_800_000_000.0
Q = "q"


class Scene:
    """What runs, each until it must have ended: in so many seconds; None: nobody knows."""

    def __init__(
        self,
        queues: Mapping[str, MirrorQueueSpec],
        *workers: WorkerSnapshot,
        cohorts: Mapping[str, CohortSpec] | None = None,
    ) -> None:
        self.queues, self.tree = queues, quota_tree(queues, cohorts or {})
        self.workers = {each.name: each for each in workers or (worker("w1", capacity=1000),)}
        self.running: list[RunningJob] = []
        self.usage = UsageCache()

    def runs(self, queue: str, cpu: int, ends: float | None, *, on: str = "w1", seen: bool = True) -> "Scene":
        name = f"runs-{self.usage.snapshot().worker(on).jobs}-{on}"
        requests = {"cpu": nanos(cpu)}
        self.usage.put(ref(name), Reservation(queue, "team", on, requests))
        if seen:
            at = NOW + ends if ends is not None else None
            self.running.append(RunningJob(uid=name, queue=queue, requests=requests, worker=on, ends=at))
        return self

    def starts(self, cpu: int, queue: str = Q, **more: Any) -> float | None:
        """In so many seconds."""
        candidate = job("waits", queue, cpu, **more)
        waiter = Waiting([candidate]).snapshot().find(candidate)
        assert waiter is not None
        found = starts_by_deadlines(
            waiter,
            self.queues,
            self.workers,
            self.usage.snapshot(),
            tree=self.tree,
            state=RunningState(running=RunningJobs(self.running).snapshot(), now=NOW),
        )
        return found - NOW if found is not None else None


def limited(cpu: int = 4, **spec: Any) -> dict[str, MirrorQueueSpec]:
    return {Q: queue(quota={"resources": {"cpu": str(cpu)}}, **spec)}


def test_enough_of_the_quota_is_free_when_enough_must_have_ended() -> None:
    scene = Scene(limited()).runs(Q, 1, 300).runs(Q, 1, 100).runs(Q, 2, 200)
    assert [scene.starts(cpu) for cpu in (1, 2, 3, 4)] == [100, 200, 200, 300]


def test_who_has_no_deadline_runs_for_ever() -> None:
    scene = Scene(limited()).runs(Q, 2, None).runs(Q, 2, 100)
    assert scene.starts(2) == 100
    assert scene.starts(3) is None


def test_it_starts_on_the_worker_that_has_room_first() -> None:
    scene = Scene({Q: queue()}, worker("w1", capacity=4), worker("w2", capacity=4), worker("w3", capacity=2))
    scene.runs(Q, 3, 500, on="w1").runs(Q, 3, 200, on="w2").runs(Q, 2, 50, on="w3")
    assert scene.starts(4) == 200
    assert scene.starts(2) == 50
    assert scene.starts(4, clusters=frozenset({"w1"})) == 500
    assert scene.starts(5) is None


def test_both_quota_and_room_have_to_be_there() -> None:
    scene = Scene(limited(6), worker("w1", capacity=4), worker("w2", capacity=2))
    scene.runs(Q, 4, 100, on="w1").runs(Q, 2, 300, on="w2")
    assert scene.starts(4) == 100
    assert scene.starts(2) == 100
    assert Scene(limited(4), worker("w1", capacity=8)).runs(Q, 4, 100).starts(4) == 100


def test_if_nobody_knows_when_one_of_them_is_there_nobody_knows() -> None:
    no_quota = Scene(limited(3), worker("w1", capacity=3), worker("w2", capacity=1))
    assert no_quota.runs(Q, 3, 100, on="w1").runs(Q, 1, None, on="w2").starts(3) is None
    no_room = Scene(limited(4), worker("w1", capacity=4))
    assert no_room.runs(Q, 4, 100, on="gone").runs("other", 4, None, on="w1").starts(4) is None


def test_in_a_cohort_those_of_other_queues_end_too() -> None:
    scene = Scene({A: member(2), B: member(2)}).runs(B, 1, 300).runs(B, 3, 200)
    assert scene.starts(1, A) == 200
    assert scene.starts(4, A) == 300
    assert scene.starts(5, A) is None


def test_one_that_may_have_own_quota_only_waits_for_that() -> None:
    scene = Scene({A: member(2), B: member(2)}).runs(A, 2, 300).runs(B, 2, 100)
    assert scene.starts(2, A) == 100
    assert scene.starts(2, A, preemptible=False) == 300


def test_the_number_of_jobs_counts() -> None:
    scene = Scene({Q: queue(quota={"jobs": 2})}).runs(Q, 1, 300).runs(Q, 1, 100)
    assert scene.starts(1) == 100


@pytest.mark.parametrize("ends", [-10.0, 0.0])
def test_nothing_is_said_of_one_that_should_have_ended(ends: float) -> None:
    assert Scene(limited()).runs(Q, 4, ends).starts(1) is None


def test_nor_of_one_that_waits_for_something_else() -> None:
    assert Scene(limited()).starts(1) is None, "there is quota and room"
    assert Scene(limited(hold="Hold")).runs(Q, 4, 100).starts(1) is None
    assert Scene({A: member(2, cohort="y")}, cohorts={"y": cohort("z"), "z": cohort("y")}).starts(1, A) is None


def test_nor_where_something_is_charged_that_is_not_seen_to_run() -> None:
    assert Scene(limited()).runs(Q, 3, 100).runs(Q, 1, 100, seen=False).starts(1) is None


def test_nor_where_very_many_would_have_to_end() -> None:
    scene = Scene(limited(MOST_ENDING + 1))
    for number in range(MOST_ENDING + 1):
        scene.runs(Q, 1, 1 + number)
    assert scene.starts(MOST_ENDING) == MOST_ENDING
    assert scene.starts(MOST_ENDING + 1) is None


@pytest.mark.parametrize("deadline", [-1, "600", "soon", 1.5, True, None, [], 2**63])
def test_what_the_api_takes_for_no_deadline_is_none(deadline: object) -> None:
    job = {"metadata": {}, "spec": {"activeDeadlineSeconds": deadline, "template": {"spec": {}}}}
    assert JOB.run_seconds(job) is None


@pytest.mark.parametrize("deadline", [2**62, 2**63 - 1])
def test_a_deadline_beyond_all_calendars_gives_no_estimate_and_harms_nobody(deadline: int) -> None:
    """Two of them fill their queue; one that has waited long keeps room, so that their ends are looked at."""
    world = SharingWorld({"a": {"quota": {"resources": {"cpu": "2"}}, "headWait": "10s"}}, {}, AMPLE)
    try:
        names = [world.submit("a") for _ in range(4)]
        for name in names[:3]:
            world.hub.change(JOBS, name, "t1", lambda obj: obj["spec"].update(activeDeadlineSeconds=deadline))
        world.pass_time(60)
        assert [cluster_of(job) is not None for job in world.jobs()] == [True, True, False, False]
        for name in names[2:]:
            assert world.dispatcher is not None
            told = world.run(world.dispatcher.questions.explain(f"t1/{name}"))
            assert told is not None
            assert told["reason"] in ("QuotaExceeded", "Claimed")
            assert told["position"] > 0
            assert "estimateSeconds" not in told or told["startsPerHour"], "by what was started, if by anything"
        for worker, copy in world.running():
            world.end_copy(worker, copy)
        world.pass_time(5)
        assert all(cluster_of(job) is not None for job in world.jobs() if not is_finished(job.get("status") or {}))
    finally:
        world.close()

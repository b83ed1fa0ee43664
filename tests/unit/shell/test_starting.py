"""Jobs whose pods do not become ready in time, in the dispatcher as a whole: where they go, what their users are told,
and what becomes of a worker on which nothing starts. On virtual time."""

from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api import (
    CLUSTER_ANNOTATION,
    HOLD_ANNOTATION,
    MIRROR_QUEUES,
    NOT_STARTED_ANNOTATION,
    PREEMPTED_ANNOTATION,
    PREEMPTED_AT_ANNOTATION,
    STARTING_ANNOTATION,
    WORKER_CLUSTERS,
)
from multimirror.batch import find_condition
from multimirror.kinds.job.sizes import pods_of
from multimirror.kube.resources import EVENTS, JOBS, PODS
from tests.unit.shell.fake_api import Refused, Request
from tests.unit.shell.world import World

Json = dict[str, Any]
WITHIN = 600


class StartingWorld(World):
    """Queue a gives pods ten minutes, and Jobs three attempts. Worker w1 comes first, and has room enough."""

    def __init__(self) -> None:
        super().__init__()

        def starts(queue: Json) -> None:
            queue["metadata"]["generation"] += 1
            queue["spec"] |= {
                "start": {"within": f"{WITHIN}s", "attempts": 3},
                "placement": "Ordered",
                "workers": {"names": ["w1", "w2"]},
            }

        self.hub.change(MIRROR_QUEUES, "a", "", starts)
        for worker in self.workers:
            self.set_nodes(worker, 9)
        self.settle()

    def job(self, name: str) -> Json:
        (job,) = [job for job in self.jobs() if job["metadata"]["name"] == name]
        return job

    def annotation(self, name: str, key: str) -> str | None:
        found: str | None = (self.job(name)["metadata"].get("annotations") or {}).get(key)
        return found

    def worker_of(self, name: str) -> str | None:
        return self.annotation(name, CLUSTER_ANNOTATION)

    def large(self, pods: int, cpus: int = 1) -> str:
        name = self.submit("a", cpus=cpus)

        def change(job: Json) -> None:
            job["spec"] |= {"parallelism": pods, "completions": pods}

        self.hub.change(JOBS, name, "t1", change)
        return name

    def run_controllers(self, ready: dict[str, int]) -> None:
        """The workers' Job controllers do what is asked of them; of each worker so many pods of a Job become ready."""
        for worker, copy in self.live_copies():
            status = copy.get("status") or {}
            if copy["spec"].get("suspend"):
                suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": self.now()}
                wanted: Json = {"conditions": [suspended], "active": 0, "ready": 0, "terminating": 0}
                wanted = status if status.get("conditions") else wanted
                for pod in self.workers[worker].all(PODS):
                    self.workers[worker].remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
            else:
                pods = pods_of(copy["spec"])
                start = status.get("startTime") or self.now()
                up = min(pods, ready.get(worker, 99))
                wanted = {"startTime": start, "active": pods, "ready": up, "terminating": 0}
            if wanted != status:
                self._set_status(worker, copy, wanted)

    def live(self, seconds: float, ready: dict[str, int], step: float = 2.0) -> None:
        """Time goes by, and the workers' controllers work."""
        for _ in range(int(seconds / step)):
            self.run_controllers(ready)
            self.settle(step)

    def told(self, reason: str) -> list[str]:
        return [event["message"] for event in self.hub.all(EVENTS) if event.get("reason") == reason]

    def ready_condition(self, worker: str) -> Json:
        cluster = self.hub.get(WORKER_CLUSTERS, worker)
        assert cluster is not None
        return find_condition(cluster["status"]["conditions"], "Ready") or {}


@pytest.fixture
def world() -> Iterator[StartingWorld]:
    world = StartingWorld()
    yield world
    world.close()
    assert world.violations == []


def test_a_job_that_does_not_start_on_one_worker_runs_on_another(world: StartingWorld) -> None:
    name = world.large(4)
    world.live(WITHIN - 10, {"w1": 2})
    assert world.worker_of(name) == "w1"
    world.live(60, {"w1": 2})
    assert world.worker_of(name) == "w2"
    assert world.annotation(name, STARTING_ANNOTATION) is None, "it has started"
    (words,) = world.told("NotStarted")
    assert words.startswith("on worker w1 2 of 4 pods were not ready within 600 s; attempt 1 of 3")
    assert [worker for worker, _ in world.live_copies()] == ["w2"]


def test_it_is_told_what_the_pods_say_where_the_worker_lets_us_read_that(world: StartingWorld) -> None:
    name = world.submit("a")
    world.settle()
    ((_, copy),) = world.live_copies()
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere/\x1b[2Jx"'}
    world.workers["w1"].put(
        PODS,
        {
            "metadata": {
                "name": "p",
                "namespace": "t1",
                "labels": {"batch.kubernetes.io/controller-uid": copy["metadata"]["uid"]},
            },
            "status": {"containerStatuses": [{"state": {"waiting": waiting}}]},
        },
    )
    world.live(WITHIN + 60, {"w1": 0})
    (words,) = world.told("NotStarted")
    assert '(ImagePullBackOff: Back-off pulling image "nowhere/ [2Jx")' in words
    assert world.worker_of(name) == "w2"


def test_where_the_worker_does_not_the_numbers_are_told(world: StartingWorld) -> None:
    def no_pods(request: Request) -> Refused | None:
        return Refused(403, "Forbidden", "no") if request.collection == PODS.path() else None

    world.workers["w1"].refuse = no_pods
    name = world.submit("a")
    world.live(WITHIN + 60, {"w1": 0})
    assert world.worker_of(name) == "w2"
    (words,) = world.told("NotStarted")
    assert "1 of 1 pods were not ready within 600 s; attempt 1 of 3" in words


def test_a_pod_that_is_lost_later_is_the_jobs_own_matter_also_after_a_restart(world: StartingWorld) -> None:
    name = world.large(4)
    world.live(100, {"w1": 4})
    world.run(world.restart())
    world.live(2 * WITHIN, {"w1": 3})
    assert world.worker_of(name) == "w1"
    assert world.told("NotStarted") == []


def test_in_a_queue_without_start_nothing_is_waited_for(world: StartingWorld) -> None:
    name = world.submit("z")
    world.settle()
    where = world.worker_of(name)
    assert where is not None
    world.live(3 * WITHIN, {where: 0}, step=30)
    assert world.worker_of(name) == where


def test_time_during_which_its_user_had_stopped_it_does_not_count(world: StartingWorld) -> None:
    name = world.large(2)
    world.live(300, {"w1": 1})
    world.edit(world.job(name), suspend=True)
    world.live(2 * WITHIN, {"w1": 1})
    world.edit(world.job(name), suspend=False)
    world.live(WITHIN - 30, {"w1": 1})
    assert world.worker_of(name) == "w1"
    world.live(60, {"w1": 1})
    assert world.worker_of(name) == "w2"


def test_after_its_attempts_it_is_held_in_words_and_who_lets_it_go_has_it_tried_again(world: StartingWorld) -> None:
    name = world.submit("a")
    world.live(3 * WITHIN + 400, {"w1": 0, "w2": 0}, step=5)
    assert world.worker_of(name) is None
    assert world.annotation(name, HOLD_ANNOTATION) == "true"
    words = world.told("NotStarted")
    assert len(words) == 3
    assert "that was attempt 3 of 3, and it is held. Set spec.suspend to false, or remove" in words[-1]
    condition = find_condition(world.job(name)["status"]["conditions"], "Suspended") or {}
    assert "its pods were not ready in time" in condition["message"]
    world.run(world.restart())
    world.live(3600, {}, step=60)
    assert world.worker_of(name) is None, "held is held"
    world.edit(world.job(name), suspend=False)
    world.live(30, {})
    assert world.worker_of(name) == "w1", "an hour is over: nothing is avoided any more"
    assert world.annotation(name, HOLD_ANNOTATION) is None


def test_who_lets_it_go_while_its_pods_stop_has_it_tried_elsewhere(world: StartingWorld) -> None:
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"]["start"].update(attempts=1))
    name = world.submit("a")
    world.live(WITHIN - 4, {"w1": 0})
    world.settle(20)  # its copy is told to stop, and does not yet
    assert world.annotation(name, PREEMPTED_ANNOTATION) == "NotStarted"
    assert world.annotation(name, PREEMPTED_AT_ANNOTATION) is not None
    assert world.annotation(name, HOLD_ANNOTATION) == "true"
    assert world.worker_of(name) == "w1", "it is counted there until its pods are gone"
    world.edit(world.job(name), suspend=False)
    world.live(30, {})
    assert world.worker_of(name) == "w2"
    assert world.annotation(name, HOLD_ANNOTATION) is None
    assert world.annotation(name, PREEMPTED_ANNOTATION) is None


def test_a_worker_is_avoided_for_longer_each_time_and_a_restart_remembers_that(world: StartingWorld) -> None:
    name = world.submit("a")
    world.edit(world.job(name), clusters="w1")
    world.live(WITHIN + 30, {"w1": 0})
    assert world.worker_of(name) is None
    world.run(world.restart())
    world.live(20, {"w1": 0})
    assert world.worker_of(name) is None
    world.live(30, {"w1": 0})
    assert world.worker_of(name) == "w1", "after a minute"
    world.live(WITHIN + 30, {"w1": 0})
    assert world.worker_of(name) is None
    world.live(70, {"w1": 0})
    assert world.worker_of(name) is None, "after two"
    world.live(60, {"w1": 0})
    assert world.worker_of(name) == "w1"
    assert '"count":2' in str(world.annotation(name, NOT_STARTED_ANNOTATION))


def fail_three(world: StartingWorld) -> list[str]:
    """Three Jobs of different shapes, of which none starts on w1."""
    names = [world.large(pods) for pods in (1, 2, 3)]
    world.live(WITHIN + 60, {"w1": 0})
    assert {world.worker_of(name) for name in names} == {"w2"}
    world.settle(31)
    return names


def test_a_worker_on_which_nothing_starts_says_so_and_gets_one_job_at_a_time(world: StartingWorld) -> None:
    fail_three(world)
    condition = world.ready_condition("w1")
    assert (condition["status"], condition["reason"]) == ("False", "JobsDoNotStart")
    assert "t1/job-1, t1/job-2, t1/job-3" in condition["message"]
    world.set_worker("w2", cordoned=True)
    first, second = world.submit("a"), world.submit("a")
    world.live(30, {"w1": 0})
    assert [world.worker_of(each) for each in (first, second)] == ["w1", None], "one is tried"
    world.run(world.restart())
    world.live(60, {"w1": 0})
    assert [world.worker_of(each) for each in (first, second)] == ["w1", None], "a restart remembers"
    world.live(30, {"w1": 1})
    assert [world.worker_of(each) for each in (first, second)] == ["w1", "w1"], "one has started"
    world.settle(31)
    assert world.ready_condition("w1")["status"] == "True"


def test_a_trial_that_does_not_start_makes_room_for_the_next(world: StartingWorld) -> None:
    fail_three(world)
    world.set_worker("w2", cordoned=True)
    first, second = world.submit("a"), world.submit("a")
    world.live(WITHIN + 30, {"w1": 0})
    assert [world.worker_of(each) for each in (first, second)] == [None, "w1"]


def test_three_jobs_that_ask_for_the_same_say_nothing_about_a_worker(world: StartingWorld) -> None:
    for _ in range(4):
        world.large(2)
    world.live(WITHIN + 60, {"w1": 0})
    world.settle(31)
    assert world.ready_condition("w1")["status"] == "True"


def test_nor_do_three_between_which_one_started(world: StartingWorld) -> None:
    for pods in (1, 2):
        world.large(pods)
    world.live(WITHIN + 60, {"w1": 0})
    good = world.submit("a")
    world.live(10, {"w1": 1})
    assert world.worker_of(good) == "w1"
    world.large(3)
    world.live(WITHIN + 60, {"w1": 1})
    world.settle(31)
    assert world.ready_condition("w1")["status"] == "True"

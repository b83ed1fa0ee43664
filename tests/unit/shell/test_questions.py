"""What a whole dispatcher answers about what waits: the order is that in which it places."""

from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api import CLUSTER_ANNOTATION, MIRROR_QUEUES
from multimirror.observe import slices
from multimirror.observe.what_if import Changes, NotPlanned
from tests.unit.shell.world import World

Json = dict[str, Any]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.set_worker("w2", cordoned=True)
    yield world
    world.close()
    assert world.violations == []


def explained(world: World, name: str, team: str = "t1") -> Json:
    assert world.dispatcher is not None
    answer = world.run(world.dispatcher.questions.explain(f"{team}/{name}"))
    assert answer is not None
    return answer


def order(world: World, queue: str) -> list[str]:
    assert world.dispatcher is not None
    answer = world.run(world.dispatcher.questions.queue(queue))
    assert answer is not None
    return [each["job"].partition("/")[2] for each in answer["order"]]


def finish_one(world: World) -> None:
    ((worker, copy),) = world.copies()
    world.end_copy(worker, copy)
    world.settle(5)


PRIORITIES = [("t1", 0), ("t1", 0), ("t2", 0), ("t2", 5), ("t1", 2)]
TURNS = [("t1", 0), ("t1", 0), ("t1", 0), ("t2", 0), ("t2", 0), ("t2", 0)]


@pytest.mark.parametrize("submitted", [PRIORITIES, TURNS], ids=["priorities", "namespaces take turns"])
def test_jobs_are_placed_in_the_order_that_was_told(world: World, submitted: list[tuple[str, int]]) -> None:
    world.submit("a")
    world.settle()
    for team, priority in submitted:
        world.submit("a", team=team, priority=priority)
        world.settle(1)
    told, placed = order(world, "a"), []
    assert len(told) == len(submitted)
    for _ in told:
        finish_one(world)
        placed += [
            job["metadata"]["name"]
            for job in world.jobs()
            if job["metadata"]["name"] in told
            and job["metadata"]["name"] not in placed
            and CLUSTER_ANNOTATION in (job["metadata"].get("annotations") or {})
        ]
    assert placed == told


def test_the_estimate_comes_from_what_was_started_and_is_forgotten_by_a_restart(world: World) -> None:
    for _ in range(4):
        world.submit("a")
    world.settle(5)
    finish_one(world)
    last = explained(world, "job-4")
    assert (last["position"], last["pending"], last["startsPerHour"]) == (2, 2, 2)
    assert last["estimateSeconds"] == 3600, "two cpus were started in this hour, and two are wanted"
    world.settle(60)
    queue = world.hub.get(MIRROR_QUEUES, "a")
    assert queue is not None
    assert queue["status"]["startsPerHour"] == 2
    assert queue["status"]["used"] == {"cpu": "1", "pods": "1"}
    world.run(world.restart())
    world.settle(5)
    assert "estimateSeconds" not in explained(world, "job-4")
    assert explained(world, "job-4")["position"] == 2


def test_a_strict_queue_goes_by_age_whatever_the_namespace(world: World) -> None:
    world.hub.change(MIRROR_QUEUES, "a", "", lambda obj: obj["spec"].update(queueingStrategy="StrictFIFO"))
    names = []
    for team in ("t1", "t1", "t1", "t2"):
        names.append(world.submit("a", team=team))
        world.settle(2)
    assert order(world, "a") == names[1:]


# --- what if ----------------------------------------------------------------------------------------------------------


def what_if(world: World, name: str, **changes: str) -> Json:
    assert world.dispatcher is not None
    parameters = {key.replace("request_", "request."): value for key, value in changes.items()}
    answer = world.run(world.dispatcher.questions.what_if(f"t1/{name}", Changes.read(parameters)))
    assert answer is not None
    return answer


def written(world: World) -> list[Json]:
    return [job["metadata"] for job in world.jobs()]


def test_a_job_with_another_priority_would_come_earlier_and_stays_where_it_is(world: World) -> None:
    for _ in range(4):
        world.submit("a")
        world.settle(1)
    world.settle(5)
    before = written(world)
    told = what_if(world, "job-4", priority="5")
    assert (told["placed"], told["position"], told["reason"]) == (False, 1, "NoWorkerFits")
    assert [each["name"] for each in told["workers"]] == ["w1", "w2"]
    world.settle(30)
    assert written(world) == before
    assert order(world, "a") == ["job-2", "job-3", "job-4"]
    assert explained(world, "job-4")["position"] == 3


def test_it_is_told_who_would_be_stopped_and_nobody_is(world: World) -> None:
    rules = {"cohort": "c", "quota": {"resources": {"cpu": "1"}}, "preempts": ["Priority"]}
    world.hub.change(MIRROR_QUEUES, "a", "", lambda obj: obj["spec"].update(rules))
    world.submit("a")
    world.submit("a")
    world.settle(10)
    before = written(world)
    assert "stops" not in what_if(world, "job-2", request_cpu="500m"), "it has no higher priority"
    told = what_if(world, "job-2", priority="5")
    assert (told["placed"], told["reason"]) == (False, "WaitsForVictims")
    assert told["stops"] == [{"job": "t1/job-1", "worker": "w1", "reason": "Priority"}]
    world.settle(30)
    assert written(world) == before


def test_a_smaller_job_would_go_where_there_is_room(world: World) -> None:
    world.submit("a", cpus=2)
    world.settle(5)
    assert explained(world, "job-1")["reason"] == "NoWorkerFits"
    told = what_if(world, "job-1", request_cpu="500m")
    assert (told["placed"], told["cluster"]) == (True, "w1")
    world.settle(30)
    assert world.copies() == []


def test_a_job_in_another_queue_would_meet_what_that_queue_says(world: World) -> None:
    world.submit("a", cpus=2)
    world.hub.change(MIRROR_QUEUES, "z", "", lambda obj: obj["spec"].update(hold="Hold"))
    world.settle(5)
    assert what_if(world, "job-1", queue="z")["reason"] == "Held"
    assert what_if(world, "job-1", queue="nowhere")["reason"] == "QueueMissing"
    selector = {"matchLabels": {"of": "others"}}
    world.hub.change(MIRROR_QUEUES, "z", "", lambda obj: obj["spec"].update(hold="None", namespaceSelector=selector))
    world.settle(5)
    assert what_if(world, "job-1", queue="z")["why"] == "queue z may not be used from namespace t1"


def test_nothing_is_planned_for_a_job_that_does_not_wait(world: World) -> None:
    world.submit("a")
    world.settle(5)
    with pytest.raises(NotPlanned, match="it does not wait"):
        what_if(world, "job-1", priority="5")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"priority": "high"}, "priority: must be a whole number from 0 to 999999999"),
        ({"pods": "9" * 5000}, "pods: must be a whole number"),
        ({"request.cpu": "many"}, "cpu: "),
        ({"request.cpu": "-1"}, "cpu: must not be negative"),
    ],
)
def test_what_cannot_be_read_is_named(parameters: dict[str, str], words: str) -> None:
    with pytest.raises(NotPlanned, match=words):
        Changes.read(parameters)


def test_where_planning_takes_too_long_nothing_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.submit("a", cpus=2)
    world.settle(5)
    monkeypatch.setattr(slices, "_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(slices, "_MOST_SECONDS", -1.0)
    with pytest.raises(NotPlanned, match="takes too long"):
        what_if(world, "job-1", priority="5")

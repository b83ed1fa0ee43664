"""What a whole dispatcher answers about what waits: the order is that in which it places."""

from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api import CLUSTER_ANNOTATION, MIRROR_QUEUES
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


def test_jobs_are_placed_in_the_order_that_was_told(world: World) -> None:
    world.submit("a")
    world.settle()
    for team, priority in (("t1", 0), ("t1", 0), ("t2", 0), ("t2", 5), ("t1", 2)):
        world.submit("a", team=team, priority=priority)
        world.settle(1)
    told, placed = order(world, "a"), []
    assert len(told) == 5
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

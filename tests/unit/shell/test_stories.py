"""The dispatcher whole, on virtual time: stories that its parts tell only together, also when it is broken."""

from collections.abc import Callable, Iterator

import pytest
from prometheus_client import REGISTRY

from multimirror.api import CLUSTER_ANNOTATION
from multimirror.batch import is_complete
from tests.unit.shell.bugs import (
    Bug,
    not_followed_is_not_there,
    queues_by_the_alphabet,
    the_newest_version_is_written,
)
from tests.unit.shell.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
    assert world.violations == []


def cluster_of(world: World, name: str) -> str | None:
    (job,) = [job for job in world.jobs() if job["metadata"]["name"] == name]
    found: str | None = (job["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION)
    return found


def test_a_job_goes_its_way(world: World) -> None:
    world.submit("a")
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle()
    assert world.jobs()[0]["status"]["active"] == 1
    world.end_copy(worker, copy)
    world.settle()
    assert is_complete(world.jobs()[0]["status"])
    assert world.copies() == []


def two_queues_compete(world: World) -> None:
    """One node; a backlog in queue a, then somebody more important in queue z, then the node is free."""
    world.set_worker("w2", cordoned=True)
    for _ in range(3):
        world.submit("a")
    world.settle()
    world.submit("z", priority=2)
    world.settle(10)
    ((worker, copy),) = world.copies()
    world.end_copy(worker, copy)
    world.settle(10)


def namespaces_are_narrowed(world: World) -> None:
    """While a copy runs in one of them."""
    world.submit("a", team="t1")
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle()
    world.set_worker(worker, namespaces=[{"name": "t2"}])
    world.settle(60)
    assert len(world.copies()) >= 1


def a_job_is_held_while_it_is_being_assigned(world: World) -> None:
    world.network.links["hub"].write_seconds = 3.0
    world.submit("a")
    world.settle(1)
    world.edit(world.jobs()[0], hold=True, suspend=True)
    world.settle(60)


STORIES = {
    queues_by_the_alphabet: two_queues_compete,
    not_followed_is_not_there: namespaces_are_narrowed,
    the_newest_version_is_written: a_job_is_held_while_it_is_being_assigned,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=lambda story: story.__name__)
def test_nothing_goes_wrong_when(story: Callable[[World], None], world: World) -> None:
    story(world)


@pytest.mark.parametrize(("bug", "story"), STORIES.items(), ids=lambda each: each.__name__)
def test_what_goes_wrong_is_noticed(bug: Bug, story: Callable[[World], None]) -> None:
    with bug():
        world = World()
        story(world)
        world.close()
    assert world.violations


def test_a_copy_in_a_namespace_that_was_taken_out_is_mirrored_and_removed_as_ever(world: World) -> None:
    namespaces_are_narrowed(world)
    ((worker, copy),) = world.copies()
    world.end_copy(worker, copy)
    world.settle(5)
    assert is_complete(world.jobs()[0]["status"])
    assert world.copies() == []


def test_a_job_assigned_to_a_worker_that_takes_it_no_more_goes_elsewhere_and_its_user_hears_why(world: World) -> None:
    world.network.links["w1"].write_seconds = 30.0  # longer than anybody waits
    world.set_worker("w2", cordoned=True)
    name = world.submit("a", team="t1")
    world.settle(0.5)
    assert cluster_of(world, name) == "w1"
    world.set_worker("w1", namespaces=[{"name": "t2"}])
    world.set_worker("w2", cordoned=False)
    world.settle(60)
    assert cluster_of(world, name) == "w2"
    assert [worker for worker, _ in world.copies()] == ["w2"]


def test_a_worker_with_slow_writes_is_not_lost(world: World) -> None:
    world.network.links["w1"].write_seconds = 10.0
    for _ in range(3):
        world.submit("a")
    assert world.dispatcher is not None
    for _ in range(60):
        world.settle(1)
        assert world.dispatcher.worker("w1") is not None
        assert world.dispatcher._workers.contact("w1").connected


def test_a_node_that_comes_or_goes_concerns_those_that_wait_and_not_those_that_run(world: World) -> None:
    world.submit("a")
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle(20)
    before = reconciles()
    for number in (2, 1, 2):
        world.set_nodes(worker, number)
        world.settle()
    assert reconciles() == before


def reconciles() -> float:
    labels = {"controller": "management", "result": "success"}
    return REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0

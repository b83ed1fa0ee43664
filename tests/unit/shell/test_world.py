"""The dispatcher whole, on virtual time: stories that its parts tell only together."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION, MIRROR_QUEUES
from multimirror.batch import is_complete
from multimirror.dispatcher import Dispatcher
from multimirror.kube import Client, Connection
from multimirror.kube.resources import JOBS
from tests.unit.shell.fake_api import Refused, Request
from tests.unit.shell.world import OPTIONS, World

Json = dict[str, Any]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
    assert world.violations == []


def job_of(world: World, name: str) -> Json:
    (job,) = [job for job in world.jobs() if job["metadata"]["name"] == name]
    return job


def cluster_of(world: World, name: str) -> str | None:
    found: str | None = (job_of(world, name)["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION)
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


def test_what_a_job_gives_back_that_was_held_before_its_assignment_was_written_goes_to_the_next(world: World) -> None:
    world.set_worker("w2", cordoned=True)
    world.settle()
    world.network.links["hub"].write_seconds = 2.0
    first = world.submit("a", priority=1)
    second = world.submit("a")
    world.settle(0.5)
    assert cluster_of(world, first) is None, "decided, and on its way"
    world.edit(job_of(world, first), hold=True)
    world.settle(10)
    assert cluster_of(world, first) is None
    assert cluster_of(world, second) == "w1"


def on_w1_and_not_followed(world: World) -> str:
    """A Job of t1 that runs on w1, where somebody took the right to follow t1 away; there is nowhere else to go."""

    def forbidden(request: Request) -> Refused | None:
        is_list = request.method == "GET" and not request.name
        if is_list and request.collection == JOBS.path() and request.namespace == "t1":
            return Refused(403, "Forbidden", "somebody took the right away")
        return None

    lost = {"action": "Redispatch", "after": "20s"}
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(onWorkerLost=lost))
    world.set_worker("w1", namespaces=[{"name": "t1"}, {"name": "t2"}])
    world.set_worker("w2", cordoned=True)
    world.settle()
    name = world.submit("a", "t1")
    world.settle()
    assert cluster_of(world, name) == "w1"
    world.workers["w1"].refuse = forbidden
    link = world.network.links["w1"]
    link.set_up(up=False)
    link.set_up(up=True)
    return name


def test_a_job_whose_namespace_cannot_be_followed_any_more_is_not_sent_there_again_and_again(world: World) -> None:
    name = on_w1_and_not_followed(world)
    world.settle(120)
    assert job_of(world, name)["metadata"]["annotations"][ATTEMPT_ANNOTATION] == "1"
    assert cluster_of(world, name) is None
    assert world.dispatcher is not None
    assert "somebody took the right away" in str(world.dispatcher.explain("t1", name))


def test_a_copy_that_was_left_behind_goes_when_its_namespace_is_followed_again(world: World) -> None:
    name = on_w1_and_not_followed(world)
    world.settle(60)
    world.set_worker("w2", cordoned=False)
    world.settle()
    assert cluster_of(world, name) == "w2"
    assert {worker for worker, _ in world.copies()} == {"w1", "w2"}, "the window that the queue's policy names"
    world.violations.clear()
    world.workers["w1"].refuse = lambda _: None
    world.settle(60)
    assert {worker for worker, _ in world.copies()} == {"w2"}


def test_a_node_that_comes_costs_the_jobs_of_its_worker_nothing(world: World) -> None:
    world.submit("a")
    world.settle()
    assert world.dispatcher is not None
    before = world.dispatcher._lanes._reconciled
    ((worker, _),) = world.copies()
    world.set_nodes(worker, 3)
    world.settle()
    assert world.dispatcher._lanes._reconciled == before
    world.submit("a")
    world.settle()
    assert len(world.copies()) == 2, "the new capacity is known all the same"


def test_a_status_of_a_queue_makes_no_other_rules_of_it(world: World) -> None:
    """A decision is not written when its queue is another one since; its status says nothing about that."""
    assert world.dispatcher is not None
    specs = world.dispatcher._cache.queue_specs
    before = specs["a"]
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue.update(status={"pending": 7}))
    world.settle()
    assert specs["a"] is before


def test_a_standby_keeps_nothing_of_what_came_and_went(world: World) -> None:
    async def follow() -> Dispatcher:
        connection = Connection.strict(world.network.kubeconfig("hub"), name="standby")
        async with Client(connection) as client:
            standby = await Dispatcher.connect(client, OPTIONS, clock=world.clock)
            async with standby.following():
                await asyncio.sleep(1)
                name = world.submit("a")
                await asyncio.sleep(1)
                ((worker, copy),) = world.copies()
                assert standby._lanes._observer._holders != {}
                world.end_copy(worker, copy)
                await asyncio.sleep(1)
                world.hub.remove(JOBS, name, "t1")
                await asyncio.sleep(1)
        return standby

    standby = world.run(follow())
    assert standby._lanes._observer._holders == {}
    assert len(standby._lanes._management.queue) == 0

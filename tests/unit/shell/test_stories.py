"""The dispatcher whole, on virtual time: stories that its parts tell only together, also when it is broken."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION, COHORTS, MIRROR_QUEUES, PREEMPTIBLE_LABEL
from multimirror.batch import find_condition, is_complete
from multimirror.dispatcher import Dispatcher
from multimirror.kinds.reserved import reserved_of
from multimirror.kube import Client, Connection
from multimirror.kube.resources import JOBS
from tests.unit.shell.bugs import (
    Bug,
    not_followed_is_not_there,
    queues_by_the_alphabet,
    the_newest_version_is_written,
)
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


def test_an_installation_that_is_older_than_cohorts_works_without(world: World) -> None:
    def refuse(request: Request) -> Refused | None:
        kinds = request.path == "/apis/multimirror.dev/v1alpha1"
        return Refused(404, "NotFound") if kinds or request.path.startswith(COHORTS.path()) else None

    world.hub.refuse = refuse
    world.run(world.restart())
    name = world.submit("a")
    world.settle()
    assert cluster_of(world, name) is not None
    assert world.dispatcher is not None
    assert world.dispatcher._cache.cohort_specs == {}
    world.hub.refuse = lambda _: None
    world.hub.put(COHORTS, {"metadata": {"name": "c", "generation": 1}, "spec": {"parent": "company"}})
    world.settle(60)
    assert world.dispatcher._cache.cohort_specs["c"].parent == "company", "it is there now"


def test_a_cohort_is_told_what_is_wrong_with_it_and_that_it_was_put_right(world: World) -> None:
    def ready(name: str) -> tuple[str, str]:
        found = find_condition((world.hub.get(COHORTS, name) or {})["status"]["conditions"], "Ready") or {}
        return found["status"], found["reason"]

    for name, spec in {"x": {"parent": "y"}, "y": {"parent": "x"}, "broken": {"weight": "heavy"}}.items():
        world.hub.put(COHORTS, {"metadata": {"name": name, "generation": 1}, "spec": spec})
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(cohort="x"))
    world.settle(60)
    assert [ready(each) for each in ("x", "y", "broken")] == [
        ("False", "Cycle"),
        ("False", "Cycle"),
        ("False", "InvalidSpec"),
    ]
    world.hub.change(COHORTS, "y", "", lambda cohort: cohort["spec"].pop("parent"))
    world.hub.change(COHORTS, "broken", "", lambda cohort: cohort["spec"].update(weight=2))
    world.settle(60)
    assert [ready(each) for each in ("x", "y", "broken")] == [("True", "Ready")] * 3
    assert [(world.hub.get(COHORTS, each) or {})["status"]["queues"] for each in ("x", "y", "broken")] == [1, 1, 0]


def test_whether_a_job_may_be_stopped_is_what_it_said_when_it_was_placed(world: World) -> None:
    def says(value: str) -> Callable[[Json], None]:
        return lambda job: job["metadata"]["labels"].update({PREEMPTIBLE_LABEL: value})

    world.set_nodes("w1", 2)
    before, later, broken = world.submit("a"), world.submit("a"), world.submit("a")
    world.hub.change(JOBS, before, "t1", says("false"))
    world.hub.change(JOBS, broken, "t1", says("never"))
    world.settle()
    world.hub.change(JOBS, later, "t1", says("false"))
    world.settle()
    reserved = {name: reserved_of(job_of(world, name)) for name in (before, later)}
    assert {name: each is not None and each.preemptible for name, each in reserved.items()} == {
        before: False,
        later: True,
    }
    assert cluster_of(world, broken) is None, "it waits until it is put right"


def test_a_job_that_runs_gets_more_time_only_when_nobody_waits_for_what_it_uses(world: World) -> None:
    def says(deadline: int) -> Callable[[Json], None]:
        return lambda job: job["spec"].update(activeDeadlineSeconds=deadline)

    def deadlines() -> list[int]:
        return [copy["spec"]["activeDeadlineSeconds"] for _, copy in world.copies()]

    world.set_worker("w2", cordoned=True)
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(headWait="5s"))
    runs = world.submit("a")
    world.hub.change(JOBS, runs, "t1", says(600))
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    waits = world.submit("a")
    world.settle(10)
    assert "multimirror.dev/claim" in job_of(world, waits)["metadata"]["annotations"]
    world.hub.change(JOBS, runs, "t1", says(6000))
    world.settle(60)
    assert deadlines() == [600]
    world.hub.remove(JOBS, waits, "t1")
    world.settle(60)
    assert deadlines() == [6000]


def test_a_standby_keeps_nothing_of_what_came_and_went(world: World) -> None:
    async def follow() -> Dispatcher:
        connection = Connection.strict(world.network.kubeconfig("hub"), name="standby", plain_http=True)
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


def test_one_request_that_fails_while_a_dispatcher_begins_moves_no_job(world: World) -> None:
    at_once = {"action": "Redispatch", "after": "0s"}
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(onWorkerLost=at_once))
    name = world.submit("a")
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle()
    failures = [Refused(504, "GatewayTimeout", "once")]

    def refuse(request: Request) -> Refused | None:  # reads are repeated: one of the questions about our rights
        return failures.pop() if failures and request.method == "POST" else None

    world.workers[worker].refuse = refuse
    world.run(world.restart())
    world.settle(30)
    assert failures == []
    assert job_of(world, name)["metadata"]["annotations"][ATTEMPT_ANNOTATION] == "1"
    assert [where for where, _ in world.copies()] == [worker]

"""One tenant brings hundreds of Jobs, another one brings one: what is counted is writes, on virtual time."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from multimirror.api import CLUSTER_ANNOTATION, MIRROR_QUEUES
from multimirror.kube.resources import EVENTS
from multimirror.scheduling import scheduler
from tests.unit.shell.fake_api import Refused, Request
from tests.unit.shell.world import OPTIONS, World

Json = dict[str, Any]
_FLOOD = 300
_SOON = 6 * OPTIONS.concurrency
"""Writes for others: what is on its way when somebody comes, and a turn for each that is written at once."""


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    for name in world.workers:
        world.set_worker(name, capacity={"mode": "Declared", "resources": {"cpu": 10_000}})
    world.settle()
    yield world
    world.close()
    assert world.violations == []


def assigned(world: World, team: str) -> list[Json]:
    jobs = [job for job in world.jobs() if job["metadata"]["namespace"] == team]
    return [job for job in jobs if CLUSTER_ANNOTATION in (job["metadata"].get("annotations") or {})]


def copies(world: World, team: str) -> list[Json]:
    return [copy for _, copy in world.copies() if copy["metadata"]["namespace"] == team]


@pytest.mark.parametrize("queue", [pytest.param("a", id="same queue"), pytest.param("z", id="another queue")])
@pytest.mark.parametrize("priority", [0, 9])
def test_a_newcomer_is_placed_after_a_few_writes_and_not_after_the_whole_flood(
    world: World, queue: str, priority: int
) -> None:
    """Each write takes a while: 40 of them in a second. The flood's are the older ones."""
    world.hub.change(MIRROR_QUEUES, "a", "", lambda obj: obj["spec"].pop("maxPriority"))
    world.network.links["hub"].write_seconds = 0.1
    for _ in range(_FLOOD):
        world.submit("a", "t1", priority=priority)
    world.settle(1.0)
    before = len(assigned(world, "t1"))
    assert 0 < before < _FLOOD / 2
    world.submit(queue, "t2")
    while not assigned(world, "t2"):
        world.settle(0.01)
    assert len(assigned(world, "t1")) - before <= _SOON
    world.violations.clear()  # in this world the highest priority would go first over all namespaces
    world.settle(30)
    assert len(assigned(world, "t1")) == _FLOOD, "and nobody is forgotten"
    world.violations.clear()


def test_copies_of_a_newcomer_are_made_between_those_of_the_flood(world: World) -> None:
    for name in world.workers:
        world.network.links[name].write_seconds = 0.2
    for _ in range(_FLOOD):
        world.submit("a", "t1")
    while len(assigned(world, "t1")) < _FLOOD:
        world.settle(0.1)
    before = len(copies(world, "t1"))
    assert before < _FLOOD / 2
    world.submit("z", "t2")
    while not copies(world, "t2"):
        world.settle(0.01)
    assert len(copies(world, "t1")) - before <= 4 * OPTIONS.worker_concurrency


def test_a_thousand_statuses_of_one_tenant_do_not_delay_anothers(world: World) -> None:
    for _ in range(_FLOOD):
        world.submit("a", "t1")
    world.submit("z", "t2")
    world.settle(5.0)
    world.network.links["hub"].write_seconds = 0.1
    for worker, copy in world.copies():
        if copy["metadata"]["namespace"] == "t1":
            world.start_copy(worker, copy)
    world.settle(1.0)
    ((worker, copy),) = [each for each in world.copies() if each[1]["metadata"]["namespace"] == "t2"]

    def mirrored(team: str) -> int:
        return sum((job.get("status") or {}).get("active", 0) for job in world.jobs() if _team(job) == team)

    before = mirrored("t1")
    assert before < _FLOOD / 2
    world.start_copy(worker, copy)
    while not mirrored("t2"):
        world.settle(0.01)
    assert mirrored("t1") - before <= 3 * OPTIONS.concurrency


def test_why_one_waits_is_told_to_all_namespaces_in_turn(world: World) -> None:
    for name in world.workers:
        world.set_worker(name, cordoned=True)
    world.settle()
    for _ in range(_FLOOD):
        world.submit("a", "t1")
    world.submit("z", "t2")
    world.settle(0.5)
    told = [event["metadata"]["namespace"] for event in world.hub.all(EVENTS) if event["reason"] == "Waiting"]
    assert told.index("t2") <= 2
    world.settle(60)
    told = [event["metadata"]["namespace"] for event in world.hub.all(EVENTS) if event["reason"] == "Waiting"]
    assert told.count("t1") == _FLOOD, "the others after a while"


def test_assignments_that_are_refused_for_ever_keep_nobody_else_from_being_assigned(world: World) -> None:
    def refuse(request: Request) -> Refused | None:
        is_assignment = request.method == "PATCH" and request.namespace == "t1" and not request.subresource
        return Refused(403, "Forbidden", "not in this namespace") if is_assignment else None

    world.hub.refuse = refuse
    for _ in range(_FLOOD):
        world.submit("a", "t1")
    world.settle(10)
    world.submit("z", "t2")
    world.settle(1)
    assert len(assigned(world, "t2")) == 1
    assert assigned(world, "t1") == []


def thousands_that_never_fit(world: World, queue: str) -> str:
    """Of as many shapes; and one that fits, the last of all. Each look at one of them takes 5 ms."""
    for name in world.workers:
        world.set_worker(name, capacity={"mode": "Declared", "resources": {"cpu": 100}})
    world.settle()
    for number in range(1500):
        world.submit(queue, "t1", cpus=101 + number)
    world.settle(1.0)
    return world.submit(queue, "t1")


@pytest.mark.parametrize("queue", [pytest.param("a", id="same queue"), pytest.param("z", id="another queue")])
def test_a_pass_over_thousands_that_do_not_fit_is_broken_off_for_a_newcomer(world: World, queue: str) -> None:
    looks, keep_waiting = [0], scheduler.Scheduler._keep_waiting

    def counted(*arguments: Any) -> None:
        looks[0] += 1
        keep_waiting(*arguments)

    with (
        mock.patch.object(scheduler, "_SLICE_SECONDS", -1.0),  # the world has its own
        mock.patch.object(scheduler.Scheduler, "_keep_waiting", counted),
    ):
        thousands_that_never_fit(world, "a")
        looks[0] = 0
        world.submit(queue, "t2")
        while not assigned(world, "t2"):
            world.settle(0.05)
        assert looks[0] < 900, "of 1,500 in a whole pass, and as many until the next one comes to the newcomer"


def test_whoever_is_last_of_thousands_is_looked_at_however_many_newcomers_there_are(world: World) -> None:
    with mock.patch.object(scheduler, "_SLICE_SECONDS", -1.0):
        last = thousands_that_never_fit(world, "a")
        for _ in range(60):
            world.submit("z", "t2")
            world.settle(1.0)
        world.settle(10.0)
        assert [job["metadata"]["name"] for job in assigned(world, "t1")] == [last]
        assert len(assigned(world, "t2")) == 60
        assert world.dispatcher is not None
        waiting = world.dispatcher._scheduler
        assert len(waiting.decisions) == waiting.pending("a") == 1500, "everybody knows why he waits"


def _team(job: Json) -> str:
    return str(job["metadata"]["namespace"])

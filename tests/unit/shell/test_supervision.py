"""The dispatcher does not outlive a task that it relies on, and one object's trouble is its own."""

import asyncio
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.kube.supervise import TaskEnded
from multimirror.scheduling import scheduler as scheduling
from multimirror.workers import Workers
from tests.unit.shell.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
    assert world.violations == []


def test_a_dispatcher_whose_worker_connections_died_ends_and_says_so() -> None:
    world = World()
    with mock.patch.object(Workers, "_refresh", side_effect=ArithmeticError("nobody thought of this")):
        world.set_worker("w1", weight=2)
        world.settle(30)
    with pytest.raises(TaskEnded, match="workers ended unexpectedly: ArithmeticError"):
        world.close()


def test_a_dispatcher_that_ends_waits_for_the_answers_of_the_statuses_that_it_writes(world: World) -> None:
    world.settle(10)
    world.network.links["hub"].write_seconds = 1.0
    world.set_worker("w1", cordoned=True)
    while not world.guard.on_their_way:
        world.settle(0.1)

    async def end() -> bool:
        await world.stop()
        return world.guard.gave_up_within(3600)

    assert not world.run(end()), "it may arrive when another one leads"
    assert not world.guard.on_their_way


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        (WORKER_CLUSTERS, {"capacity": {"mode": "Declared", "resources": {"cpu": "99e999999"}}}),
        (WORKER_CLUSTERS, {"capacity": {"mode": "Declared", "resources": {"cpu": {"not": "a quantity"}}}}),
        (MIRROR_QUEUES, {"quota": {"resources": {"cpu": "99e999999"}}}),
        (MIRROR_QUEUES, {"retention": "9" * 20}),
    ],
)
def test_an_object_that_nobody_can_read_costs_itself_alone(world: World, resource: Any, spec: dict[str, Any]) -> None:
    world.hub.put(resource, {"metadata": {"name": "broken", "generation": 1}, "spec": spec})
    world.settle(10)
    world.submit("a")
    world.settle(5)
    assert len(world.copies()) == 1


def test_a_long_pass_over_the_queues_lets_everybody_else_have_their_turn(world: World) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    async def while_many_wait() -> int:
        counting = asyncio.ensure_future(count())
        assert world.dispatcher is not None
        await world.dispatcher._scheduler._pass()
        counting.cancel()
        return turns

    for each in range(2, 60):  # none of them fits, and no two are alike
        world.submit("a", cpus=each)
    world.settle(5)
    with mock.patch.object(scheduling, "_SLICE_SECONDS", 0.0):
        assert world.run(while_many_wait()) >= 58

"""What a worker says as fast as it can, on virtual time: what is written of it, and when."""

from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api import ATTEMPT_ANNOTATION
from multimirror.batch import is_complete
from multimirror.kube.resources import JOBS
from tests.unit.shell.fake_api import Request
from tests.unit.shell.world import World

Json = dict[str, Any]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
    assert world.violations == []


def started(world: World) -> tuple[str, Json, list[float]]:
    """A Job that runs; and when its status is written from now on."""
    world.submit("a")
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle(30)
    written: list[float] = []
    on_write = world.hub.on_write

    def note(request: Request, before: Json | None, after: Json | None) -> None:
        if request.collection == JOBS.path() and request.subresource == "status":
            written.append(world.loop.time())
        on_write(request, before, after)

    world.hub.on_write = note
    return worker, copy, written


def flicker(world: World, worker: str, copy: Json, seconds: float) -> None:
    for number in range(int(seconds * 20)):
        status = {"startTime": world.now(), "active": 1, "ready": number % 2, "terminating": 0}
        world._set_status(worker, copy, status)
        world.settle(0.05)


def test_a_status_that_flickers_is_written_once_a_second_and_its_end_at_once(world: World) -> None:
    worker, copy, written = started(world)
    flicker(world, worker, copy, 30)
    assert len(written) <= 10 + 30 + 1
    assert len(written) >= 30, "and no more seldom"
    before = world.loop.time()
    world.end_copy(worker, copy)
    world.settle(0.2)
    assert is_complete(world.jobs()[0]["status"])
    assert written[-1] - before < 0.1


def test_what_was_not_written_for_a_while_is_not_lost(world: World) -> None:
    worker, copy, _ = started(world)
    flicker(world, worker, copy, 20)
    world._set_status(worker, copy, {"startTime": world.now(), "active": 3, "ready": 2, "terminating": 0})
    world.settle(3)
    assert world.jobs()[0]["status"]["ready"] == 2


def test_a_worker_that_deletes_copies_as_fast_as_they_are_made_costs_few_attempts(world: World) -> None:
    world.submit("a")
    for _ in range(1200):
        for worker, copy in world.copies():
            world.start_copy(worker, copy)
            world.settle(0.01)
            world.workers[worker].remove(JOBS, copy["metadata"]["name"], "t1")
        world.settle(0.05)
    attempts = int(world.jobs()[0]["metadata"]["annotations"][ATTEMPT_ANNOTATION])
    assert attempts <= 25, "one in three seconds, after the first few"
    world.settle(10)
    assert len(world.copies()) == 1, "it goes on all the same"

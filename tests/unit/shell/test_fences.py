"""Fences of running copies are renewed, also by a worker that refuses now and then."""

from collections.abc import Iterator
from unittest import mock

import pytest

from multimirror.api import MIRROR_QUEUES
from multimirror.kinds.job.kind import JobKind
from multimirror.kube.resources import JOBS
from tests.unit.shell.fake_api import Refused, Request
from tests.unit.shell.world import World

TIMEOUT = 60


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    spec = {"fence": {"timeout": f"{TIMEOUT}s"}, "onWorkerLost": {"action": "Wait"}, "retention": "0s"}
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue.update(spec=spec))
    world.settle(40)
    yield world
    world.close()
    assert world.violations == []


def a_running_copy(world: World) -> str:
    world.submit("a")
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle()
    return worker


def deadline(world: World) -> int:
    ((_, copy),) = world.copies()
    return int(copy["spec"]["activeDeadlineSeconds"])


def test_a_fence_is_pushed_forward_while_there_is_contact(world: World) -> None:
    a_running_copy(world)
    assert deadline(world) == TIMEOUT
    world.settle(600)
    assert 600 < deadline(world) <= 600 + TIMEOUT + 5


def test_a_renewal_that_was_refused_is_tried_again_soon_and_not_only_when_the_next_one_is_due(world: World) -> None:
    worker = world.workers[a_running_copy(world)]

    def refuse(request: Request) -> Refused | None:
        is_renewal = request.method == "PATCH" and request.collection == JOBS.path()
        return Refused(403, "Forbidden", "not now") if is_renewal else None

    worker.refuse = refuse
    while not refused(world):
        world.settle(1)
    before = deadline(world)
    worker.refuse = lambda _: None
    world.settle(5)
    assert deadline(world) > before


def test_a_kind_that_cannot_be_fenced_is_not_placed_by_a_queue_with_a_fence(world: World) -> None:
    with mock.patch.object(JobKind, "can_be_fenced", False):
        name = world.submit("a")
        world.settle(5)
    assert world.copies() == []
    assert world.dispatcher is not None
    assert "cannot end itself" in str(world.dispatcher.explain("t1", name))


def refused(world: World) -> bool:
    events = world.hub.objects.get("/api/v1/events", {}).values()
    return any(event["reason"] == "CopyNotChanged" for event in events)

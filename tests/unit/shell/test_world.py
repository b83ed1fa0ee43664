"""The dispatcher whole, on virtual time: stories that its parts tell only together."""

from collections.abc import Iterator

import pytest

from multimirror.api import CLUSTER_ANNOTATION
from multimirror.batch import is_complete
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

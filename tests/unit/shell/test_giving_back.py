"""Pods whose work is done are given back: what others get of it, what it costs, and who gets nothing by saying so."""

from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api import CLUSTER_ANNOTATION, MIRROR_QUEUES
from multimirror.kinds.reserved import reserved_of
from multimirror.kube.resources import JOBS
from tests.unit.shell.fake_api import Request
from tests.unit.shell.test_counting import CPU, CountedWorld

Json = dict[str, Any]


class WatchedWorld(CountedWorld):
    """It counts what is written to the Jobs of the management cluster, and to the copies."""

    def __init__(self) -> None:
        self.hub_writes: list[str] = []
        self.copy_changes = 0
        super().__init__()

    def _on_hub_write(self, request: Request, before: Json | None, after: Json | None) -> None:
        super()._on_hub_write(request, before, after)
        if request.collection == JOBS.path():
            self.hub_writes.append(request.subresource)

    def _on_worker_write(self, request: Request, before: Json | None, after: Json | None) -> None:
        super()._on_worker_write(request, before, after)
        if request.collection == JOBS.path() and before is not None and after is not None:
            self.copy_changes += 1

    def copy(self, name: str) -> tuple[str, Json]:
        ((worker, copy),) = self.live_copies(self.job(name)["metadata"]["uid"])
        return worker, copy

    def is_placed(self, name: str) -> bool:
        return CLUSTER_ANNOTATION in (self.job(name)["metadata"].get("annotations") or {})


@pytest.fixture
def world() -> Iterator[WatchedWorld]:
    world = WatchedWorld()
    yield world
    world.close()
    assert world.violations == []


def running(world: WatchedWorld, **spec: Any) -> str:
    """A Job with all of the quota."""
    name = world.large(pods=4, **spec)
    world.settle()
    world.catch_up()
    world.settle()
    assert world.counted() == 4 * CPU
    return name


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_when_completions_are_done_another_job_gets_in(world: WatchedWorld, mode: str) -> None:
    first = running(world, completions=4, completionMode=mode)
    other = world.large(pods=3)
    world.settle(5)
    assert not world.is_placed(other)
    world.succeed(*world.copy(first), 2)
    world.settle(2)
    assert world.counted() == 2 * CPU
    assert not world.is_placed(other)
    world.succeed(*world.copy(first), 3)
    world.settle(2)
    assert world.is_placed(other)
    assert world.copy(first)[1]["spec"]["parallelism"] == 4, "its copy keeps its size"


def test_indexes_that_failed_for_good_are_given_back_too(world: WatchedWorld) -> None:
    name = running(world, completions=4, completionMode="Indexed", backoffLimitPerIndex=0)
    worker, copy = world.copy(name)
    status = {"startTime": copy["status"]["startTime"], "active": 1, "ready": 1, "terminating": 0}
    done = {"succeeded": 1, "completedIndexes": "0", "failed": 2, "failedIndexes": "1,3"}
    world._set_status(worker, copy, status | done)
    world.settle(2)
    assert world.counted() == 1 * CPU


def test_pods_that_are_there_still_are_counted_whatever_their_worker_says_of_their_work(world: WatchedWorld) -> None:
    first = running(world, completions=4)
    other = world.large(pods=1)
    worker, copy = world.copy(first)
    for pods in ({"active": 4, "terminating": 0}, {"active": 1, "terminating": 3}):
        world._set_status(worker, copy, {"startTime": copy["status"]["startTime"], "succeeded": 4, "ready": 0, **pods})
        world.settle(5)
        assert world.counted() == 4 * CPU
        assert not world.is_placed(other)


def test_a_status_that_breaks_the_rules_gives_nothing_back(world: WatchedWorld) -> None:
    name = running(world, completions=4, completionMode="Indexed")
    worker, copy = world.copy(name)
    broken = {"succeeded": 3, "completedIndexes": "0-2", "failed": -1, "active": 0, "terminating": 0}
    impossible = [{"type": "Complete", "status": "True"}, {"type": "Failed", "status": "True"}]
    world._set_status(worker, copy, broken | {"conditions": impossible})
    world.settle(5)
    assert world.counted() == 4 * CPU


def test_a_worker_that_takes_its_word_back_changes_nothing_and_costs_nothing(world: WatchedWorld) -> None:
    first = running(world, completions=4)
    world.succeed(*world.copy(first), 3)
    world.settle(2)
    assert world.counted() == 1 * CPU
    before = len(world.hub_writes)
    worker, copy = world.copy(first)
    for _ in range(50):
        world._set_status(worker, copy, {**copy["status"], "succeeded": 0})
        world.settle(0.1)
        world._set_status(worker, copy, {**copy["status"], "succeeded": 3})
        world.settle(0.1)
    assert world.counted() == 1 * CPU
    assert len(world.hub_writes) == before


def test_giving_back_costs_no_write_of_its_own(world: WatchedWorld) -> None:
    def enough(queue: Json) -> None:
        queue["metadata"]["generation"] += 1
        queue["spec"]["quota"] = {"resources": {"pods": "300"}}

    world.hub.change(MIRROR_QUEUES, "a", "", enough)
    world.set_nodes("w1", 40)
    name = world.large(pods=200, cpus="0", completions=200, completionMode="Indexed")
    world.settle()
    world.catch_up()
    world.settle(20)
    written, changes, given = len(world.hub_writes), world.copy_changes, set[int]()
    for done in range(1, 200):
        world.succeed(*world.copy(name), done)
        world.settle(2)
        reserved = reserved_of(world.job(name))
        assert reserved is not None
        assert 200 - done <= reserved.counts["main"] <= max(1, (200 - done) * 8 / 7)
        given.add(reserved.counts["main"])
    assert world.hub_writes[written:] == ["status"] * 199, "one for each change of its status"
    assert world.copy_changes == changes
    assert len(given) <= 30


def test_after_a_restart_what_was_given_back_stays_so(world: WatchedWorld) -> None:
    first = running(world, completions=4)
    world.succeed(*world.copy(first), 3)
    world.settle(2)
    world.run(world.restart())
    world.settle(5)
    assert world.counted() == 1 * CPU
    assert world.copy(first)[1]["spec"]["parallelism"] == 4


def test_one_who_has_given_back_and_grows_pays_for_what_it_needs(world: WatchedWorld) -> None:
    first = running(world, completions=4, completionMode="Indexed")
    world.succeed(*world.copy(first), 3)
    world.settle(2)
    world.resize(first, 6, 6)
    world.settle(5)
    assert world.copy(first)[1]["spec"] | {"parallelism": 6, "completions": 6} == world.copy(first)[1]["spec"]
    assert world.counted() == 3 * CPU, "three of six indexes are left"


def test_parallelism_that_is_raised_when_little_is_left_takes_no_quota(world: WatchedWorld) -> None:
    first = running(world, completions=100)
    world.succeed(*world.copy(first), 98)
    world.settle(2)
    other = world.large(pods=2)
    world.settle(2)
    assert world.is_placed(other)
    world.resize(first, 50)
    world.settle(5)
    assert world.told("GrowthWaits") + world.told("GrowthNeverFits") == []
    assert world.counted() == 4 * CPU

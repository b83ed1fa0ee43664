"""Queues that share, in the dispatcher as a whole, on virtual time: own quota is taken back, and nothing is lost by it.

Two workers with one cpu each; queues a and z have one cpu of their own each, in one cohort.
"""

from collections.abc import Iterator

import pytest

from multimirror.api import (
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    MIRROR_QUEUES,
    PREEMPTED_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIONS_ANNOTATION,
)
from multimirror.api.placement import annotations
from multimirror.kube.resources import JOBS
from tests.unit.shell.test_preempted import Crash, Fleet


class Cohort(Fleet):
    def share(self, **spec: object) -> None:
        rules = {"cohort": "c", "quota": {"resources": {"cpu": "1"}}, **spec}
        for name in ("a", "z"):
            self.hub.change(MIRROR_QUEUES, name, "", lambda queue: queue["spec"].update(rules))
        self.settle(2)

    def where(self, *names: str) -> list[str | None]:
        return [self.note(name, CLUSTER_ANNOTATION) for name in names]

    def marked(self, *names: str) -> list[str]:
        return [name for name in names if self.note(name, PREEMPTED_ANNOTATION) is not None]

    def steps(self, number: int, crash: Crash | None = None) -> None:
        """The Job controllers of the workers do so many steps."""
        for _ in range(number):
            self.settle(2)
            if crash is not None:
                crash.begin_again()
            self.pods_go()
            self.notice()
            self.start_copies()


@pytest.fixture
def fleet() -> Iterator[Cohort]:
    fleet = Cohort()
    yield fleet
    fleet.close()
    assert fleet.violations == []


def test_a_queue_borrows_and_gives_back_when_the_owner_needs_it(fleet: Cohort) -> None:
    fleet.share()
    borrowers = [fleet.submit("z"), fleet.submit("z")]
    fleet.settle()
    fleet.start_copies()
    fleet.settle()
    assert sorted(fleet.where(*borrowers), key=str) == ["w1", "w2"]
    owner = fleet.submit("a")
    fleet.settle(2)
    assert fleet.marked(*borrowers) == [], "it has not waited long enough"
    fleet.settle(6)
    (victim,) = fleet.marked(*borrowers)
    place = fleet.note(victim, CLUSTER_ANNOTATION)
    assert fleet.note(victim, PREEMPTED_BY_ANNOTATION) == fleet.job(owner)["metadata"]["uid"]
    assert fleet.where(owner) == [None]
    (told,) = fleet.told("Preempting")
    assert told == f"stops t1/{victim} to run on worker {place} (1 cpu), the fewest that make room"
    assert (
        f"stopped on worker {place} to give queue a its own quota back (Reclaim): queue a uses 0 of its 1 cpu and "
        f"needs 1, queue z uses 2 of its 1. It made room for t1/{owner}, and waits again, in its old place"
    ) in fleet.told("Preempted")
    fleet.notice(pods=1)
    fleet.settle(20)
    assert fleet.where(owner, victim) == [None, place], "its pods are there still"
    fleet.pods_go()
    fleet.settle(5)
    assert fleet.where(owner, victim) == [place, None]
    assert fleet.note(victim, PREEMPTED_BY_ANNOTATION) is not None, "whose room it is stays known until then"
    fleet.start_copies()
    fleet.settle(30)
    assert fleet.marked(*borrowers) == [], "and that is the end of it"
    ((worker, copy),) = [each for each in fleet.live_copies() if each[1]["metadata"]["name"] == owner]
    fleet.end_copy(worker, copy)
    fleet.settle(5)
    assert fleet.where(victim) == [worker]
    assert fleet.note(victim, PREEMPTED_BY_ANNOTATION) is None
    assert fleet.note(victim, PREEMPTIONS_ANNOTATION) == "1"


def test_one_that_is_deleted_before_its_victims_are_gone_leaves_its_place_to_others(fleet: Cohort) -> None:
    fleet.share()
    borrowers = [fleet.submit("z"), fleet.submit("z")]
    fleet.settle()
    fleet.start_copies()
    owner = fleet.submit("a")
    fleet.settle(8)
    (victim,) = fleet.marked(*borrowers)
    fleet.hub.remove(JOBS, owner, "t1")
    fleet.steps(8)
    assert None not in fleet.where(*borrowers)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"


def test_a_queue_that_is_held_gives_back_and_places_nothing(fleet: Cohort) -> None:
    fleet.share()
    borrowers = [fleet.submit("z"), fleet.submit("z")]
    fleet.settle()
    fleet.start_copies()
    fleet.hub.change(MIRROR_QUEUES, "z", "", lambda queue: queue["spec"].update(hold="Hold"))
    owner = fleet.submit("a")
    fleet.steps(10)
    assert None not in fleet.where(owner)
    assert fleet.where(*borrowers).count(None) == 1
    assert any(message.startswith("queue z is held (spec.hold is Hold) since ") for message in fleet.told("Waiting"))


WRITES = 17
"""To Jobs anywhere, by us, from the first one's creation until the owner runs."""


@pytest.mark.parametrize("number", range(1, WRITES + 2))
def test_a_dispatcher_that_ends_at_any_write_changes_nothing(fleet: Cohort, number: int) -> None:
    fleet.share()
    crash = Crash(fleet, number)
    borrowers = [fleet.submit("z"), fleet.submit("z")]
    fleet.steps(6, crash)
    owner = fleet.submit("a")
    fleet.steps(14, crash)
    assert crash.happened is (number <= WRITES), "every write is one to end at"
    assert None not in fleet.where(owner)
    assert fleet.where(*borrowers).count(None) == 1
    stops = [annotations(fleet.job(name)).get(PREEMPTIONS_ANNOTATION) for name in borrowers]
    assert sorted(stops, key=str) == ["1", None]
    assert fleet.marked(*borrowers) == []

"""What `kubectl get jobs` shows of a Job that waits, and what it costs, on virtual time."""

from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api.names import ESTIMATED_START_ANNOTATION, POSITION_ANNOTATION
from multimirror.batch import find_condition, validate_job_status
from multimirror.kube.resources import EVENTS, JOBS
from tests.unit.shell.fake_api import Refused, Request
from tests.unit.shell.world import World

Json = dict[str, Any]


class Watched(World):
    """One that notes each write to a Job on the management cluster."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        """The subresource, and the Job's name."""
        super().__init__()
        self.hub.on_write = self._note

    def _note(self, request: Request, before: Json | None, after: Json | None) -> None:
        if (
            request.collection == JOBS.path()
            and before is not None
            and after is not None
            and not _is_told(before, after)
        ):
            self.written.append((request.subresource, after["metadata"]["name"]))
            if request.subresource == "status":
                status, old = after.get("status") or {}, before.get("status") or {}
                self.violations += map(str, validate_job_status(status, old, before["spec"]))
        self._on_hub_write(request, before, after)

    def full(self) -> None:
        """No worker takes anything."""
        for name in self.workers:
            self.set_worker(name, cordoned=True)

    def free(self) -> None:
        for name in self.workers:
            self.set_worker(name, cordoned=False)

    def job(self, name: str) -> Json:
        (job,) = [job for job in self.jobs() if job["metadata"]["name"] == name]
        return job

    def suspended(self, name: str) -> Json | None:
        return find_condition((self.job(name).get("status") or {}).get("conditions") or (), "Suspended")

    def shown(self) -> list[str]:
        names = [job["metadata"]["name"] for job in self.jobs()]
        return [name for name in names if (self.suspended(name) or {}).get("status") == "True"]


def _is_told(before: Json, after: Json) -> bool:
    """It is told its place in the queue: the first ten are, once a minute (test_positions.py), whatever they show."""

    def place(job: Json) -> list[str | None]:
        notes = job["metadata"].get("annotations") or {}
        return [notes.get(POSITION_ANNOTATION), notes.get(ESTIMATED_START_ANNOTATION)]

    return place(before) != place(after) and place(after)[0] is not None


@pytest.fixture
def world() -> Iterator[Watched]:
    world = Watched()
    yield world
    world.close()
    assert world.violations == []


def words(condition: Json | None) -> tuple[str, str]:
    assert condition is not None
    return condition["status"], condition["reason"]


def test_a_job_that_goes_at_once_costs_what_it_did_and_never_says_suspended(world: Watched) -> None:
    name = world.submit("a")
    world.settle(10)
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle()
    world.end_copy(worker, copy)
    world.settle(60)
    assert world.suspended(name) is None
    assert world.written == [("", name), ("status", name), ("status", name)]


def test_a_job_that_waits_says_so_once_and_is_resumed_with_what_is_written_anyway(world: Watched) -> None:
    world.full()
    name = world.submit("a")
    world.settle(0.9)
    assert world.suspended(name) is None, "it has not waited visibly long"
    world.settle(2)
    shown = world.suspended(name)
    assert words(shown) == ("True", "JobSuspended")
    assert shown is not None
    assert shown["message"].startswith("Job suspended: it waits for a worker")
    assert "startTime" not in world.job(name)["status"]
    world.settle(600)
    assert world.written == [("status", name)], "whatever happens meanwhile"
    assert world.suspended(name) == shown
    world.free()
    world.settle(5)
    ((worker, copy),) = world.copies()
    assert world.written == [("status", name), ("", name)], "that its copy is there is no write of its own"
    world.start_copy(worker, copy)
    world.settle()
    status = world.job(name)["status"]
    assert words(world.suspended(name)) == ("False", "JobResumed")
    assert (world.suspended(name) or {})["lastTransitionTime"] == status["startTime"]
    world.end_copy(worker, copy)
    world.settle()
    conditions = [(each["type"], each["status"]) for each in world.job(name)["status"]["conditions"]]
    assert conditions == [("Suspended", "False"), ("SuccessCriteriaMet", "True"), ("Complete", "True")]
    assert world.written == [("status", name), ("", name), ("status", name), ("status", name)]


def test_a_job_that_its_user_holds_says_so_at_once_and_goes_without_another_write(world: Watched) -> None:
    world.full()
    name = world.submit("a")
    world.edit(world.job(name), hold=True)
    world.free()
    world.settle(0.5)
    shown = world.suspended(name)
    assert words(shown) == ("True", "JobSuspended")
    assert "it is held" in (shown or {})["message"]
    world.settle(60)
    world.written.clear()
    world.edit(world.job(name), suspend=False)
    world.settle(60)
    assert world.written == [("", name)]
    assert len(world.copies()) == 1


def test_a_job_that_was_held_and_then_waits_says_what_for_and_since_when_it_did_not_run(world: Watched) -> None:
    world.full()
    name = world.submit("a")
    world.edit(world.job(name), hold=True)
    world.settle(30)
    held = world.suspended(name) or {}
    world.edit(world.job(name), hold=False)
    world.settle(30)
    waits = world.suspended(name) or {}
    assert "it waits for a worker" in waits["message"]
    assert waits["lastTransitionTime"] == held["lastTransitionTime"]
    assert world.written == [("status", name)] * 2


def test_a_job_that_lost_its_worker_shows_that_it_waits_and_then_that_it_goes_on(world: Watched) -> None:
    name = world.submit("a")
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle()
    first = world.job(name)["status"]["startTime"]
    world.full()
    world.workers[worker].remove(JOBS, name, "t1")
    world.settle(10)
    assert words(world.suspended(name)) == ("True", "JobSuspended")
    assert "it waits for a worker" in (world.suspended(name) or {})["message"]
    assert "startTime" not in world.job(name)["status"]
    world.written.clear()
    world.settle(60)
    assert world.written == []
    world.free()
    world.settle()
    ((worker, copy),) = world.copies()
    world.start_copy(worker, copy)
    world.settle()
    assert words(world.suspended(name)) == ("False", "JobResumed")
    assert world.job(name)["status"]["startTime"] > first
    assert world.written == [("", name), ("status", name)]


def test_a_dispatcher_that_starts_anew_writes_to_none_that_shows_it_already(world: Watched) -> None:
    world.full()
    for _ in range(50):
        world.submit("a")
    held = world.submit("a")
    world.edit(world.job(held), hold=True)
    world.settle(30)
    assert len(world.shown()) == 51
    world.written.clear()
    world.run(world.restart())
    world.settle(120)
    assert world.written == []


def test_many_that_wait_say_so_little_by_little_while_namespaces_take_turns_and_whoever_can_goes(
    world: Watched,
) -> None:
    for _ in range(500):
        world.submit("a", team="t1", cpus=2)  # more than any node has
    world.settle(4)
    few = len(world.shown())
    assert 0 < few < 100, "no more than 25 a second"
    other = world.submit("a", team="t2", cpus=2)
    world.settle(4)
    assert other in world.shown(), "it does not wait for the hundreds before it"
    assert len(world.shown()) < 250
    going = world.submit("a", team="t2")
    world.settle(0.3)
    assert [copy["metadata"]["name"] for _, copy in world.copies()] == [going]
    world.settle(20)
    assert len(world.shown()) == 501
    assert len([each for each in world.written if each[0] == "status"]) == 501, "one write each"


def test_a_job_that_goes_while_it_is_being_written_that_it_waits_goes_all_the_same(world: Watched) -> None:
    world.full()
    name = world.submit("a")
    world.network.links["hub"].write_seconds = 1.0
    world.settle(2.3)
    world.free()  # while that is on its way
    world.settle(30)
    ((worker, copy),) = world.copies()
    world.network.links["hub"].write_seconds = 0.0
    world.start_copy(worker, copy)
    world.settle(10)
    assert world.suspended(name) is None or words(world.suspended(name)) == ("False", "JobResumed")
    assert world.job(name)["status"]["active"] == 1


@pytest.mark.parametrize(
    "refusal", [Refused(403, "Forbidden", "not by this policy"), Refused(422, "Invalid", "not by this policy")]
)
def test_where_it_may_not_be_written_that_is_said_once_however_often_it_is_tried(
    world: Watched, refusal: Refused
) -> None:
    tried = []

    def refuse(request: Request) -> Refused | None:
        if request.collection != JOBS.path() or request.subresource != "status":
            return None
        tried.append(request)
        return refusal

    world.full()
    world.settle()
    world.hub.refuse = refuse
    world.submit("a")
    world.settle(600)
    assert len(tried) > 1
    told = [each for each in world.hub.all(EVENTS) if each["reason"] == "StatusRefused"]
    assert [each.get("count", 1) for each in told] == [1]

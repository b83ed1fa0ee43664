"""`logs -f` on virtual time: what its user sees of a Job that waits, moves, is cut off, comes back and ends."""

from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api import WORKER_CLUSTERS
from multimirror.kube.resources import EVENTS, JOBS, PODS
from tests.unit.cli.log_world import TEAM, LogWorld
from tests.unit.shell.fake_api import Refused


@pytest.fixture
def world() -> Iterator[LogWorld]:
    made = LogWorld()
    yield made
    made.close()


def started(world: LogWorld, worker: str = "w1") -> str:
    """The Job runs on that worker, and is followed."""
    world.place(worker)
    pod = world.start_pod()
    world.followed()
    return pod


def test_a_job_is_shown_from_its_beginning_to_its_end_without_a_word_of_our_own(world: LogWorld) -> None:
    pod = started(world)
    world.write(pod, "one")
    world.settle()
    assert world.out == ["one"]
    world.write(pod, "two")
    world.end_pod(pod)
    world.settle()
    assert not world.has_ended(), "the Job has not"
    world.end()
    world.settle()
    assert world.has_ended()
    assert (world.out, world.notes) == (["one", "two"], [])


def test_a_job_that_has_ended_is_shown_at_once(world: LogWorld) -> None:
    world.place("w1")
    pod = world.start_pod()
    world.write(pod, "one")
    world.end_pod(pod, code=1)
    world.end("Failed")
    world.followed()
    assert world.has_ended()
    assert (world.out, world.notes) == (["one"], [])


def test_while_it_waits_its_user_is_told_why_once_for_each_reason(world: LogWorld) -> None:
    world.event("Waiting", "left of its quota: 0 cpu")
    world.followed()
    world.settle(60)
    world.event("Waiting", "w1: cordoned")
    world.settle(60)
    world.place("w1")
    pod = world.start_pod()
    world.write(pod, "one")
    world.settle(5)
    assert world.notes == [
        "the Job waits to be placed: left of its quota: 0 cpu",
        "the Job waits to be placed: w1: cordoned",
        "attempt 1, on w1",
    ]
    assert world.out == ["one"]


def test_a_job_that_is_placed_at_once_does_not_wait(world: LogWorld) -> None:
    world.followed()
    world.place("w1")
    pod = world.start_pod()
    world.write(pod, "one")
    world.settle()
    assert (world.out, world.notes) == (["one"], [])


@pytest.mark.parametrize(
    ("reason", "words"),
    [("WorkerLost", "w1 was lost"), ("CopyVanished", "it was deleted on w1"), ("", "")],
)
def test_a_job_that_moves_is_followed_and_the_old_attempt_is_not_shown_any_more(
    world: LogWorld, reason: str, words: str
) -> None:
    old = started(world)
    world.write(old, "one")
    world.settle()
    world.unplace(reason)
    world.settle(0.1)
    before, world.worker = world.worker, "w1"
    world.write(old, "stale")
    world.worker = before
    world.place("w2")
    new = world.start_pod()
    world.write(new, "two")
    world.settle(5)
    assert world.out == ["one", "two"]
    assert world.notes == ["attempt 2, on w2" + (f" ({words})" if words else "")]


def test_a_worker_that_is_cut_off_and_comes_back_loses_and_repeats_nothing(world: LogWorld) -> None:
    pod = started(world)
    for text in ("one", "two", "two"):  # in one moment: with the same timestamp
        world.write(pod, text)
    world.settle()
    world.cut("w1")
    world.write(pod, "three")
    world.settle(60)
    world.write(pod, "four")
    world.mend("w1")
    world.settle(30)
    world.write(pod, "five")
    world.settle()
    assert world.out == ["one", "two", "two", "three", "four", "five"]
    assert world.notes == ["w1 cannot be reached (no route to host); trying again", "w1 answers again"]


def test_a_worker_that_takes_connections_and_never_answers_is_noticed_too(world: LogWorld) -> None:
    pod = started(world)
    world.write(pod, "one")
    world.settle()
    world.hang("w1")
    world.settle(60)
    [note] = world.notes
    assert note.startswith("w1 cannot be reached (no answer")
    world.write(pod, "two")
    world.mend("w1")
    world.settle(60)
    assert world.out == ["one", "two"]


def test_a_job_that_moves_away_from_a_worker_that_is_gone_is_followed_at_once(world: LogWorld) -> None:
    pod = started(world)
    world.write(pod, "one")
    world.settle()
    world.cut("w1")
    world.settle(300)
    world.event("WorkerLost", "worker w1 cannot be reached")
    world.unplace("WorkerLost")
    world.place("w2")
    new = world.start_pod()
    world.write(new, "two")
    world.settle(1)
    assert world.out == ["one", "two"]
    assert world.notes[-1] == "attempt 2, on w2 (w1 was lost)"


@pytest.mark.parametrize("how", ["end", "delete"])
def test_it_ends_with_the_job_though_its_worker_never_comes_back(world: LogWorld, how: str) -> None:
    pod = started(world)
    world.write(pod, "one")
    world.settle()
    world.cut("w1")
    world.settle(60)
    getattr(world, how)()
    world.settle(40)
    assert world.has_ended()
    assert world.out == ["one"]
    assert world.notes[-1] == "the rest of the logs could not be read: w1 cannot be reached (no route to host)"


def test_a_worker_that_is_no_worker_any_more_is_no_reason_to_give_up(world: LogWorld) -> None:
    pod = started(world)
    world.write(pod, "one")
    world.settle()
    world.hub.remove(WORKER_CLUSTERS, "w1")
    world.cut("w1")
    world.settle(60)
    world.mend("w1")
    assert not world.has_ended()
    world.place("w2")
    new = world.start_pod()
    world.write(new, "two")
    world.settle(5)
    assert world.out == ["one", "two"]


def test_an_outage_of_the_management_cluster_is_said_and_lived_through(world: LogWorld) -> None:
    pod = started(world)
    world.write(pod, "one")
    world.settle()
    world.cut("hub")
    world.settle(60)
    world.write(pod, "two")
    world.settle()
    assert world.out == ["one", "two"], "the worker is there"
    world.mend("hub")
    world.settle(60)
    world.end_pod(pod)
    world.end()
    world.settle()
    assert world.has_ended()
    assert world.notes == [
        "the management cluster does not answer (no route to host); trying again",
        "the management cluster answers again",
    ]


def test_a_container_that_is_started_again_in_its_pod_is_followed_through_all_its_runs(world: LogWorld) -> None:
    world.place("w1")
    pod = world.start_pod(restartPolicy="OnFailure")
    world.followed()
    world.write(pod, "one")
    world.settle()
    world.restart(pod)
    world.write(pod, "two")
    world.settle()
    world.cut("w1")
    world.write(pod, "three")
    world.restart(pod)
    world.write(pod, "four")
    world.settle(20)
    world.mend("w1")
    world.settle(20)
    world.end_pod(pod)
    world.end()
    world.settle()
    assert world.has_ended()
    assert world.out == ["one", "two", "three", "four"]


def test_lines_have_a_prefix_when_there_are_several_pods_and_not_before(world: LogWorld) -> None:
    first = started(world)
    world.write(first, "one")
    world.settle()
    world.end_pod(first, code=1)
    second = world.start_pod()
    world.write(second, "two")
    world.settle()
    assert world.out == ["one", "[pod-2] two"]


@pytest.mark.parametrize(("prefix", "expected"), [(True, ["[pod-1] one", "[pod-2] two"]), (False, ["one", "two"])])
def test_who_asks_for_a_prefix_or_for_none_gets_that(prefix: bool, expected: list[str]) -> None:
    world = LogWorld(prefix=prefix)
    for text in ("one", "two"):
        if not world.attempt:
            world.place("w1")
        world.write(world.start_pod(), text)
    world.followed()
    assert sorted(world.out) == sorted(expected)
    world.close()


def test_the_tail_is_of_what_was_there_and_all_that_comes_is_shown() -> None:
    world = LogWorld(tail=1)
    world.place("w1")
    pod = world.start_pod()
    for text in ("one", "two", "three"):
        world.write(pod, text)
    world.followed()
    world.cut("w1")
    for text in ("four", "five"):
        world.write(pod, text)
    world.settle(20)
    world.mend("w1")
    world.settle(20)
    assert world.out == ["three", "four", "five"]
    world.close()


def test_a_job_that_is_deleted_while_it_waits_has_no_more_to_show(world: LogWorld) -> None:
    world.followed()
    world.delete()
    world.settle()
    assert world.has_ended()
    assert world.notes == ["the Job was deleted"]


def test_another_job_of_the_same_name_is_another_job(world: LogWorld) -> None:
    started(world)
    world.delete()
    metadata: dict[str, Any] = {"name": "train", "namespace": "team", "annotations": {}}
    world.hub.put(JOBS, {"metadata": metadata, "spec": {}, "status": {}})
    world.settle(60)
    assert world.has_ended()


def test_a_pod_that_ends_after_its_job_is_shown_to_its_end_and_not_waited_for_beyond(world: LogWorld) -> None:
    """A success policy, a deadline, a deletion: pods are told to stop, and have something to say at their end."""
    pod = started(world)
    world.write(pod, "one")
    world.settle()
    world.end("Failed")
    world.settle(3)
    assert not world.has_ended(), "its pod has not"
    world.write(pod, "last words")
    world.end_pod(pod, code=143)
    world.settle(2)
    assert world.has_ended()
    assert (world.out, world.notes) == (["one", "last words"], [])


def test_what_was_not_read_before_the_copy_was_removed_is_said_to_be_lost(world: LogWorld) -> None:
    pod = started(world)
    world.write(pod, "one")
    world.settle()
    world.cut("w1")
    world.settle(10)
    world.write(pod, "two")
    world.end_pod(pod)
    world.end()
    world.workers["w1"].remove(PODS, pod, TEAM)
    world.workers["w1"].remove(JOBS, "train-1", TEAM)
    world.mend("w1")
    world.settle(20)
    assert world.has_ended()
    assert world.out == ["one"]
    assert world.notes[-1] == f"pod {pod} is gone, and what it wrote at its end with it"


@pytest.mark.parametrize("slow", [False, True])
def test_the_reason_of_an_earlier_move_is_not_told_for_a_later_one(world: LogWorld, slow: bool) -> None:
    world.place("w1")
    world.unplace("WorkerLost")
    world.place("w2")
    pod = world.start_pod()
    if slow:  # what has happened so far comes a moment later than the Job itself
        busy = iter([Refused(503, "ServiceUnavailable", "busy")])
        world.hub.refuse = lambda request: next(busy, None) if request.collection == EVENTS.path() else None
    world.followed()
    world.write(pod, "one")
    world.settle(5)
    world.unplace()
    world.place("w1")
    world.settle(5)
    assert world.notes == ["attempt 3, on w1"]

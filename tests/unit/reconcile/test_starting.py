"""Pods that have to be ready in time: when the clock runs, what is decided when it has run out, and what is made of the
words of pods."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.api import (
    HOLD_ANNOTATION,
    NOT_STARTED_ANNOTATION,
    PREEMPTED_ANNOTATION,
    STARTING_ANNOTATION,
    Start,
)
from multimirror.api.not_started import NotStarted, not_started_of
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds import JOB
from multimirror.kinds.preempted import Preemption
from multimirror.reconcile.actions import Action, Annotate, AskPods, Enqueue, PatchStatus, Preempt, Requeue, SyncCopy
from multimirror.reconcile.decide import decide
from multimirror.reconcile.starting import words_of
from multimirror.reconcile.state import Policy
from multimirror.workers.state import Contact
from tests.unit.reconcile.builders import NOW, Builder, CopyBuilder, a_copy, a_job, observed

Json = dict[str, Any]
START = Start(within=600.0, attempts=3)


def at(seconds: float) -> str:
    return format_time(utc_datetime(NOW + seconds))


def starting(pods: int = 4) -> Builder:
    job = a_job().of_size(pods, pods).on("w1")
    job.job["metadata"] |= {"creationTimestamp": at(-100_000)}
    job.job["metadata"]["annotations"][STARTING_ANNOTATION] = "true"
    return job


def made(seconds_ago: float, pods: int = 4, **status: Any) -> CopyBuilder:
    copy = a_copy("w1").of_size(pods, pods)
    copy.job["metadata"]["creationTimestamp"] = at(-seconds_ago)
    copy.job["status"] = {"active": pods, **status}
    return copy


def decided(
    job: Builder, copies: Sequence[CopyBuilder] = (), *, start: Start | None = START, ahead: float = 0.0, **more: Any
) -> list[Action]:
    contacts = {"w1": Contact(connected=True, clock_ahead=ahead)}
    copies_seen = [copy.copy for copy in copies]
    return decide(observed(JOB.trim(job.job), copies_seen, contacts=contacts, policy=Policy(start=start), **more))


def marks(actions: list[Action]) -> list[Preempt]:
    return [action for action in actions if isinstance(action, Preempt)]


@pytest.mark.parametrize(
    ("copy", "ahead", "late"),
    [
        pytest.param(made(599, ready=3), 0, False, id="there is time left"),
        pytest.param(made(601, ready=3), 0, True, id="there is none left"),
        pytest.param(made(601), 0, True, id="nothing was heard of them"),
        pytest.param(made(601, ready=3), -10, False, id="by the worker's clock there is"),
        pytest.param(made(591, ready=3), 10, True, id="by the worker's clock there is none"),
        pytest.param(made(9999, ready=4), 0, False, id="all are ready"),
        pytest.param(made(9999, ready=1, succeeded=3), 0, False, id="some have succeeded"),
        pytest.param(made(9999, pods=0), 0, False, id="there are none"),
        pytest.param(made(9999, ready=3, startTime=at(-10)), 0, False, id="it was resumed not long ago"),
        pytest.param(
            made(9999, conditions=[{"type": "Suspended", "status": "True"}]), 0, False, id="it is being resumed"
        ),
        pytest.param(made(9999, ready=-5, succeeded=-1), 0, True, id="numbers below zero are no pods"),
    ],
)
def test_when_it_is_too_late(copy: CopyBuilder, ahead: float, late: bool) -> None:
    pods = copy.job["spec"]["parallelism"]
    assert bool(marks(decided(starting(pods), [copy], ahead=ahead, pods_said=""))) is late


@pytest.mark.parametrize(
    ("change", "start"),
    [
        pytest.param(lambda job: job.suspended(), START, id="its user has stopped it"),
        pytest.param(lambda _: None, None, id="its queue does not ask for it any more"),
        pytest.param(
            lambda job: job.job["metadata"]["annotations"].pop(STARTING_ANNOTATION), START, id="all were ready before"
        ),
        pytest.param(
            lambda job: job.job["metadata"].update(creationTimestamp=at(-300)),
            START,
            id="the Job has not existed for so long, whatever its worker says",
        ),
    ],
)
def test_when_nothing_is_too_late(change: Any, start: Start | None) -> None:
    job = starting()
    change(job)
    actions = decided(job, [made(9999, ready=3)], start=start, pods_said="")
    assert not [action for action in actions if isinstance(action, Preempt | AskPods)]


def test_it_is_looked_at_again_when_the_time_is_over() -> None:
    assert Requeue(100.1) in decided(starting(), [made(500, ready=3)])


def test_what_has_started_is_written_along_with_the_status_that_shows_it() -> None:
    actions = decided(starting(), [made(5, ready=4, startTime=at(-4))])
    (written,) = [action for action in actions if isinstance(action, PatchStatus)]
    assert written.annotations == {STARTING_ANNOTATION: None}
    assert not [action for action in actions if isinstance(action, Annotate)]


def test_pods_are_asked_once_and_not_waited_for_for_long() -> None:
    late = made(601, ready=3)
    assert AskPods("w1", "team", late.copy.uid, 1) in decided(starting(), [late])
    assert not marks(decided(starting(), [late]))
    assert marks(decided(starting(), [late], pods_said="")), "they say nothing"
    assert marks(decided(starting(), [made(611, ready=3)])), "nobody answers"


def test_the_mark_says_it_all_in_one_write() -> None:
    (mark,) = decided(starting(), [made(601, ready=3)], pods_said="2 pods ErrImagePull")
    assert isinstance(mark, Preempt)
    assert mark.why is Preemption.NOT_STARTED
    assert mark.message.startswith(
        "on worker w1 1 of 4 pods were not ready within 600 s (2 pods ErrImagePull); attempt"
    )
    assert mark.annotations.keys() == {STARTING_ANNOTATION, NOT_STARTED_ANNOTATION}
    found = json.loads(mark.annotations[NOT_STARTED_ANNOTATION] or "")
    assert (found["total"], found["workers"]["w1"]["count"], found["workers"]["w1"]["at"]) == (1, 1, int(NOW))


def test_the_last_attempt_holds_it() -> None:
    job = starting()
    before = NotStarted().failed("w2", at=NOW - 9, shape="x").failed("w1", at=NOW - 5, shape="x")
    job.job["metadata"]["annotations"][NOT_STARTED_ANNOTATION] = str(before)
    (mark,) = marks(decided(job, [made(601)], pods_said=""))
    assert mark.annotations[HOLD_ANNOTATION] == "true"
    assert "attempt 3 of 3, and it is held" in mark.message
    job.job["metadata"]["annotations"][NOT_STARTED_ANNOTATION] = mark.annotations[NOT_STARTED_ANNOTATION]
    after = not_started_of(job.job)
    assert (after.total, after.held, after.workers["w1"].count) == (0, 1, 2), "who lets it go lets it begin anew"


def test_a_marked_one_is_stopped_and_not_marked_again() -> None:
    job = starting().suspended()
    job.job["metadata"]["annotations"][PREEMPTED_ANNOTATION] = "NotStarted"
    actions = decided(job, [made(9999)], pods_said="")
    assert [action.patch for action in actions if isinstance(action, SyncCopy)] == [{"spec": {"suspend": True}}]
    assert not marks(actions)


@pytest.mark.parametrize(("times", "pause"), [(1, 60), (2, 120), (3, 240), (6, 1920), (7, 3600), (500, 3600)])
def test_for_how_long_a_worker_is_avoided(times: int, pause: int) -> None:
    found = NotStarted()
    for _ in range(times):
        found = found.failed("w1", at=NOW, shape="x")
    job = a_job()
    job.job["metadata"]["annotations"][NOT_STARTED_ANNOTATION] = str(found)
    enqueue, again = decided(job, now=NOW + pause - 1)
    assert isinstance(enqueue, Enqueue)
    assert [worker for worker, _ in enqueue.avoid] == ["w1"]
    assert isinstance(again, Requeue)
    assert again.seconds == pytest.approx(1.1)
    assert decided(job, now=NOW + pause) == [Enqueue()]


# --- the annotation


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**31)), max_size=60))
def test_what_is_written_down_is_read_as_it_was_and_stays_small(failures: list[tuple[int, int]]) -> None:
    found = NotStarted()
    for worker, when in failures:
        found = found.failed(f"{'w' * 60}-{worker}", at=when, shape="01234567")
    assert len(str(found)) < 4096, "caches would cut it"
    assert found.total == len(failures)
    assert not_started_of({"metadata": {"annotations": {NOT_STARTED_ANNOTATION: str(found)}}}) == found


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"total":-1,"workers":{}}', '{"total":1,"workers":{"w":{}}}', '{"total":1,"workers":[]}'],
)
def test_what_cannot_be_read_is_nothing(text: str) -> None:
    assert not_started_of({"metadata": {"annotations": {NOT_STARTED_ANNOTATION: text}}}) == NotStarted()


# --- what pods say


def pod(reason: str = "", message: str = "", key: str = "containerStatuses") -> Json:
    return {
        "status": {key: [{"state": {"running": {}}}, {"state": {"waiting": {"reason": reason, "message": message}}}]}
    }


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        pytest.param([], "", id="there are none"),
        pytest.param([pod("ImagePullBackOff", "no such image")], "ImagePullBackOff: no such image", id="one"),
        pytest.param([pod("ErrImagePull", "", "initContainerStatuses")], "ErrImagePull", id="an init container"),
        pytest.param([{"status": {"conditions": [UNSCHEDULABLE]}}], "Unschedulable: 0/3 nodes", id="no node"),
        pytest.param([pod("B"), pod("A", "a"), pod("A", "b")], "2 pods A: a; B", id="the most frequent first"),
        pytest.param([pod("ContainerCreating")], "", id="it is on its way, and does not say why it takes long"),
        pytest.param([pod("A\x1b[2J", "x\ny\u202ez")], "A [2J: x y z", id="nothing that a terminal obeys"),
        pytest.param([pod(str(number)) for number in range(9)], "0; 1; 2", id="not all of them"),
    ],
)
def test_what_pods_say(pods: list[Json], words: str) -> None:
    assert words_of(pods) == words


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["status", "containerStatuses", "state", "waiting", "reason", "message", "conditions", "type"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(_JSON, max_size=5))
def test_whatever_a_worker_sends_becomes_a_short_line(pods: list[Any]) -> None:
    words = words_of(pods)
    assert words.isprintable()
    assert len(words) < 310


def test_long_words_are_cut() -> None:
    assert len(words_of([pod("R" * 9999, "m" * 9999), pod("S" * 9999, "m" * 9999)])) < 310

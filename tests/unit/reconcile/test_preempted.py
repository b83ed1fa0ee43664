"""How an object that is to make room is taken back from its worker, case by case."""

from typing import Any

import pytest

from multimirror.api import (
    CLUSTER_ANNOTATION,
    HOLD_ANNOTATION,
    PREEMPTED_AT_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIONS_ANNOTATION,
    Hold,
    MirrorQueueSpec,
)
from multimirror.api.placement import (
    annotations,
    cluster_of,
    hold_requested,
    preempted_at_of,
    preempted_by_of,
    preempted_of,
    preemptions_of,
    was_resumed,
)
from multimirror.kinds import JOB, is_held
from multimirror.kinds.preempted import Preemption, preemption_patch, resumption_patch, unassignment_patch
from multimirror.reconcile.actions import DeleteCopy, PatchStatus, Preempt, Requeue, SyncCopy, Tell, Unassign
from multimirror.reconcile.decide import decide
from multimirror.reconcile.state import Policy, StoppingPods, policy_of
from multimirror.workers.state import Contact
from tests.unit.reconcile.builders import NOW, Builder, CopyBuilder, a_copy, a_job
from tests.unit.reconcile.test_decide import kinds, lost, state
from tests.unit.shell.fake_api import merged

Json = dict[str, Any]
REFUSED = {"of": "copy-w1-1", "spec": {"suspend": True}}
"""The worker would not suspend the copy."""
FENCED = {"multimirror.dev/fence": "60"}


def a_victim(ago: float = 0.0) -> Builder:
    return a_job().on("w1").started().marked(ago=ago)


def showing(job: Builder, copy: CopyBuilder) -> Builder:
    """Its status is the copy's already."""
    result = JOB.mirror(job.job, copy.job["status"])
    if isinstance(result, dict):
        job.job["status"] = result
    return job


def fenced(job: Builder) -> Builder:
    job.job["metadata"]["annotations"] |= FENCED
    return job


def uncounted(copy: CopyBuilder) -> CopyBuilder:
    """A pod of it has ended, and stands in no counter yet."""
    copy.job["status"]["uncountedTerminatedPods"] = {"succeeded": ["pod"]}
    return copy


def case(job: Builder, copy: CopyBuilder | None, *expected: str, id: str, shown: bool = True, **more: Any) -> Any:  # noqa: A002
    """`shown`: the object says already what its copy says."""
    if copy is not None and shown:
        job = showing(job, copy)
    copies = [copy] if copy is not None else []
    return pytest.param(state(job, *copies, **more), list(expected), id=id)


CASES = [
    case(a_victim(), a_copy("w1").started(), "SyncCopy", "Requeue", id="its copy is suspended"),
    case(
        a_victim(),
        a_copy("w1").started().suspended(),
        "Requeue",
        id="a copy that was told, and has not noticed yet, is waited for",
    ),
    case(
        a_victim(),
        a_copy("w1").stopping(2),
        "Requeue",
        "AskStopping",
        "Requeue",
        "PatchStatus",
        shown=False,
        id="that it stops is mirrored",
    ),
    case(
        a_victim(),
        a_copy("w1").stopping(2),
        "Requeue",
        "AskStopping",
        "Requeue",
        id="pods that are on their way out are waited for, and asked for",
    ),
    case(
        a_victim(),
        a_copy("w1").stopping(0),
        "PatchStatus",
        "Requeue",
        shown=False,
        id="that none is left is mirrored first, for it may be the last that is known of it",
    ),
    case(a_victim(), a_copy("w1").stopping(0), "Unassign", id="then it loses its worker"),
    case(
        a_victim(ago=91),
        a_copy("w1").stopping(0, ago=91),
        "Unassign",
        shown=False,
        id="even if its status is not taken for as long as pods are waited for",
    ),
    case(
        a_victim(),
        a_copy("w1").stopping(0).resumed(),
        "Requeue",
        id="a copy that was resumed and still says that it is suspended may be starting: it has to notice first",
    ),
    case(
        a_victim(ago=91),
        a_copy("w1").stopping(0, ago=120).resumed(),
        "Tell",
        id="one that does not notice for long is not taken for stopped, nor deleted: it is told",
    ),
    case(
        a_victim(),
        uncounted(a_copy("w1").stopping(0)),
        "Requeue",
        id="a pod that has ended and is not counted yet is waited for",
    ),
    case(
        a_victim(ago=10),
        a_copy("w1").stopping(None, ago=10),
        "Requeue",
        "Requeue",
        id="a worker that does not count pods on their way out is given their own time",
    ),
    case(a_victim(ago=36), a_copy("w1").stopping(None, ago=36), "Unassign", id="and five seconds more"),
    case(
        a_victim(ago=10),
        a_copy("w1").stopping(None, ago=4000),
        "Requeue",
        "Requeue",
        id="by our own clock, if the worker's is behind",
    ),
    case(
        a_victim(ago=4000),
        a_copy("w1").stopping(None, ago=3610),
        "Requeue",
        "Requeue",
        contacts={"w1": Contact(connected=True, clock_ahead=-3600)},
        id="and as far as it is known to be",
    ),
    case(
        a_victim(ago=40),
        a_copy("w1").stopping(None, ago=-3564),
        "Unassign",
        contacts={"w1": Contact(connected=True, clock_ahead=3600)},
        id="or if it is known to be ahead",
    ),
    # --- the end
    case(a_victim(), a_copy("w1").finished(), "PatchStatus", shown=False, id="one that ends meanwhile has ended"),
    case(
        a_victim(),
        a_copy("w1").met(),
        "PatchStatus",
        shown=False,
        id="one whose end is announced is not stopped",
    ),
    case(
        a_victim(ago=4000),
        a_copy("w1").met().suspended(),
        id="and its copy is not deleted, however long that takes",
    ),
    case(a_job().on("w1").met().marked(), None, "PatchStatus", id="an end that was announced is kept without a copy"),
    case(
        a_victim(),
        None,
        "PatchStatus",
        last_seen_status=a_copy("w1").finished().job["status"],
        id="the last words of a copy that vanished count",
    ),
    case(a_job().on("w1").finished().marked(), None, id="one that has ended is left alone"),
    case(a_victim().deleting(), a_copy("w1").started(), "DeleteCopy w1", id="one that is deleted is deleted"),
    # --- no copy
    case(a_job().on("w1").marked(), None, "Unassign", id="no copy is made any more"),
    case(
        a_job().on("w1").marked(),
        None,
        "CreateCopy w1",
        asked=True,
        id="a copy that was asked for, and may come at any time, is made: then it can be seen, and stopped",
    ),
    case(
        a_job().on("w1", attempt=2).marked(),
        a_copy("w2", attempt=1).started(),
        "DeleteCopy w2",
        "Requeue",
        asked=True,
        shown=False,
        id="but not while an earlier attempt's copy may run",
    ),
    case(
        a_job().on("w1").marked(),
        None,
        "Unassign",
        asked=True,
        refusals={"w1": "no"},
        id="one that its worker has refused does not come",
    ),
    case(a_victim(), None, "Unassign", asked=True, id="one that has run, and is not there, is gone"),
    case(a_victim(), None, "Unassign", id="a copy that somebody deleted is gone"),
    case(
        a_victim(),
        a_copy("w1").started().deleting(),
        "Tell",
        id="a copy that somebody deletes, and that may still run, is waited for in words",
    ),
    case(
        a_victim(),
        a_copy("w1").stopping(0).deleting(),
        "Unassign",
        id="one that is being deleted and has no pods is not",
    ),
    # --- pods that do not stop
    case(
        a_victim(ago=91),
        a_copy("w1").stopping(1, ago=91),
        "Tell",
        "DeleteCopy w1",
        id="when pods take a minute longer than they may, their copy is deleted",
    ),
    case(
        a_victim(ago=91).spec(template={"spec": {"containers": [], "terminationGracePeriodSeconds": 600}}),
        a_copy("w1").stopping(1, ago=91),
        "Requeue",
        "Requeue",
        id="they may take as long as they say",
    ),
    case(
        a_victim(ago=900),
        a_copy("w1").stopping(1, ago=60),
        "Requeue",
        id="that counts from when the copy noticed, also for a dispatcher that comes late",
    ),
    case(
        a_victim(ago=900),
        a_copy("w1").started(),
        "SyncCopy",
        "Requeue",
        id="one that comes late suspends the copy first",
    ),
    case(
        a_victim(ago=900),
        a_copy("w1").stopping(1, ago=900),
        "Requeue",
        "AskStopping",
        "Requeue",
        contacts={"w1": Contact(connected=True, outages=((NOW - 800, NOW - 30),))},
        id="while a worker is away nothing counts",
    ),
    case(
        a_victim(ago=900),
        a_copy("w1").started().suspended(),
        "Tell",
        id="where nobody notices the suspension nothing is deleted: the pods would run on unseen",
    ),
    case(
        a_victim(ago=60),
        a_copy("w1").started(),
        "Requeue",
        rejected_patch=REFUSED,
        id="a worker that refuses to suspend the copy is not asked again and again",
    ),
    case(
        a_victim(ago=91),
        a_copy("w1").started(),
        "Tell",
        "DeleteCopy w1",
        rejected_patch=REFUSED,
        id="and loses it when it has had as much time",
    ),
    case(
        a_victim(ago=91),
        a_copy("w1").started(),
        "SyncCopy",
        "Requeue",
        rejected_patch={"of": "another", "spec": {"suspend": True}},
        id="what it refused for another copy is nothing to this one",
    ),
    # --- a worker that is lost
    case(a_victim(), None, "Tell", "Requeue", contacts={"w1": lost(10)}, id="a worker that is lost is waited for"),
    case(
        a_victim(),
        None,
        "Unassign",
        contacts={"w1": lost(301)},
        id="as long as its queue says: the suspension is not its user's",
    ),
    case(
        a_victim(),
        None,
        "Tell",
        contacts={"w1": lost(9999)},
        policy=Policy(when_lost="Wait"),
        id="or for ever",
    ),
    case(
        fenced(a_victim()),
        None,
        "Tell",
        "Requeue",
        contacts={"w1": lost(119)},
        policy=Policy(lost_after=0),
        id="with a fence, until its copy has ended by itself",
    ),
    case(
        fenced(a_victim()),
        None,
        "Unassign",
        contacts={"w1": lost(121)},
        policy=Policy(lost_after=0),
        id="and no longer",
    ),
    # --- what its user does
    case(
        a_victim().resumed(),
        a_copy("w1").stopping(1),
        "Tell",
        "NoteResumed",
        "Requeue",
        "AskStopping",
        "Requeue",
        id="a user who resumes it hears that it is moved all the same",
    ),
    case(
        a_victim().resumed().noted_as_resumed(),
        a_copy("w1").stopping(1),
        "Requeue",
        "AskStopping",
        "Requeue",
        id="once",
    ),
    case(
        a_victim().resumed(),
        a_copy("w1").started(),
        "Tell",
        "NoteResumed",
        "SyncCopy",
        "Requeue",
        id="and its copy is suspended all the same",
    ),
    case(a_victim().resumed(), a_copy("w1").stopping(0), "Unassign", id="when it has stopped, it goes"),
    case(
        a_victim().spec(parallelism=5),
        a_copy("w1").started(),
        "SyncCopy",
        "Requeue",
        id="one that asks for more pods gets none",
    ),
    case(
        a_victim().spec(template={"spec": {"containers": [{"name": "other"}]}}).resumed().noted_as_resumed(),
        a_copy("w1").stopping(0),
        "Unassign",
        id="another template is another attempt's",
    ),
]


@pytest.mark.parametrize(("given", "expected"), CASES)
def test_one_that_is_taken_back(given: Any, expected: list[str]) -> None:
    assert kinds(decide(given)) == expected


def test_the_copy_is_suspended_and_nothing_else_of_it_is_changed() -> None:
    job = fenced(a_victim().spec(activeDeadlineSeconds=77))
    copy = a_copy("w1").started().spec(activeDeadlineSeconds=2)
    found = [action for action in decide(state(showing(job, copy), copy)) if isinstance(action, SyncCopy)]
    assert [(each.patch, each.renews) for each in found] == [({"spec": {"suspend": True}}, False)]


@pytest.mark.parametrize("step", ["started", "told", "stopping"])
def test_the_fence_of_a_copy_that_stops_is_not_renewed(step: str) -> None:
    copy = {
        "started": a_copy("w1").started(),
        "told": a_copy("w1").started().suspended(),
        "stopping": a_copy("w1").stopping(1),
    }[step].spec(activeDeadlineSeconds=1)
    for action in decide(state(showing(fenced(a_victim()), copy), copy)):
        assert not isinstance(action, SyncCopy) or "activeDeadlineSeconds" not in action.patch["spec"]


def test_a_copy_that_its_fence_ended_is_no_failure_of_the_object() -> None:
    copy = a_copy("w1").finished("Failed")
    for condition in copy.job["status"]["conditions"]:
        condition["reason"] = "DeadlineExceeded"
    (found,) = decide(state(fenced(a_victim()), copy))
    assert isinstance(found, Unassign)
    assert found.reason == "FenceExpired"


def test_it_is_looked_at_again_when_its_pods_have_had_their_time() -> None:
    job, copy = a_victim(ago=10), a_copy("w1").stopping(None, ago=10)
    found = decide(state(showing(job, copy), copy))
    assert [each.seconds for each in found if isinstance(each, Requeue)] == [80.0, 25.0]


def test_what_its_user_hears_names_the_worker() -> None:
    stopped, stuck = a_copy("w1").stopping(0), a_copy("w1").stopping(1, ago=91)
    (gone,) = decide(state(showing(a_victim(), stopped), stopped))
    assert isinstance(gone, Unassign)
    assert gone.reason == "Preempted"
    assert gone.message == "no pod of it is left on worker w1: the Job waits in its queue again"
    told, deleted = decide(state(showing(a_victim(ago=91), stuck), stuck))
    assert isinstance(told, Tell)
    assert isinstance(deleted, DeleteCopy)
    assert told.message.startswith("pods of it did not stop on worker w1 within 90 s; the Job is deleted there")
    resumed = a_copy("w1").stopping(1)
    told, *_ = decide(state(showing(a_victim().resumed(), resumed), resumed))
    assert isinstance(told, Tell)
    assert "worker w1 (Reclaim): it is moved all the same" in told.message


# --- a queue that is drained ------------------------------------------------------------------------------------------

DRAINED = policy_of(MirrorQueueSpec(hold=Hold.DRAIN))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(a_job().on("w1").started(), a_copy("w1").started(), "Preempt", policy=DRAINED, id="what runs is marked"),
        case(a_job().on("w1"), None, "Preempt", policy=DRAINED, id="and what has no copy yet"),
        case(
            a_job().on("w1").started().suspended(),
            a_copy("w1").stopping(0),
            "Preempt",
            policy=DRAINED,
            id="and what its user suspended",
        ),
        case(
            a_job().on("w1").started(),
            None,
            "Preempt",
            policy=DRAINED,
            contacts={"w1": lost(5)},
            id="and what a lost worker has",
        ),
        case(
            a_victim(),
            a_copy("w1").stopping(1),
            "Requeue",
            "AskStopping",
            "Requeue",
            policy=DRAINED,
            id="once",
        ),
        case(a_job(), None, "Enqueue", policy=DRAINED, id="what waits is the scheduler's"),
        case(
            a_job().on("w1").started(),
            a_copy("w1").met(),
            "PatchStatus",
            shown=False,
            policy=DRAINED,
            id="what ends by itself does",
        ),
        case(
            a_job().on("w1").started(),
            None,
            "PatchStatus",
            policy=DRAINED,
            last_seen_status=a_copy("w1").finished().job["status"],
            id="and what has ended, and is gone",
        ),
        case(
            a_job().on("w1").started(),
            a_copy("w1").started(),
            policy=policy_of(MirrorQueueSpec(hold=Hold.HOLD)),
            id="a queue that is held keeps what runs",
        ),
    ],
)
def test_a_queue_that_is_drained(given: Any, expected: list[str]) -> None:
    assert kinds(decide(given)) == expected


def test_whoever_is_drained_hears_of_which_queue() -> None:
    (found,) = decide(state(a_job().on("w1").started(), a_copy("w1").started(), policy=DRAINED))
    assert isinstance(found, Preempt)
    assert found.why is Preemption.DRAIN
    assert found.message.startswith("queue q is drained (spec.hold is Drain): stopped on worker w1;")


# --- what is written --------------------------------------------------------------------------------------------------


def marked(job: Builder, why: Preemption = Preemption.RECLAIM, by: str | None = "uid-p") -> Json:
    body = preemption_patch(JOB, job.job, why, now=NOW, by=by)
    assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == ("uid-train", "1")
    found: Json = merged(job.job, body)
    return found


def unassigned(obj: Json) -> Json:
    found: Json = merged(obj, unassignment_patch(JOB, obj))
    assert found["spec"]["suspend"] is True
    kept = {PREEMPTED_BY_ANNOTATION, PREEMPTED_AT_ANNOTATION} if preempted_by_of(obj) is not None else set()
    left = {key for key in annotations(found) if "preempted" in key or "resumed" in key}
    assert left == kept, "for whom it made room is known until it is assigned again"
    assert cluster_of(found) is None
    return found


def test_a_mark_says_why_and_for_whom_and_since_when_and_keeps_the_worker() -> None:
    found = marked(a_job().on("w1"))
    assert preempted_of(found) == "Reclaim"
    assert preempted_by_of(found) == "uid-p"
    assert preempted_at_of(found) == NOW
    assert found["spec"]["suspend"] is True
    assert found["metadata"]["annotations"][CLUSTER_ANNOTATION] == "w1"
    assert HOLD_ANNOTATION not in found["metadata"]["annotations"]


@pytest.mark.parametrize("why", Preemption)
def test_how_often_it_was_stopped_while_it_borrowed_is_counted_and_stays(why: Preemption) -> None:
    job = a_job().on("w1")
    job.job["metadata"]["annotations"][PREEMPTIONS_ANNOTATION] = "1"
    found = marked(job, why, by=None)
    times = 2 if why in (Preemption.RECLAIM, Preemption.FAIR_SHARE) else 1
    assert preemptions_of(found) == times
    assert preempted_by_of(found) is None
    assert preemptions_of(unassigned(found)) == times


def test_one_that_is_stopped_for_the_first_time() -> None:
    assert preemptions_of(marked(a_job().on("w1"))) == 1
    assert preemptions_of(marked(a_job().on("w1"), Preemption.DRAIN)) == 0


def by_its_user(obj: Json, *, suspend: bool) -> Json:
    found: Json = merged(obj, {"spec": {"suspend": suspend}})
    return found


def hold(obj: Json) -> Json:
    found: Json = merged(obj, {"metadata": {"annotations": {HOLD_ANNOTATION: "true"}}})
    return found


def noted(obj: Json) -> Json:
    found: Json = merged(obj, resumption_patch(obj))
    assert was_resumed(found)
    return found


@pytest.mark.parametrize(
    ("obj", "held"),
    [
        pytest.param(marked(a_job().on("w1")), False, id="nobody but the mark suspended it"),
        pytest.param(marked(a_job().on("w1").suspended()), True, id="its user had suspended it before"),
        pytest.param(hold(marked(a_job().on("w1"))), True, id="its user holds it while it stops"),
        pytest.param(marked(a_job().on("w1").held()), True, id="its user had asked to hold it, should it come back"),
        pytest.param(
            by_its_user(marked(a_job().on("w1").suspended()), suspend=False),
            False,
            id="its user resumes what he had suspended",
        ),
        pytest.param(
            noted(by_its_user(marked(a_job().on("w1").suspended()), suspend=False)),
            False,
            id="and that is noted",
        ),
        pytest.param(
            by_its_user(noted(by_its_user(marked(a_job().on("w1")), suspend=False)), suspend=True),
            True,
            id="its user resumes it, and suspends it again",
        ),
        pytest.param(
            hold(noted(by_its_user(marked(a_job().on("w1")), suspend=False))),
            True,
            id="its user resumes it, and asks to hold it",
        ),
    ],
)
def test_it_is_held_afterwards_if_and_only_if_its_user_wants_that(obj: Json, held: bool) -> None:
    assert is_held(JOB, unassigned(obj)) is held


def test_without_a_mark_a_suspension_or_a_hold_stays_what_it_is() -> None:
    for job, held in (
        (a_job().on("w1"), False),
        (a_job().on("w1").suspended(), False),
        (a_job().on("w1").held(), True),
    ):
        found = merged(job.job, unassignment_patch(JOB, job.job))
        assert hold_requested(found) is held


def test_the_status_that_was_shown_last_is_the_copy_s() -> None:
    copy = a_copy("w1").stopping(0)
    copy.job["status"]["failed"] = 2
    (found, _) = decide(state(a_victim(), copy))
    assert isinstance(found, PatchStatus)
    assert found.status["failed"] == 2


# --- pods that are asked for ------------------------------------------------------------------------------------------


def stopping(ago: float, **status: Any) -> CopyBuilder:
    """A copy of which one pod is on its way out, since so many seconds."""
    copy = a_copy("w1").stopping(1, ago=ago)
    copy.job["status"] |= status
    return copy


def pods(ago: float, *, there: bool, seen: bool = True, copy: str = "copy-w1-1") -> StoppingPods:
    return StoppingPods(copy, NOW - ago, there, seen)


@pytest.mark.parametrize(
    ("known", "ago", "asks", "again"),
    [
        pytest.param(None, 0.0, True, 0.25, id="they are asked for at once"),
        pytest.param(pods(0.1, there=True), 1.0, False, 0.15, id="not again at once"),
        pytest.param(pods(0.3, there=True), 1.0, True, 0.25, id="again after a while"),
        pytest.param(pods(0.3, there=True), 4.0, False, 0.5, id="the longer they take, the more seldom"),
        pytest.param(pods(2.0, there=True), 9.0, False, 21.25, id="not while their status is as soon"),
        pytest.param(pods(20.0, there=True), 30.0, True, 0.25, id="again when they are killed"),
        pytest.param(pods(0.0, there=False, seen=False), 2.0, False, 88.0, id="none was ever seen: its status counts"),
        pytest.param(pods(0.0, there=False, copy="other"), 0.0, True, 0.25, id="those were of another copy"),
    ],
)
def test_pods_that_stop_are_asked_for(known: StoppingPods | None, ago: float, *, asks: bool, again: float) -> None:
    copy = stopping(ago)
    found = decide(state(showing(a_victim(ago), copy), copy, stopping=known))
    assert ("AskStopping" in kinds(found)) == asks
    assert min(each.seconds for each in found if isinstance(each, Requeue)) == pytest.approx(again)


def test_when_none_of_the_pods_is_left_that_were_there_it_has_stopped_whatever_its_status_counts() -> None:
    copy = stopping(2.0)
    assert kinds(decide(state(showing(a_victim(2.0), copy), copy, stopping=pods(0.0, there=False)))) == ["Unassign"]


@pytest.mark.parametrize(
    "status",
    [{"active": 1}, {"uncountedTerminatedPods": {"succeeded": ["pod"]}}, {"conditions": []}],
    ids=["one runs", "one stands in no counter yet", "the suspension was not noticed"],
)
def test_what_a_copy_says_of_itself_has_to_be_final_whatever_pods_are_there(status: Json) -> None:
    job, copy = a_victim(2.0), stopping(2.0, **status)
    found = kinds(decide(state(showing(job, copy), copy, stopping=pods(0.0, there=False))))
    assert not {"Unassign", "AskStopping"} & set(found)


def test_of_a_copy_that_was_resumed_since_nothing_is_concluded_from_pods_that_are_gone() -> None:
    """What it says is of the time before, and pods may be starting."""
    job, copy = a_victim(2.0), stopping(2.0)
    copy.job["spec"]["suspend"] = False
    found = kinds(decide(state(showing(job, copy), copy, stopping=pods(0.0, there=False))))
    assert not {"Unassign", "AskStopping"} & set(found)

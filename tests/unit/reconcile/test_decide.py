"""What is decided about one Job, case by case."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from multimirror.api import HOLD_ANNOTATION
from multimirror.batch import find_condition
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds import JOB
from multimirror.reconcile.actions import (
    Action,
    CreateCopy,
    DeleteCopy,
    Enqueue,
    PatchStatus,
    Requeue,
    SyncCopy,
    Tell,
    Unassign,
)
from multimirror.reconcile.decide import decide, decide_shown
from multimirror.reconcile.state import ObservedState, Policy
from multimirror.workers.state import Contact
from tests.unit.reconcile.builders import NOW, TIME, Builder, CopyBuilder, a_copy, a_job, observed

UP = Contact(connected=True)
BOTH = {"w1": UP, "w2": UP}


def lost(seconds: float) -> Contact:
    return Contact(connected=False, lost_since=NOW - seconds, why="no answer")


def state(job: Builder | None, *copies: CopyBuilder, **more: Any) -> ObservedState:
    return observed(job.job if job is not None else None, [c.copy for c in copies], **{"contacts": BOTH, **more})


def kinds(actions: Sequence[Action]) -> list[str]:
    return [
        type(action).__name__ + (f" {action.worker}" if isinstance(action, DeleteCopy | CreateCopy) else "")
        for action in actions
    ]


CASES = [
    pytest.param(state(a_job()), ["Enqueue"], id="a new Job is placed"),
    pytest.param(state(a_job().on("w1")), ["CreateCopy w1"], id="an assigned Job without a copy gets one"),
    pytest.param(state(a_job().on("w1"), a_copy("w1")), [], id="a copy that has not begun has nothing to tell"),
    pytest.param(
        state(a_job().on("w1").started().run_here(), a_copy("w1").started()),
        ["Unassign"],
        id="a Job that the cluster's own controller runs too is taken from its worker",
    ),
    pytest.param(
        state(a_job().tried(1).run_here(), a_copy("w1").started()),
        ["DeleteCopy w1", "Tell"],
        id="then its copy goes, and it is not placed again",
    ),
    pytest.param(
        state(a_job().on("w1").finished().run_here(), a_copy("w1").started()),
        ["DeleteCopy w1"],
        id="whoever ended it: it has ended",
    ),
    pytest.param(
        state(a_job().on("w1"), a_copy("w1").started()), ["PatchStatus"], id="a copy that started is mirrored"
    ),
    pytest.param(
        state(a_job().on("w1").started(), a_copy("w1").started()), [], id="what is mirrored is not written again"
    ),
    pytest.param(state(a_job().on("w1").started(), a_copy("w1").finished()), ["PatchStatus"], id="the end is mirrored"),
    pytest.param(
        state(a_job().on("w1").finished(), a_copy("w1").finished()), ["DeleteCopy w1"], id="then the copy goes"
    ),
    pytest.param(
        state(a_job().on("w1").finished(), a_copy("w1").finished(), policy=Policy(retention=60)),
        ["Requeue"],
        id="unless the queue keeps it for a while",
    ),
    pytest.param(
        state(a_job().on("w1").finished(), a_copy("w1").started(), policy=Policy(retention=60)),
        ["DeleteCopy w1"],
        id="a finished Job keeps no copy that still runs, whatever the retention",
    ),
    pytest.param(state(a_job().on("w1").finished()), [], id="a finished Job without a copy is left alone"),
    pytest.param(state(None, a_copy("w1").started()), ["DeleteCopy w1"], id="an orphan goes"),
    pytest.param(
        state(a_job().on("w1").started().deleting(), a_copy("w1").started()),
        ["DeleteCopy w1"],
        id="the copy of a Job that is being deleted goes",
    ),
    pytest.param(state(None, a_copy("w1").deleting()), [], id="a copy that is on its way out is not deleted again"),
    pytest.param(
        state(a_job().on("w1").started(), a_copy("w1").started().deleting()),
        ["Tell"],
        id="a copy that somebody deletes is waited for, in words",
    ),
    pytest.param(state(a_job().on("w1").started()), ["Unassign"], id="a copy that vanished is another attempt"),
    pytest.param(
        state(a_job().on("w1").started().suspended()),
        ["PatchStatus"],
        id="a copy that vanished after its user had suspended the Job is not another attempt",
    ),
    pytest.param(
        state(a_job().on("w1").suspended(), a_copy("w1").started()),
        ["SyncCopy", "PatchStatus"],
        id="a Job that its user suspends suspends its copy",
    ),
    pytest.param(state(a_job().on("w1").spec(parallelism=3), a_copy("w1")), ["SyncCopy"], id="parallelism follows"),
    pytest.param(
        state(a_job().on("w1").spec(activeDeadlineSeconds=9), a_copy("w1")), ["SyncCopy"], id="the deadline follows"
    ),
    pytest.param(
        state(a_job().on("w1").spec(parallelism=3), a_copy("w1").finished()),
        ["PatchStatus"],
        id="a finished copy is not changed any more",
    ),
    pytest.param(state(a_job().tried(1)), ["PatchStatus"], id="a Job that ran and waits shows that first"),
    pytest.param(
        state(a_job().tried(1), a_copy("w1").started()),
        ["DeleteCopy w1", "PatchStatus"],
        id="what is left of an earlier attempt goes before the Job is placed again",
    ),
    pytest.param(
        state(a_job().on("w2", 2), a_copy("w1").started()),
        ["DeleteCopy w1", "Requeue"],
        id="no copy is made while an earlier attempt's copy can be seen",
    ),
    pytest.param(
        state(a_job().on("w2", 2), a_copy("w1").started(), contacts={"w1": lost(9), "w2": UP}),
        ["CreateCopy w2"],
        id="a copy on a worker that cannot be reached does not hold the Job up",
    ),
    pytest.param(
        state(a_job().on("w1", 2), a_copy("w1", 1).started(), a_copy("w1", 2).started()),
        ["DeleteCopy w1", "PatchStatus"],
        id="of two attempts on one worker the newer one stays",
    ),
    pytest.param(
        state(a_job().on("w2").started(), a_copy("w1").started(), a_copy("w2").started()),
        ["DeleteCopy w1"],
        id="of two copies of one attempt that on its worker stays, and the one that somebody made elsewhere goes",
    ),
    pytest.param(
        state(a_job().on("w1").started(), a_copy("w2").started()),
        [],
        id="a copy whose cluster has got another name is the copy",
    ),
    pytest.param(
        state(a_job().on("w1").started(), a_copy("w1").started(), a_copy("w1").started().seen_on("w2")),
        [],
        id="a copy that is seen under two names of its cluster is one copy, and stays",
    ),
    pytest.param(
        state(a_job().on("w1").started(), contacts={"w1": lost(10)}),
        ["Tell", "Requeue"],
        id="a worker that is lost for a moment keeps its Job",
    ),
    pytest.param(
        state(a_job().on("w1").started(), contacts={"w1": lost(301)}),
        ["Unassign"],
        id="a worker that is lost for too long loses its Job",
    ),
    pytest.param(
        state(a_job().on("w1").started().suspended(), contacts={"w1": lost(301)}),
        [],
        id="a Job that its user suspended is not started elsewhere",
    ),
    pytest.param(
        state(a_job().on("w1").started(), contacts={"w1": lost(9999)}, policy=Policy(when_lost="Wait")),
        ["Tell"],
        id="a queue may wait for ever",
    ),
    pytest.param(
        state(a_job().on("w1").started(), contacts={"w1": lost(301)}, policy=Policy(when_lost="Fail")),
        ["PatchStatus"],
        id="a queue may fail its Jobs",
    ),
    pytest.param(
        state(a_job().on("w1").started(), contacts={"w1": lost(0)}, policy=Policy(lost_after=0)),
        ["Unassign"],
        id="a WorkerCluster that was removed is lost",
    ),
    pytest.param(
        state(a_job().on("w1").started(), contacts={"w1": Contact(connected=False)}, policy=Policy(lost_after=0)),
        [],
        id="a worker that is being connected anew keeps its Jobs",
    ),
    pytest.param(
        state(a_job().on("w1").started(), a_copy("w2").started(), contacts={"w1": lost(301), "w2": UP}),
        [],
        id="a copy of this attempt is the copy, under whatever name its cluster is known now",
    ),
    pytest.param(
        state(a_job().on("w1"), refusals={"w1": "no"}), ["Unassign"], id="a worker that refused is not asked again"
    ),
    pytest.param(
        state(a_job().on("w1"), a_copy("w1"), refusals={"w1": "no"}),
        [],
        id="a copy that is there outweighs a refusal",
    ),
    pytest.param(
        state(a_job().on("w1"), namespace=None),
        ["Unassign"],
        id="no copy is made in a namespace that the worker no longer takes the Job into",
    ),
    pytest.param(
        state(a_job().on("w1").started(), a_copy("w1").started(), namespace=None),
        [],
        id="a copy that runs there goes on",
    ),
    pytest.param(
        state(a_job().on("w1").started(), contacts={"w1": Contact(connected=False)}, namespace=None),
        [],
        id="a copy in a namespace that is not followed yet has not vanished",
    ),
    pytest.param(
        state(a_job().on("w1").suspended()), ["PatchStatus"], id="no copy is made of a Job that its user suspended"
    ),
]


@pytest.mark.parametrize(("given", "expected"), CASES)
def test_decide(given: ObservedState, expected: list[str]) -> None:
    before = copy.deepcopy((given.original, given.copies, given.contacts, given.refusals, given.last_seen_status))
    assert kinds(decide(given)) == expected
    after = (given.original, given.copies, given.contacts, given.refusals, given.last_seen_status)
    assert after == before, "what is cached is shared, and not ours to change"


def status_of(actions: Sequence[Action]) -> dict[str, Any]:
    return next(action.status for action in actions if isinstance(action, PatchStatus))


def test_an_end_that_was_announced_is_kept_when_the_copy_vanishes() -> None:
    status = status_of(decide(state(a_job().on("w1").met())))
    assert find_condition(status["conditions"], "Complete") is not None
    status = status_of(decide(state(a_job().on("w1").met("FailureTarget"))))
    assert find_condition(status["conditions"], "Failed") is not None


def test_the_last_words_of_a_finished_copy_count_when_it_vanishes() -> None:
    words = a_copy("w1").finished().job["status"]
    status = status_of(decide(state(a_job().on("w1").started(), last_seen_status=words)))
    assert find_condition(status["conditions"], "Complete") is not None


def test_a_failed_job_of_a_lost_worker_says_which_worker() -> None:
    given = state(a_job().on("w1").started(), contacts={"w1": lost(301)}, policy=Policy(when_lost="Fail"))
    failed = find_condition(status_of(decide(given))["conditions"], "Failed")
    assert failed is not None
    assert failed["reason"] == "WorkerLost"
    assert "w1" in failed["message"]


def again(seconds: float, *outages: tuple[float, float]) -> Contact:
    """Lost for so long, and before that from so many seconds ago until so many."""
    before = tuple((NOW - since, NOW - until) for since, until in outages)
    return Contact(connected=False, lost_since=NOW - seconds, outages=before)


@pytest.mark.parametrize(
    ("contact", "moves"),
    [
        pytest.param(again(50), False, id="its first loss is waited for in full"),
        pytest.param(again(50, (320, 55)), True, id="one that was back for a moment is not waited for anew"),
        pytest.param(again(20, (320, 55)), False, id="nor is it forgotten that it was back"),
        pytest.param(again(50, (500, 400)), False, id="one that was there for longer than it was lost begins anew"),
        pytest.param(
            again(30, *((each, each - 45) for each in range(630, 30, -60))),
            True,
            id="one that comes and goes, and is mostly away, is given up some time",
        ),
    ],
)
def test_what_a_worker_was_lost_before_counts_until_it_has_made_up_for_it(contact: Contact, moves: bool) -> None:
    job = a_job().on("w1").started()
    job.job["status"]["startTime"] = format_time(utc_datetime(NOW - 1000))
    found = decide(state(job, contacts={"w1": contact}))
    assert kinds(found) == (["Unassign"] if moves else ["Tell", "Requeue"])


def test_what_was_before_the_job_came_there_is_nothing_to_the_job() -> None:
    job = a_job().on("w1").started()
    job.job["status"]["startTime"] = format_time(utc_datetime(NOW - 54))
    assert kinds(decide(state(job, contacts={"w1": again(50, (4000, 55))}))) == ["Tell", "Requeue"]


def test_when_it_moves_is_told_as_a_time_so_that_it_is_the_same_whenever_it_is_told() -> None:
    job = a_job().on("w1").started()
    texts = []
    for later in (0.0, 100.0, 200.0):
        told, _ = decide(state(job, contacts={"w1": lost(1)}, now=NOW + later))
        assert isinstance(told, Tell)
        texts.append(told.message)
    assert len(set(texts)) == 1
    assert f"unless it is back by {utc_datetime(NOW + 299):%H:%M:%S} UTC the Job is started elsewhere" in texts[0]


def test_a_job_that_waits_again_has_no_start_any_more() -> None:
    status = status_of(decide(state(a_job().started().tried(1))))
    assert "startTime" not in status
    assert find_condition(status["conditions"], "Suspended") is not None


def test_a_job_that_somebody_else_writes_to_is_not_placed() -> None:
    (warning,) = decide(state(a_job().started()))
    assert isinstance(warning, Tell)
    assert "another controller" in warning.message


def waiting(job: Builder) -> Builder:
    """It shows that it waits, or is held."""
    job.job["status"] = JOB.waiting_status(job.job, "2027-01-15T07:59:00Z", reword=True)
    return job


def held(job: Builder) -> Builder:
    job.job["metadata"]["annotations"][HOLD_ANNOTATION] = "true"
    return job


def somebody_suspended(job: Builder) -> Builder:
    job.job["status"] = {"conditions": [{"type": "Suspended", "status": "True", "message": "Job suspended"}]}
    return job


@pytest.mark.parametrize(
    ("job", "message"),
    [
        pytest.param(a_job(), "it waits for a worker", id="one that waits"),
        pytest.param(a_job().spec(suspend=False), "it waits for a worker", id="one that its user has resumed, too"),
        pytest.param(held(a_job()), "it is held, as its user asked", id="one that is held"),
        pytest.param(somebody_suspended(a_job().tried(1)), "it waits", id="one that its user had suspended before"),
    ],
)
def test_what_waits_visibly_long_shows_it_and_what_for_as_kubernetes_does(job: Builder, message: str) -> None:
    status = status_of(decide_shown(state(job, waits=True)))
    (condition,) = status["conditions"]
    assert condition.pop("message").startswith(f"Job suspended: {message}")
    assert condition.pop("lastTransitionTime") == condition.pop("lastProbeTime") == TIME
    assert condition == {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
    assert "startTime" not in status


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(state(None), id="it is gone"),
        pytest.param(state(a_job().deleting(), waits=True), id="it is being deleted"),
        pytest.param(state(a_job()), id="nobody has looked yet whether it goes"),
        pytest.param(state(a_job().on("w1"), waits=True), id="it has a worker meanwhile"),
        pytest.param(state(a_job().finished(), waits=True), id="it has ended"),
        pytest.param(state(a_job().run_here(), waits=True), id="somebody else runs it"),
        pytest.param(state(somebody_suspended(a_job()), waits=True), id="somebody else has written that it waits"),
        pytest.param(state(waiting(a_job()), waits=True), id="it shows it already"),
        pytest.param(state(waiting(held(a_job()))), id="it shows already that it is held"),
    ],
)
def test_nothing_is_written_that_it_waits_where(given: ObservedState) -> None:
    assert decide_shown(given) == []


def test_a_job_that_shows_that_it_waits_is_placed_as_any_other() -> None:
    assert decide(state(waiting(a_job()))) == [Enqueue()]
    assert decide(state(waiting(a_job().tried(1)))) == [Enqueue()]


def test_a_job_that_showed_that_it_was_held_is_placed_without_another_write_when_it_is_let_go() -> None:
    job = waiting(held(a_job().tried(1)))
    del job.job["metadata"]["annotations"][HOLD_ANNOTATION]
    assert decide(state(job)) == [Enqueue()]


def test_a_copy_that_has_not_begun_does_not_take_back_that_its_job_waits() -> None:
    assert decide(state(waiting(a_job()).on("w1"), a_copy("w1"))) == []


def test_a_job_that_fails_before_its_copy_began_is_not_suspended_any_more() -> None:
    job = waiting(a_job()).on("w1")
    status = status_of(decide(state(job, contacts={"w1": lost(301)}, policy=Policy(when_lost="Fail"))))
    kept = [(each["type"], each["status"]) for each in status["conditions"]]
    assert kept == [("Suspended", "False"), ("FailureTarget", "True"), ("Failed", "True")]


def test_a_change_of_several_fields_is_one_write_of_those_fields_alone() -> None:
    (sync,) = decide(state(a_job().on("w1").spec(parallelism=2, activeDeadlineSeconds=5), a_copy("w1")))
    assert isinstance(sync, SyncCopy)
    assert sync.patch == {"spec": {"parallelism": 2, "activeDeadlineSeconds": 5}}


def test_the_wait_for_a_lost_worker_ends_when_its_time_is_over() -> None:
    actions = decide(state(a_job().on("w1").started(), contacts={"w1": lost(100)}))
    assert Requeue(200.0) in actions


def test_a_placement_knows_who_refused() -> None:
    assert decide(state(a_job(), refusals={"w2": "full", "w1": "no"})) == [Enqueue((("w1", "no"), ("w2", "full")))]


def test_an_unassignment_says_why() -> None:
    (action,) = decide(state(a_job().on("w1"), refusals={"w1": "it has no namespace team"}))
    assert isinstance(action, Unassign)
    assert "no namespace team" in action.message


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_copies_on_one_worker_the_one_that_can_be_reached_goes_before_the_job_is_placed(order: int) -> None:
    here, there = a_copy("w1", 2).started().copy, a_copy("w1", 1).started().copy
    there.object["metadata"].update(namespace="elsewhere", uid="another")
    contacts = {("w1", "team"): UP, ("w1", "elsewhere"): lost(400)}
    found = decide(observed(a_job().tried(2).started().job, [here, there][::order], contacts=contacts))
    deleted = [(action.worker, action.namespace) for action in found if isinstance(action, DeleteCopy)]
    assert deleted == [("w1", "team")]
    assert not any(isinstance(action, Enqueue) for action in found)

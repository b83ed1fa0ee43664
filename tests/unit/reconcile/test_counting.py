"""What is counted for a Job that runs: what its copy has, whatever its user makes of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.api import PREEMPTIBLE_LABEL, RESERVED_ANNOTATION
from multimirror.kinds import JOB
from multimirror.kinds.reserved import Reserved, reserved_by_assignment, reserved_for, reserved_of
from multimirror.reconcile.actions import Action, CreateCopy, Grow, PatchStatus, Reserve, SyncCopy, Unassign
from multimirror.reconcile.decide import decide
from multimirror.workers.state import Contact
from tests.unit.reconcile.builders import Builder, CopyBuilder, a_copy, a_job, copy_of, observed

Json = dict[str, Any]


def decided(job: Builder, *copies: CopyBuilder) -> list[Action]:
    contacts = {"w1": Contact(connected=True)}
    trimmed = JOB.trim(job.job)
    return decide(observed(trimmed, [copy.copy for copy in copies], contacts=contacts))


def patches(actions: list[Action]) -> list[Json]:
    return [action.patch["spec"] for action in actions if isinstance(action, SyncCopy)]


def counts(actions: list[Action], kind: type[Grow | Reserve]) -> list[dict[str, int]]:
    found = [
        action.to if isinstance(action, Grow) else action.reserved for action in actions if isinstance(action, kind)
    ]
    return [each.counts for each in found]


def stopped(copy: CopyBuilder) -> CopyBuilder:
    copy.job["spec"]["suspend"] = True
    copy.job["status"] = {"conditions": [{"type": "Suspended", "status": "True"}], "active": 0, "terminating": 0}
    return copy


# --- growth


def test_a_job_that_is_made_larger_waits_for_room_and_its_copy_stays_as_it_is() -> None:
    actions = decided(a_job().of_size(2, 9).on("w1").of_size(1000).started(), a_copy("w1").of_size(2, 9).started())
    assert patches(actions) == []
    assert counts(actions, Grow) == [{"main": 9}]


def test_no_pods_at_first_and_a_thousand_later_is_growth_by_a_thousand() -> None:
    job = a_job().of_size(0).spec(completions=None).on("w1").of_size(1000)
    actions = decided(job, a_copy("w1").of_size(0).spec(completions=None))
    assert patches(actions) == []
    assert counts(actions, Grow) == [{"main": 1000}]


def test_when_there_is_room_the_copy_grows() -> None:
    actions = decided(a_job().of_size(5, 9).on("w1").started(), a_copy("w1").of_size(2, 9).started())
    assert patches(actions) == [{"parallelism": 5}]
    assert not counts(actions, Grow)


def test_a_job_that_grew_before_its_copy_was_made_begins_with_what_is_reserved() -> None:
    job = a_job().of_size(2, 9).on("w1").of_size(8)
    assert decided(job) == [CreateCopy("w1", "team", 1)]
    assert copy_of(job.job, 1)["spec"]["parallelism"] == 2


def test_an_elastic_job_waits_as_a_whole() -> None:
    job = a_job().of_size(2, 2, "Indexed").on("w1").of_size(5, 5, "Indexed").started()
    actions = decided(job, a_copy("w1").of_size(2, 2, "Indexed").started())
    assert patches(actions) == []
    assert counts(actions, Grow) == [{"main": 5}]
    job = a_job().of_size(5, 5, "Indexed").on("w1").started()
    assert patches(decided(job, a_copy("w1").of_size(2, 2, "Indexed").started())) == [
        {"parallelism": 5, "completions": 5}
    ]


def test_one_that_its_user_suspended_does_not_ask_for_more() -> None:
    actions = decided(a_job().of_size(2, 9).on("w1").of_size(9).suspended(), stopped(a_copy("w1").of_size(2, 9)))
    assert not counts(actions, Grow)


# --- shrinking


def test_a_job_that_is_made_smaller_is_counted_as_before_until_its_copy_shows_it() -> None:
    job = a_job().of_size(5, 9).on("w1").of_size(2).started()
    before = decided(job, a_copy("w1").of_size(5, 9).started())
    assert patches(before) == [{"parallelism": 2}]
    assert not counts(before, Reserve)


@pytest.mark.parametrize(
    ("status", "lowered"),
    [
        pytest.param({"active": 5}, False, id="its pods run still"),
        pytest.param({"active": 2, "terminating": 3}, False, id="they are on their way out"),
        pytest.param({"active": 2, "terminating": 0}, True, id="they are gone"),
    ],
)
def test_then_less_is_counted_when_its_pods_are_gone(status: Json, lowered: bool) -> None:
    job, copy = a_job().of_size(5, 9).on("w1").of_size(2).started(), a_copy("w1").of_size(2, 9).started()
    for each in (job, copy):
        each.job["status"] |= status | {"ready": 0}
    assert counts(decided(job, copy), Reserve) == ([{"main": 2}] if lowered else [])


def test_what_was_assigned_by_an_older_version_is_counted_as_its_copy_is() -> None:
    job = a_job().of_size(3, 9).on("w1").of_size(7).started()
    del job.job["metadata"]["annotations"][RESERVED_ANNOTATION]
    actions = decided(job, a_copy("w1").of_size(3, 9).started())
    assert counts(actions, Reserve) == [{"main": 3}]
    assert patches(actions) == [], "it does not grow before that is written down"


# --- giving back


def given_back(pods: int, completions: int | None, status: Json, mode: str = "NonIndexed") -> dict[str, int] | None:
    """What is counted for a Job of that size afterwards, when its copy says this; None: nothing is written."""
    job, copy = a_job().of_size(pods, completions, mode), a_copy("w1").of_size(pods, completions, mode)
    for each in (job, copy):
        each.spec(backoffLimitPerIndex=1, **({"completions": None} if completions is None else {}))
    copy.started().job["status"] |= {"ready": 0} | status
    actions = decided(job.on("w1").started(), copy)
    assert not counts(actions, Grow)
    assert patches(actions) == []
    (written,) = [action for action in actions if isinstance(action, PatchStatus)]
    assert not counts(actions, Reserve), "that would be a write of its own"
    return written.reserved.counts if written.reserved is not None else None


@pytest.mark.parametrize(
    ("size", "status", "counted"),
    [
        pytest.param((4, 100), {"succeeded": 96, "active": 4}, None, id="as many are left as run at once"),
        pytest.param((4, 100), {"succeeded": 98, "active": 2}, 2, id="fewer are left"),
        pytest.param((4, 4), {"succeeded": 3, "active": 2}, 2, id="one more is there than is needed"),
        pytest.param((4, 4), {"succeeded": 3, "active": 1, "terminating": 3}, None, id="they are on their way out"),
        pytest.param((4, 4), {"succeeded": 4, "active": 4}, None, id="all is done, its worker says, and they run"),
        pytest.param((4, 4), {"succeeded": 4, "active": -4}, 1, id="the last one is given back with the end"),
        pytest.param((1, 1), {"succeeded": 1, "active": 0}, None, id="so one pod never is"),
        pytest.param((100, 100), {"succeeded": 12, "active": 88}, None, id="less than an eighth is not worth it"),
        pytest.param((100, 100), {"succeeded": 13, "active": 87}, 87, id="an eighth is"),
        pytest.param((4, 4), {"failed": 3, "active": 4}, None, id="pods that failed are made again"),
        pytest.param(
            (4, None), {"succeeded": 1, "active": 2}, 2, id="a work queue starts none after its first success"
        ),
        pytest.param((4, None), {"failed": 1, "active": 4}, None, id="and before that as many as it may"),
    ],
)
def test_what_is_given_back(size: tuple[int, int | None], status: Json, counted: int | None) -> None:
    assert given_back(*size, status) == ({"main": counted} if counted is not None else None)


@pytest.mark.parametrize(
    ("status", "counted"),
    [
        pytest.param({"completedIndexes": "0,2-3", "succeeded": 3}, 1, id="completed"),
        pytest.param({"completedIndexes": "0", "succeeded": 1, "failedIndexes": "2,3", "failed": 4}, 1, id="failed"),
        pytest.param({"completedIndexes": "0-3,7-9", "succeeded": 7}, 1, id="beyond its size: the last one stays"),
        pytest.param({"succeeded": 3}, None, id="a number is not a list of them"),
        pytest.param({"completedIndexes": "3,2,1", "succeeded": 3}, None, id="what cannot be read is not done"),
    ],
)
def test_what_is_given_back_of_indexes(status: Json, counted: int | None) -> None:
    job, copy = a_job().of_size(4, 4, "Indexed"), a_copy("w1").of_size(4, 4, "Indexed").started()
    job.spec(backoffLimitPerIndex=1), copy.spec(backoffLimitPerIndex=1)
    copy.job["status"] |= status | {"active": 1, "ready": 0}
    actions = decided(job.on("w1").started(), copy)
    along = [action.reserved for action in actions if isinstance(action, PatchStatus) and action.reserved is not None]
    assert [each.counts for each in along] == ([{"main": counted}] if counted is not None else [])


@given(pods=st.integers(1, 40), progress=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 50)), max_size=30))
def test_what_is_counted_never_grows_and_covers_what_was_seen_when_it_shrank(
    pods: int, progress: list[tuple[int, int]]
) -> None:
    """A worker that says anything, in any order."""
    job = a_job().of_size(pods, 40).on("w1").started()
    for succeeded, there in progress:
        before = reserved_of(job.job)
        copy = a_copy("w1").of_size(pods, 40).started()
        copy.job["status"] |= {"succeeded": succeeded, "active": there, "ready": 0}
        for action in decided(job, copy):
            assert not isinstance(action, Grow | SyncCopy)
            after = action.reserved if isinstance(action, PatchStatus | Reserve) else None
            if after is not None:
                assert before is not None
                assert max(there, min(pods, 40 - succeeded)) <= after.counts["main"] < before.counts["main"]
                assert after.granted == {"main": pods}
                job.job["metadata"]["annotations"][RESERVED_ANNOTATION] = str(after)


def test_a_job_that_was_made_smaller_after_it_gave_back_keeps_what_it_needs() -> None:
    job = a_job().of_size(8, 100).on("w1")
    reserved = reserved_of(job.job)
    assert reserved is not None
    job.job["metadata"]["annotations"][RESERVED_ANNOTATION] = str(reserved.giving_back({"main": 2}))
    copy = a_copy("w1").of_size(8, 100).started()
    copy.job["status"] |= {"succeeded": 98, "active": 2}
    actions = decided(job.of_size(5, 100).started(), copy)
    (after,) = [a.reserved for a in actions if isinstance(a, PatchStatus | Reserve) and a.reserved is not None]
    assert (after.counts, after.granted) == ({"main": 2}, {"main": 5})
    assert patches(actions) == [{"parallelism": 5}]


# --- another template


def test_a_job_with_another_template_is_stopped_and_then_started_anew() -> None:
    job = a_job().asking("3900m").on("w1").asking("1m").started()
    running = a_copy("w1").started()
    assert patches(decided(job, running)) == [{"suspend": True}]
    running.job["spec"]["suspend"] = True
    assert decided(job, running) == [], "its pods are still there"


def test_when_no_pod_is_left_it_is_given_up() -> None:
    job, copy = a_job().asking("3900m").on("w1").asking("1m"), stopped(a_copy("w1"))
    job.job["status"] = {"conditions": [{"type": "Suspended", "status": "True"}], "terminating": 0}
    mirrored = JOB.mirror(job.job, copy.job["status"])
    assert isinstance(mirrored, dict | None)
    job.job["status"] = mirrored or job.job["status"]
    (action,) = decided(job, copy)
    assert isinstance(action, Unassign)
    assert action.reason == "TemplateChanged"


def test_while_its_user_keeps_it_suspended_nothing_happens_to_it() -> None:
    job = a_job().asking("3900m").on("w1").asking("1m").suspended()
    assert not [action for action in decided(job, stopped(a_copy("w1"))) if isinstance(action, Unassign | SyncCopy)]


def test_a_copy_that_was_just_resumed_is_not_taken_for_stopped_because_it_was_before() -> None:
    job, copy = a_job().asking("3900m").on("w1").asking("1m"), a_copy("w1").stopping(0).resumed()
    mirrored = JOB.mirror(job.job, copy.job["status"])
    assert isinstance(mirrored, dict | None)
    job.job["status"] = mirrored or copy.job["status"]
    assert decided(job, copy) == [], "suspended again, it would say of itself what it said before"


def test_no_copy_is_made_of_a_template_that_was_not_counted() -> None:
    (action,) = decided(a_job().asking("1m").on("w1").asking("3900m"))
    assert isinstance(action, Unassign)


def test_a_template_that_a_newer_server_writes_otherwise_is_the_same_one() -> None:
    job = a_job().asking("1")
    job.job["metadata"]["generation"] = 1
    job.job["metadata"]["annotations"][RESERVED_ANNOTATION] = str(reserved_by_assignment(JOB, job.job))
    written = job.job["metadata"]["annotations"][RESERVED_ANNOTATION]
    job = job.on("w1").started()
    job.job["metadata"]["annotations"][RESERVED_ANNOTATION] = written
    job.job["metadata"]["generation"] = 2  # by the assignment, which resumed it
    job.job["spec"]["template"]["spec"]["newDefault"] = "x"
    (action,) = decided(job, a_copy("w1").started())
    assert isinstance(action, Reserve)
    assert action.reserved.template == JOB.template_of(job.job)
    job.job["metadata"]["generation"] = 3
    assert patches(decided(job, a_copy("w1").started())) == [{"suspend": True}], "somebody changed it"


# --- the annotation


def test_what_is_written_down_is_read_as_it_was() -> None:
    reserved = reserved_for(JOB, a_job().asking("3900m").of_size(3, 9).job)
    job = a_job().job
    job["metadata"]["annotations"] = {RESERVED_ANNOTATION: str(reserved)}
    assert reserved_of(job) == reserved
    assert reserved.requests == {"cpu": 11_700_000_000, "pods": 3_000_000_000}


def test_what_may_not_be_stopped_for_others_is_written_down_as_that() -> None:
    job = a_job().job
    job["metadata"].setdefault("labels", {})[PREEMPTIBLE_LABEL] = "false"
    reserved = reserved_for(JOB, job)
    job["metadata"]["annotations"] = {RESERVED_ANNOTATION: str(reserved)}
    assert reserved_of(job) == reserved
    assert not reserved.preemptible
    assert not reserved.resized({"main": 7}).preemptible, "also when it has grown"
    assert "preemptible" not in str(reserved_for(JOB, a_job().job)), "and nothing is written of all others"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"template":"t"}',
        '{"template":"t","podSets":[{"name":"main","count":-1,"requests":{}}]}',
        '{"template":"t","podSets":[{"name":"main","count":1,"requests":{"cpu":"-1"}}]}',
        "x" * 100_000,
    ],
)
def test_what_cannot_be_read_is_nothing(text: str) -> None:
    assert reserved_of({"metadata": {"annotations": {RESERVED_ANNOTATION: text}}}) is None


def test_pod_sets_are_told_apart_by_name() -> None:
    one = reserved_for(JOB, a_job().job).pod_sets[0]
    both = Reserved("t", (one, one.__class__("workers", 2, {"cpu": 1})))
    assert both.resized({"workers": 5}).counts == {"main": 1, "workers": 5}

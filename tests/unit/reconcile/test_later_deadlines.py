"""A Job that runs is given more time, unless somebody waits for what it uses."""

from dataclasses import replace
from typing import Any

import pytest

from multimirror.kinds import JOB
from multimirror.kinds.reserved import reserved_of
from multimirror.reconcile.actions import Action, Reserve, SyncCopy, Tell
from multimirror.reconcile.decide import decide
from multimirror.reconcile.later_deadlines import wants_later
from multimirror.workers.state import Contact
from tests.unit.reconcile.builders import Builder, CopyBuilder, a_copy, a_job, copy_of, observed

Json = dict[str, Any]


def placed(deadline: int | None, now: int | None) -> Builder:
    """With the one deadline, and changed to the other."""
    return a_job().spec(activeDeadlineSeconds=deadline).on("w1").spec(activeDeadlineSeconds=now).started()


def a_running_copy(deadline: int | None) -> CopyBuilder:
    return a_copy("w1").spec(activeDeadlineSeconds=deadline).started()


def decided(job: Builder, copy: CopyBuilder, kept_for: str | None) -> list[Action]:
    contacts = {"w1": Contact(connected=True)}
    return decide(observed(JOB.trim(job.job), [copy.copy], contacts=contacts, kept_for=kept_for))


def given(actions: list[Action]) -> list[Json]:
    return [action.patch["spec"] for action in actions if isinstance(action, SyncCopy)]


def granted(actions: list[Action]) -> list[int | None]:
    return [action.reserved.deadline for action in actions if isinstance(action, Reserve)]


@pytest.mark.parametrize("later", [6000, None], ids=["raised", "taken away"])
def test_while_room_is_kept_for_another_the_copy_ends_as_its_job_said_at_first_and_that_is_told(
    later: int | None,
) -> None:
    actions = decided(placed(600, later), a_running_copy(600), "team-a/big")
    assert not given(actions)
    assert not granted(actions)
    (told,) = [action for action in actions if isinstance(action, Tell)]
    assert told.reason == "DeadlineKept"
    assert "keeps the 600 s that it was placed with" in told.message
    assert "team-a/big" in told.message


@pytest.mark.parametrize("later", [6000, None], ids=["raised", "taken away"])
def test_when_nobody_waits_for_it_it_is_granted_and_then_given(later: int | None) -> None:
    job = placed(600, later)
    actions = decided(job, a_running_copy(600), None)
    assert granted(actions) == [later]
    assert not given(actions), "it is written down first"
    reserved = reserved_of(job.job)
    assert reserved is not None
    job.job["metadata"]["annotations"]["multimirror.dev/reserved"] = str(replace(reserved, deadline=later))
    assert given(decided(job, a_running_copy(600), "team-a/big")) == [{"activeDeadlineSeconds": later}]


def test_an_earlier_one_counts_at_once_whoever_waits() -> None:
    actions = decided(placed(600, 60), a_running_copy(600), "team-a/big")
    assert given(actions) == [{"activeDeadlineSeconds": 60}]
    assert not granted(actions)


def test_a_copy_that_is_made_after_the_change_has_the_first_one() -> None:
    assert copy_of(placed(600, 6000).job, 1)["spec"]["activeDeadlineSeconds"] == 600


def test_it_is_reckoned_with_what_was_granted() -> None:
    assert JOB.run_seconds(placed(600, None).job) == JOB.run_seconds(placed(600, 600).job)


def test_one_that_was_placed_without_a_deadline_is_held_to_none() -> None:
    job = placed(None, 600)
    assert not wants_later(JOB, job.job)
    assert given(decided(job, a_running_copy(None), "team-a/big")) == [{"activeDeadlineSeconds": 600}]

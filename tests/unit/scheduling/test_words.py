"""What people are told about a Job that waits, or was stopped: each reason of sharing, the whole sentence.

One sentence says what, one why with the numbers that were compared, one what can be done where that is not waiting.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from multimirror.api import Hold
from multimirror.scheduling.decisions import Preempts, Step
from multimirror.scheduling.preemption_words import Stopped
from multimirror.scheduling.refusals import QueueHeld
from tests.unit.scheduling.builders import worker
from tests.unit.scheduling.test_cohorts import member
from tests.unit.scheduling.test_preempting import NOW, Scene

NEVER_FITS = "Raise quota.borrow, or ask for less"


def step_about(scene: Scene, name: str = "x") -> Step:
    return next(step for step in scene.steps() if step.candidate.name == name)


def queue_short() -> Scene:
    scene = Scene({"training": member(16, borrow=8), "b": member(40)})
    scene.runs("t1", "training", 22)
    scene.waits("x", "training", 8)
    return scene


def limit_reached() -> Scene:
    scene = Scene({"training": member(16, None)})
    scene.runs("t1", "training", 14)
    scene.waits("x", "training", 8)
    return scene


def cohort_full(*, training: int, asks: int = 6) -> Scene:
    scene = Scene({"training": member(8, preempts=[]), "team-b": member(16), "team-c": member(9)})
    scene.runs("t1", "training", training)
    scene.runs("b1", "team-b", 28 - training)
    scene.runs("c1", "team-c", 4)
    scene.waits("x", "training", asks)
    return scene


def overtaken() -> Scene:
    scene = Scene({"training": member(0, preempts=[]), "team-c": member(0, preempts=[]), "pool": member(10)})
    scene.runs("t1", "training", 2)
    scene.waits("x", "training", 7)
    scene.waits("yyyy", "team-c", 2)
    return scene


def victims_leave() -> Scene:
    scene = Scene({"training": member(8), "team-b": member(2)})
    leaving = replace(scene.runs("train-9", "team-b", 8), stopping=3)
    scene.stopped_for(scene.waits("x", "training", 8), leaving, gone=("team/train-7",))
    scene.running.clear()
    return scene


def nobody(**job: Any) -> Scene:
    scene = Scene({"training": member(4), "team-b": member(8)}, worker("east", capacity=8))
    scene.runs("b1", "team-b", 8, worker="east", **job)
    scene.waits("x", "training", 4)
    return scene


def protected() -> Scene:
    scene = Scene({"training": member(4), "team-b": member(0, minRuntime="20m")})
    scene.runs("train-8", "team-b", 1, placed=NOW - 500)
    scene.runs("train-9", "team-b", 3, placed=NOW - 180)
    scene.waits("x", "training", 4)
    return scene


def asks_for(cpu: int, cohort: str | None = "research", **more: Any) -> Scene:
    scene = Scene({"training": member(16, cohort, **({"borrow": 8} if cohort else {})), "b": member(40)})
    scene.runs("t1", "training", 16)
    scene.waits("x", "training", cpu, **more)
    return scene


@pytest.mark.parametrize(
    ("scene", "reason", "words"),
    [
        pytest.param(
            queue_short,
            "QuotaExceeded",
            "it asks for 8 cpu. Queue training has 2 left: own 16 all used, 6 more borrowed of at most 8. Raise "
            "quota.borrow to let it have more",
            id="the queue may not borrow so much",
        ),
        pytest.param(
            limit_reached,
            "QuotaExceeded",
            "queue training has 2 cpu left of its quota, it asks for 8: 14 of 16 are used",
            id="the queue shares with nobody",
        ),
        pytest.param(
            lambda: cohort_full(training=8, asks=2),
            "CohortFull",
            "it asks for 2 cpu; queue training uses 8 of its own 8, and cohort research has 1 left: queue team-b uses "
            "20 of its 16, queue team-c uses 4 of its 9. With FairShare in its preempts the queue could take from "
            "queue team-b: its share is 122 of 1000, that of queue training would be 61 of 1000",
            id="others have it, and have more of what is shared",
        ),
        pytest.param(
            lambda: cohort_full(training=2),
            "CohortFull",
            "it asks for 6 cpu; queue training uses 2 of its own 8, and cohort research has 1 left: queue team-b uses "
            "26 of its 16, queue team-c uses 4 of its 9. With Reclaim in its preempts the queue could have its own "
            "back from queue team-b",
            id="others have what is its own, and it may stop nobody",
        ),
        pytest.param(
            lambda: cohort_full(training=12),
            "CohortFull",
            "it asks for 6 cpu; queue training uses 12 of its own 8, and cohort research has 1 left: queue team-b uses "
            "16 of its 16, queue team-c uses 4 of its 9",
            id="others have it, and nothing that the queue could be allowed would help",
        ),
        pytest.param(
            overtaken,
            "OthersFirst",
            "it fitted, but queue team-c was next for what is shared: its share is 200 of 1000, that of queue training "
            "would be 900 of 1000. Now 6 cpu are left of the 7 that it asks for",
            id="another one was next",
        ),
        pytest.param(
            victims_leave,
            "WaitsForVictims",
            "1 Job is being stopped for it to run on worker w1, since 2027-01-01T00:01:30Z: team/train-9 (3 pods still "
            "there) and team/train-7 (gone)",
            id="others are being stopped for it",
        ),
        pytest.param(
            nobody,
            "NobodyToStop",
            "no worker cluster can take it now. Nobody may be stopped for it on worker east: queue team-b has 8 cpu "
            "there, all of it within its own quota (8 of 8 used) (east: has 0 cpu left, the Job asks for 4)",
            id="there is no room, and all of it is others' own",
        ),
        pytest.param(
            protected,
            "Protected",
            "team/train-9 and team/train-8 could make room, but team/train-9 has run 3 min of the 10 min that "
            "minRuntime of queue team-b gives it; again in 7 min, at 2027-01-01T00:08:40Z",
            id="those who could make room have not run for long",
        ),
        pytest.param(
            lambda: asks_for(40),
            "NeverFits",
            "it asks for 40 cpu; queue training can have 24 at most (own 16, borrow 8). " + NEVER_FITS,
            id="more than it may borrow",
        ),
        pytest.param(
            lambda: asks_for(40, None),
            "NeverFits",
            "it asks for 40 cpu, more than the whole quota of queue training (16). Raise quota.resources of the queue, "
            "or ask for less",
            id="more than the queue has",
        ),
        pytest.param(
            lambda: asks_for(2, preemptions=3),
            "OwnQuotaOnly",
            "it was stopped 3 times while it borrowed, and now waits for its queue's own quota: it asks for 2 cpu, and "
            "0 of the 16 of queue training are free",
            id="it was stopped too often",
        ),
    ],
)
def test_a_job_that_waits_is_told(scene: Callable[[], Scene], reason: str, words: str) -> None:
    decision = step_about(scene()).decision
    assert (decision.reason, str(decision)) == (reason, words)


def test_one_that_must_not_be_stopped_is_named_with_what_its_queue_uses() -> None:
    scene = Scene({"training": member(4), "team-b": member(2)})
    scene.runs("b1", "team-b", 6, preemptible=False)
    scene.waits("x", "training", 2)
    assert str(step_about(scene).decision).endswith(
        ". Nobody may be stopped for it: queue team-b has 6 cpu, and uses 6 of its 2, but none of its Jobs that would "
        "help may be stopped"
    )


@pytest.mark.parametrize(
    ("held", "words"),
    [
        pytest.param(
            QueueHeld("training", Hold.HOLD, 31, NOW),
            "queue training is held (spec.hold is Hold) since 2027-01-01T00:01:40Z: nothing of it is placed until that "
            "is None; 31 Jobs wait",
            id="held",
        ),
        pytest.param(
            QueueHeld("training", Hold.DRAIN, 1),
            "queue training is drained (spec.hold is Drain): nothing of it is placed until that is None; 1 Job waits",
            id="drained, and nobody knows since when",
        ),
    ],
)
def test_a_queue_that_is_held_says_since_when_and_how_many_wait(held: QueueHeld, words: str) -> None:
    assert str(held) == words


def told(scene: Scene) -> tuple[str, list[str]]:
    """To the one that others are stopped for, and to them."""
    step = step_about(scene)
    assert isinstance(step, Preempts)
    by, priority = f"team/{step.candidate.name}", step.candidate.priority
    return str(step.decision.why), [str(Stopped(victim, by, priority)) for victim in step.preemption.victims]


def test_who_is_stopped_so_that_a_queue_has_its_own_is_told_what_both_use() -> None:
    scene = Scene({"team-c": member(16), "training": member(16)})
    scene.runs("c1", "team-c", 4)
    scene.runs("train-7", "training", 4)
    scene.runs("train-8", "training", 20)
    scene.waits("x", "team-c", 8)
    preempting, victims = told(scene)
    assert preempting == "stops team/train-7 to run on worker w1 (4 cpu), the fewest that make room"
    assert victims == [
        "stopped on worker w1 to give queue team-c its own quota back (Reclaim): queue team-c uses 4 of its 16 cpu "
        "and needs 8, queue training uses 24 of its 16. It made room for team/x, and waits again, in its old place"
    ]


def test_who_is_stopped_for_a_higher_priority_is_told_both() -> None:
    scene = Scene({"training": member(4, None, preempts=["Priority"], maxPriority=100)})
    scene.runs("low", "training", 4, priority=10)
    scene.waits("x", "training", 4, priority=100)
    assert told(scene) == (
        "stops team/low to run on worker w1 (4 cpu), the fewest that make room",
        [
            "stopped on worker w1 for team/x (priority 100, this one 10) in the same queue. It waits again, in its old "
            "place"
        ],
    )


def test_who_is_stopped_for_a_smaller_share_is_told_both_shares() -> None:
    scene = Scene({"training": member(0, preempts=["FairShare"]), "team-b": member(0), "pool": member(8)})
    for number in range(8):
        scene.runs(f"b{number}", "team-b", 1)
    scene.waits("x", "training", 1)
    preempting, victims = told(scene)
    assert preempting == "stops team/b0 to run on worker w1 (1 cpu), the fewest that make room"
    assert victims == [
        "stopped on worker w1 for queue training, which has less of what is shared (FairShare; afterwards 125 of 1000 "
        "and 875 of 1000): queue training uses 0 of its 0 cpu and needs 1, queue team-b uses 8 of its 0. It made room "
        "for team/x, and waits again, in its old place"
    ]


def test_the_workers_where_more_would_have_had_to_be_stopped_are_named() -> None:
    scene = Scene({"a": member(9), "b": member(0)}, worker("east", capacity=4), worker("west", capacity=4))
    for number in range(3):
        scene.runs(f"w{number}", "b", 1, worker="west")
    scene.runs("e0", "b", 2, worker="east")
    scene.runs("e1", "b", 2, worker="east")
    scene.waits("x", "a", 4)
    assert told(scene)[0] == (
        "stops team/e0 and team/e1 to run on worker east (4 cpu), the fewest that make room; west would have needed 3"
    )

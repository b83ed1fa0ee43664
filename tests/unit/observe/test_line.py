"""Positions and estimates, as /explain and /queue tell them."""

import asyncio
from typing import Any

import pytest

from multimirror.api import MirrorQueueSpec
from multimirror.batch import Json
from multimirror.kinds.pod_sets import nanos
from multimirror.observe import slices
from multimirror.observe.questions import Questions
from multimirror.observe.sharing import RecentStarts
from multimirror.observe.snapshot import DecisionView, InLine, Original
from tests.unit.observe.fleets import Fleet

FULL = DecisionView(reason="QuotaExceeded", message="it asks for 2 (w: is full)", why="it asks for 2")


def a_fleet(*cpus: int, decision: DecisionView = FULL, **starts: Any) -> Fleet:
    """Jobs 1, 2, ... of queue q, which ask for so much."""
    jobs = [InLine(key=f"t/{n}", uid=f"u{n}", requests={"cpu": nanos(cpu)}) for n, cpu in enumerate(cpus, 1)]
    fleet = Fleet(
        originals={job.key: Original(key=job.key, uid=job.uid, queue="q") for job in jobs},
        decisions={job.uid: decision for job in jobs},
        lines={"q": jobs},
        queue_specs={"q": MirrorQueueSpec()},
    )
    fleet.waiting["q"] = len(jobs)
    if starts:
        fleet.starts["q"] = RecentStarts(jobs=starts["jobs"], sizes={"cpu": nanos(starts["cpu"])})
    return fleet


def explained(fleet: Fleet, key: str, *, leads: bool = True) -> Json:
    answer = asyncio.run(Questions(fleet, lambda: leads).explain(key))
    assert answer is not None
    return answer


def test_a_job_that_waits_has_a_position_and_an_estimate() -> None:
    told = explained(a_fleet(1, 2, 3, 4, jobs=4, cpu=12), "t/3")
    assert (told["position"], told["pending"], told["startsPerHour"]) == (3, 4, 4)
    assert told["estimateSeconds"] == 1800, "6 cpu, at 12 an hour"
    assert told["why"] == "it asks for 2"


def test_the_first_starts_when_enough_of_what_runs_must_have_ended_if_that_is_sooner() -> None:
    fleet = a_fleet(1, 2, jobs=4, cpu=12)
    fleet.deadlines = {"u1": 100.4, "u2": 1.0}
    assert explained(fleet, "t/1")["estimateSeconds"] == 100
    assert explained(fleet, "t/2")["estimateSeconds"] == 900, "those behind it as ever: 3 cpu, at 12 an hour"
    fleet.deadlines = {"u1": 301.0}
    assert explained(fleet, "t/1")["estimateSeconds"] == 300, "the queue is faster than its deadlines"


def test_by_deadlines_the_first_has_an_estimate_where_nothing_was_started() -> None:
    fleet = a_fleet(1, 2)
    fleet.deadlines = {"u1": 600.0}
    assert explained(fleet, "t/1")["estimateSeconds"] == 600
    assert "estimateSeconds" not in explained(fleet, "t/2")
    held = a_fleet(1, decision=DecisionView(reason="Held", message="", why=""))
    held.deadlines = {"u1": 600.0}
    assert "estimateSeconds" not in explained(held, "t/1")


@pytest.mark.parametrize("seconds", [2.0**62, 1e300, 367 * 86400.0])
def test_a_time_that_nobody_will_see_is_no_estimate(seconds: float) -> None:
    fleet = a_fleet(1)
    fleet.deadlines = {"u1": seconds}
    assert "estimateSeconds" not in explained(fleet, "t/1")
    fleet = a_fleet(1, jobs=4, cpu=12)
    fleet.deadlines = {"u1": seconds}
    assert explained(fleet, "t/1")["estimateSeconds"] == 300, "what the queue started counts as ever"


def test_nothing_is_estimated_where_nothing_was_started() -> None:
    told = explained(a_fleet(1, 2), "t/2")
    assert (told["position"], told["startsPerHour"]) == (2, 0)
    assert "estimateSeconds" not in told


def test_nor_where_none_of_what_it_asks_for_was_started() -> None:
    fleet = a_fleet(1, jobs=1, cpu=1)
    fleet.lines["q"].append(InLine(key="t/gpu", uid="gpu", requests={"cpu": nanos(1), "gpu": nanos(1)}))
    fleet.originals["t/gpu"] = Original(key="t/gpu", uid="gpu", queue="q")
    assert "estimateSeconds" not in explained(fleet, "t/gpu")


@pytest.mark.parametrize("reason", ["NeverFits", "Held", "Invalid", "Cycle"])
def test_nor_for_one_that_waits_for_a_change(reason: str) -> None:
    told = explained(a_fleet(1, decision=DecisionView(reason=reason, message=""), jobs=1, cpu=1), "t/1")
    assert told["position"] == 1
    assert "estimateSeconds" not in told


def test_one_that_grows_takes_of_what_there_is_and_has_no_position() -> None:
    fleet = a_fleet(1, jobs=1, cpu=3)
    fleet.lines["q"].insert(0, InLine(key="t/grows", uid="grows", requests={"cpu": nanos(2)}, grows=True))
    told = explained(fleet, "t/1")
    assert (told["position"], told["estimateSeconds"]) == (1, 3600)


def test_who_does_not_lead_knows_no_position() -> None:
    assert "position" not in explained(a_fleet(1, jobs=1, cpu=1), "t/1", leads=False)


def test_a_queue_lists_its_first_jobs_in_order() -> None:
    fleet = a_fleet(1, 2, 3, jobs=2, cpu=6)
    answer = asyncio.run(Questions(fleet, lambda: True).queue("q", 2))
    assert answer is not None
    assert (answer["pending"], answer["leads"]) == (3, True)
    told = [(each["position"], each["job"], each["estimateSeconds"], each["reason"]) for each in answer["order"]]
    assert told == [(1, "t/1", 600, "QuotaExceeded"), (2, "t/2", 1800, "QuotaExceeded")]


def test_who_does_not_lead_lists_nobody_and_a_queue_that_is_not_there_is_none() -> None:
    fleet = a_fleet(1)
    assert asyncio.run(Questions(fleet, lambda: False).queue("q")) == {"queue": "q", "leads": False, "pending": 1}
    assert asyncio.run(Questions(fleet, lambda: True).queue("another")) is None


def test_a_queue_that_takes_too_long_gives_no_position_and_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(slices, "_MOST_SECONDS", -1.0)
    told = explained(a_fleet(1, jobs=1, cpu=1), "t/1")
    assert told["why"] == "it asks for 2"
    assert "position" not in told

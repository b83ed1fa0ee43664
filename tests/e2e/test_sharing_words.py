"""Queues that share say why a Job waits, on whole fleets: each reason with the numbers that were compared.

Two queues of one cohort with one cpu of their own each, unless a test says otherwise.
"""

import pytest

from multimirror.api import HOLD_ANNOTATION, PREEMPTIBLE_LABEL, PREEMPTIONS_ANNOTATION
from multimirror.api.names import POSITION_ANNOTATION
from multimirror.kube.resources import EVENTS
from tests.e2e.dispatching import Stage, running
from tests.e2e.sharing import Cohort, Json, note, pods_at_once, stops_after, waits
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("impatient")


async def test_quota_exceeded_names_what_is_own_and_what_may_be_borrowed(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(quota={"borrow": {"cpu": "500m"}})
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b, cpu="1250m")
        await cohort.submit("b-2", cohort.b, cpu="500m")
        await cohort.told(
            "Waiting",
            rf"it asks for 0\.5 cpu\. Queue {cohort.b} has 0\.25 left: own 1 all used, "
            r"0\.25 more borrowed of at most 0\.5\. Raise quota\.borrow",
            "b-2",
        )
        await cohort.head(cohort.b, "QuotaExceeded")
        await cohort.finish("b-1", "b-2")


async def test_cohort_full_names_who_uses_more_than_his_own(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(preempts=[])
    async with stage.dispatcher():
        await cohort.b_borrows()
        await cohort.submit("a-1", cohort.a)
        await cohort.told(
            "Waiting",
            rf"it asks for 1 cpu; queue {cohort.a} uses 0 of its own 1, and cohort {cohort.name} has 0 left: "
            rf"queue {cohort.b} uses 2 of its 1\. With Reclaim in its preempts the queue could have its own back from "
            rf"queue {cohort.b}",
            "a-1",
        )
        await cohort.finish("b-1", "a-1", "b-2")


async def test_what_a_blocked_head_keeps_of_its_own_quota_is_nobody_elses(stage: Stage, cohort: Cohort) -> None:
    """OthersFirst: one cpu is free, and kept for the head of a, which has no other way to get its own back."""
    await cohort.share("2", preempts=[])
    async with stage.dispatcher():
        for name in ("b-1", "b-2", "b-3"):
            await cohort.run(name, cohort.b)
        await cohort.submit("a-1", cohort.a, cpu="2")
        await cohort.told("Waiting", rf"it asks for 2 cpu; .* cohort {cohort.name} has 1 left", "a-1")
        await cohort.submit("b-4", cohort.b)
        await cohort.told(
            "Waiting",
            rf"1 cpu are left for queue {cohort.b}, but only 0 of that are not kept for Jobs that come first, and it "
            "asks for 1",
            "b-4",
        )
        await stage.finish("b-1")
        await stage.until(running, "a-1")
        assert waits(await stage.job("b-4"))
        await cohort.finish("b-2", "b-3", "a-1", "b-4")


async def test_weights_decide_whose_turn_it_is_and_who_loses_it_hears_both_shares(stage: Stage, cohort: Cohort) -> None:
    """OthersFirst: with 2 of 2 cpu a of weight 3 has a share of 334, b with 1 of 2 one of 500; though b came first."""
    await cohort.pool("2")
    await cohort.share("0", preempts=[])
    await cohort.change(cohort.a, weight=3)
    async with stage.dispatcher():
        await cohort.run("a-1", cohort.a)
    await cohort.submit("b-1", cohort.b)
    await cohort.submit("a-2", cohort.a)
    async with stage.dispatcher():
        await stage.until(running, "a-2")
        await cohort.told(
            "Waiting",
            rf"it fitted, but queue {cohort.a} was next for what is shared: its share is 334 of 1000, that of "
            rf"queue {cohort.b} would be 500 of 1000\. Now 0 cpu are left of the 1 that it asks for",
            "b-1",
        )
        await cohort.finish("a-1", "a-2", "b-1")


async def test_one_that_waits_for_its_victims_hears_who_they_are_and_where(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with stage.dispatcher():
        await cohort.b_borrows(change=stops_after(2))
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim("b-1", "b-2")
        await cohort.told("Waiting", rf"{stage.namespace}/{victim}\b", "owner")
        await cohort.told("Preempting", rf"^stops {stage.namespace}/{victim} .*\(1 cpu\), the fewest", "owner")
        await cohort.finish("owner", "b-1", "b-2")


async def test_own_quota_in_the_hands_of_those_who_must_not_be_stopped_is_waited_for(
    stage: Stage, cohort: Cohort
) -> None:
    """NobodyToStop: b had two of its own once, and was promised that nobody stops what runs on them."""
    await cohort.share()
    await cohort.change(cohort.b, quota={"resources": {"cpu": "2"}})
    async with stage.dispatcher():
        await cohort.b_borrows(labels={PREEMPTIBLE_LABEL: "false"})
        await cohort.change(cohort.b, quota={"resources": {"cpu": "1"}})
        await cohort.submit("owner", cohort.a)
        await cohort.told(
            "Waiting",
            rf"Nobody may be stopped for it: queue {cohort.b} has 2 cpu, and uses 2 of its 1, but none of its Jobs",
            "owner",
        )
        await cohort.head(cohort.a, "NobodyToStop")
        await stage.finish("b-1")
        await cohort.finish("owner", "b-2")


async def test_who_has_not_run_long_enough_is_not_stopped_until_he_has(stage: Stage, cohort: Cohort) -> None:
    """Protected: for Reclaim half of minRuntime counts."""
    await cohort.share(minRuntime="20m")
    async with stage.dispatcher():
        await cohort.b_borrows()
        await cohort.submit("owner", cohort.a)
        await cohort.told(
            "Waiting",
            rf"{stage.namespace}/b-[12] could make room, but has run \d+ s of the 10 min that minRuntime of queue "
            rf"{cohort.b} gives it; again in \d+ (min|s), at ",
            "owner",
        )
        await cohort.head(cohort.a, "Protected")
        await cohort.change(cohort.b, minRuntime="1s")
        await cohort.finish("owner", "b-1", "b-2")


async def test_quota_without_room_names_every_worker_and_what_it_has_left(stage: Stage, cohort: Cohort) -> None:
    """NoWorkerFits. Nobody is over his quota, so nobody is stopped."""
    first, second = stage.workers
    await cohort.share("3")
    await stage.set_worker(first, capacity={"mode": "Declared", "resources": {"cpu": "1500m"}})
    await stage.set_worker(second, capacity={"mode": "Declared", "resources": {"cpu": "1"}}, cordoned=True)
    async with stage.dispatcher():
        await cohort.run("a-1", cohort.a)
        await cohort.submit("a-2", cohort.a)
        told = await cohort.told("Waiting", rf"{first}: has 0\.5 cpu left, the Job asks for 1", "a-2")
        assert f"{second}: cordoned" in told
        await stage.set_worker(second, cordoned=False)
        await stage.until(running, "a-2")
        assert await cohort.worker_of("a-2") == second
        await cohort.finish("a-1", "a-2")


@pytest.mark.parametrize("limit", ["borrow", "cohort"])
async def test_more_than_a_queue_can_ever_have_never_fits_and_holds_up_nobody(
    stage: Stage, cohort: Cohort, limit: str
) -> None:
    await cohort.share(quota={"borrow": {"cpu": "500m"}} if limit == "borrow" else {}, queueingStrategy="StrictFIFO")
    most = r"1\.5 at most \(own 1, borrow 0\.5\)\. Raise quota\.borrow, or ask for less"
    if limit == "cohort":
        most = rf"2 at most \(own 1, cohort {cohort.name} has no more to lend\)\. Raise quotas of the cohort"
    async with stage.dispatcher():
        await cohort.submit("huge", cohort.a, cpu="40")
        await cohort.told("Waiting", rf"it asks for 40 cpu; queue {cohort.a} can have {most}", "huge")
        await cohort.run("a-1", cohort.a)
        await cohort.finish("a-1")


async def test_one_that_was_stopped_three_times_waits_for_its_queues_own_quota(stage: Stage, cohort: Cohort) -> None:
    """OwnQuotaOnly. Of b's two the one of lower priority is stopped: twice before, and now."""

    def stopped_twice(job: Json) -> None:
        job["metadata"]["annotations"] = {PREEMPTIONS_ANNOTATION: "2"}

    await cohort.share(maxPriority=100)
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b, priority=10)
        await cohort.run("b-2", cohort.b, change=stopped_twice)
        await cohort.run("owner", cohort.a)
        assert note(await stage.job("b-2"), PREEMPTIONS_ANNOTATION) == "3"
        await cohort.finish("owner")
        await cohort.told(
            "Waiting",
            r"it was stopped 3 times while it borrowed, and now waits for its queue's own quota: it asks for 1 cpu, "
            rf"and 0 of the 1 of queue {cohort.b} are free",
            "b-2",
        )
        await stage.finish("b-1")
        await cohort.finish("b-2")


@pytest.mark.parametrize("hold", ["Hold", "Drain"])
async def test_a_queue_that_is_held_or_drained_says_so_with_how_many_wait(
    stage: Stage, cohort: Cohort, hold: str
) -> None:
    await cohort.share(hold=hold)
    how = {"Hold": "held", "Drain": "drained"}[hold]
    async with stage.dispatcher():
        await cohort.submit("a-1", cohort.a)
        await cohort.told("Waiting", rf"queue {cohort.a} is {how} \(spec.hold is {hold}\).*1 Job waits", "a-1")
        await cohort.head(cohort.a, {"Hold": "Held", "Drain": "Draining"}[hold])
        await cohort.queue_condition(cohort.a, "Held")
        await cohort.submit("a-2", cohort.a)
        await cohort.told("Waiting", rf"queue {cohort.a} is {how} .* since 20\S+Z.*2 Jobs wait", "a-2")
        await cohort.change(cohort.a, hold="None")
        await cohort.finish("a-1", "a-2")


async def test_pods_that_do_not_start_are_tried_elsewhere_and_then_held(
    stage: Stage, cohort: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NotStarted, with which attempt it was. Ten seconds are the least that a real API server takes."""
    monkeypatch.setattr("multimirror.api.mirror_queues.SHORTEST_START", 1)
    seconds = 1 if stage.kind == "embedded" else 10
    await cohort.share("2", start={"within": f"{seconds}s", "attempts": 2})
    async with stage.dispatcher():
        await cohort.submit("a-1", cohort.a, change=pods_at_once(2), start_after="1h")
        first = await cohort.told(
            "NotStarted", rf"on worker \S+ 2 of 2 pods were not ready within {seconds} s.*attempt 1 of 2", "a-1"
        )
        last = await cohort.told("NotStarted", r"that was attempt 2 of 2, and it is held", "a-1")
        assert [name for name in stage.workers if name in first] != [name for name in stage.workers if name in last]
        job = await stage.until(waits, "a-1")
        assert note(job, HOLD_ANNOTATION) == "true"
        await cohort.told("Held", "because it did not start", "a-1")
        await stage.nothing_left()


async def test_a_strict_queue_names_the_first_that_holds_the_others_up(stage: Stage, cohort: Cohort) -> None:
    """BlockedByQueue: what the others could have is not taken."""
    await cohort.share("2", preempts=[], queueingStrategy="StrictFIFO")
    async with stage.dispatcher():
        for name in ("b-1", "b-2", "b-3"):
            await cohort.run(name, cohort.b)
        await cohort.submit("a-1", cohort.a, cpu="2")
        await cohort.told("Waiting", "it asks for 2 cpu", "a-1")
        await cohort.submit("a-2", cohort.a)
        first = f"{stage.namespace}/a-1"
        await cohort.told("Waiting", rf"queue {cohort.a} is strictly first in, first out, and {first} is first", "a-2")
        await stage.finish("b-1")
        await stage.until(running, "a-1")
        await cohort.finish("b-2", "b-3", "a-1", "a-2")


async def test_a_queue_that_begins_to_borrow_says_so_and_who_would_take_it_back(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()

    async def told() -> list[str]:
        events = (await stage.management.list(EVENTS)).items
        ours = [each for each in events if each["involvedObject"]["name"] == cohort.b and each["reason"] == "Borrowing"]
        return [each["message"] for each in ours]

    async with stage.dispatcher():
        await cohort.b_borrows()
        (message,) = await eventually(told)
        assert message == f"it uses 2 cpu, 1 its own; 1 may be taken back at any time, by queue {cohort.a} first"
        await cohort.finish("b-2")
        await cohort.queue_condition(cohort.b, "Borrowing", "False")
        await cohort.run("b-3", cohort.b)
        await cohort.queue_condition(cohort.b, "Borrowing")
        assert await told() == [message], "not again so soon"
        await cohort.finish("b-1", "b-3")


async def test_the_first_of_a_queue_carry_their_position_until_they_go(
    stage: Stage, cohort: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they have waited for a minute; here for half a second."""
    monkeypatch.setattr("multimirror.observe.positions._ROUND_SECONDS", 0.5)
    await cohort.share(preempts=[], maxPriority=100)
    async with stage.dispatcher():
        await cohort.b_borrows()
        for name, priority in (("late", 10), ("early", 50)):
            await cohort.submit(name, cohort.a, priority=priority)
        await stage.until(lambda job: note(job, POSITION_ANNOTATION) == "1", "early")
        await stage.until(lambda job: note(job, POSITION_ANNOTATION) == "2", "late")
        await stage.finish("b-1")
        assert note(await stage.until(running, "early"), POSITION_ANNOTATION) is None
        await stage.until(lambda job: note(job, POSITION_ANNOTATION) == "1", "late")
        await cohort.finish("early", "b-2", "late")

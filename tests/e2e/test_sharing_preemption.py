"""Others are stopped so that a Job can run, on whole fleets: for whom, who, where, and what both are told.

Two queues of one cohort with one cpu of their own each, unless a test says otherwise.
"""

import pytest

from multimirror.api import (
    ATTEMPT_ANNOTATION,
    HOLD_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIBLE_LABEL,
    PREEMPTIONS_ANNOTATION,
)
from multimirror.kube.resources import JOBS
from tests.e2e.dispatching import Stage, cluster_of, condition, running
from tests.e2e.sharing import Cohort, Json, is_marked, note, pods_at_once, stops_after, waits

pytestmark = pytest.mark.usefixtures("impatient")


# --- for whom: each reason in words -----------------------------------------------------------------------------------


async def test_reclaim_names_what_both_queues_use_of_their_own(stage: Stage, cohort: Cohort) -> None:
    await cohort.share("2")
    async with stage.dispatcher():
        for name in ("b-1", "b-2", "b-3"):
            await cohort.run(name, cohort.b, change=stops_after(1))
        await cohort.submit("owner", cohort.a, cpu="2")
        victim = await cohort.victim("b-1", "b-2", "b-3")
        worker = await cohort.worker_of(victim)
        await cohort.told(
            "Preempted",
            rf"stopped on worker {worker} to give queue {cohort.a} its own quota back \(Reclaim\): queue {cohort.a} "
            rf"uses 0 of its 2 cpu and needs 2, queue {cohort.b} uses 3 of its 2\. It made room for "
            rf"{stage.namespace}/owner, and waits again",
            victim,
        )
        await stage.until(running, "owner")
        assert await cohort.waiting("b-1", "b-2", "b-3") == [victim], "no victim too many"
        await cohort.finish("owner", "b-1", "b-2", "b-3")


async def test_priority_names_both_priorities(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(preempts=["Priority"], maxPriority=100)
    async with stage.dispatcher():
        await cohort.run("a-low", cohort.a, priority=10)
        await cohort.run("b-low", cohort.b)
        await cohort.submit("urgent", cohort.a, priority=90)
        await cohort.told(
            "Preempted",
            rf"for {stage.namespace}/urgent \(priority 90, this one 10\) in the same queue\. It waits again",
            "a-low",
        )
        await stage.until(running, "urgent")
        assert not is_marked(await stage.job("b-low")), "priority counts inside a queue only"
        assert note(await stage.job("a-low"), PREEMPTIONS_ANNOTATION) is None
        await cohort.finish("urgent", "a-low", "b-low")


async def test_fair_share_names_both_shares_and_comes_to_rest(stage: Stage, cohort: Cohort) -> None:
    """Of a pool of 4 b has 4: afterwards each has 2. Whoever was stopped does not take it back."""
    await cohort.pool("4")
    await cohort.share("0", preempts=["FairShare"])
    borrowers = [f"b-{number}" for number in range(4)]
    async with stage.dispatcher() as dispatcher:
        for name in borrowers:
            await cohort.run(name, cohort.b)
        await cohort.run("a-1", cohort.a)
        (first,) = await cohort.waiting(*borrowers)
        await cohort.told(
            "Preempted",
            rf"for queue {cohort.a}, which has less of what is shared \(FairShare; afterwards 250( of 1000)? and "
            rf"750( of 1000)?\): queue {cohort.a} uses 0 of its 0 cpu and needs 1, queue {cohort.b} uses 4 of its 0",
            first,
        )
        await cohort.run("a-2", cohort.a)
        await cohort.submit("a-3", cohort.a)
        await cohort.told("Waiting", f"cohort {cohort.name} has 0 left", "a-3")
        await dispatcher.idle()
        stopped = await cohort.waiting(*borrowers)
        assert len(stopped) == 2
        assert [note(await stage.job(name), PREEMPTIONS_ANNOTATION) for name in stopped] == ["1", "1"]
        await cohort.finish("a-1", "a-2", "a-3", *(name for name in borrowers if name not in stopped), *stopped)


async def test_where_own_lower_ones_and_borrowers_have_to_go_both_do(stage: Stage, cohort: Cohort) -> None:
    """Reclaim and Priority in one: a has 2, runs one of lower priority, b has the other; the urgent one needs both."""
    await cohort.share("2", preempts=["Reclaim", "Priority"], maxPriority=100)
    async with stage.dispatcher():
        await cohort.run("a-low", cohort.a)
        for name in ("b-1", "b-2", "b-3"):
            await cohort.run(name, cohort.b, priority=50)
        await cohort.submit("urgent", cohort.a, cpu="2", priority=90)
        victim = await cohort.victim("b-1", "b-2", "b-3")
        await stage.until(running, "urgent")
        await cohort.told("Preempted", r"\(priority 90, this one 0\)", "a-low")
        await cohort.told("Preempted", r"\(Reclaim\)", victim)
        await cohort.finish("urgent", "a-low", "b-1", "b-2", "b-3")


# --- who, and where ---------------------------------------------------------------------------------------------------


async def test_the_worker_with_the_fewest_victims_is_chosen_and_the_others_are_named(
    stage: Stage, cohort: Cohort
) -> None:
    """Two of one cpu on the first worker, one of two on the second; the quota of two workers is four."""
    first, second = stage.workers
    await cohort.share("2", placement="Ordered")
    for worker in stage.workers:
        await stage.set_worker(worker, capacity={"mode": "Declared", "resources": {"cpu": "2"}})
    async with stage.dispatcher():
        for name in ("b-1", "b-2"):
            await cohort.run(name, cohort.b)
        await cohort.run("b-wide", cohort.b, change=pods_at_once(2))
        assert [await cohort.worker_of(name) for name in ("b-1", "b-2", "b-wide")] == [first, first, second]
        await cohort.submit("owner", cohort.a, change=pods_at_once(2))
        await cohort.told(
            "Preempting",
            rf"stops {stage.namespace}/b-wide .*{second}.*\(2 cpu\), the fewest that make room; {first} would have "
            "needed 2",
            "owner",
        )
        job = await stage.until(running, "owner")
        assert cluster_of(job) == second
        assert not any([is_marked(await stage.job(name)) for name in ("b-1", "b-2")])
        await cohort.finish("owner", "b-wide", "b-1", "b-2")


async def test_a_gang_gets_all_its_room_on_one_worker(stage: Stage, cohort: Cohort) -> None:
    """Four of one cpu, two on each worker: the two of one worker go, not one of each."""
    await cohort.share("2")
    for worker in stage.workers:
        await stage.set_worker(worker, capacity={"mode": "Declared", "resources": {"cpu": "2"}})
    borrowers = [f"b-{number}" for number in range(4)]
    async with stage.dispatcher():
        for name in borrowers:
            await cohort.run(name, cohort.b)
        where = {name: await cohort.worker_of(name) for name in borrowers}
        await cohort.submit("gang", cohort.a, change=pods_at_once(2))
        job = await stage.until(lambda each: (each.get("status") or {}).get("ready") == 2, "gang")
        stopped = await cohort.waiting(*borrowers)
        assert [where[name] for name in stopped] == [cluster_of(job)] * 2
        await cohort.finish("gang", *borrowers)


async def test_one_that_must_not_be_stopped_runs_on_beside_one_that_is(stage: Stage, cohort: Cohort) -> None:
    """Placed on b's own quota, whatever its priority, while b borrows for the other."""
    await cohort.share(maxPriority=100)
    async with stage.dispatcher():
        await cohort.run("kept", cohort.b, labels={PREEMPTIBLE_LABEL: "false"})
        await cohort.run("borrows", cohort.b, priority=100)
        await cohort.run("owner", cohort.a)
        assert waits(await stage.job("borrows"))
        assert running(await stage.job("kept"))
        await cohort.finish("owner", "kept", "borrows")


async def test_a_queue_that_is_held_gives_back_what_it_borrowed(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        await cohort.change(cohort.b, hold="Hold")
        await cohort.run("owner", cohort.a)
        (victim,) = await cohort.waiting(*borrowers)
        await cohort.finish("owner")
        await cohort.told("Waiting", rf"queue {cohort.b} is held", victim)
        assert waits(await stage.job(victim)), "there is room, but the queue is held"
        await cohort.change(cohort.b, hold="None")
        await cohort.finish(*borrowers)


# --- what happens meanwhile -------------------------------------------------------------------------------------------


@pytest.mark.real_server
async def test_a_victim_that_ends_while_it_is_being_stopped_has_ended(stage: Stage, cohort: Cohort) -> None:
    """Its worker hears late that it is to stop: it has come to its end by then, which is mirrored."""
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        for worker in stage.workers:
            stage.history.delay("patch", "jobs", 2.0, worker)
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
        await stage.finish(victim)
        assert condition(await stage.done(victim), "Complete")
        await stage.until(running, "owner")
        (other,) = set(borrowers) - {victim}
        assert running(await stage.job(other))
        await cohort.finish("owner", other)
        assert {note(job, ATTEMPT_ANNOTATION) for job in cohort.lives_of(victim)} <= {None, "1"}


async def test_a_preemptor_that_its_user_holds_makes_way_for_its_victim(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows(change=stops_after(2))
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
        await stage.patch("owner", {"metadata": {"annotations": {HOLD_ANNOTATION: "true"}}})
        await stage.until(lambda job: not is_marked(job) and running(job), victim)
        assert waits(await stage.job("owner"))
        await cohort.finish(victim)
        await stage.patch("owner", {"metadata": {"annotations": {HOLD_ANNOTATION: None}}})
        await cohort.finish("owner", *(set(borrowers) - {victim}))


async def test_a_preemptor_that_asks_for_more_meanwhile_stops_as_many_more_as_it_needs(
    stage: Stage, cohort: Cohort
) -> None:
    """Those that were told are not called back; what it asks for now counts."""

    def one_of_two(job: Json) -> None:
        job["spec"] |= {"completions": 2, "parallelism": 1}

    await cohort.share("2")
    borrowers = [f"b-{number}" for number in range(4)]
    async with stage.dispatcher():
        for name in borrowers:
            await cohort.run(name, cohort.b, change=stops_after(2))
        await cohort.submit("owner", cohort.a, change=one_of_two)
        await cohort.victim(*borrowers)
        await stage.patch("owner", {"spec": {"parallelism": 2}})
        await stage.until(lambda each: (each.get("status") or {}).get("ready") == 2, "owner")
        assert len(await cohort.waiting(*borrowers)) == 2
        await cohort.finish("owner", *borrowers)


async def test_a_user_who_resumes_a_victim_is_told_that_it_is_moved_all_the_same(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows(change=stops_after(2))
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
        await stage.patch(victim, {"spec": {"suspend": False}})
        await cohort.told("Preempted", "it was resumed while it is being stopped on worker", victim)
        await stage.until(running, "owner")
        job = await stage.until(waits, victim)
        assert note(job, HOLD_ANNOTATION) is None
        await cohort.finish("owner", *borrowers)


async def test_a_job_that_its_user_had_suspended_gives_its_room_and_stays_held(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(maxPriority=100)
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b, priority=10)
        await cohort.run("b-2", cohort.b)
        await stage.patch("b-2", {"spec": {"suspend": True}})
        await stage.until(lambda job: condition(job, "Suspended"), "b-2")
        await cohort.run("owner", cohort.a)
        await stage.until(waits, "b-2")
        await cohort.finish("owner")
        await cohort.told("Held", "as its user asked", "b-2")
        assert waits(await stage.job("b-2")), "there is room, but its user wants it suspended"
        await stage.patch("b-2", {"spec": {"suspend": False}})
        await cohort.finish("b-1", "b-2")


async def test_a_victim_that_its_user_holds_meanwhile_stays_held(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows(change=stops_after(2))
        owner = await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
        assert note(await stage.job(victim), PREEMPTED_BY_ANNOTATION) == owner["metadata"]["uid"]
        await stage.patch(victim, {"metadata": {"annotations": {HOLD_ANNOTATION: "true"}}})
        await cohort.finish("owner")
        await cohort.told("Held", "as its user asked", victim)
        assert waits(await stage.job(victim))
        await stage.patch(victim, {"metadata": {"annotations": {HOLD_ANNOTATION: None}}})
        await cohort.finish(*borrowers)


async def test_a_victim_that_is_deleted_while_it_is_being_stopped_is_gone_and_its_room_is_used(
    stage: Stage, cohort: Cohort
) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows(change=stops_after(2))
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
        await stage.management.delete(JOBS, victim, stage.namespace, propagation="Background")
        await cohort.finish("owner", *(set(borrowers) - {victim}))
        assert all(job["metadata"]["name"] != victim for _, job in await stage.copies())

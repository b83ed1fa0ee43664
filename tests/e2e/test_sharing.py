"""Queues that share, on whole fleets: what is borrowed is given back, and whoever is stopped comes back.

Two queues of one cohort with one cpu of their own each, and Jobs of one cpu that run until they are told to end. Each
test's history is checked for all promises.
"""

from typing import Any

import pytest

from clusters.nodes import PREFIX
from multimirror.api import (
    ATTEMPT_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIBLE_LABEL,
    PREEMPTIONS_ANNOTATION,
    PRIORITY_LABEL,
)
from multimirror.kube.resources import JOBS, PODS
from tests.e2e.dispatching import Stage, cluster_of, condition, finished, running
from tests.e2e.sharing import Cohort, is_marked, note, waits

Json = dict[str, Any]


@pytest.mark.real_server
async def test_own_quota_is_taken_back_and_the_borrower_comes_back_when_there_is_room(
    stage: Stage, cohort: Cohort
) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        await cohort.submit("owner", cohort.a)
        owner = await stage.until(running, "owner")
        (victim,) = [name for name in borrowers if waits(await stage.job(name))]
        job = await stage.job(victim)
        assert note(job, PREEMPTIONS_ANNOTATION) == "1"
        assert note(job, PREEMPTED_BY_ANNOTATION) == owner["metadata"]["uid"]
        assert job["spec"]["suspend"] is True
        await stage.event("Preempting", f"stops {stage.namespace}/{victim}", "owner")
        await stage.event("Preempted", f"to give queue {cohort.a} its own quota back (Reclaim)", victim)
        await stage.finish("owner")
        job = await stage.until(running, victim)
        assert note(job, ATTEMPT_ANNOTATION) == "2"
        assert note(job, PREEMPTED_BY_ANNOTATION) is None
        for name in borrowers:
            await stage.finish(name)
            assert condition(await stage.done(name), "Complete")


@pytest.mark.real_server
async def test_the_preemptor_starts_no_pod_before_those_of_its_victim_are_gone(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()

    def slow(job: Json) -> None:
        job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 3
        job["spec"]["template"]["metadata"]["annotations"][f"{PREFIX}ignore-sigterm"] = "2s"

    async with stage.dispatcher():
        borrowers = await cohort.b_borrows(change=slow)
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
        worker = cluster_of(await stage.job(victim))
        assert worker is not None
        uid = (await stage.job(victim))["metadata"]["uid"]
        await stage.until(lambda job: cluster_of(job) is not None, "owner")
        found = (await stage.workers[worker].list(PODS, stage.namespace, label_selector=f"job-name={victim}")).items
        assert [pod for pod in found if pod["status"]["phase"] in ("Pending", "Running")] == []
        assert (await stage.job(victim))["metadata"]["uid"] == uid
        await stage.finish("owner")
        for name in borrowers:
            await stage.finish(name)


async def test_a_borrower_that_has_ended_by_itself_is_not_stopped_and_the_owner_goes(
    stage: Stage, cohort: Cohort
) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        for name in borrowers:
            await stage.finish(name)
        await cohort.submit("owner", cohort.a)
        await stage.until(running, "owner")
        for name in borrowers:
            job = await stage.job(name)
            assert condition(job, "Complete")
            assert not is_marked(job)
        await stage.finish("owner")


async def test_when_the_preemptor_is_deleted_its_victim_goes_on(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
        await stage.management.delete(JOBS, "owner", stage.namespace, propagation="Background")
        job = await stage.until(lambda job: running(job) and note(job, ATTEMPT_ANNOTATION) == "2", victim)
        assert not is_marked(job)
        for name in borrowers:
            await stage.finish(name)


async def test_a_dispatcher_that_starts_anew_while_a_victim_stops_goes_on_where_it_was(
    stage: Stage, cohort: Cohort
) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
    async with stage.dispatcher():
        await stage.until(running, "owner")
        assert waits(await stage.job(victim))
        for name in ("owner", *borrowers):
            await stage.finish(name)


async def test_a_job_that_must_not_be_stopped_is_not_and_its_lender_hears_why_it_waits(
    stage: Stage, cohort: Cohort
) -> None:
    await cohort.share()
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b, labels={PREEMPTIBLE_LABEL: "false"})
        await cohort.submit("b-2", cohort.b, labels={PREEMPTIBLE_LABEL: "false"})
        await stage.event("Waiting", "own quota", "b-2")
        assert waits(await stage.job("b-2")), "whoever must not be stopped does not borrow"
        await cohort.run("owner", cohort.a)
        await stage.finish("b-1")
        await stage.until(running, "b-2")
        for name in ("owner", "b-2"):
            await stage.finish(name)


async def test_in_a_queue_a_higher_priority_stops_a_lower_one(stage: Stage, cohort: Cohort) -> None:
    await stage.set_queue(quota={"resources": {"cpu": "1"}}, preempts=["Priority"], maxPriority=100)
    async with stage.dispatcher():
        await cohort.run("low", cohort.a)
        await cohort.submit("urgent", cohort.a, labels={PRIORITY_LABEL: "50"})
        await stage.until(running, "urgent")
        await stage.event("Preempted", f"for {stage.namespace}/urgent", "low")
        assert note(await stage.job("low"), PREEMPTIONS_ANNOTATION) is None, "only what borrows is counted"
        await stage.finish("urgent")
        await stage.until(running, "low")
        await stage.finish("low")


async def test_fair_shares_are_brought_about_where_the_queue_may(stage: Stage, cohort: Cohort) -> None:
    """Nobody has anything of his own: the pool of the cohort is shared."""
    await cohort.pool("2")
    await cohort.share(own="0", preempts=["FairShare"])
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        await cohort.submit("a-1", cohort.a)
        await stage.until(running, "a-1")
        (victim,) = [name for name in borrowers if waits(await stage.job(name))]
        await stage.event("Preempted", "FairShare", victim)
        for name in ("a-1", *borrowers):
            await stage.finish(name)


async def test_without_a_right_to_stop_others_the_lender_waits_in_words(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(preempts=[])
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        await cohort.submit("owner", cohort.a)
        await stage.event("Waiting", "cpu", "owner")
        await stage.finish(borrowers[0])
        await stage.until(running, "owner")
        for name in ("owner", borrowers[1]):
            await stage.finish(name)


async def test_what_a_queue_may_not_borrow_is_not_taken_until_it_may(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(quota={"borrow": {"cpu": "0"}})
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b)
        await cohort.submit("b-2", cohort.b)
        told = await stage.event("Waiting", "cpu", "b-2")
        assert cohort.b in told["message"]
        await cohort.change(cohort.b, quota={"borrow": {"cpu": "1"}})
        await stage.until(running, "b-2")
        for name in ("b-1", "b-2"):
            await stage.finish(name)


@pytest.mark.real_server
async def test_a_queue_that_is_drained_gives_everything_back_and_goes_on_when_it_is_released(
    stage: Stage, cohort: Cohort
) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        await cohort.change(cohort.b, hold="Drain")
        for name in borrowers:
            await stage.until(waits, name)
            await stage.event("Preempted", "is drained", name)
        await stage.nothing_left()
        await cohort.change(cohort.b, hold="None")
        for name in borrowers:
            job = await stage.until(running, name)
            assert note(job, ATTEMPT_ANNOTATION) == "2"
            await stage.finish(name)


async def test_a_queue_that_is_held_goes_on_with_what_runs_and_starts_nothing(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(hold="Hold")
    await cohort.change(cohort.b, hold="None")
    async with stage.dispatcher():
        await cohort.submit("a-1", cohort.a)
        await stage.event("Waiting", "is held", "a-1")
        borrowers = await cohort.b_borrows()
        await cohort.change(cohort.a, hold="None")
        await stage.until(running, "a-1")
        for name in ("a-1", *borrowers):
            await stage.finish(name)


@pytest.mark.real_server
async def test_indexes_that_have_finished_give_their_quota_back(stage: Stage, cohort: Cohort) -> None:
    """Two of two indexes run; when one is done, a Job of the same queue gets its cpu."""
    await stage.set_queue(quota={"resources": {"cpu": "2"}})

    def indexed(job: Json) -> None:
        job["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 2}

    async with stage.dispatcher():
        await cohort.submit("wide", cohort.a, change=indexed)
        await stage.until(lambda job: (job.get("status") or {}).get("ready") == 2, "wide")
        await cohort.submit("next", cohort.a)
        await stage.event("Waiting", "cpu", "next")
        worker, _ = await stage.copy(name="wide")
        pods = (await stage.workers[worker].list(PODS, stage.namespace, label_selector="job-name=wide")).items
        done = {"metadata": {"annotations": {f"{PREFIX}finish": "true"}}}
        await stage.workers[worker].patch(PODS, pods[0]["metadata"]["name"], done, stage.namespace)
        await stage.until(running, "next")
        assert not finished(await stage.job("wide"))
        for name in ("wide", "next"):
            await stage.finish(name)

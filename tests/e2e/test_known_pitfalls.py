"""Bugs that were reported of MultiKueue (kubernetes-sigs/kueue), one test each: does ours have it?

Where a test says `quota={"jobs": 1}`, the Job after it shows that nothing was kept by the one before.
"""

import asyncio
from functools import partial
from typing import Any

import pytest

from multimirror.api import ATTEMPT_ANNOTATION
from multimirror.kube.resources import JOBS, PODS
from tests.e2e.dispatching import Stage, a_job, cluster_of, condition, finished, running, until
from tests.e2e.worker_webhooks import REFUSAL, admitting, changed
from tests.waiting import DEADLINE

Json = dict[str, Any]
OTHER_IMAGE = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "mirror.example.com/busybox"}
ONE_AT_A_TIME: Json = {"quota": {"jobs": 1}}


def attempt(job: Json) -> str:
    return str((job["metadata"].get("annotations") or {}).get(ATTEMPT_ANNOTATION))


def runs(job: Json, *, number: str) -> bool:
    return attempt(job) == number and running(job)


def shows(job: Json, *, pods: int) -> bool:
    return bool(job["status"].get("ready") == pods == job["status"].get("active"))


@pytest.mark.real_server
async def test_a_job_that_its_worker_changed_on_arrival_gives_its_quota_back(stage: Stage) -> None:
    """kueue #14736: the manager held the quota for ever once the remote one was out of sync."""
    first, _ = stage.workers
    await stage.set_queue(**ONE_AT_A_TIME, workers={"names": [first]})
    async with admitting(stage, first, changed(OTHER_IMAGE)), stage.dispatcher():
        await stage.submit("changed")
        await stage.submit("next")
        await stage.done("changed")
        await stage.done("next")


async def test_a_job_whose_image_its_worker_replaced_runs_and_its_end_is_seen(stage: Stage) -> None:
    """kueue #13046: such a Job was finished as out of sync on the worker, and never heard of on the manager."""
    first, _ = stage.workers
    await stage.set_queue(workers={"names": [first]})
    async with admitting(stage, first, changed(OTHER_IMAGE)), stage.dispatcher():
        await stage.submit(never_finish="true")
        _, copy = await stage.copy(running)
        await stage.finish()
        assert copy["spec"]["template"]["spec"]["containers"][0]["image"] == OTHER_IMAGE["value"]
        job = await stage.done()
        assert condition(job, "Complete")
        assert attempt(job) == "1"
        assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "busybox"


@pytest.mark.real_server
async def test_a_finished_job_with_a_time_to_live_does_not_run_again(stage: Stage) -> None:
    """kueue #14734, #14779: the worker removed the finished Job before its end was seen, and it ran a second time."""
    async with stage.dispatcher():
        await stage.submit(change=lambda job: job["spec"].update(ttlSecondsAfterFinished=0), duration="500ms")
        worker, _ = await stage.copy()
    client = stage.workers[worker]
    await until(client, JOBS, stage.namespace, "job", finished)
    await asyncio.sleep(1)  # nobody looks, and a time to live would be over
    async with stage.dispatcher():
        await until_gone(stage, "job")
        await stage.nothing_left()
    pods = [obj for where, what, kind, obj in stage.history.events if kind == "Pod" and what == "ADDED"]
    assert len(pods) == 1


async def test_deleting_a_job_deletes_no_job_of_the_same_name_that_is_not_its_copy(stage: Stage) -> None:
    """kueue #11849: an unrelated Job of the worker's own, with the same name, could be deleted."""
    first, second = stage.workers
    await stage.set_queue(placement="Ordered")
    theirs = a_job("job", queue="unused", never_finish="true")
    theirs["spec"] = {key: value for key, value in theirs["spec"].items() if key not in ("managedBy", "suspend")}
    made = await stage.workers[first].create(JOBS, theirs, stage.namespace)
    async with stage.dispatcher() as dispatcher:
        await stage.submit(never_finish="true")
        assert cluster_of(await stage.until(running)) == second
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        async with asyncio.timeout(DEADLINE):
            while await stage.copies(second):
                await asyncio.sleep(0.05)
        await dispatcher.idle()
        still = await stage.workers[first].get(JOBS, "job", stage.namespace)
        assert (still["metadata"]["uid"], "deletionTimestamp" in still["metadata"]) == (made["metadata"]["uid"], False)


async def test_a_job_whose_copy_was_deleted_keeps_no_quota_for_the_lost_one(stage: Stage) -> None:
    """kueue #15380: after the mirrored Job was deleted, its quota could be kept for ever."""
    await stage.set_queue(**ONE_AT_A_TIME)
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        worker, _ = await stage.copy(running)
        await stage.submit("next")
        await stage.workers[worker].delete(JOBS, "job", stage.namespace, propagation="Background")
        await stage.until(lambda job: attempt(job) == "2" and running(job))
        await stage.finish()
        assert attempt(await stage.done()) == "2"
        await stage.done("next")


async def test_a_copy_that_its_worker_stops_is_resumed_and_leaks_nothing(stage: Stage) -> None:
    """kueue #9338: admission leaked on the manager when the Job was evicted on the worker."""
    await stage.set_queue(**ONE_AT_A_TIME)
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        worker, _ = await stage.copy(running)
        await stage.workers[worker].patch(JOBS, "job", {"spec": {"suspend": True}}, stage.namespace)
        await stage.submit("next")
        await stage.finish()
        job = await stage.done()
        assert condition(job, "Complete")
        assert attempt(job) == "1"
        await stage.done("next")


@pytest.mark.real_server
async def test_the_number_of_active_pods_follows_every_change_by_itself(stage: Stage) -> None:
    """kueue #11115: status.active on the manager did not catch up for up to 15 minutes."""
    async with stage.dispatcher():
        await stage.submit(change=lambda j: j["spec"].update(parallelism=3, completions=9), never_finish="true")
        for pods in (3, 1, 2):
            await stage.patch("job", {"spec": {"parallelism": pods}})
            job = await stage.until(partial(shows, pods=pods))
            assert attempt(job) == "1"


@pytest.mark.real_server
async def test_the_end_of_a_job_is_seen_with_everything_that_the_worker_says_about_it(stage: Stage) -> None:
    """kueue #5613: the local Job's status was not updated on remote completion."""
    await stage.set_queue(retention="10m")
    async with stage.dispatcher():
        await stage.submit(change=lambda j: j["spec"].update(parallelism=2, completions=2))
        job = await stage.done()
        _, copy = await stage.copy(finished)
        for field in ("succeeded", "startTime", "completionTime"):
            assert job["status"][field] == copy["status"][field]
        kinds = [c["type"] for c in copy["status"]["conditions"] if c["status"] == "True"]
        assert [c["type"] for c in job["status"]["conditions"] if c["status"] == "True"] == kinds


@pytest.mark.real_server
async def test_a_suspended_job_shows_that_nothing_of_it_runs_any_more(stage: Stage) -> None:
    """kueue #8162: the status was not up to date on suspension."""
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        await stage.patch("job", {"spec": {"suspend": True}})
        job = await stage.until(lambda j: condition(j, "Suspended") and not j["status"].get("active"))
        assert not job["status"].get("ready")
        worker, _ = await stage.copy(lambda c: bool(c["spec"].get("suspend")))
        async with asyncio.timeout(DEADLINE):
            while (await stage.workers[worker].list(PODS, stage.namespace)).items:
                await asyncio.sleep(0.05)


async def test_what_an_unavailable_worker_holds_is_removed_when_it_is_back(stage: Stage) -> None:
    """kueue #11346: the remote object was orphaned when its worker was unavailable at the moment of its removal."""
    await stage.set_queue(onWorkerLost={"after": "1s", "action": "Redispatch"}, placement="Ordered")
    first, second = stage.workers
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        assert cluster_of(await stage.until(running)) == first
        stage.cut(first)
        await stage.until(lambda j: cluster_of(j) == second and running(j))
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        async with asyncio.timeout(DEADLINE):
            while await stage.copies(second):
                await asyncio.sleep(0.05)
        assert await stage.copies(first)
        stage.mend(first)
        await stage.nothing_left()


async def test_a_queue_whose_workers_are_swapped_sends_what_waits_to_the_new_ones(stage: Stage) -> None:
    """kueue #10122: swapping the configuration of a check was not noticed."""
    first, second = stage.workers
    await stage.set_queue(workers={"names": [first]})
    await stage.set_worker(first, maxJobs=1)
    async with stage.dispatcher():
        await stage.submit("running", never_finish="true")
        assert cluster_of(await stage.until(running, "running")) == first
        await stage.submit("waiting")
        await stage.event("Waiting", "as many as it may", name="waiting")
        await stage.set_queue(workers={"names": [second]})
        assert cluster_of(await stage.done("waiting")) == second
        assert cluster_of(await stage.job("running")) == first, "what runs stays where it is"


async def test_a_job_that_loses_its_copy_again_and_again_is_placed_each_time(stage: Stage) -> None:
    """kueue #11062: another admission was blocked by a stale cache and a webhook that sent it back."""
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        for number in ("1", "2", "3"):
            await stage.until(partial(runs, number=number))
            worker, _ = await stage.copy(running)
            await stage.workers[worker].delete(JOBS, "job", stage.namespace, propagation="Background")
        await stage.until(lambda j: attempt(j) == "4" and running(j))


async def test_a_job_that_every_worker_refuses_leaves_nothing_on_any_of_them(stage: Stage) -> None:
    """kueue #3841: a rejected check left objects behind on the workers."""
    first, second = stage.workers
    async with admitting(stage, first, REFUSAL), admitting(stage, second, REFUSAL), stage.dispatcher() as dispatcher:
        await stage.submit()
        for worker in (first, second):
            await stage.event("Refused", worker)
        await stage.event("Waiting", "images must come from our own registry")
        assert not await stage.copies()
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        await dispatcher.idle()
        await stage.nothing_left()


@pytest.mark.real_server
async def test_ordinary_jobs_of_every_cluster_run_beside_ours_and_stay_untouched(stage: Stage) -> None:
    """Roles may be shared: workers and the management cluster have Jobs of their own."""
    plain = a_job("plain", queue="unused", duration="1s")
    plain["spec"] = {key: value for key, value in plain["spec"].items() if key not in ("managedBy", "suspend")}
    del plain["metadata"]["labels"]
    everywhere = [stage.management, *stage.workers.values()]
    async with stage.dispatcher():
        for client in everywhere:
            await client.create(JOBS, plain, stage.namespace)
        await stage.submit()
        await stage.done()
        for client in everywhere:
            job = await until(client, JOBS, stage.namespace, "plain", finished)
            assert condition(job, "Complete")
            managers = {entry["manager"] for entry in job["metadata"]["managedFields"]}
            assert "multimirror" not in managers


async def until_gone(stage: Stage, name: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while any(
            job["metadata"]["name"] == name for job in (await stage.management.list(JOBS, stage.namespace)).items
        ):
            await asyncio.sleep(0.05)

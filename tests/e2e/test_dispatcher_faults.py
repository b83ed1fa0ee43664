"""What a Job's user sees when something goes wrong: workers lost, copies gone, controllers stopped, names taken."""

import asyncio
import contextlib
from typing import Any

import pytest

from faults.record import MANAGEMENT
from multimirror.api import ADMITTED_QUEUE_ANNOTATION, ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION
from multimirror.kube.errors import LeadershipLost, NotFound
from multimirror.kube.resources import JOBS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from multimirror.kube.write_guard import WriteGuard
from tests.e2e.dispatching import (
    QUICK_TO_LOSE,
    SYSTEM,
    Stage,
    a_job,
    cluster_of,
    condition,
    finished,
    running,
    secret,
    until,
)
from tests.e2e.worker_webhooks import REFUSAL, admitting
from tests.waiting import DEADLINE

Json = dict[str, Any]


def attempt(job: Json) -> str:
    return str(job["metadata"]["annotations"][ATTEMPT_ANNOTATION])


# --- copies -----------------------------------------------------------------------------------------------------------


async def test_a_copy_that_somebody_deleted_is_started_again_as_another_attempt(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        worker, _ = await stage.copy(running)
        await stage.workers[worker].delete(JOBS, "job", stage.namespace, propagation="Background")
        job = await stage.until(lambda j: attempt(j) == "2" and running(j))
        assert job["status"]["startTime"]
        await stage.event("CopyVanished", worker)


async def test_what_a_workers_webhooks_add_to_a_copy_does_no_harm(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        worker, _ = await stage.copy(running)
        added = {"metadata": {"labels": {"added": "there"}, "annotations": {"policy": "seen"}}}
        await stage.workers[worker].patch(JOBS, "job", added, stage.namespace)
        await stage.finish()
        job = await stage.done()
        assert condition(job, "Complete")
        assert attempt(job) == "1"
        assert "added" not in job["metadata"].get("labels", {})


@pytest.mark.real_server
async def test_a_copy_that_somebody_changes_is_brought_back_in_step(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(change=lambda j: j["spec"].update(parallelism=2, completions=9), never_finish="true")
        worker, _ = await stage.copy(lambda c: c["status"].get("active") == 2)
        for change in ({"parallelism": 5}, {"suspend": True}):
            await stage.workers[worker].patch(JOBS, "job", {"spec": change}, stage.namespace)
            await stage.copy(
                lambda c: (
                    c["spec"]["parallelism"] == 2 and not c["spec"].get("suspend") and c["status"].get("active") == 2
                )
            )
        assert attempt(await stage.job()) == "1"


@pytest.mark.real_server
async def test_a_job_of_somebody_else_with_the_same_name_is_left_alone_and_its_worker_skipped(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(placement="Ordered")
    theirs = a_job("job", queue="unused", never_finish="true")
    theirs["spec"].pop("managedBy")
    theirs["spec"]["suspend"] = False
    del theirs["metadata"]["labels"]
    made = await stage.workers[first].create(JOBS, theirs, stage.namespace)
    async with stage.dispatcher():
        await stage.submit()
        job = await stage.done()
        assert cluster_of(job) == second
        await stage.event("Refused", "not ours")
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        await asyncio.sleep(0.5)
        still = await stage.workers[first].get(JOBS, "job", stage.namespace)
        assert still["metadata"]["uid"] == made["metadata"]["uid"]
        assert still["metadata"]["generation"] == made["metadata"]["generation"]


async def test_a_name_taken_on_every_worker_is_told_and_the_job_goes_once_it_is_free(stage: Stage) -> None:
    theirs = a_job("job", queue="unused", never_finish="true")
    theirs["spec"].pop("managedBy")
    del theirs["metadata"]["labels"]
    for client in stage.workers.values():
        await client.create(JOBS, theirs, stage.namespace)
    async with stage.dispatcher(refusal_seconds=2.0):
        await stage.submit()
        await stage.event("Waiting", "not ours")
        for client in stage.workers.values():
            await client.delete(JOBS, "job", stage.namespace, propagation="Background")
        assert condition(await stage.done(), "Complete")


@pytest.mark.real_server
async def test_a_namespace_that_is_missing_on_a_worker_sends_the_job_to_another(stage: Stage) -> None:
    _, second = stage.workers
    await stage.set_queue(placement="Ordered")
    elsewhere = f"{stage.namespace}-x"
    await stage.history.follow(elsewhere)
    await stage.management.create(NAMESPACES, {"metadata": {"name": elsewhere}})
    await stage.workers[second].create(NAMESPACES, {"metadata": {"name": elsewhere}})
    with contextlib.suppress(Exception):
        await stage.workers[second].create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, elsewhere)
    async with stage.dispatcher():
        await stage.management.create(JOBS, a_job("job", queue=stage.queue), elsewhere)
        job = await until(stage.management, JOBS, elsewhere, "job", finished)
        assert cluster_of(job) == second
        await stage.management.delete(JOBS, "job", elsewhere, propagation="Background")


async def test_a_namespace_that_is_missing_everywhere_is_told_and_the_job_goes_once_it_is_there(stage: Stage) -> None:
    elsewhere = f"{stage.namespace}-y"
    await stage.history.follow(elsewhere)
    await stage.management.create(NAMESPACES, {"metadata": {"name": elsewhere}})
    async with stage.dispatcher() as dispatcher:
        await stage.management.create(JOBS, a_job("job", queue=stage.queue), elsewhere)
        async with asyncio.timeout(DEADLINE):
            while (explained := dispatcher.explain(elsewhere, "job")) is None:
                await asyncio.sleep(0.05)
        assert f"has no namespace {elsewhere}" in str(explained)
        for client in stage.workers.values():
            await client.create(NAMESPACES, {"metadata": {"name": elsewhere}})
            with contextlib.suppress(Exception):
                await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, elsewhere)
        await until(stage.management, JOBS, elsewhere, "job", finished)
        await stage.management.delete(JOBS, "job", elsewhere, propagation="Background")


async def test_a_job_deleted_and_made_again_under_its_name_is_another_job(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        with contextlib.suppress(NotFound):
            async with asyncio.timeout(DEADLINE):
                while True:
                    await stage.job()
                    await asyncio.sleep(0.05)
        again = await stage.submit(duration="0s")
        job = await stage.done()
        assert job["metadata"]["uid"] == again["metadata"]["uid"]
        assert condition(job, "Complete")


@pytest.mark.real_server
async def test_a_job_that_another_controller_writes_to_is_not_placed_and_says_so(stage: Stage) -> None:
    await stage.submit()
    status = {"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]}
    await stage.management.patch(JOBS, "job", {"status": status}, stage.namespace, subresource="status")
    async with stage.dispatcher():
        await stage.event("ManagedByIgnored", "another controller")
        assert cluster_of(await stage.job()) is None


@pytest.mark.real_server
async def test_a_job_that_asks_for_a_queue_but_was_not_admitted_is_told_so(stage: Stage) -> None:
    def unmanaged(job: Json) -> None:
        job["spec"].pop("managedBy")
        job["spec"]["suspend"] = False

    async with stage.dispatcher():
        await stage.submit(change=unmanaged)
        await stage.event("NotManaged", "admission")
        assert condition(await stage.done(), "Complete")  # here, on the management cluster
        assert await stage.copies() == []


# --- workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.real_server
async def test_a_lost_workers_job_is_started_elsewhere_and_the_old_copy_goes_when_it_is_back(stage: Stage) -> None:
    await stage.set_queue(onWorkerLost={"after": "1s", "action": "Redispatch"})
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        first = cluster_of(await stage.until(running))
        assert first is not None
        stage.cut(first)
        await stage.cluster_condition(first, "Connected", "False")
        job = await stage.until(lambda j: attempt(j) == "2" and running(j))
        assert cluster_of(job) != first
        assert len(await stage.copies(first)) == 1
        stage.mend(first)
        async with asyncio.timeout(DEADLINE):
            while await stage.copies(first):
                await asyncio.sleep(0.05)
        assert running(await stage.job())


async def test_a_worker_that_is_lost_for_a_moment_keeps_its_jobs(stage: Stage) -> None:
    await stage.set_queue(onWorkerLost={"after": "1h", "action": "Redispatch"})
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        worker = cluster_of(await stage.until(running))
        assert worker is not None
        stage.cut(worker)
        await stage.event("WorkerLost", worker)
        await stage.finish()
        assert not finished(await stage.job())
        stage.mend(worker)
        job = await stage.done()
        assert (attempt(job), cluster_of(job)) == ("1", worker)
        await stage.nothing_left()


async def test_a_controller_that_starts_again_while_a_worker_is_away_still_gives_up_on_it(stage: Stage) -> None:
    """Since when a worker is lost is on its WorkerCluster: a controller that starts over and over loses no time."""
    await stage.set_queue(onWorkerLost={"after": "5s", "action": "Redispatch"})
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        first = cluster_of(await stage.until(running))
        assert first is not None
        stage.cut(first)
        lost = await stage.cluster_condition(first, "Connected", "False")
    for _ in range(2):
        async with stage.dispatcher():
            again = await stage.cluster_condition(first, "Connected", "False")
            assert again["lastTransitionTime"] == lost["lastTransitionTime"]
    async with stage.dispatcher():
        job = await stage.until(lambda j: attempt(j) == "2" and running(j))
        assert cluster_of(job) != first


async def test_a_queue_may_wait_for_a_lost_worker_for_as_long_as_it_takes(stage: Stage) -> None:
    await stage.set_queue(onWorkerLost={"after": "0s", "action": "Wait"})
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        worker = cluster_of(await stage.until(running))
        assert worker is not None
        stage.cut(worker)
        await stage.event("WorkerLost", "wait for it")
        await stage.finish()
        stage.mend(worker)
        assert attempt(await stage.done()) == "1"


async def test_a_queue_may_fail_the_jobs_of_a_lost_worker(stage: Stage) -> None:
    await stage.set_queue(onWorkerLost={"after": "1s", "action": "Fail"})
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        worker = cluster_of(await stage.until(running))
        assert worker is not None
        stage.cut(worker)
        job = await stage.done()
        failed = next(c for c in job["status"]["conditions"] if c["type"] == "Failed")
        assert failed["reason"] == "WorkerLost"
        assert worker in failed["message"]
        stage.mend(worker)
        await stage.nothing_left()


async def test_a_job_deleted_while_its_worker_is_away_leaves_nothing_there_once_it_is_back(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        worker = cluster_of(await stage.until(running))
        assert worker is not None
        stage.cut(worker)
        await stage.cluster_condition(worker, "Connected", "False")
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        await asyncio.sleep(0.3)
        assert len(await stage.copies(worker)) == 1
        stage.mend(worker)
        await stage.nothing_left()


async def test_a_worker_that_hangs_does_not_slow_the_others(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(placement="Ordered", onWorkerLost={"after": "1h", "action": "Redispatch"})
    async with stage.dispatcher(heartbeat=QUICK_TO_LOSE):
        await stage.submit("stuck", never_finish="true")
        assert cluster_of(await stage.until(running, "stuck")) == first
        stage.hang(first)
        await stage.management.delete(JOBS, "stuck", stage.namespace, propagation="Background")
        await stage.cluster_condition(first, "Connected", "False")
        for number in range(5):
            await stage.submit(f"job-{number}")
        for number in range(5):
            assert cluster_of(await stage.done(f"job-{number}")) == second
        stage.mend(first)
        await stage.nothing_left()


async def test_a_worker_whose_secret_is_missing_says_so_and_works_once_it_is_there(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(workers={"names": [first]})
    await stage.management.delete(SECRETS, first, SYSTEM)
    async with stage.dispatcher():
        found = await stage.cluster_condition(first, "Connected", "False")
        assert found["reason"] == "KubeconfigMissing"
        await stage.submit()
        await stage.event("Waiting", "not ready")
        await stage.management.create(SECRETS, secret(first, stage.links[first].kubeconfig), SYSTEM)
        await stage.cluster_condition(first, "Ready", "True")
        assert cluster_of(await stage.done()) == first
        assert second in stage.workers


async def test_a_kubeconfig_that_would_run_a_program_is_refused_and_the_other_worker_goes_on(stage: Stage) -> None:
    first, second = stage.workers
    poisoned = stage.links[first].kubeconfig
    poisoned["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh"}}
    await stage.management.replace(SECRETS, secret(first, poisoned), SYSTEM)
    async with stage.dispatcher():
        found = await stage.cluster_condition(first, "Connected", "False")
        assert found["reason"] == "KubeconfigRefused"
        assert "exec" in found["message"]
        await stage.submit()
        assert cluster_of(await stage.done()) == second


async def test_a_worker_replaced_by_an_empty_cluster_gets_its_jobs_started_again(stage: Stage) -> None:
    first, _ = stage.workers
    await stage.set_queue(workers={"names": [first]})
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        await stage.rename(first, MANAGEMENT)
        job = await stage.until(lambda j: attempt(j) == "2" and running(j))
        assert cluster_of(job) == first


async def test_two_names_for_one_cluster_are_noticed_and_one_of_them_is_not_used(stage: Stage) -> None:
    first, second = stage.workers
    async with stage.dispatcher():
        await stage.cluster_condition(first, "Ready", "True")
        await stage.cluster_condition(second, "Ready", "True")
        await stage.rename(first, second)
        await stage.cluster_condition(first, "Ready", "False", "SameCluster")
        await stage.submit()
        assert cluster_of(await stage.done()) == second


async def test_a_worker_takes_only_the_namespaces_that_it_lists_under_their_names_there(stage: Stage) -> None:
    first, second = stage.workers
    there = f"{stage.namespace}-there"
    await stage.history.follow(there)
    await stage.set_worker(first, namespaces=[{"name": stage.namespace, "workerNamespace": there}])
    await stage.set_worker(second, namespaces=[{"name": "somebody-else"}])
    await stage.workers[first].create(NAMESPACES, {"metadata": {"name": there}})
    with contextlib.suppress(Exception):
        await stage.workers[first].create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, there)
    await stage.set_queue(retention="1h")
    async with stage.dispatcher():
        for number in range(2):
            await stage.submit(f"job-{number}")
            assert cluster_of(await stage.done(f"job-{number}")) == first
        found = (await stage.workers[first].list(JOBS, there)).items
        assert {job["metadata"]["name"] for job in found} == {"job-0", "job-1"}
        await stage.set_queue(retention="0s")
        async with asyncio.timeout(DEADLINE):
            while (await stage.workers[first].list(JOBS, there)).items:
                await asyncio.sleep(0.05)


async def test_a_worker_takes_no_more_jobs_than_it_may(stage: Stage) -> None:
    first, second = stage.workers
    for name in (first, second):
        await stage.set_worker(name, maxJobs=1)
    async with stage.dispatcher():
        for number in range(3):
            await stage.submit(f"job-{number}", never_finish="true")
        await stage.until(running, "job-0")
        await stage.until(running, "job-1")
        await stage.event("Waiting", "as many as it may", "job-2")
        await stage.management.delete(JOBS, "job-0", stage.namespace, propagation="Background")
        await stage.until(running, "job-2")


async def test_a_queue_that_gets_other_workers_is_noticed_by_the_jobs_that_wait(stage: Stage) -> None:
    first, _ = stage.workers
    await stage.set_queue(workers={"names": ["nobody"]})
    async with stage.dispatcher():
        await stage.submit()
        await stage.event("Waiting", "no such WorkerCluster")
        await stage.set_queue(workers={"names": [first]})
        assert cluster_of(await stage.done()) == first


async def test_a_worker_cluster_that_is_removed_counts_as_lost(stage: Stage) -> None:
    await stage.set_queue(onWorkerLost={"after": "1s", "action": "Redispatch"})
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        first = cluster_of(await stage.until(running))
        assert first is not None
        await stage.remove(first)
        job = await stage.until(lambda j: attempt(j) == "2" and running(j))
        assert cluster_of(job) != first


@pytest.mark.real_server
async def test_the_management_cluster_can_be_a_worker_of_itself(stage: Stage) -> None:
    first, _ = stage.workers
    await stage.rename(first, MANAGEMENT)
    await stage.set_queue(workers={"names": [first]})
    async with stage.dispatcher():
        await stage.submit()
        job = await stage.done()
        assert condition(job, "Complete")
        async with asyncio.timeout(DEADLINE):
            while len((await stage.management.list(JOBS, stage.namespace)).items) > 1:
                await asyncio.sleep(0.05)


# --- controllers ------------------------------------------------------------------------------------------------------


async def test_a_controller_that_was_away_while_the_copy_ended_writes_the_end_down(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.copy(running)
    await stage.finish()
    assert not finished(await stage.job())
    async with stage.dispatcher():
        job = await stage.done()
        assert condition(job, "Complete")
        assert attempt(job) == "1"
        await stage.nothing_left()


async def test_a_controller_that_died_after_the_assignment_makes_the_copy_when_it_is_back(stage: Stage) -> None:
    worker = list(stage.workers)[1]
    await stage.submit()
    body = {
        "metadata": {
            "annotations": {
                CLUSTER_ANNOTATION: worker,
                ATTEMPT_ANNOTATION: "1",
                ADMITTED_QUEUE_ANNOTATION: stage.queue,
            }
        },
        "spec": {"suspend": False},
    }
    await stage.patch("job", body)
    async with stage.dispatcher():
        job = await stage.done()
        assert (cluster_of(job), attempt(job)) == (worker, "1")


async def test_copies_whose_original_was_deleted_while_nobody_looked_are_removed(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
    await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
    assert len(await stage.copies()) == 1
    async with stage.dispatcher():
        await stage.nothing_left()


async def test_a_controller_that_hears_late_of_what_there_is_decides_nothing_before(stage: Stage) -> None:
    """I9: without its original a copy looks like one that nobody needs. The history is checked for what it writes."""
    async with stage.dispatcher():
        await stage.submit("running", never_finish="true")
        await stage.until(running, "running")
    await stage.submit("waiting")
    for resource in ("jobs", "namespaces", "mirrorqueues"):
        for verb in ("list", "watch"):  # whichever fills its cache
            stage.history.delay(verb, resource, 1.0)
    async with stage.dispatcher():
        await stage.done("waiting")
        job = await stage.job("running")
        assert (attempt(job), running(job)) == ("1", True)


@pytest.mark.real_server
async def test_a_controller_that_dies_before_any_of_its_writes_loses_nothing_and_does_nothing_twice(
    stage: Stage,
) -> None:
    await stage.submit(duration="0.2s")
    for allowed in range(12):
        left = allowed

        def guard() -> None:
            nonlocal left
            if left <= 0:
                raise LeadershipLost("died")
            left -= 1

        async with stage.dispatcher(guard=WriteGuard(guard)):
            async with asyncio.timeout(DEADLINE):
                while left > 0 and not finished(await stage.job()):
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
        if finished(await stage.job()):
            break
    async with stage.dispatcher():
        job = await stage.done()
        assert condition(job, "Complete")
        assert attempt(job) == "1"
        await stage.nothing_left()


@pytest.mark.real_server
async def test_of_two_controllers_one_works_and_the_other_takes_over_when_it_ends(stage: Stage) -> None:
    def writers(*jobs: str) -> list[str]:
        """Who wrote about those Jobs, in order."""
        writes = [each for each in stage.history.record.writes("dispatcher") if each.call.name in jobs]
        return list(dict.fromkeys(each.client for each in writes))

    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(stage.candidate("dispatcher-one"))
        await stage.leads("dispatcher-one")
        async with stage.candidate("dispatcher-two") as standby:
            await stage.submit("early")
            await stage.done("early")
            await stage.submit("across", never_finish="true")
            await stage.until(running, "across")
            assert writers("early", "across") == ["dispatcher-one"]
            assert not standby.done()
            await first.aclose()
            await stage.leads("dispatcher-two")
            await stage.finish("across")
            await stage.submit("late")
            for name in ("across", "late"):
                job = await stage.done(name)
                assert condition(job, "Complete")
                assert attempt(job) == "1"
            await stage.nothing_left()
            assert writers("across") == ["dispatcher-one", "dispatcher-two"]
            assert writers("late") == ["dispatcher-two"]


# --- admission on the worker ------------------------------------------------------------------------------------------


@pytest.mark.real_server
async def test_a_job_that_a_workers_policy_refuses_goes_to_another_and_its_user_is_told(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(placement="Ordered")
    async with admitting(stage, first, REFUSAL), stage.dispatcher():
        await stage.submit()
        job = await stage.done()
        assert cluster_of(job) == second
        await stage.event("Refused", "images must come from our own registry")

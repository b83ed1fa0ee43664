"""A Job created on the management cluster runs on a worker and is seen where it was created: the ordinary days."""

from typing import Any

import pytest

from multimirror.api import ATTEMPT_ANNOTATION, CLUSTERS_ANNOTATION, MIRROR_QUEUES, PRIORITY_LABEL, QUEUE_LABEL
from multimirror.kube.resources import JOBS, PODS
from tests.e2e.dispatching import Stage, cluster_of, condition, finished, running, until

Json = dict[str, Any]


@pytest.mark.real_server
async def test_a_job_runs_on_a_worker_and_its_end_is_seen_where_it_was_created(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit()
        job = await stage.done()
        assert condition(job, "Complete")
        assert job["status"]["succeeded"] == 1
        assert cluster_of(job) in stage.workers
        await stage.nothing_left()


async def test_a_running_job_shows_its_pods_where_it_was_created(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        job = await stage.until(running)
        assert job["status"]["active"] == 1
        assert job["status"]["startTime"]
        assert job["spec"]["suspend"] is False
        _, copy = await stage.copy(running)
        assert "managedBy" not in copy["spec"]
        assert (await stage.management.list(PODS, stage.namespace)).items == []


@pytest.mark.real_server
async def test_a_job_that_fails_is_seen_to_fail_with_the_workers_reason(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(exit_code="3")
        job = await stage.done()
        assert condition(job, "Failed")
        failed = next(c for c in job["status"]["conditions"] if c["type"] == "Failed")
        assert failed["reason"] == "BackoffLimitExceeded"
        assert job["status"]["failed"] == 1
        await stage.nothing_left()


@pytest.mark.real_server
async def test_a_job_that_retries_is_run_again_on_its_worker_and_counts_its_failures(stage: Stage) -> None:
    def retry(job: Json) -> None:
        job["spec"]["backoffLimit"] = 3

    async with stage.dispatcher():
        await stage.submit(change=retry, fail_first="1")
        job = await stage.done()
        assert condition(job, "Complete")
        assert (job["status"]["failed"], job["status"]["succeeded"]) == (1, 1)
        assert job["metadata"]["annotations"][ATTEMPT_ANNOTATION] == "1"


@pytest.mark.real_server
async def test_an_indexed_job_shows_which_indexes_are_done(stage: Stage) -> None:
    def indexed(job: Json) -> None:
        job["spec"] |= {"completionMode": "Indexed", "completions": 4, "parallelism": 2}

    async with stage.dispatcher():
        await stage.submit(change=indexed)
        job = await stage.done()
        assert job["status"]["completedIndexes"] == "0-3"
        assert job["status"]["succeeded"] == 4


@pytest.mark.real_server
async def test_an_indexed_job_with_a_limit_for_each_index_shows_which_failed(stage: Stage) -> None:
    def indexed(job: Json) -> None:
        job["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0}
        del job["spec"]["backoffLimit"]

    async with stage.dispatcher():
        await stage.submit(change=indexed, exit_code="1")
        job = await stage.done()
        assert condition(job, "Failed")
        assert job["status"]["failedIndexes"] == "0,1"


@pytest.mark.real_server
async def test_a_user_who_suspends_a_job_stops_its_pods_and_one_who_resumes_it_gets_them_back(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        before = await stage.until(running)
        worker, _ = await stage.copy(running)
        await stage.patch("job", {"spec": {"suspend": True}})
        job = await stage.until(lambda j: condition(j, "Suspended") and not j["status"].get("active"))
        assert cluster_of(job) == worker
        await stage.patch("job", {"spec": {"suspend": False}})
        job = await stage.until(lambda j: running(j) and not condition(j, "Suspended"))
        assert cluster_of(job) == cluster_of(before)
        assert job["metadata"]["annotations"][ATTEMPT_ANNOTATION] == "1"


@pytest.mark.real_server
async def test_a_job_that_is_deleted_leaves_nothing_on_its_worker(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        await stage.nothing_left()


async def test_a_job_deleted_while_it_waits_is_not_started(stage: Stage) -> None:
    await stage.set_queue(quota={"jobs": 0})
    async with stage.dispatcher():
        await stage.submit()
        await stage.event("Waiting")
        await stage.management.delete(JOBS, "job", stage.namespace)
        await stage.set_queue(quota={"jobs": 5})
        await stage.submit("other")
        await stage.done("other")
        assert not [job for _, job in stage.history.jobs(next(iter(stage.workers))) if job["metadata"]["name"] == "job"]


@pytest.mark.real_server
async def test_a_change_of_parallelism_reaches_the_copy(stage: Stage) -> None:
    def wide(job: Json) -> None:
        job["spec"] |= {"parallelism": 1, "completions": 6}

    async with stage.dispatcher():
        await stage.submit(change=wide, never_finish="true")
        await stage.until(running)
        await stage.patch("job", {"spec": {"parallelism": 3}})
        await stage.copy(lambda copy: copy["spec"]["parallelism"] == 3)
        await stage.until(lambda j: j["status"].get("active") == 3)


@pytest.mark.real_server
async def test_a_deadline_set_later_ends_the_job_on_its_worker(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        await stage.patch("job", {"spec": {"activeDeadlineSeconds": 1}})
        job = await stage.done()
        failed = next(c for c in job["status"]["conditions"] if c["type"] == "Failed")
        assert failed["reason"] == "DeadlineExceeded"


async def test_a_finished_copy_stays_for_as_long_as_the_queue_says(stage: Stage) -> None:
    await stage.set_queue(retention="1h")
    async with stage.dispatcher():
        await stage.submit()
        await stage.done()
        worker, copy = await stage.copy(finished)
        assert len((await stage.workers[worker].list(PODS, stage.namespace)).items) == 1
        await stage.set_queue(retention="0s")
        await stage.nothing_left()
        assert finished(copy)


@pytest.mark.real_server
async def test_the_users_time_to_live_is_kept_by_the_original_and_not_given_to_the_copy(stage: Stage) -> None:
    def short_lived(job: Json) -> None:
        job["spec"]["ttlSecondsAfterFinished"] = 0

    await stage.set_queue(retention="1h")
    async with stage.dispatcher():
        await stage.submit(change=short_lived)
        _, copy = await stage.copy()
        assert "ttlSecondsAfterFinished" not in copy["spec"]
        await stage.nothing_left()  # the original removed itself, and its copy went with it
        assert [what for what, job in stage.history.jobs("management") if finished(job)]


async def test_jobs_are_spread_over_the_workers(stage: Stage) -> None:
    async with stage.dispatcher():
        for number in range(4):
            await stage.submit(f"job-{number}", never_finish="true")
        jobs = [await stage.until(running, f"job-{number}") for number in range(4)]
        chosen = sorted(str(cluster_of(job)) for job in jobs)
        assert chosen == sorted(list(stage.workers) * 2)


async def test_a_queue_that_is_ordered_prefers_its_first_worker(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(placement="Ordered", workers={"names": [second, first]})
    async with stage.dispatcher():
        for number in range(2):
            await stage.submit(f"job-{number}")
            assert cluster_of(await stage.done(f"job-{number}")) == second


async def test_a_job_goes_only_where_its_user_allows(stage: Stage) -> None:
    second = list(stage.workers)[1]

    def there(job: Json) -> None:
        job["metadata"]["annotations"] = {CLUSTERS_ANNOTATION: second}

    async with stage.dispatcher():
        for number in range(2):
            await stage.submit(f"job-{number}", change=there)
            assert cluster_of(await stage.done(f"job-{number}")) == second


async def test_a_cordoned_worker_takes_no_new_jobs_and_keeps_those_it_has(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(placement="Ordered")
    async with stage.dispatcher():
        await stage.submit("before", never_finish="true")
        assert cluster_of(await stage.until(running, "before")) == first
        await stage.set_worker(first, cordoned=True)
        await stage.cluster_condition(first, "Ready", "False")
        await stage.submit("after")
        assert cluster_of(await stage.done("after")) == second
        assert running(await stage.job("before"))


async def test_a_job_that_exceeds_the_quota_waits_says_why_and_goes_when_there_is_room(stage: Stage) -> None:
    await stage.set_queue(quota={"jobs": 1})
    async with stage.dispatcher() as dispatcher:
        await stage.submit("first", never_finish="true")
        await stage.until(running, "first")
        await stage.submit("second")
        await stage.event("Waiting", "as many as its quota allows", "second")
        explained = dispatcher.explain(stage.namespace, "second")
        assert explained is not None
        assert explained.reason == "QuotaExceeded"
        await stage.management.delete(JOBS, "first", stage.namespace, propagation="Background")
        await stage.done("second")


async def test_a_job_larger_than_the_quota_says_that_it_never_fits(stage: Stage) -> None:
    def large(job: Json) -> None:
        container = job["spec"]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": "8"}}

    await stage.set_queue(quota={"resources": {"cpu": "4"}})
    async with stage.dispatcher() as dispatcher:
        await stage.submit(change=large)
        event = await stage.event("Waiting", "more than the whole quota")
        assert event["type"] == "Warning"
        explained = dispatcher.explain(stage.namespace, "job")
        assert explained is not None
        assert explained.reason == "NeverFits"
        await stage.submit("small")  # nobody waits behind it
        await stage.done("small")


async def test_what_is_more_urgent_goes_first(stage: Stage) -> None:
    def urgent(job: Json) -> None:
        job["metadata"]["labels"][PRIORITY_LABEL] = "10"

    await stage.set_queue(quota={"jobs": 1})
    async with stage.dispatcher():
        await stage.submit("first", never_finish="true")
        await stage.until(running, "first")
        await stage.submit("ordinary", never_finish="true")
        await stage.event("Waiting", name="ordinary")
        await stage.submit("urgent", change=urgent)
        await stage.event("Waiting", name="urgent")
        await stage.management.delete(JOBS, "first", stage.namespace, propagation="Background")
        await stage.done("urgent")
        await stage.until(running, "ordinary")
        assigned = [job["metadata"]["name"] for _, job in stage.history.jobs("management") if cluster_of(job)]
        assert assigned.index("urgent") < assigned.index("ordinary")


async def test_a_job_of_a_queue_that_does_not_exist_says_so_and_goes_once_it_does(stage: Stage) -> None:
    later = f"{stage.queue}-later"

    def elsewhere(job: Json) -> None:
        job["metadata"]["labels"][QUEUE_LABEL] = later

    async with stage.dispatcher():
        await stage.submit(change=elsewhere)
        await stage.event("Waiting", f"no MirrorQueue {later}")
        queue = {
            "apiVersion": MIRROR_QUEUES.api_version,
            "kind": MIRROR_QUEUES.kind,
            "metadata": {"name": later},
            "spec": {"workers": {"names": list(stage.workers)}, "retention": "0s"},
        }
        await stage.management.create(MIRROR_QUEUES, queue)
        try:
            await stage.done()
            await stage.nothing_left()
        finally:
            await stage.management.delete(MIRROR_QUEUES, later)


async def test_a_namespace_that_the_queue_does_not_admit_is_told_so(stage: Stage) -> None:
    await stage.set_queue(namespaceSelector={"matchLabels": {"team": "other"}})
    async with stage.dispatcher():
        await stage.submit()
        await stage.event("Waiting", "may not be used from namespace")
        await stage.set_queue(namespaceSelector=None)
        await stage.done()


async def test_the_queue_tells_how_it_is_doing(stage: Stage) -> None:
    await stage.set_queue(quota={"jobs": 1}, workers={"names": [next(iter(stage.workers))]})
    async with stage.dispatcher():
        await stage.submit("earlier")
        await stage.done("earlier")
        await stage.submit("first", never_finish="true")
        await stage.until(running, "first")
        await stage.submit("second")

        def told(queue: Json) -> bool:
            status = queue.get("status") or {}
            return status.get("running") == 1 and status.get("pending") == 1 and "head" in status

        queue = await until(stage.management, MIRROR_QUEUES, None, stage.queue, told)
        assert queue["status"]["head"]["job"] == f"{stage.namespace}/second"
        assert queue["status"]["head"]["reason"] == "QuotaExceeded"
        assert queue["status"]["finished"] == 1
        assert queue["status"]["workers"] == [{"name": next(iter(stage.workers)), "running": 1, "finished": 1}]

        await stage.management.delete(JOBS, "earlier", stage.namespace, propagation="Background")
        queue = await until(
            stage.management, MIRROR_QUEUES, None, stage.queue, lambda queue: queue["status"]["finished"] == 0
        )
        assert queue["status"]["workers"] == [{"name": next(iter(stage.workers)), "running": 1, "finished": 0}]

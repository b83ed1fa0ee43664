"""More of what Jobs, queues and namespaces go through: churn, elastic indexes, CronJobs, deletions of every sort."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from multimirror.api import ATTEMPT_ANNOTATION, MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.kube import Client
from multimirror.kube.errors import AlreadyExists
from multimirror.kube.resources import CRON_JOBS, EVENTS, JOBS, NAMESPACES, PODS, SECRETS, SERVICE_ACCOUNTS
from tests.e2e.dispatching import SYSTEM, Stage, a_job, cluster_of, condition, finished, running, secret, until
from tests.waiting import DEADLINE, eventually

Json = dict[str, Any]


def attempt(job: Json) -> str:
    return str((job["metadata"].get("annotations") or {}).get(ATTEMPT_ANNOTATION))


async def a_namespace(stage: Stage, suffix: str) -> str:
    """Another one, on every cluster."""
    name = f"{stage.namespace}-{suffix}"
    for client in (stage.management, *stage.workers.values()):
        await client.create(NAMESPACES, {"metadata": {"name": name}})
        with contextlib.suppress(AlreadyExists):  # pods need it, whoever makes it first
            await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, name)
    return name


async def nothing_of(client: Client, namespace: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while (await client.list(JOBS, namespace)).items or (await client.list(PODS, namespace)).items:
            await asyncio.sleep(0.05)


# --- the mirror -------------------------------------------------------------------------------------------------------


@pytest.mark.real_server
async def test_a_job_whose_status_changes_all_the_time_is_mirrored_with_no_more_writes_than_it_has_changes(
    stage: Stage,
) -> None:
    def many(job: Json) -> None:
        job["spec"] |= {"completionMode": "Indexed", "completions": 40, "parallelism": 10}

    async with stage.dispatcher():
        await stage.submit(change=many)
        job = await stage.done()
        assert (job["status"]["succeeded"], job["status"]["completedIndexes"]) == (40, "0-39")
    worker = cluster_of(job)
    assert worker is not None
    theirs = distinct(stage.history.jobs(worker))
    ours = distinct(stage.history.jobs("management"))
    assert len(ours) <= len(theirs)
    counts = [status.get("succeeded", 0) for status in ours]
    assert counts == sorted(counts)


def distinct(versions: list[tuple[str, Json]]) -> list[Json]:
    """The statuses that a Job went through."""
    found: list[Json] = []
    for _, job in versions:
        status = {key: value for key, value in (job.get("status") or {}).items() if key != "uncountedTerminatedPods"}
        if status and (not found or found[-1] != status):
            found.append(status)
    return found


@pytest.mark.real_server
async def test_an_elastic_indexed_job_grows_and_shrinks_on_its_worker(stage: Stage) -> None:
    def indexed(job: Json) -> None:
        job["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 2}

    def pods(number: int) -> Callable[[Json], bool]:
        return lambda job: bool((job.get("status") or {}).get("active") == number == job["status"].get("ready"))

    async with stage.dispatcher():
        await stage.submit(change=indexed, never_finish="true")
        worker = cluster_of(await stage.until(pods(2)))
        for size in (4, 1):
            await stage.patch("job", {"spec": {"completions": size, "parallelism": size}})
            job = await stage.until(pods(size))
            assert (cluster_of(job), attempt(job)) == (worker, "1")
            _, copy = await stage.copy()
            assert (copy["spec"]["completions"], copy["spec"]["parallelism"]) == (size, size)


async def test_what_happens_to_a_job_can_be_followed_in_log_and_metrics(stage: Stage) -> None:
    first = next(iter(stage.workers))
    await stage.set_queue(workers={"names": [first]})
    with capture_logs() as logs:
        async with stage.dispatcher():
            uid = (await stage.submit())["metadata"]["uid"]
            await stage.done()
            await stage.nothing_left()
            await until(
                stage.management,
                MIRROR_QUEUES,
                None,
                stage.queue,
                lambda q: (q.get("status") or {}).get("finished") == 1,
            )
    ref = f"jobs.batch/{uid}"
    told = [(entry["event"], entry["cluster"]) for entry in logs if entry.get("ref") == ref and "cluster" in entry]
    assert told == [(event, first) for event in ("assigned", "copy created", "finished", "copy deleted")]
    for name, labels in {
        "multimirror_jobs_assigned_total": {"queue": stage.queue, "worker": first},
        "multimirror_queue_wait_seconds_count": {"queue": stage.queue},
        "multimirror_copies_created_total": {"worker": first},
        "multimirror_dispatch_seconds_count": {"worker": first},
        "multimirror_copies_deleted_total": {"worker": first, "reason": "finished"},
        "multimirror_status_mirrored_total": {"worker": first},
        "multimirror_mirror_lag_seconds_count": {"worker": first},
        "multimirror_worker_up": {"worker": first},
    }.items():
        assert (REGISTRY.get_sample_value(name, labels) or 0) >= 1, name
    for name in ("multimirror_queue_pending_jobs", "multimirror_queue_running_jobs"):
        assert REGISTRY.get_sample_value(name, {"queue": stage.queue}) == 0


async def test_a_worker_and_a_queue_that_are_gone_are_measured_no_more(stage: Stage) -> None:
    first, other = next(iter(stage.workers)), f"{stage.queue}-other"
    spec = {"workers": {"names": [first]}}
    await stage.management.create(MIRROR_QUEUES, {"metadata": {"name": other}, "spec": spec})
    gauges = {
        "multimirror_worker_up": {"worker": first},
        "multimirror_worker_jobs": {"worker": first},
        "multimirror_copies": {"worker": first, "state": "running"},
        "multimirror_queue_pending_jobs": {"queue": other},
        "multimirror_queue_running_jobs": {"queue": other},
    }

    def measured() -> set[str]:
        return {name for name, labels in gauges.items() if REGISTRY.get_sample_value(name, labels) is not None}

    async with stage.dispatcher(), asyncio.timeout(DEADLINE):
        while measured() != gauges.keys():
            await asyncio.sleep(0.05)
        await stage.remove(first)
        await stage.management.delete(MIRROR_QUEUES, other)
        while measured():
            await asyncio.sleep(0.05)


# --- the end of things ------------------------------------------------------------------------------------------------


@pytest.mark.real_server
@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
async def test_a_job_deleted_in_any_way_leaves_nothing_on_its_worker(stage: Stage, propagation: Any) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        await stage.management.delete(JOBS, "job", stage.namespace, propagation=propagation)
        await stage.nothing_left()
        async with asyncio.timeout(DEADLINE):
            while (await stage.management.list(JOBS, stage.namespace)).items:
                await asyncio.sleep(0.05)


@pytest.mark.real_server
async def test_a_job_that_somebodys_finalizer_keeps_is_stopped_as_soon_as_it_is_deleted(stage: Stage) -> None:
    def kept(job: Json) -> None:
        job["metadata"]["finalizers"] = ["example.com/archive"]

    async with stage.dispatcher():
        await stage.submit(change=kept, never_finish="true")
        await stage.until(running)
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        await stage.nothing_left()
        assert "deletionTimestamp" in (await stage.job())["metadata"]
        await stage.submit("next")
        await stage.done("next")
        assert not any(copy["metadata"]["name"] == "job" for _, copy in await stage.copies()), "not started again"
        await stage.patch("job", {"metadata": {"finalizers": None}})


@pytest.mark.real_server
async def test_a_namespace_that_is_deleted_takes_its_jobs_and_their_copies_along(stage: Stage) -> None:
    team = await a_namespace(stage, "gone")
    async with stage.dispatcher():
        for name in ("a", "b", "c"):
            await stage.management.create(JOBS, a_job(name, queue=stage.queue, never_finish="true"), team)
        for name in ("a", "b", "c"):
            await until(stage.management, JOBS, team, name, running)
        await stage.management.delete(NAMESPACES, team)
        for client in stage.workers.values():
            await nothing_of(client, team)


@pytest.mark.real_server
async def test_a_namespace_deleted_on_a_worker_sends_its_jobs_elsewhere(stage: Stage) -> None:
    team = await a_namespace(stage, "moved")
    moving = a_job("job", queue=stage.queue, never_finish="true")
    moving["spec"]["backoffLimit"] = 3  # its pods go before it does, and the worker counts that as a failure
    async with stage.dispatcher():
        await stage.management.create(JOBS, moving, team)
        worker = cluster_of(await until(stage.management, JOBS, team, "job", running))
        assert worker is not None
        await stage.workers[worker].delete(NAMESPACES, team)
        job = await until(
            stage.management, JOBS, team, "job", lambda job: cluster_of(job) not in {None, worker} and running(job)
        )
        assert attempt(job) == "2"
        await stage.management.delete(JOBS, "job", team, propagation="Background")
        for client in stage.workers.values():
            await nothing_of(client, team)


# --- CronJobs ---------------------------------------------------------------------------------------------------------


def midnight(days_ago: int) -> tuple[str, str]:
    """Once a year: the schedule, and the day before it."""
    day = datetime.now(UTC) - timedelta(days=days_ago)
    return f"0 0 {day.day} {day.month} *", (day - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def due(stage: Stage, days_ago: int) -> None:
    """The CronJob has missed the run of that day, and makes up for it at once."""
    schedule, before = midnight(days_ago)
    found = await stage.management.patch(CRON_JOBS, "tick", {"spec": {"schedule": schedule}}, stage.namespace)
    body: Json
    if "lastScheduleTime" not in (found.get("status") or {}):
        body = {"status": {"lastScheduleTime": before}}
        await stage.management.patch(CRON_JOBS, "tick", body, stage.namespace, subresource="status")
    else:  # after a change of the schedule alone, the controller waits for its next time
        body = {"metadata": {"annotations": {"looked-at": schedule}}}
        await stage.management.patch(CRON_JOBS, "tick", body, stage.namespace)


async def jobs_of(stage: Stage) -> list[Json]:
    return (await stage.management.list(JOBS, stage.namespace)).items


async def until_jobs(stage: Stage, number: int, what: Callable[[Json], bool]) -> list[Json]:
    async with asyncio.timeout(DEADLINE):
        while len(found := [job for job in await jobs_of(stage) if what(job)]) != number:
            await asyncio.sleep(0.05)
    return found


async def a_cron_job(stage: Stage, *, behaviour: dict[str, str], **spec: Any) -> None:
    job = a_job("unused", queue=stage.queue, **behaviour)
    template = {"metadata": {"labels": job["metadata"]["labels"]}, "spec": job["spec"]}
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {"schedule": midnight(9)[0], **spec, "jobTemplate": template},
    }
    await stage.management.create(CRON_JOBS, cron_job, stage.namespace)


@pytest.mark.real_server
async def test_jobs_of_a_cron_job_run_on_workers_and_their_success_is_seen(stage: Stage) -> None:
    async with stage.dispatcher():
        await a_cron_job(stage, behaviour={}, concurrencyPolicy="Forbid")
        await due(stage, 3)
        await stage.until(
            lambda cron_job: bool((cron_job.get("status") or {}).get("lastSuccessfulTime")), "tick", resource=CRON_JOBS
        )
        (job,) = await jobs_of(stage)
        assert cluster_of(job) in stage.workers


@pytest.mark.real_server
async def test_a_cron_job_that_forbids_it_starts_nothing_while_its_job_runs_elsewhere(stage: Stage) -> None:
    async with stage.dispatcher():
        await a_cron_job(stage, behaviour={"never_finish": "true"}, concurrencyPolicy="Forbid")
        await due(stage, 5)
        (first,) = await until_jobs(stage, 1, running)
        await due(stage, 4)
        async with asyncio.timeout(DEADLINE):
            while not any(
                event["reason"] == "JobAlreadyActive"
                for event in (await stage.management.list(EVENTS, stage.namespace)).items
            ):
                await asyncio.sleep(0.05)
        assert [job["metadata"]["name"] for job in await jobs_of(stage)] == [first["metadata"]["name"]]


@pytest.mark.real_server
async def test_a_cron_job_keeps_as_much_history_as_it_says_and_the_copies_of_the_rest_go(stage: Stage) -> None:
    async with stage.dispatcher():
        await a_cron_job(stage, behaviour={}, successfulJobsHistoryLimit=1, concurrencyPolicy="Forbid")
        seen: set[str] = set()
        for days_ago in (5, 4):
            await due(stage, days_ago)
            async with asyncio.timeout(DEADLINE):
                while not (new := [job for job in await jobs_of(stage) if job["metadata"]["name"] not in seen]):
                    await asyncio.sleep(0.05)
            await stage.done(new[0]["metadata"]["name"])
            seen.add(new[0]["metadata"]["name"])
        (left,) = await until_jobs(stage, 1, finished)
        assert left["metadata"]["name"] == new[0]["metadata"]["name"], "the newest one"
        await stage.nothing_left()


# --- queues and workers -----------------------------------------------------------------------------------------------


async def test_a_queue_may_pack_its_jobs_onto_one_worker(stage: Stage) -> None:
    await stage.set_queue(placement="Pack")
    async with stage.dispatcher():
        for number in range(3):
            await stage.submit(f"job-{number}", never_finish="true")
            await stage.until(running, f"job-{number}")
        assert len({cluster_of(await stage.job(f"job-{number}")) for number in range(3)}) == 1


async def test_a_queue_may_select_its_workers_by_their_labels_whenever_they_get_them(stage: Stage) -> None:
    _, second = stage.workers
    region = f"region-{stage.queue}"
    await stage.set_queue(workers={"names": None, "selector": {"matchLabels": {"region": region}}})
    async with stage.dispatcher():
        await stage.submit()
        await stage.event("Waiting", "has no worker clusters")
        await stage.set_worker(second, labels={"region": region})
        assert cluster_of(await stage.done()) == second


async def test_a_namespace_with_one_job_does_not_wait_behind_all_jobs_of_another(stage: Stage) -> None:
    await stage.set_queue(quota={"jobs": 1})
    small = await a_namespace(stage, "small")
    for number in range(3):
        await stage.submit(f"job-{number}", never_finish="true")
    await stage.management.create(JOBS, a_job("job", queue=stage.queue), small)

    async def first() -> str | None:
        """The one of three that runs."""
        return next((job["metadata"]["name"] for job in await jobs_of(stage) if running(job)), None)

    async with stage.dispatcher():
        name = await eventually(first)
        assert name is not None
        await stage.finish(name)
        await until(stage.management, JOBS, small, "job", finished)
        assert [finished(await stage.job(f"job-{number}")) for number in range(3)].count(True) <= 1
        await stage.management.delete(JOBS, "job", small, propagation="Background")


async def test_a_worker_tells_what_its_nodes_have_and_a_job_that_asks_for_more_never_fits(stage: Stage) -> None:
    first = next(iter(stage.workers))
    await stage.set_queue(workers={"names": [first]})

    def huge(job: Json) -> None:
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100k"}}

    async with stage.dispatcher():
        cluster = await until(
            stage.management, WORKER_CLUSTERS, None, first, lambda c: bool((c.get("status") or {}).get("capacity"))
        )
        assert {"cpu", "memory", "pods"} <= cluster["status"]["capacity"].keys()
        assert cluster["status"]["version"].startswith("v1.")
        assert cluster["status"]["kinds"] == ["Job.batch"]
        assert "lastContact" in cluster["status"]
        await stage.submit(change=huge)
        await stage.event("Waiting", "100000")
        queue = await until(
            stage.management, MIRROR_QUEUES, None, stage.queue, lambda q: "head" in (q.get("status") or {})
        )
        assert queue["status"]["head"]["reason"] == "NeverFits"
        await stage.submit("small")
        assert condition(await stage.done("small"), "Complete")


@pytest.mark.real_server
async def test_a_kubeconfig_spoilt_while_it_is_used_stops_new_jobs_there_until_it_is_put_right(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(placement="Ordered", workers={"names": [first, second]}, onWorkerLost={"action": "Wait"})
    good, bad = stage.links[first].kubeconfig, stage.links[first].kubeconfig
    bad["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    async with stage.dispatcher():
        await stage.submit("before", never_finish="true")
        assert cluster_of(await stage.until(running, "before")) == first
        await stage.management.replace(SECRETS, secret(first, bad), SYSTEM)
        await stage.cluster_condition(first, "Connected", "False", "KubeconfigRefused")
        await stage.submit("meanwhile")
        assert cluster_of(await stage.done("meanwhile")) == second
        await stage.management.replace(SECRETS, secret(first, good), SYSTEM)
        await stage.cluster_condition(first, "Ready", "True")
        await stage.submit("after")
        assert cluster_of(await stage.done("after")) == first
        job = await stage.job("before")
        assert (cluster_of(job), attempt(job), running(job)) == (first, "1", True)


async def test_a_kubeconfig_in_a_file_is_read_only_from_the_directory_that_the_operator_allows(
    stage: Stage, tmp_path: Path
) -> None:
    first = next(iter(stage.workers))
    await stage.set_queue(workers={"names": [first]})
    allowed, elsewhere = tmp_path / "allowed", tmp_path / "elsewhere"
    for directory in (allowed, elsewhere):
        directory.mkdir()
        (directory / "config").write_bytes(orjson.dumps(stage.links[first].kubeconfig))
    (allowed / "link").symlink_to(elsewhere / "config")
    await stage.set_worker(first, kubeconfig={"secret": None, "path": "link"})
    async with stage.dispatcher(kubeconfig_directory=allowed):
        told = await stage.cluster_condition(first, "Connected", "False", "KubeconfigMissing")
        assert "leads out of the directory that is allowed" in told["message"]
        await stage.set_worker(first, kubeconfig={"path": "config"})
        await stage.cluster_condition(first, "Ready", "True")
        await stage.submit()
        assert cluster_of(await stage.done()) == first
    async with stage.dispatcher():
        told = await stage.cluster_condition(first, "Connected", "False", "KubeconfigMissing")
        assert "kubeconfigs in files are not allowed" in told["message"]


async def test_when_a_long_queue_waits_for_another_reason_everybody_hears_of_it_although_nothing_else_happens(
    stage: Stage,
) -> None:
    async def told(words: str) -> None:
        heard: set[str] = set()
        while len(heard) < 150:  # more than are told at once
            events = await stage.management.list(EVENTS, stage.namespace, field_selector="reason=Waiting")
            heard = {event["involvedObject"]["name"] for event in events.items if words in event["message"]}
            await asyncio.sleep(0.1)

    for worker in stage.workers:
        await stage.set_worker(worker, cordoned=True)
    async with asyncio.TaskGroup() as group:
        for number in range(150):
            group.create_task(stage.submit(f"job-{number}"))
    async with stage.dispatcher(), asyncio.timeout(DEADLINE):
        await told("no worker cluster can take it now")
        await stage.set_queue(quota={"resources": {"pods": "0"}})
        await told("more than the whole quota")

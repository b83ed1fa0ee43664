"""CronJobs of the management cluster: Kubernetes' own controller makes a Job at each tick, and it runs on a worker."""

from multimirror.batch import is_finished
from multimirror.kube.resources import CRON_JOBS, JOBS
from tests.kind.installation import Json, Stage
from tests.waiting import eventually


async def test_the_jobs_of_a_cronjob_run_on_workers_and_go_with_it(stage: Stage) -> None:
    template = stage.a_job("tick", "echo", "good night")
    metadata = {"name": "tick", "namespace": stage.namespace}
    template_metadata = {"labels": template["metadata"]["labels"]}
    spec = {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"metadata": template_metadata, "spec": template["spec"]},
    }
    await stage.management.create(CRON_JOBS, {"metadata": metadata, "spec": spec})

    job = await eventually(lambda: _first(stage), lambda found: is_finished((found or {}).get("status") or {}))

    assert job is not None
    assert job["status"]["succeeded"] == 1
    assert [owner["kind"] for owner in job["metadata"]["ownerReferences"]] == ["CronJob"]
    name = job["metadata"]["name"]
    worker = await stage.worker_of(name)
    assert worker in stage.installation.workers
    assert len(await stage.pods(name, worker)) == 1
    assert await stage.pods(name, "management") == []
    shown = await stage.installation.done("logs", f"job/{name}", "-n", stage.namespace)
    assert shown.out == "good night\n"
    await eventually(lambda: _active(stage), lambda active: name not in active)

    await stage.management.delete(CRON_JOBS, "tick", stage.namespace)
    await eventually(lambda: _jobs(stage), lambda jobs: not jobs)


async def _jobs(stage: Stage) -> list[Json]:
    """Of all clusters: originals go with their owner, and copies with their originals."""
    return [job for client in stage.clients.values() for job in (await client.list(JOBS, stage.namespace)).items]


async def _first(stage: Stage) -> Json | None:
    made = (await stage.management.list(JOBS, stage.namespace)).items
    return min(made, key=lambda job: str(job["metadata"]["creationTimestamp"])) if made else None


async def _active(stage: Stage) -> set[str]:
    """The Jobs that its controller takes to be running."""
    cron = await stage.management.get(CRON_JOBS, "tick", stage.namespace)
    return {each["name"] for each in (cron.get("status") or {}).get("active") or ()}

"""A tenant whose Jobs ask for everything that has a name: the status of their worker goes on being told."""

from typing import Any

from multimirror.api import CLUSTERS_ANNOTATION, WORKER_CLUSTERS
from tests.e2e.dispatching import condition
from tests.security.installation import DispatcherProcess, Installation, a_job
from tests.waiting import eventually

Json = dict[str, Any]


def greedy(name: str, queue: str, worker: str, start: int) -> Json:
    """Forty resources, beginning with that one."""
    amounts = {f"example.com/resource-{number}": "1" for number in range(start, start + 40)}
    job = a_job(name, queue)
    job["metadata"]["annotations"] = {CLUSTERS_ANNOTATION: worker}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return job


async def test_jobs_that_ask_for_eighty_resources_do_not_keep_a_worker_s_conditions_from_being_told(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    """Its capacity is declared: then what is not declared has no limit, and the Jobs are placed."""
    worker = next(iter(installation.workers))
    queue, tenant = await installation.queue("names"), await installation.tenant("names")
    resources = {"cpu": "1000", "memory": "1Ti", "example.com/resource-7": "9"}

    async def change(**spec: Any) -> None:
        await installation.admin.patch(WORKER_CLUSTERS, worker, {"spec": spec})

    async def found() -> Json:
        return await installation.admin.get(WORKER_CLUSTERS, worker)

    await change(capacity={"mode": "Declared", "resources": resources})
    try:
        for number in range(2):
            await tenant.create(greedy(f"greedy-{number}", queue, worker, 40 * number))
        for number in range(2):
            await installation.copy_of(await tenant.job(f"greedy-{number}"))
        told = await eventually(found, lambda obj: "example.com/resource-7" in obj["status"].get("used", {}))
        assert "example.com/resource-8" not in told["status"]["used"], "none of its capacity's, nor of a quota's"
        await change(cordoned=True)
        await eventually(found, lambda obj: not condition(obj, "Ready"))
        assert await dispatcher.metric("multimirror_status_write_failures_total{") == 0
    finally:
        await change(capacity={"mode": "Auto", "resources": None}, cordoned=False)
    await installation.until_ready(worker)
    assert dispatcher.alive

"""A tenant who takes all he can get: hundreds of Jobs at once, wishes that nobody can grant, the highest priority.

What is compared is who was served before whom, never how long it took.
"""

import asyncio
from typing import Any, Final

from multimirror.api import CLUSTER_ANNOTATION, CLUSTERS_ANNOTATION, MIRROR_QUEUES, PRIORITY_LABEL
from multimirror.kube.resources import EVENTS, JOBS
from tests.security.installation import DispatcherProcess, Installation, Tenant, a_job
from tests.waiting import eventually

Json = dict[str, Any]
_FLOOD: Final = 300
_SOON: Final = _FLOOD // 2
"""What is on its way when the newcomer comes, and a few turns: less than 100. It was all of the flood."""


async def a_flood(tenant: Tenant, queue: str, number: int, **labels: str) -> None:
    """Side by side, as fast as the server takes them."""

    async def some(start: int) -> None:
        for each in range(start, number, 8):
            job = a_job(f"flood-{each}", queue)
            job["metadata"]["labels"] |= labels
            await tenant.create(job)

    async with asyncio.TaskGroup() as tasks:
        for start in range(8):
            tasks.create_task(some(start))


async def gone(tenant: Tenant) -> None:
    """None of them is in the way of the next test."""
    jobs = (await tenant.client.list(JOBS, tenant.namespace)).items
    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            tasks.create_task(tenant.client.delete(JOBS, job["metadata"]["name"], tenant.namespace))


async def assigned(installation: Installation, namespace: str) -> list[str]:
    jobs = (await installation.admin.list(JOBS, namespace)).items
    return [job["metadata"]["name"] for job in jobs if _cluster(job)]


def _cluster(job: Json) -> str | None:
    found: str | None = (job["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION)
    return found


async def set_quota(installation: Installation, queue: str, jobs: int | None) -> None:
    await installation.admin.patch(MIRROR_QUEUES, queue, {"spec": {"quota": {"jobs": jobs}}})


async def why_it_waits(installation: Installation, tenant: Tenant, name: str, words: str = "") -> str:
    """All that was told about it, as soon as there is something, with those words in it."""

    async def told() -> str:
        events = (await installation.admin.list(EVENTS, tenant.namespace)).items
        mine = [each for each in events if each["involvedObject"]["name"] == name and each["reason"] == "Waiting"]
        return " ".join(each["message"] for each in mine)

    return await eventually(told, lambda said: said and words in said)


async def test_hundreds_of_jobs_of_one_tenant_do_not_delay_the_first_of_another(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    crowded = await installation.queue("crowded", quota={"jobs": 0})
    calm = await installation.queue("calm")
    greedy, newcomer = await installation.tenant("greedy"), await installation.tenant("newcomer")
    await a_flood(greedy, crowded, _FLOOD)
    await set_quota(installation, crowded, None)
    await eventually(lambda: assigned(installation, greedy.namespace))
    before = len(await assigned(installation, greedy.namespace))
    await newcomer.create(a_job("mine", calm))
    mine = await newcomer.until("mine", _cluster)
    await installation.copy_of(mine)
    passed = len(await assigned(installation, greedy.namespace)) - before
    assert passed <= _SOON
    assert dispatcher.alive
    await gone(greedy)


async def test_a_job_that_names_a_cluster_that_does_not_exist_does_not_cork_a_strict_queue(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue = await installation.queue("strict", queueingStrategy="StrictFIFO")
    cork, honest = await installation.tenant("cork"), await installation.tenant("honest")
    job = a_job("cork", queue)
    job["metadata"]["annotations"] = {CLUSTERS_ANNOTATION: "no-such-cluster"}
    await cork.create(job)
    assert "no-such-cluster" in await why_it_waits(installation, cork, "cork")
    await honest.create(a_job("honest", queue, pods={}))
    await honest.until_complete("honest")
    assert _cluster(await cork.job("cork")) is None
    assert dispatcher.alive


async def test_the_highest_priority_that_anybody_may_write_does_not_go_before_other_tenants(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue = await installation.queue("shared", quota={"jobs": 0})
    pushy, meek = await installation.tenant("pushy"), await installation.tenant("meek")
    await a_flood(pushy, queue, 10, **{PRIORITY_LABEL: "999999999"})
    await meek.create(a_job("mine", queue))
    await why_it_waits(installation, meek, "mine")
    await set_quota(installation, queue, 2)
    await meek.until("mine", _cluster)
    assert len(await assigned(installation, pushy.namespace)) == 1
    assert dispatcher.alive


async def test_a_resource_that_no_worker_has_is_named(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue, tenant = await installation.queue("odd"), await installation.tenant("odd")
    job = a_job("odd", queue)
    amounts = {"example.com/unobtainium": "1"}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    await tenant.create(job)
    await why_it_waits(installation, tenant, "odd", "no worker cluster of its queue has example.com/unobtainium")
    assert dispatcher.alive

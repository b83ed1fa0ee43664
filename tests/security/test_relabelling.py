"""A tenant relabels waiting Jobs while they are being placed: none runs in a queue that did not admit it (row 2)."""

import asyncio
import contextlib
from collections import Counter
from typing import Any

from clusters.local import LocalCluster
from multimirror.api import ADMITTED_QUEUE_ANNOTATION, CLUSTER_ANNOTATION, MIRROR_QUEUES, QUEUE_LABEL
from multimirror.kube import Client, Connection
from multimirror.kube.errors import ApiError
from multimirror.kube.resources import EVENTS, JOBS
from tests.e2e.installation.processes import token_of
from tests.security.installation import DispatcherProcess, Installation, Tenant, a_job
from tests.waiting import eventually

Json = dict[str, Any]
JOBS_OF_THE_ATTACKER = 40
QUOTA = 3


async def test_relabelled_jobs_run_in_the_queue_that_admitted_them_or_not_at_all(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    own = await installation.queue("attackers", quota={"jobs": QUOTA})
    attacker, victim = await installation.tenant("attacker"), await installation.tenant("victim")
    selector = {"matchLabels": {"kubernetes.io/metadata.name": victim.namespace}}
    theirs = await installation.queue("victims", quota={"jobs": QUOTA}, namespaceSelector=selector)
    names = [f"job-{number}" for number in range(JOBS_OF_THE_ATTACKER)]

    async def create(name: str) -> None:
        await attacker.create(a_job(name, own))

    async def relabel(name: str, queue: str | None) -> None:
        with contextlib.suppress(ApiError):  # refused once it is on a cluster
            await attacker.patch(name, metadata={"labels": {QUEUE_LABEL: queue}})

    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            await create(name)
            group.create_task(relabel(name, theirs if number % 2 else None))
    # Quota is freed again and again, so that every Job comes near to being placed.
    patch = {"spec": {"quota": {"jobs": QUOTA + 1}}}
    await installation.admin.patch(MIRROR_QUEUES, own, patch)
    await victim.create(a_job("honest", theirs))
    job = await victim.until("honest", lambda found: (found.get("status") or {}).get("active"))
    assert annotations(job)[ADMITTED_QUEUE_ANNOTATION] == theirs
    placed = [each for each in (await attacker.client.list(JOBS, attacker.namespace)).items if placed_on(each)]
    queues = Counter(annotations(each).get(ADMITTED_QUEUE_ANNOTATION) for each in placed)
    assert set(queues) <= {own}
    assert queues[own] <= QUOTA + 1
    copies = await installation.copies(attacker.namespace)
    there = [copy["metadata"]["name"] for found in copies.values() for copy in found]
    assert set(there) <= {each["metadata"]["name"] for each in placed}
    await clean(attacker, victim)
    assert dispatcher.alive


async def test_a_job_with_a_cluster_and_without_a_queue_that_admitted_it_is_not_dispatched(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    """Somebody with the right to say where Jobs are says it: an older dispatcher, or whoever stole its account."""
    queue, tenant = await installation.queue("placed"), await installation.tenant("placed")
    worker = next(iter(installation.workers))
    job = a_job("smuggled", queue, suspend=True)
    job["metadata"]["annotations"] = {"multimirror.dev/hold": "true"}
    await tenant.create(job)
    body = {
        "metadata": {"annotations": {CLUSTER_ANNOTATION: worker, "multimirror.dev/attempt": "7"}},
        "spec": {"suspend": False},
    }
    management = installation.fleet.management
    assert isinstance(management, LocalCluster)
    config = management.kubeconfig_with_token(await token_of(installation.admin, "multimirror"))
    async with Client(Connection.from_kubeconfig(config)) as thief:
        await thief.patch(JOBS, "smuggled", body, tenant.namespace)

    async def reasons() -> set[str]:
        events = (await installation.admin.list(EVENTS, tenant.namespace)).items
        return {str(each.get("reason")) for each in events if each["involvedObject"]["name"] == "smuggled"}

    await eventually(reasons, lambda found: "NotAdmitted" in found)
    for found in (await installation.copies(tenant.namespace)).values():
        for copy in found:
            assert copy["metadata"]["labels"]["multimirror.dev/attempt"] != "7"
    await clean(tenant)
    assert dispatcher.alive


def annotations(job: Json) -> Json:
    found: Json = job["metadata"].get("annotations") or {}
    return found


def placed_on(job: Json) -> str | None:
    found: str | None = annotations(job).get(CLUSTER_ANNOTATION)
    return found


async def clean(*tenants: Tenant) -> None:
    for tenant in tenants:
        await tenant.client.request("DELETE", JOBS.path(tenant.namespace), body={"propagationPolicy": "Background"})

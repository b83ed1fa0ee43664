"""A worker that wants to end the dispatcher: huge, endless, and with the name of another. The others do not notice."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.api.placement import cluster_of
from multimirror.batch.times import seconds_of
from multimirror.kube.resources import NAMESPACES, SECRETS
from tests.e2e.dispatching import condition
from tests.security import hostile_worker
from tests.security.hostile_worker import MIB, a_hostile_worker
from tests.security.installation import SYSTEM, Installation, a_job
from tests.waiting import eventually

SOON_DONE = {"node.multimirror.dev/duration": "10ms"}
ATTACKS = (
    hostile_worker.huge_version,
    hostile_worker.poured_version,
    hostile_worker.new_objects,
    hostile_worker.fat_objects,
    hostile_worker.one_line,
    hostile_worker.pages,
    hostile_worker.nodes,
)
MEMORY = 300 * MIB
"""Of a dispatcher with seven hostile workers at once; it has about 140 MiB, and 90 MiB without any."""


async def worker_cluster(installation: Installation, name: str) -> dict[str, Any]:
    return await installation.admin.get(WORKER_CLUSTERS, name)


async def misbehaving(installation: Installation, name: str) -> dict[str, Any]:
    found = await eventually(lambda: worker_cluster(installation, name), lambda found: condition(found, "Misbehaving"))
    for kind in ("Connected", "Ready"):
        other = next(each for each in found["status"]["conditions"] if each["type"] == kind)
        assert (other["status"], other["reason"]) == ("False", "Misbehaving")
    return found


async def test_hostile_workers_are_left_alone_also_after_a_restart_and_nobody_else_notices(
    installation: Installation,
) -> None:
    queue, tenant = await installation.queue("honest"), await installation.tenant("honest")
    async with AsyncExitStack() as stack:
        async with installation.dispatcher() as dispatcher:
            hostile = [await stack.enter_async_context(a_hostile_worker(installation, attack)) for attack in ATTACKS]
            for number in range(10):
                await tenant.create(a_job(f"job-{number}", queue, pods=SOON_DONE))
            recorded = [await misbehaving(installation, worker.name) for worker in hostile]
            for number in range(10):
                job = await tenant.until_complete(f"job-{number}")
                assert cluster_of(job) in installation.workers
            for name in installation.workers:
                assert condition(await worker_cluster(installation, name), "Ready")
            assert dispatcher.alive
            assert dispatcher.peak_memory < MEMORY, f"{dispatcher.peak_memory / MIB:.0f} MiB"

        seen = [len(worker.server.seen) for worker in hostile]
        async with installation.dispatcher() as dispatcher:
            await tenant.create(a_job("afterwards", queue, pods=SOON_DONE))
            await tenant.until_complete("afterwards")
            paused = 0
            for worker, before, count in zip(hostile, recorded, seen, strict=True):
                found = await worker_cluster(installation, worker.name)
                if seconds_of(before["status"]["misbehaviour"]["until"], 0.0) > time.time():
                    paused += 1
                    assert condition(found, "Misbehaving")
                    assert found["status"]["misbehaviour"] == before["status"]["misbehaviour"]
                    assert len(worker.server.seen) == count, "it is not even asked"
            assert paused


async def test_the_jobs_of_a_worker_that_turns_hostile_go_elsewhere(installation: Installation) -> None:
    tenant = await installation.tenant("moved")
    async with installation.dispatcher(), a_hostile_worker(installation) as hostile:
        await hostile.put(NAMESPACES, {"metadata": {"name": tenant.namespace}})
        found = await eventually(lambda: worker_cluster(installation, hostile.name), lambda wc: condition(wc, "Ready"))
        assert found["status"]["identity"] == hostile.identity
        workers = {"names": [hostile.name]}
        queue = await installation.queue("moved", workers=workers, onWorkerLost={"after": "1s", "action": "Redispatch"})
        await tenant.create(a_job("moved", queue, pods=SOON_DONE))
        await tenant.until("moved", lambda job: cluster_of(job) == hostile.name)
        hostile.attack = hostile_worker.new_objects
        await hostile.end_watches()
        await misbehaving(installation, hostile.name)
        others = {"spec": {"workers": {"names": list(installation.workers)}}}
        await installation.admin.patch(MIRROR_QUEUES, queue, others)
        job = await tenant.until_complete("moved")
        assert cluster_of(job) in installation.workers


async def test_a_worker_that_shows_the_identity_of_another_does_not_displace_it(installation: Installation) -> None:
    victim, *_ = installation.workers
    system = await installation.workers[victim].get(NAMESPACES, "kube-system")
    async with installation.dispatcher():
        await eventually(
            lambda: worker_cluster(installation, victim),
            lambda found: found["status"].get("identity") == system["metadata"]["uid"],
        )
    # The victim is late: its kubeconfig comes when the liar has long answered.
    cluster = await worker_cluster(installation, victim)
    name = cluster["spec"]["kubeconfig"]["secret"]["name"]
    secret = await installation.admin.get(SECRETS, name, SYSTEM)
    await installation.admin.delete(SECRETS, name, SYSTEM)
    kept = {key: secret["metadata"][key] for key in ("name", "labels", "annotations") if key in secret["metadata"]}
    async with a_hostile_worker(installation, name="liar", identity=system["metadata"]["uid"]) as liar:
        try:
            async with installation.dispatcher(workers_ready=False):
                await eventually(
                    lambda: worker_cluster(installation, liar.name),
                    lambda found: reason_of(found, "Connected") == "SameCluster",
                )
                await installation.admin.create(SECRETS, {**secret, "metadata": kept}, SYSTEM)
                await installation.until_ready(victim)
                assert reason_of(await worker_cluster(installation, liar.name), "Ready") == "SameCluster"
                assert "identity" not in (await worker_cluster(installation, liar.name))["status"]
        finally:
            await asyncio.shield(restored(installation, {**secret, "metadata": kept}))


async def restored(installation: Installation, secret: dict[str, Any]) -> None:
    if not any(
        each["metadata"]["name"] == secret["metadata"]["name"]
        for each in (await installation.admin.list(SECRETS, SYSTEM)).items
    ):
        await installation.admin.create(SECRETS, secret, SYSTEM)


def reason_of(cluster: dict[str, Any], kind: str) -> str:
    conditions = (cluster.get("status") or {}).get("conditions") or []
    return next((str(each["reason"]) for each in conditions if each["type"] == kind), "")


pytestmark = pytest.mark.timeout(180)

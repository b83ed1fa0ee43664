"""Seeded attacks of one tenant on real control planes, with the policies and rights of an installation.

The same tenant as in the simulation (`make faults HOSTILE=tenant`), which has the policies in a table: here they are
the real ones. How long honest Jobs wait is asked there, where no machine is busy.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest

from faults.hostile import attacks, tenants
from faults.hostile.tenancy import Queue, judge
from faults.hostile.tenant import Tenant as Attacker
from faults.record import MANAGEMENT, Record, Watcher
from faults.rules import Rules
from faults.workload import SORTS
from multimirror.api import MIRROR_QUEUES
from multimirror.kube.resources import JOBS, NAMESPACES, PODS
from tests.security.installation import DispatcherProcess, Installation, Tenant
from tests.waiting import eventually

LAG = 10.0
"""Seconds by which one cluster's watch may be behind another's, on a busy machine."""


@contextlib.asynccontextmanager
async def recorded(installation: Installation) -> AsyncIterator[tuple[Record, Watcher]]:
    record, clients = Record(), {MANAGEMENT: installation.admin, **installation.workers}
    resources = {name: (JOBS,) if name == MANAGEMENT else (JOBS, PODS) for name in clients}
    async with Watcher(record, resources) as watcher:
        for name, client in clients.items():
            await watcher.follow(name, client)
        yield record, watcher


@pytest.mark.parametrize("seed", [2, 3])
async def test_a_hostile_tenant_harms_nobody(
    installation: Installation, dispatcher: DispatcherProcess, seed: int
) -> None:
    honest, attacker = await installation.tenant("honest"), await installation.tenant("mallory")
    queues = {
        await installation.queue("honest"): Queue(namespaces=(honest.namespace,), cpu=Decimal(4)),
        await installation.queue("theirs"): Queue(namespaces=(attacker.namespace,), cpu=Decimal(4), jobs=6),
    }
    for name, queue in queues.items():
        await installation.admin.patch(MIRROR_QUEUES, name, {"spec": queue.spec})
    ours, theirs = queues
    jobs = [replace(each, queue=ours, cpu="1") for each in tenants.from_seed(seed).submissions]
    played = attacks.choose(random.Random(seed), until=6.0, count=(20, 30))
    calm = [each for each in played if each.do not in ("flood", "burst", "cron")]  # which test_fairness.py is about
    async with recorded(installation) as (record, watcher):
        mallory = Attacker(
            attacker.client, attacker.namespace, [theirs, theirs, ours, ours], list(installation.workers)
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(mallory.run(calm))
            for each in jobs:
                group.create_task(submitted(honest, each))
        for each in jobs:
            await honest.until(each.name, lambda job: job.get("status", {}).get("conditions"))
            await honest.until(each.name, finished)
        await eventually(lambda: gone(installation, honest))
        await watcher.caught_up()
    assert dispatcher.alive
    assert mallory.done.total() > 5, (mallory.done, mallory.refused)
    mine = Record([], [each for each in record.seen if belongs(each.object, honest, attacker)])
    ends = {each.name: SORTS[each.sort].end for each in jobs}
    waived = {"I7": "events are not recorded here"}
    found = judge(mine, Rules(ends=ends, waived=waived), queues, attacker.namespace, lag=LAG)
    assert not found, "\n".join(map(str, found))
    await installation.admin.delete(NAMESPACES, attacker.namespace)


async def submitted(tenant: Tenant, submission: tenants.Submission) -> None:
    await asyncio.sleep(submission.at / 5)
    job = replace(submission, seconds=min(submission.seconds, 1.0)).job
    await tenant.create(job)


def finished(job: dict[str, object]) -> bool:
    status = job.get("status")
    assert isinstance(status, dict)
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in status["conditions"])


async def gone(installation: Installation, tenant: Tenant) -> bool:
    return not any((await installation.copies(tenant.namespace)).values())


def belongs(obj: dict[str, object], *whose: Tenant) -> bool:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return metadata.get("namespace") in {tenant.namespace for tenant in whose}

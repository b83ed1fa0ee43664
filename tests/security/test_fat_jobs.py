"""A tenant that fills the dispatcher's memory with large Jobs."""

import asyncio
from pathlib import Path

import pytest

from multimirror.api import CLUSTER_ANNOTATION, WORKER_CLUSTERS
from multimirror.kube import ApiError
from multimirror.kube.resources import EVENTS
from tests.e2e.dispatching import condition
from tests.e2e.installation.processes import Json
from tests.security.installation import DispatcherProcess, Installation, Tenant, a_job
from tests.waiting import eventually

FAT = 20
BYTES = 500_000
EACH = 500_000
"""Bytes of memory that a Job of half a megabyte may cost at most, everything that moves when it comes included. It was
3.7 MB for each, for ever."""


def a_fat_job(name: str, queue: str) -> Json:
    """Suspended, of many small things: that is what costs most when it is parsed."""
    job = a_job(name, queue, suspend=True)
    job["spec"]["template"]["spec"]["containers"][0]["args"] = [f"{number:010}" for number in range(BYTES // 13)]
    return job


async def create(tenant: Tenant, queue: str) -> int:
    """How many of them were taken."""

    async def one(number: int) -> bool:
        try:
            await tenant.create(a_fat_job(f"fat-{number}", queue))
        except ApiError:
            return False
        return True

    taken = 0
    for number in range(0, FAT, 4):
        taken += sum(await asyncio.gather(*(one(each) for each in range(number, number + 4))))
    return taken


async def test_large_jobs_cost_no_more_memory_than_others_and_hold_nobody_up(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue = await installation.queue("fat")
    tenant, honest = await installation.tenant("fat"), await installation.tenant("honest")
    before = resident(dispatcher)
    taken = await create(tenant, queue)
    await honest.create(a_job("thin", queue, pods={}))
    await honest.until_complete("thin")
    assert dispatcher.alive
    assert resident(dispatcher) - before < FAT * EACH
    if taken:  # admission without a limit: the dispatcher says why they are not placed
        await tenant.patch("fat-0", spec={"suspend": False}, metadata={"annotations": {"multimirror.dev/hold": None}})
        await eventually(lambda: words(installation, tenant), lambda said: "more than the 256 KiB" in said)
        assert CLUSTER_ANNOTATION not in (await tenant.job("fat-0"))["metadata"].get("annotations", {})
    # Whoever comes after it has them all to read at once.
    async with installation.dispatcher() as other:
        assert other.peak_memory < 250_000_000
        assert other.alive


@pytest.mark.parametrize("text", ["," * 240_000, "[{" * 120_000], ids=["commas", "brackets"])
async def test_no_job_makes_a_worker_look_as_if_it_misbehaved(
    installation: Installation, dispatcher: DispatcherProcess, text: str
) -> None:
    """What a worker sends has a limit of values: a text that looks like many comes back in all that it says."""
    queue, tenant = await installation.queue("commas"), await installation.tenant("commas")
    for number in range(4):
        job = a_job(f"text-{number}", queue, pods={})
        job["spec"]["template"]["spec"]["containers"][0]["args"] = [text]
        await tenant.create(job)
    for number in range(4):
        await tenant.until_complete(f"text-{number}")
    for worker in (await installation.admin.list(WORKER_CLUSTERS)).items:
        assert not condition(worker, "Misbehaving")
        assert condition(worker, "Ready")
    assert dispatcher.alive


async def words(installation: Installation, tenant: Tenant) -> str:
    return " ".join(event["message"] for event in (await installation.admin.list(EVENTS, tenant.namespace)).items)


def resident(dispatcher: DispatcherProcess) -> int:
    status = Path(f"/proc/{dispatcher.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024

"""A tenant that fills the dispatcher's memory with large Jobs."""

import asyncio
from pathlib import Path

from multimirror.api import CLUSTER_ANNOTATION
from multimirror.kube import ApiError
from multimirror.kube.resources import EVENTS
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


async def words(installation: Installation, tenant: Tenant) -> str:
    return " ".join(event["message"] for event in (await installation.admin.list(EVENTS, tenant.namespace)).items)


def resident(dispatcher: DispatcherProcess) -> int:
    status = Path(f"/proc/{dispatcher.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024

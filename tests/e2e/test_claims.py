"""A large Job beside small ones that would pass it for ever, on whole fleets: it gets in, whoever leads.

One worker takes Jobs, and has four cpu. The large Job asks for three, the small ones for one each.
"""

import asyncio
from typing import Any

import pytest

from multimirror.api import CLAIM_ANNOTATION, MIRROR_QUEUES
from tests.e2e.dispatching import Stage, cluster_of, running
from tests.e2e.sharing import Cohort, note, waits

Json = dict[str, Any]
pytestmark = pytest.mark.real_server


def ends_within(seconds: int) -> Any:
    def change(job: Json) -> None:
        job["spec"]["activeDeadlineSeconds"] = seconds
        job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0

    return change


async def one_worker(stage: Stage) -> str:
    worker, *others = stage.workers
    await stage.set_worker(worker, capacity={"mode": "Declared", "resources": {"cpu": "4"}})
    for other in others:
        await stage.set_worker(other, cordoned=True)
    return worker


def claims(job: Json) -> bool:
    return note(job, CLAIM_ANNOTATION) is not None


async def fill(cohort: Cohort, **more: Any) -> list[str]:
    names = [f"small-{number}" for number in range(4)]
    for name in names:
        await cohort.submit(name, cohort.a, **more)
    for name in names:
        await cohort.stage.until(running, name)
    return names


async def test_a_large_job_gets_in_past_a_stream_of_small_ones_and_a_restart(stage: Stage, cohort: Cohort) -> None:
    worker = await one_worker(stage)
    await stage.set_queue(headWait="1s")
    async with stage.dispatcher():
        small = await fill(cohort)
        await cohort.submit("big", cohort.a, cpu="3")
        claimed = note(await stage.until(claims, "big"), CLAIM_ANNOTATION)
        assert claimed is not None
        assert claimed.startswith(f"{worker} ")
        await stage.event("RoomKept", f"what becomes free on worker {worker} is kept for it", "big")
        await stage.finish(small[0])
        await stage.done(small[0])
        await cohort.submit("late", cohort.a)
        kept = f"1 cpu are free on worker {worker}, but kept for {stage.namespace}/big, which has waited"
        await stage.event("Waiting", kept, "late")
    async with stage.dispatcher():
        for name in small[1:3]:
            await stage.finish(name)
        big = await stage.until(running, "big")
        assert not claims(big)
        assert waits(await stage.job("late"))
        await stage.finish("big")
        await stage.until(running, "late")
        for name in (small[3], "late"):
            await stage.finish(name)
            await stage.done(name)


async def test_what_the_queue_tells_names_the_worker_that_is_kept(stage: Stage, cohort: Cohort) -> None:
    worker = await one_worker(stage)
    await stage.set_queue(headWait="1s")
    async with stage.dispatcher():
        small = await fill(cohort)
        await cohort.submit("big", cohort.a, cpu="3")

        async with asyncio.timeout(60):
            while f"Room on worker {worker} is kept for it since" not in await head(stage):
                await asyncio.sleep(0.1)
        for name in small:
            await stage.finish(name)
        await stage.until(running, "big")
        await stage.finish("big")
        await stage.done("big")


async def head(stage: Stage) -> str:
    status = (await stage.management.get(MIRROR_QUEUES, stage.queue)).get("status") or {}
    return str((status.get("head") or {}).get("message"))


async def test_quota_is_kept_within_the_queue(stage: Stage, cohort: Cohort) -> None:
    await stage.set_queue(headWait="1s", quota={"resources": {"cpu": "4"}})
    async with stage.dispatcher():
        small = await fill(cohort)
        await cohort.submit("big", cohort.a, cpu="3")
        await stage.until(claims, "big")
        await stage.finish(small[0])
        await stage.done(small[0])
        await cohort.submit("late", cohort.a)
        await stage.event("Waiting", f"kept for {stage.namespace}/big, which has waited", "late")
        for name in small[1:3]:
            await stage.finish(name)
        await stage.until(running, "big")
        assert waits(await stage.job("late"))
        for name in ("big", small[3]):
            await stage.finish(name)
        await stage.until(running, "late")
        await stage.finish("late")
        await stage.done("late")


async def test_a_job_passes_that_is_over_before_the_large_one_can_start(stage: Stage, cohort: Cohort) -> None:
    worker = await one_worker(stage)
    await stage.set_queue(headWait="1s")
    async with stage.dispatcher():
        small = await fill(cohort, change=ends_within(3000))
        await cohort.submit("big", cohort.a, cpu="3")
        await stage.until(claims, "big")
        await stage.finish(small[0])
        await stage.done(small[0])
        await cohort.submit("long", cohort.a, change=ends_within(6000))
        await stage.event("Waiting", "would end after it can start", "long")
        await cohort.submit("short", cohort.a, change=ends_within(600))
        assert cluster_of(await stage.until(running, "short")) == worker
        assert waits(await stage.job("long"))
        for name in (*small[1:], "short"):
            await stage.finish(name)
        await stage.until(running, "big")
        await stage.finish("big")
        await stage.until(running, "long")
        await stage.finish("long")
        await stage.done("long")

"""The fence, on whole fleets: what is cut off ends by itself, and no Job ever runs in two places.

The history of each test is checked for that: here a second copy is never allowed.
"""

import asyncio
import contextlib
from typing import Any

import pytest

from multimirror.api import ATTEMPT_ANNOTATION, FENCE_ANNOTATION
from multimirror.kube.resources import JOBS
from tests.e2e.dispatching import Stage, a_dispatcher, cluster_of, condition, finished, running, until
from tests.waiting import DEADLINE

pytestmark = pytest.mark.real_server
Json = dict[str, Any]
LEASE = 10
STANDBY = "dispatcher-standby"


def stops_at_once(job: Json) -> None:
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0


def attempt(job: Json) -> str:
    return str((job["metadata"].get("annotations") or {}).get(ATTEMPT_ANNOTATION))


def deadline(copy: Json) -> int:
    return int(copy["spec"].get("activeDeadlineSeconds") or 0)


def ended_by_deadline(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Failed" and c.get("reason") == "DeadlineExceeded" for c in conditions)


def versions(stage: Stage, worker: str) -> list[Json]:
    """Everything that the Jobs on a worker have been, in order."""
    return [job for what, job in stage.history.jobs(worker) if what != "DELETED"]


async def fenced(stage: Stage, grace: str = "2s", **spec: Any) -> None:
    lost = {"after": "0s", "action": "Redispatch"}
    await stage.set_queue(fence={"timeout": f"{LEASE}s", "grace": grace}, onWorkerLost=lost, **spec)


async def test_a_fenced_copy_that_is_cut_off_ends_by_itself_before_the_job_runs_elsewhere(stage: Stage) -> None:
    """Also when the controller starts again meanwhile, and knows nothing but what is written down."""
    await fenced(stage)
    async with stage.dispatcher():
        await stage.submit(change=stops_at_once, never_finish="true")
        job = await stage.until(running)
        first = cluster_of(job)
        assert first is not None
        assert job["metadata"]["annotations"][FENCE_ANNOTATION] == str(LEASE)
        stage.cut(first)
        await stage.cluster_condition(first, "Connected", "False")
    async with stage.dispatcher():
        there = await until(stage.workers[first], JOBS, stage.namespace, "job", finished)
        assert ended_by_deadline(there), "its own Job controller ended it; nobody could have told it to"
        assert attempt(await stage.job()) == "1", "and only then it moves"
        job = await stage.until(lambda j: attempt(j) == "2" and running(j))
        assert cluster_of(job) != first
        assert not condition(job, "Failed")
        stage.mend(first)
        await stage.cluster_condition(first, "Ready", "True")
        async with asyncio.timeout(DEADLINE):
            while await stage.copies(first):
                await asyncio.sleep(0.05)
        assert attempt(await stage.job()) == "2"


async def test_who_takes_over_and_cannot_reach_a_worker_counts_from_then_and_not_from_its_own_loss(
    stage: Stage,
) -> None:
    """A standby may be cut off from a worker for long while the one that leads is not, and gives leases there."""
    await fenced(stage, placement="Ordered")
    first, _ = stage.workers
    async with contextlib.AsyncExitStack() as stack:
        replica = await stack.enter_async_context(stage.replica(STANDBY))
        stage.history.spoil("partition", first, STANDBY)
        standby = await a_dispatcher(replica.client, replica.options)
        await stack.enter_async_context(standby.following())
        await standby.synced()
        connection_there = standby.worker(first)
        assert connection_there is not None
        assert not connection_there.state.connected
        async with stage.dispatcher():
            await stage.submit(change=stops_at_once, never_finish="true")
            assert cluster_of(await stage.until(running)) == first
            await stage.copy(lambda copy: deadline(copy) > LEASE * 2)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(standby.work())
        stack.callback(standby.stop)
        job = await stage.until(lambda j: attempt(j) == "2" and running(j))
        assert cluster_of(job) != first
        there = await stage.workers[first].get(JOBS, "job", stage.namespace)
        assert ended_by_deadline(there), "it had ended before"


async def test_a_fenced_copy_that_ended_before_its_worker_was_back_is_started_again_and_not_failed(
    stage: Stage,
) -> None:
    await fenced(stage, grace="10m")
    async with stage.dispatcher():
        await stage.submit(change=stops_at_once, never_finish="true")
        first = cluster_of(await stage.until(running))
        assert first is not None
        stage.cut(first)
        await until(stage.workers[first], JOBS, stage.namespace, "job", finished)
        stage.mend(first)
        job = await stage.until(lambda j: attempt(j) == "2" and running(j))
        assert not condition(job, "Failed")
        await stage.event("FenceExpired", "had no contact")


async def test_a_fenced_job_goes_on_beyond_its_lease_and_ends_at_its_users_deadline(stage: Stage) -> None:
    def limited(job: Json) -> None:
        stops_at_once(job)
        job["spec"]["activeDeadlineSeconds"] = LEASE * 2

    await fenced(stage)
    async with stage.dispatcher():
        await stage.submit(change=limited, never_finish="true")
        worker, renewed = await stage.copy(lambda copy: deadline(copy) > LEASE)
        first, *_ = versions(stage, worker)
        assert (deadline(first), first["metadata"]["uid"]) == (LEASE, renewed["metadata"]["uid"])
        assert deadline(renewed) <= LEASE * 2
        job = await stage.done()
        assert ended_by_deadline(job)
        assert attempt(job) == "1"


async def test_a_fenced_job_that_is_suspended_and_resumed_has_a_lease_again(stage: Stage) -> None:
    await fenced(stage)
    async with stage.dispatcher():
        await stage.submit(change=stops_at_once, never_finish="true")
        await stage.until(running)
        worker, _ = await stage.copy(lambda copy: deadline(copy) > LEASE)
        await stage.patch("job", {"spec": {"suspend": True}})
        await stage.until(lambda j: condition(j, "Suspended"))
        await stage.patch("job", {"spec": {"suspend": False}})
        await stage.copy(lambda copy: not copy["spec"].get("suspend") and running(copy) and deadline(copy) > LEASE)
        seen = versions(stage, worker)
        stopped = max(number for number, copy in enumerate(seen) if copy["spec"].get("suspend"))
        assert deadline(seen[stopped + 1]) == LEASE, "its time starts anew"
        assert attempt(await stage.job()) == "1"

"""What breaks on real clusters while Jobs run: leaders, API servers, whole nodes.

Nothing is lost, and nothing runs twice: each test's record is checked for all promises, and the containers themselves
have noted when they ran (ticking.py).
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from clusters.kind.commands import run
from faults.record import MANAGEMENT
from faults.stage import DISPATCHER
from tests.kind.disturbed import (
    another_leads,
    frozen,
    leader,
    lost,
    pod_of,
    restarted,
    rolled_out,
    switched_off,
)
from tests.kind.installation import SYSTEM, Installation, Stage, a_stage
from tests.kind.ticking import Crowd
from tests.waiting import eventually

Json = dict[str, Any]


@pytest_asyncio.fixture
async def crowd(installation: Installation) -> AsyncIterator[Crowd]:
    """Jobs stay where they are, for all that these tests do: their queue has patience."""
    async with a_stage(installation, {"retention": "0s", "onWorkerLost": {"after": "30m"}}) as stage:
        yield Crowd(stage)


async def delete_by_force(stage: Stage, pod: str) -> None:
    told = await stage.installation.kubectl("delete", "pod", pod, "-n", SYSTEM, "--force", "--grace-period=0")
    assert told.code == 0, told


async def kill(stage: Stage, pod: str) -> None:
    """SIGKILL, and nobody told Kubernetes."""
    find = f"crictl ps --quiet --label io.kubernetes.pod.name={pod}"
    script = f"kill -9 $(crictl inspect --output go-template --template '{{{{.info.pid}}}}' $({find}))"
    await run("docker", "exec", stage.installation.node(MANAGEMENT), "sh", "-c", script, seconds=60)


@pytest.mark.parametrize("how", [delete_by_force, kill])
async def test_when_the_leader_is_killed_the_standby_goes_on_with_every_job(crowd: Crowd, how: Any) -> None:
    stage = crowd.stage
    held = await crowd.send(held=4)
    await crowd.send(short=8)
    await crowd.running(held)
    first = await eventually(lambda: leader(stage))
    with stage.history.without(DISPATCHER, "crash_at"):
        async with asyncio.TaskGroup() as group:
            group.create_task(crowd.send(short=8))
            group.create_task(how(stage, pod_of(first)))
        await crowd.send(short=4, held=2)
        await another_leads(stage, first)
    await crowd.release()
    await crowd.complete()
    await crowd.ran_once()


async def test_a_rollout_of_the_dispatcher_under_load_is_noticed_by_nobody(crowd: Crowd) -> None:
    installation = crowd.stage.installation
    held = await crowd.send(held=4)
    await crowd.running(held)
    told = await installation.kubectl("rollout", "restart", "deployment/multimirror", "-n", SYSTEM)
    assert told.code == 0, told
    async with asyncio.TaskGroup() as group:
        over = group.create_task(rolled_out(installation))
        while not over.done():
            if len(crowd.names) < 30:
                await crowd.send(short=1)
            await asyncio.wait([over], timeout=0.5)
    await crowd.release()
    await crowd.complete()
    await crowd.ran_once()


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
@pytest.mark.parametrize("where", ["management", "worker"])
async def test_a_control_plane_that_starts_again_under_load_costs_no_job(
    crowd: Crowd, where: str, component: str
) -> None:
    stage = crowd.stage
    cluster = MANAGEMENT if where == "management" else stage.installation.workers[0]
    held = await crowd.send(held=4)
    await crowd.send(short=6)
    await crowd.running(held)
    async with asyncio.TaskGroup() as group:
        group.create_task(crowd.send(short=8))
        group.create_task(restarted(stage, cluster, component))
    await crowd.release()
    await crowd.complete()
    await crowd.ran_once()


async def test_jobs_stay_on_a_worker_that_stands_still_for_a_while(crowd: Crowd) -> None:
    stage = crowd.stage
    worker, *_ = stage.installation.workers
    held = await crowd.send(held=6)
    await crowd.running(held)
    async with frozen(stage, worker):
        await crowd.send(short=8)
        await lost(stage, worker)
        await crowd.send(short=4)
    await crowd.release()
    await crowd.complete()
    await crowd.ran_once()


async def test_jobs_of_a_worker_whose_node_loses_its_power_go_on_when_it_is_back(crowd: Crowd) -> None:
    """Their containers are gone with it: the worker's own Job controller starts others, one after the other."""
    stage = crowd.stage
    worker, *_ = stage.installation.workers
    held = await crowd.send(held=6)
    await crowd.running(held)
    there = crowd.on(worker, held)
    assert there
    async with switched_off(stage, worker):
        await crowd.send(short=8)
        await lost(stage, worker)
    await crowd.release()
    await crowd.complete()
    assert crowd.on(worker, held) == there
    await crowd.ran_once([name for name in crowd.names if name not in there])
    for name in there:
        runs = sorted((ran for ran in await crowd.ran() if ran.job == name), key=lambda ran: ran.first)
        assert {ran.worker for ran in runs} == {worker}
        assert all(earlier.last < later.first for earlier, later in itertools.pairwise(runs))

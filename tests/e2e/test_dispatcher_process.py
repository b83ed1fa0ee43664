"""`multimirror run` as a process of its own: killed in the middle of its work, started again, asked questions."""

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clusters.local.ports import free_ports
from faults.record import MANAGEMENT
from multimirror.api import ATTEMPT_ANNOTATION
from multimirror.kube.resources import JOBS, PODS
from tests.e2e.dispatching import Stage, condition, finished
from tests.waiting import DEADLINE

Json = dict[str, Any]


@contextlib.asynccontextmanager
async def running_process(stage: Stage) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Ready, and where it answers. Killed at the end: it has to stand that at any moment."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    flags = ["--health-address", address, "--no-leader-election", "--log-level", "warning"]
    async with contextlib.AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        kubeconfig = Path(directory, "kubeconfig")
        kubeconfig.write_text(json.dumps(stage.links[MANAGEMENT].kubeconfig))
        stack.enter_context(stage.history.life(end="killed"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "multimirror.cli", "run", "--kubeconfig", str(kubeconfig), *flags)
        )
        stack.push_async_callback(_killed, process)
        async with asyncio.timeout(DEADLINE), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://{address}/readyz") as answer:
                        if answer.status == 200:
                            break
                assert process.returncode is None
                await asyncio.sleep(0.05)
        yield process, f"http://{address}"


async def _killed(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@pytest.mark.real_server
async def test_a_process_that_is_killed_again_and_again_loses_no_job_and_runs_none_twice(stage: Stage) -> None:
    """I10: each time it is killed in another moment of its work, and the next one finds out by reading."""
    count = 12

    async def ended() -> int:
        return sum(finished(job) for job in (await stage.management.list(JOBS, stage.namespace)).items)

    for number in range(count):
        await stage.submit(f"job-{number}", duration="500ms")
    for least in (1, 5, 9):
        async with running_process(stage):
            async with asyncio.timeout(DEADLINE):
                while await ended() < least:
                    await asyncio.sleep(0.02)
    async with running_process(stage):
        for number in range(count):
            job = await stage.done(f"job-{number}")
            assert condition(job, "Complete")
            assert job["metadata"]["annotations"][ATTEMPT_ANNOTATION] == "1"
        await stage.nothing_left()
    started = [obj for _, what, kind, obj in stage.history.events if (kind, what) == (PODS.kind, "ADDED")]
    assert len(started) == count, "one pod for each Job, ever"


async def test_why_a_job_waits_can_be_asked_over_http(stage: Stage) -> None:
    await stage.set_queue(quota={"jobs": 0})
    async with running_process(stage) as (_, url), aiohttp.ClientSession() as session:

        async def ask(query: str) -> tuple[int, Json]:
            async with session.get(f"{url}/explain{query}") as answer:
                return answer.status, await answer.json()

        await stage.submit()
        await stage.event("Waiting")
        key = f"{stage.namespace}/job"
        status, told = await ask(f"?job={key}")
        assert status == 200
        assert (told["state"], told["reason"], told["queue"]) == ("Waiting", "QuotaExceeded", stage.queue)
        await stage.set_queue(quota=None)
        await stage.done()
        async with asyncio.timeout(DEADLINE):
            while (await ask(f"?job={key}"))[1].get("state") != "Finished":
                await asyncio.sleep(0.05)
        assert (await ask(f"?job={stage.namespace}/nobody"))[0] == 404
        assert (await ask(""))[0] == 400

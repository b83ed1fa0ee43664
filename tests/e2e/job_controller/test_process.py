"""The controller as a process of its own: ready when its caches are, measured, one leader, an orderly end."""

import asyncio
import contextlib
import json
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from clusters.local.ports import free_ports
from tests.e2e.job_controller.world import World
from tests.waiting import DEADLINE

METRICS = {
    "job_controller_job_sync_duration_seconds": "histogram",
    "job_controller_job_syncs_total": "counter",
    "job_controller_jobs_finished_total": "counter",
    "job_controller_job_pods_finished_total": "counter",
    "job_controller_jobs_by_external_controller_total": "counter",
    "job_controller_pod_failures_handled_by_failure_policy_total": "counter",
    "job_controller_terminated_pods_tracking_finalizer_total": "counter",
    "job_controller_job_finished_indexes_total": "counter",
    "job_controller_job_pods_creation_total": "counter",
    "job_controller_stale_sync_skips_total": "counter",
}


class Process:
    """A running builtin-controller."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()

    async def ready(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    if (await self.get("/readyz"))[0] == 200:
                        return
                await asyncio.sleep(0.05)

    async def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        async with asyncio.timeout(DEADLINE):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def controller(kubeconfig: Path, world: World, *flags: str) -> AsyncIterator[Process]:
    (port,) = free_ports(1)
    command = shutil.which("builtin-controller", path=str(Path(sys.executable).parent))
    assert command is not None, "the package is not installed"
    process = await asyncio.create_subprocess_exec(
        command,
        *("--kubeconfig", str(kubeconfig), "--metrics-bind-address", f"127.0.0.1:{port}"),
        *("--namespace", world.namespace, "--sync-batch-period", "50ms", "--pod-backoff-base", "100ms", *flags),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Process(process, port)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def file(kubeconfig: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


async def test_a_process_runs_jobs_and_stops_when_told(world: World, file: Path) -> None:
    async with controller(file, world) as process:
        await process.ready()
        assert (await process.get("/healthz"))[0] == 200
        await world.create(completions=2, parallelism=2, completionMode="Indexed")
        await world.create("theirs", managedBy="example.com/other")
        await world.finished()
        await world.events(wanted="Completed")  # the watch may tell us before the answer tells the controller
        _, text = await process.get("/metrics")
        assert await process.stop() == 0
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE job_controller_"))
    assert types == METRICS
    values = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in text.splitlines() if line[0] != "#"}
    labels = 'completion_mode="Indexed",reason="CompletionsReached",result="succeeded"'
    assert values[f"job_controller_jobs_finished_total{{{labels}}}"] == "1.0"
    assert values['job_controller_job_pods_finished_total{completion_mode="Indexed",result="succeeded"}'] == "2.0"
    assert values['job_controller_job_finished_indexes_total{backoffLimit="global",status="succeeded"}'] == "2.0"
    assert values['job_controller_job_pods_creation_total{reason="new",status="succeeded"}'] == "2.0"
    assert values['job_controller_jobs_by_external_controller_total{controller_name="example.com/other"}'] == "1.0"
    assert values['job_controller_terminated_pods_tracking_finalizer_total{event="add"}'] == "2.0"
    assert values['job_controller_terminated_pods_tracking_finalizer_total{event="delete"}'] == "2.0"
    assert 'job_controller_job_sync_duration_seconds_bucket{action="pods_created"' in text
    assert 'le="65.536"' in text
    assert 'workqueue_adds_total{name="job"}' in text
    patches = [float(v) for k, v in values.items() if k.startswith("rest_client_requests_total") and "PATCH" in k]
    assert sum(patches) == 2, "each pod is freed once"


async def test_a_standby_takes_over(world: World, file: Path) -> None:
    lease = ("--leader-elect", "--leader-elect-resource-namespace", world.namespace)
    async with controller(file, world, *lease) as first, controller(file, world, *lease) as second:
        await first.ready()
        await second.ready()
        await world.create("one")
        await world.finished("one")
        (leader, standby) = (first, second) if await _leads(first) else (second, first)
        assert not await _leads(standby)
        assert await leader.stop() == 0
        await world.create("two")
        await world.finished("two")
        async with asyncio.timeout(DEADLINE):
            while not await _leads(standby):  # metrics are rendered once a second: the page may be an old one
                await asyncio.sleep(0.1)


async def _leads(process: Process) -> bool:
    _, text = await process.get("/metrics")
    return 'leader_election_master_status{name="builtin-controller"} 1.0' in text


async def test_a_killed_process_leaves_nothing_that_the_next_one_cannot_finish(world: World, file: Path) -> None:
    await world.create(completions=40, parallelism=8, completionMode="Indexed", node={"duration": "20ms"})
    for done in (5, 15, 25):
        async with controller(file, world) as process:
            await process.ready()
            await world.until(lambda done=done: (world.status().get("succeeded") or 0) >= done)  # type: ignore[misc]
            await process.stop(signal.SIGKILL)
    async with controller(file, world):
        status = await world.finished()
    assert (status["succeeded"], status["completedIndexes"], status.get("failed", 0)) == (40, "0-39", 0)
    assert len(world.pods()) == 40


async def test_a_kubeconfig_that_does_not_exist_is_told(world: World, tmp_path: Path) -> None:
    command = shutil.which("builtin-controller", path=str(Path(sys.executable).parent))
    assert command is not None
    process = await asyncio.create_subprocess_exec(
        command, "--kubeconfig", str(tmp_path / "none"), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 2, (out, err)
    assert b"builtin-controller: " in err
    assert str(tmp_path / "none").encode() in err
    assert all(json.loads(line) for line in out.splitlines())

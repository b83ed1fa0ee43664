"""`multimirror run`, and an ordinary Job that says nothing but a queue's name: the whole way, there and back."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from clusters.background import BackgroundFleet
from clusters.local.ports import free_ports
from faults.record import MANAGEMENT
from faults.stage import DISPATCHER
from multimirror.admission import PATH
from multimirror.api import CLUSTER_ANNOTATION, MIRROR_QUEUES, QUEUE_LABEL, WORKER_CLUSTERS
from multimirror.kube import Client, Connection
from multimirror.kube.errors import Forbidden
from multimirror.kube.resources import JOBS, NAMESPACES, SECRETS
from tests.e2e.admission.conftest import a_job, our_object
from tests.e2e.dispatching import SYSTEM, condition, running_fleet, secret, until
from tests.e2e.history import History, rules_of
from tests.waiting import DEADLINE


@pytest.fixture(params=["embedded", "local"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fleet(kind: str) -> Iterator[BackgroundFleet]:
    with running_fleet(kind, workers=1) as fleet:
        yield fleet


@contextlib.asynccontextmanager
async def multimirror(kubeconfig: Path, administrator: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`multimirror run`, ready, and registered by an administrator."""
    health, admission = free_ports(2)
    arguments = {
        "--kubeconfig": str(kubeconfig),
        "--identity": DISPATCHER,
        "--health-address": f"127.0.0.1:{health}",
        "--admission-address": f"127.0.0.1:{admission}",
        "--admission-url": f"https://127.0.0.1:{admission}{PATH}",
        "--log-format": "text",
    }
    command = [sys.executable, "-m", "multimirror.cli", "run", *(part for pair in arguments.items() for part in pair)]
    registered = ["install", "--component", "registration", "--admission-url", arguments["--admission-url"]]
    installing = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "multimirror.cli", *registered, "--kubeconfig", str(administrator))
    )
    assert await installing.wait() == 0
    process = await asyncio.create_subprocess_exec(*command)
    try:
        async with asyncio.timeout(DEADLINE), aiohttp.ClientSession() as session:
            while not await ready(session, f"http://127.0.0.1:{health}/readyz"):
                assert process.returncode is None
                await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE):
            await process.wait()


async def ready(session: aiohttp.ClientSession, url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with session.get(url) as answer:
            return answer.status == 200
    return False


async def test_an_ordinary_job_with_a_queue_runs_on_a_worker(fleet: BackgroundFleet, tmp_path: Path) -> None:
    here, there = fleet.management.kubeconfig, fleet.workers["worker-1"].kubeconfig
    async with (
        Client(Connection.from_kubeconfig(here), user_agent="user") as client,
        Client(Connection.from_kubeconfig(there), user_agent="user") as east,
        History(client, {"east": east}) as history,
    ):
        for namespace in ("team", SYSTEM):  # Jobs here, the leader's Lease there
            await history.follow(namespace)
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps((await history.link(MANAGEMENT, here)).kubeconfig))
        await client.create(SECRETS, secret("east", (await history.link("east", there)).kubeconfig), SYSTEM)
        worker = our_object(WORKER_CLUSTERS, "east", kubeconfig={"secret": {"name": "east"}})
        await client.create(WORKER_CLUSTERS, worker)
        queue = await client.create(MIRROR_QUEUES, our_object(MIRROR_QUEUES, "training"))
        await client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await east.create(NAMESPACES, {"metadata": {"name": "team"}})
        with history.life():
            async with multimirror(path, fleet.kubeconfig_file()) as process:
                async with asyncio.timeout(DEADLINE):
                    while (
                        "managedBy" not in (await dry(client))["spec"]
                    ):  # the API server hears of the webhook a moment later
                        await asyncio.sleep(0.05)
                with pytest.raises(
                    Forbidden, match="there is no MirrorQueue 'trianing'; namespace 'team' may use training"
                ):
                    await client.create(JOBS, a_job("typo", {QUEUE_LABEL: "trianing"}), "team")
                await client.create(JOBS, a_job("train", {QUEUE_LABEL: "training"}), "team")
                job = await until(client, JOBS, "team", "train", lambda job: condition(job, "Complete"))
                assert job["metadata"]["annotations"][CLUSTER_ANNOTATION] == "east"
                assert job["status"]["succeeded"] == 1
                await history.check(rules_of(queue))
        assert process.returncode == 0


async def dry(client: Client) -> dict[str, dict[str, object]]:
    return await client.create(JOBS, a_job("probe", {QUEUE_LABEL: "training"}), "team", dry_run=True)

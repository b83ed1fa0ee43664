"""One cluster of each kind for all tests of admission and of our API, with our kinds defined.

The clusters live on threads of their own: the webhook that the tests serve and the API server that calls it do not wait
for each other. Each test uses names that no other uses.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions
from multimirror.api import MIRROR_QUEUES, crds
from multimirror.kube import ApiError, Client, Connection, Resource
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.resources import CRDS, CRON_JOBS, JOBS, NAMESPACES
from tests.waiting import DEADLINE

Object = dict[str, Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One control plane of a kind serves all these tests, on one event loop."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and "cluster" in call.params and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group(f"admission-{call.params['cluster']}"))
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@dataclass(frozen=True)
class Server:
    kind: str
    client: Client
    kubeconfig: Object
    kubeconfig_file: Path


@pytest.fixture(scope="session", params=("embedded", "local"))
def cluster(request: pytest.FixtureRequest) -> Iterator[BackgroundFleet]:
    with BackgroundFleet(request.param, FleetOptions(workers=0, nodes=False)) as fleet:
        yield fleet


@pytest_asyncio.fixture(loop_scope="session")
async def server(cluster: BackgroundFleet) -> AsyncIterator[Server]:
    kubeconfig = cluster.management.kubeconfig
    async with Client(Connection.from_kubeconfig(kubeconfig)) as client:
        await define(client)
        yield Server(cluster.kind, client, kubeconfig, cluster.kubeconfig_file())


async def define(client: Client) -> None:
    """Our kinds are served; done by the first test that needs them."""
    for crd in crds():
        try:
            await client.create(CRDS, crd)
        except AlreadyExists:
            continue
        async with asyncio.timeout(DEADLINE):
            await served(client, f"/apis/{crd['spec']['group']}/v1alpha1/{crd['spec']['names']['plural']}")


async def served(client: Client, path: str) -> None:
    while True:
        try:
            await client.request("GET", path)
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return


def unique(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(4)}"


async def a_namespace(client: Client, **labels: str) -> str:
    name = unique("team")
    await client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    return name


async def a_queue(client: Client, **spec: Any) -> str:
    name = unique("queue")
    await client.create(MIRROR_QUEUES, our_object(MIRROR_QUEUES, name, **spec))
    return name


def our_object(resource: Resource, name: str, **spec: Any) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


def a_job(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"template": {"spec": pod}, **spec}}


async def refusal(client: Client, job: Object, namespace: str) -> ApiError:
    """The error with which this Job is not created."""
    with pytest.raises(ApiError) as refused:
        await client.create(JOBS, job, namespace)
    return refused.value


async def a_job_of(client: Client, cron_job: Object, namespace: str) -> Object:
    """The first Job of a new CronJob, at once: as if it had missed some runs, it makes up for the newest of them."""
    name = cron_job["metadata"]["name"]
    start = (await client.list(JOBS, namespace)).resource_version
    await client.create(CRON_JOBS, cron_job, namespace)
    missed = (datetime.now(UTC) - timedelta(minutes=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await client.patch(CRON_JOBS, name, {"status": {"lastScheduleTime": missed}}, namespace, subresource="status")
    async with asyncio.timeout(DEADLINE):
        async for event in client.watch(JOBS, namespace, resource_version=start):
            if event.type == "ADDED":
                await client.delete(CRON_JOBS, name, namespace, propagation="Orphan")
                return event.object
    raise AssertionError("the watch ended before there was a Job")

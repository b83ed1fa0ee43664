"""The official Python client, synchronous and asyncio, with no special settings: lists, watches, patches."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import kubernetes
import kubernetes.aio
import pytest
import pytest_asyncio

from tests.contract.conftest import Server
from tests.contract.objects import WIDGETS, configmap, job, widget, widgets
from tests.contract.wire import Api
from tests.waiting import DEADLINE

official: Any = kubernetes  # its types do not say what it takes and gives, such as a body that is a dict
NAMES = ["a", "b", "c", "d", "e"]


async def fill(api: Api) -> None:
    for name in NAMES:
        await api.made("jobs", job(name, suspend=True))


class Sync:
    """The synchronous client: it blocks, so each call runs in a thread."""

    def __init__(self, configuration: Any) -> None:
        self.client = official.client.ApiClient(configuration)
        self.batch = official.client.BatchV1Api(self.client)
        self.core = official.client.CoreV1Api(self.client)


@pytest.fixture
def sync(cluster: Server) -> Iterator[Sync]:
    configuration = official.client.Configuration()
    official.config.load_kube_config_from_dict(
        json.loads(json.dumps(cluster.kubeconfig)), client_configuration=configuration
    )
    client = Sync(configuration)
    yield client
    client.client.close()


@pytest_asyncio.fixture(loop_scope="session")
async def aio(cluster: Server) -> AsyncIterator[Any]:
    configuration = official.aio.client.Configuration()
    await official.aio.config.load_kube_config_from_dict(
        json.loads(json.dumps(cluster.kubeconfig)), client_configuration=configuration
    )
    async with official.aio.client.ApiClient(configuration) as client:
        yield client


async def test_the_client_lists_in_pages(api: Api, sync: Sync) -> None:
    await fill(api)
    found, token = [], ""
    while True:
        page = await asyncio.to_thread(
            sync.batch.list_namespaced_job, api.namespace, limit=2, **({"_continue": token} if token else {})
        )
        found += [each.metadata.name for each in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert found == NAMES


async def test_the_client_watches_from_a_list(api: Api, sync: Sync) -> None:
    listed = await asyncio.to_thread(sync.batch.list_namespaced_job, api.namespace)

    def watch() -> list[tuple[str, str]]:
        seen = []
        watcher = official.watch.Watch()
        for event in watcher.stream(
            sync.batch.list_namespaced_job,
            api.namespace,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=int(DEADLINE),
        ):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 3:
                watcher.stop()
        return seen

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(asyncio.to_thread(watch))
        await api.made("jobs", job("a"))
        (await api.patch(api.at("jobs", "a"), {"metadata": {"labels": {"x": "y"}}})).ok()
        (await api.delete(api.at("jobs", "a"), propagationPolicy="Background")).ok()
    assert watching.result() == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_the_client_creates_patches_replaces_and_deletes(api: Api, sync: Sync) -> None:
    made = await asyncio.to_thread(sync.batch.create_namespaced_job, api.namespace, job("a"))
    assert made.spec.completions == 1
    patched = await asyncio.to_thread(
        sync.batch.patch_namespaced_job, "a", api.namespace, {"metadata": {"labels": {"x": "y"}}}
    )
    assert patched.metadata.labels["x"] == "y"
    operations = [{"op": "replace", "path": "/spec/parallelism", "value": 4}]
    patched = await asyncio.to_thread(sync.batch.patch_namespaced_job, "a", api.namespace, operations)
    assert patched.spec.parallelism == 4
    status = {"status": {"active": 1}}
    patched = await asyncio.to_thread(sync.batch.patch_namespaced_job_status, "a", api.namespace, status)
    assert patched.status.active == 1
    patched.spec.backoff_limit = 2
    replaced = await asyncio.to_thread(sync.batch.replace_namespaced_job, "a", api.namespace, patched)
    assert replaced.spec.backoff_limit == 2
    with pytest.raises(official.client.ApiException) as conflict:
        await asyncio.to_thread(sync.batch.replace_namespaced_job, "a", api.namespace, patched)
    assert (conflict.value.status, json.loads(conflict.value.body)["reason"]) == (409, "Conflict")
    await asyncio.to_thread(sync.batch.delete_namespaced_job, "a", api.namespace, propagation_policy="Background")
    with pytest.raises(official.client.ApiException) as missing:
        await asyncio.to_thread(sync.batch.read_namespaced_job, "a", api.namespace)
    assert missing.value.status == 404


@pytest.mark.usefixtures("widget_crd")
async def test_the_client_handles_custom_objects(api: Api, sync: Sync) -> None:
    custom: Any = official.client.CustomObjectsApi(sync.client)
    where: list[str] = [WIDGETS, "v1", api.namespace, "widgets"]
    await asyncio.to_thread(lambda: custom.create_namespaced_custom_object(*where, widget("a")))
    await asyncio.to_thread(lambda: custom.patch_namespaced_custom_object(*where, "a", {"spec": {"size": 9}}))
    listed = await asyncio.to_thread(lambda: custom.list_namespaced_custom_object(*where))
    assert [each["spec"]["size"] for each in listed["items"]] == [9]
    assert (await api.get(widgets(api.namespace, "a"))).ok()["spec"]["size"] == 9


async def test_the_dynamic_client_discovers_and_applies(api: Api, sync: Sync) -> None:
    def run() -> tuple[str, list[str]]:
        dynamic = official.dynamic.DynamicClient(sync.client)
        resource = dynamic.resources.get(api_version="v1", kind="ConfigMap")
        dynamic.server_side_apply(resource, configmap("a"), namespace=api.namespace, field_manager="alice")
        stored = dynamic.get(resource, name="a", namespace=api.namespace)
        jobs = dynamic.resources.get(api_version="batch/v1", kind="Job")
        return stored.metadata.managedFields[0].manager, [
            each.metadata.name for each in jobs.get(namespace=api.namespace).items
        ]

    await fill(api)
    assert await asyncio.to_thread(run) == ("alice", NAMES)


async def test_the_asyncio_client_lists_in_pages(api: Api, aio: Any) -> None:
    await fill(api)
    batch = official.aio.client.BatchV1Api(aio)
    found, token = [], ""
    while True:
        page = await batch.list_namespaced_job(api.namespace, limit=2, **({"_continue": token} if token else {}))
        found += [each.metadata.name for each in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert found == NAMES


async def test_the_asyncio_client_watches(api: Api, aio: Any) -> None:
    batch = official.aio.client.BatchV1Api(aio)
    await api.made("jobs", job("there"))
    seen = []
    async with asyncio.timeout(DEADLINE), official.aio.watch.Watch() as watcher:
        async for event in watcher.stream(batch.list_namespaced_job, api.namespace):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 1:
                await api.made("jobs", job("new"))
                (await api.delete(api.at("jobs", "there"), propagationPolicy="Background")).ok()
            if len(seen) == 3:
                break
    assert seen == [("ADDED", "there"), ("ADDED", "new"), ("DELETED", "there")]


async def test_the_asyncio_client_patches_and_deletes(api: Api, aio: Any) -> None:
    batch = official.aio.client.BatchV1Api(aio)
    await batch.create_namespaced_job(api.namespace, job("a"))
    patched = await batch.patch_namespaced_job("a", api.namespace, {"metadata": {"labels": {"x": "y"}}})
    assert patched.metadata.labels["x"] == "y"
    patched = await batch.patch_namespaced_job_status("a", api.namespace, {"status": {"active": 1}})
    assert patched.status.active == 1
    with pytest.raises(official.aio.client.ApiException) as refused:
        await batch.patch_namespaced_job("a", api.namespace, {"spec": {"completions": 3}})
    assert refused.value.status == 422
    await batch.delete_namespaced_job("a", api.namespace, propagation_policy="Background")
    with pytest.raises(official.aio.client.ApiException) as missing:
        await batch.read_namespaced_job("a", api.namespace)
    assert missing.value.status == 404

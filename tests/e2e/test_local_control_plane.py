"""One local control plane with its options, and what faults can be put to it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from clusters.local import LocalCluster, LocalFleet, LocalOptions
from multimirror.kube import ApiError, Client, Connection
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import CONFIG_MAPS, JOBS, PODS
from tests.waiting import DEADLINE

pytestmark = [
    pytest.mark.cluster_kind("local"),
    pytest.mark.xdist_group("local-control-plane"),
    pytest.mark.asyncio(loop_scope="module"),  # one control plane for all of them
]

OPTIONS = LocalOptions(
    workers=1,
    nodes=False,
    scheduler=True,
    controllers_of={"worker-1": ("*", "-job-controller")},
    feature_gates={"GenericWorkload": True},
    runtime_config={"scheduling.k8s.io/v1alpha2": True},
    audit_log=True,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[LocalFleet]:
    async with LocalFleet(OPTIONS) as fleet:
        yield fleet


def client_of(cluster: LocalCluster, **options: Any) -> Client:
    return Client(Connection.from_kubeconfig(cluster.kubeconfig), **options)


def a_job(name: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}


async def test_kubernetes_own_job_controller_runs_where_it_is_not_switched_off(fleet: LocalFleet) -> None:
    async with client_of(fleet.management) as management, client_of(fleet.workers["worker-1"]) as worker:
        await worker.create(JOBS, a_job("left-alone"), "default")
        await management.create(JOBS, a_job("run"), "default")
        start = (await management.list(PODS, "default")).resource_version
        async with asyncio.timeout(DEADLINE):
            while not (await management.list(PODS, "default")).items:
                async with contextlib.aclosing(management.watch(PODS, "default", resource_version=start)) as events:
                    async for event in events:
                        if event.type == "ADDED":
                            break
        owner = (await management.list(PODS, "default")).items[0]["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"]) == ("Job", "run")
        assert not (await worker.list(PODS, "default")).items
        assert not (await worker.get(JOBS, "left-alone", "default"))["status"]


async def test_feature_gates_and_runtime_config_switch_apis_on(fleet: LocalFleet) -> None:
    served = await fleet.management.get("/apis/scheduling.k8s.io/v1alpha2")
    assert "workloads" in [resource["name"] for resource in served["resources"]]


async def test_the_audit_log_tells_who_asked_what(fleet: LocalFleet) -> None:
    async with client_of(fleet.management, user_agent="counted/1.0") as client:
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, "audited", "default")
    async with asyncio.timeout(DEADLINE):
        while not (lines := _audited(fleet.management, "counted/1.0")):
            await asyncio.sleep(0.05)
    assert [(line["verb"], line["objectRef"]["name"], line["user"]["username"]) for line in lines] == [
        ("get", "audited", "admin")
    ]


def _audited(cluster: LocalCluster, agent: str) -> list[dict[str, Any]]:
    whole = cluster.audit_log.read_text().rpartition("\n")[0]
    return [line for line in map(json.loads, whole.splitlines()) if line.get("userAgent") == agent]


async def test_a_paused_api_server_is_silent_and_then_goes_on(fleet: LocalFleet) -> None:
    cluster = fleet.management
    await cluster.processes["kube-apiserver"].pause()
    try:
        async with client_of(cluster, timeout=1.0) as client:
            with pytest.raises(ApiError):
                await client.list(CONFIG_MAPS, "default")
    finally:
        await cluster.processes["kube-apiserver"].resume()
    async with client_of(cluster) as client:
        await client.list(CONFIG_MAPS, "default")


async def test_state_survives_the_death_of_every_component(fleet: LocalFleet) -> None:
    cluster = fleet.workers["worker-1"]
    async with client_of(cluster) as client:
        await client.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, "default")
        for component in cluster.processes:
            await cluster.processes[component].kill()
            await cluster.start_again(component)
        assert (await client.get(CONFIG_MAPS, "kept", "default"))["metadata"]["name"] == "kept"


async def test_a_component_can_be_restarted_in_order(fleet: LocalFleet) -> None:
    cluster = fleet.management
    before = cluster.processes["kube-controller-manager"].pid
    await cluster.restart("kube-controller-manager")
    assert cluster.processes["kube-controller-manager"].pid != before
    assert cluster.processes["kube-controller-manager"].running

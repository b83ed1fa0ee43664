"""Simulated nodes on real control planes: Kubernetes' own controllers see pods run and end."""

import asyncio
import contextlib
from typing import Any

import pytest

from clusters.local import LocalFleet, LocalOptions
from multimirror.kube import Client, Connection
from multimirror.kube.resources import JOBS, PODS
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.cluster_kind("local")]


@pytest.mark.parametrize("scheduler", [False, True], ids=["nodes bind", "kube-scheduler binds"])
async def test_a_job_runs_to_its_end(*, scheduler: bool) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    job: dict[str, Any] = {
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"completions": 3, "parallelism": 2, "template": {"spec": pod}},
    }
    async with (
        LocalFleet(LocalOptions(workers=0, scheduler=scheduler)) as fleet,
        Client(Connection.from_kubeconfig(fleet.management.kubeconfig)) as client,
        asyncio.timeout(DEADLINE),
    ):
        created = await client.create(JOBS, job)
        start = created["metadata"]["resourceVersion"]
        async with contextlib.aclosing(client.watch(JOBS, "default", resource_version=start)) as events:
            async for event in events:
                status = event.object.get("status", {})
                if any(c["type"] == "Complete" and c["status"] == "True" for c in status.get("conditions", [])):
                    break
        assert status["succeeded"] == 3
        pods = (await client.list(PODS, "default")).items
        assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
        assert all(pod["spec"]["nodeName"].startswith("node-") for pod in pods)
        await client.request("GET", PODS.path("default", pods[0]["metadata"]["name"], "log"))

"""The embedded fleet: up, separate, gone; kept in a data directory; its controllers on a clock that jumps."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clusters.embedded import EmbeddedCluster, EmbeddedFleet, EmbeddedOptions
from clusters.embedded.context import Clock
from clusters.fleet import FleetOptions, open_fleet
from multimirror.kube import Client, Connection, Resource
from multimirror.kube.errors import Unreachable
from multimirror.kube.resources import CONFIG_MAPS, CRDS, CRON_JOBS, JOBS, NAMESPACES, PODS
from tests.waiting import DEADLINE

Json = dict[str, Any]
WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
WORKLOADS = Resource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload")
PODGROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")

pytestmark = pytest.mark.cluster_kind("embedded")


def connected(cluster: EmbeddedCluster) -> Client:
    return Client(Connection.from_kubeconfig(cluster.kubeconfig, name=cluster.name))


async def make(client: Client, resource: Resource, name: str, metadata: Json | None = None, **fields: Any) -> Json:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **fields}
    body["metadata"] = {"name": name, **(metadata or {})}
    return await client.create(resource, body, "default" if resource.namespaced else None)


def owned_by(owner: Json) -> Json:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {"ownerReferences": [{**reference, "blockOwnerDeletion": True}]}


async def until(client: Client, resource: Resource, wanted: Callable[[list[Json]], bool]) -> list[Json]:
    """The objects of a kind in the default namespace, when they are as wanted."""
    namespace = "default" if resource.namespaced else None
    async with asyncio.timeout(DEADLINE):
        found = await client.list(resource, namespace)
        while not wanted(found.items):
            watch = client.watch(resource, namespace, resource_version=found.resource_version)
            async with contextlib.aclosing(watch) as events:
                async for event in events:
                    if event.type != "BOOKMARK":
                        break
            found = await client.list(resource, namespace)
        return found.items


def names(objects: list[Json]) -> list[str]:
    return [each["metadata"]["name"] for each in objects]


async def test_a_fleet_is_separate_clusters_and_nothing_is_left_of_it() -> None:
    async with open_fleet("embedded", FleetOptions(workers=3)) as fleet:
        assert [cluster.name for cluster in fleet.clusters()] == ["management", "worker-1", "worker-2", "worker-3"]
        assert isinstance(fleet, EmbeddedFleet)
        async with connected(fleet.workers["worker-2"]) as client:
            await make(client, CONFIG_MAPS, "here")
        for cluster in (fleet.management, *fleet.workers.values()):
            async with connected(cluster) as client:
                assert names((await client.list(CONFIG_MAPS, "default")).items) == (
                    ["here"] if cluster.name == "worker-2" else []
                )
        connection = Connection.from_kubeconfig(fleet.management.kubeconfig)
    async with Client(connection, timeout=5) as client:
        with pytest.raises(Unreachable):
            await client.list(NAMESPACES)


async def test_a_data_directory_keeps_clusters_and_their_addresses(tmp_path: Path) -> None:
    options = FleetOptions(workers=1, data_dir=tmp_path)
    async with EmbeddedFleet(options) as fleet:
        before = {cluster.name: cluster.kubeconfig for cluster in fleet.clusters()}
        async with connected(fleet.workers["worker-1"]) as client:
            await make(client, CONFIG_MAPS, "kept")
    async with EmbeddedFleet(options) as fleet:
        assert {cluster.name: cluster.kubeconfig for cluster in fleet.clusters()} == before
        async with connected(fleet.workers["worker-1"]) as client:
            assert "kept" in names((await client.list(CONFIG_MAPS, "default")).items)


async def test_what_was_left_undone_is_done_after_a_restart(tmp_path: Path) -> None:
    """The server alone, as if its controllers had died at once: an owner is deleted, a namespace begins to go."""
    async with EmbeddedCluster("management", data_dir=tmp_path / "management") as cluster, connected(cluster) as client:
        owner = await make(client, CONFIG_MAPS, "owner")
        await make(client, CONFIG_MAPS, "child", owned_by(owner))
        held = await make(client, CONFIG_MAPS, "held")
        await make(client, CONFIG_MAPS, "blocks", owned_by(held))
        await client.delete(CONFIG_MAPS, "owner", "default", propagation="Background")
        await client.delete(CONFIG_MAPS, "held", "default", propagation="Foreground")
        await make(client, NAMESPACES, "leaving")
        await client.delete(NAMESPACES, "leaving")
        assert names((await client.list(CONFIG_MAPS, "default")).items) == ["blocks", "child", "held"]
    again = FleetOptions(workers=0, nodes=False, data_dir=tmp_path)
    async with EmbeddedFleet(again) as fleet, connected(fleet.management) as client:
        await until(client, CONFIG_MAPS, lambda objects: not objects)
        await until(client, NAMESPACES, lambda objects: "leaving" not in names(objects))


async def test_custom_resources_own_and_are_owned() -> None:
    async with EmbeddedFleet(FleetOptions(workers=0, nodes=False)) as fleet, connected(fleet.management) as client:
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        spec = {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}}
        await make(client, CRDS, "widgets.example.com", spec={**spec, "versions": [version]})
        top = await make(client, CONFIG_MAPS, "top")
        widget = await make(client, WIDGETS, "widget", owned_by(top))
        await make(client, CONFIG_MAPS, "bottom", owned_by(widget))
        await client.delete(CONFIG_MAPS, "top", "default", propagation="Foreground")
        await until(client, CONFIG_MAPS, lambda objects: not objects)
        assert (await client.list(WIDGETS, "default")).items == []


async def test_a_namespace_goes_whatever_its_objects_look_like() -> None:
    async with EmbeddedFleet(FleetOptions(workers=0, nodes=False)) as fleet, connected(fleet.management) as client:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        spec = {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}}
        await make(client, CRDS, "widgets.example.com", spec={**spec, "versions": [version]})
        await make(client, NAMESPACES, "odd")
        fields = {"deletionTimestamp": "later", "finalizers": ["mine"], "ownerReferences": [{"uid": "x"}]}
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": fields}
        await client.create(WIDGETS, body, "odd")
        for number in range(300):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
            await client.create(CONFIG_MAPS, body, "odd")
        await client.delete(NAMESPACES, "odd")
        await until(client, NAMESPACES, lambda objects: "odd" not in names(objects))
        assert (await client.list(WIDGETS)).items == []


async def test_a_pod_group_stays_while_a_pod_needs_it() -> None:
    async with EmbeddedFleet(FleetOptions(workers=0, nodes=False)) as fleet, connected(fleet.management) as client:
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        await make(client, WORKLOADS, "work", spec={"podGroupTemplates": [{"name": "group", **policy}]})
        reference = {"workload": {"workloadName": "work", "podGroupTemplateName": "group"}}
        await make(client, PODGROUPS, "gang", spec={"podGroupTemplateRef": reference, **policy})
        containers = [{"name": "main", "image": "busybox"}]
        spec = {"restartPolicy": "Never", "containers": containers, "schedulingGroup": {"podGroupName": "gang"}}
        await make(client, PODS, "member", spec=spec)
        await client.delete(PODGROUPS, "gang", "default")
        [group] = (await client.list(PODGROUPS, "default")).items
        assert group["metadata"]["deletionTimestamp"]
        ended = {"status": {"phase": "Succeeded"}}
        await client.patch(PODS, "member", ended, "default", subresource="status")
        await until(client, PODGROUPS, lambda objects: not objects)


@dataclasses.dataclass
class Time:
    """A clock that goes where the test wants."""

    now: float

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def on_virtual_time(start: datetime) -> AsyncIterator[tuple[EmbeddedFleet, Client, Callable[[float], None]]]:
    """A cluster whose time stands still but for the third value, which moves it on by that many seconds."""
    time = Time(start.timestamp())
    async with EmbeddedFleet(EmbeddedOptions(workers=0, nodes=False, clock=Clock(time=time))) as fleet:

        def advance(seconds: float) -> None:
            time.now += seconds
            fleet.clock_moved()

        async with connected(fleet.management) as client:
            yield fleet, client, advance


def a_cronjob_spec(**spec: Any) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    return {"jobTemplate": {"spec": {"template": {"spec": pod}}}, **spec}


async def finish(client: Client, name: str, moment: datetime) -> None:
    when = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": when} for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"conditions": conditions, "startTime": when, "completionTime": when}
    await client.patch(JOBS, name, {"status": status}, "default", subresource="status")


async def test_a_night_of_a_cronjob_in_no_time() -> None:
    start = datetime(2026, 11, 16, 22, 0, 30, tzinfo=UTC)
    async with on_virtual_time(start) as (_, client, advance):
        await make(client, CRON_JOBS, "nightly", spec=a_cronjob_spec(schedule="0 * * * *", timeZone="Europe/Berlin"))
        started: list[str] = []
        moment = start
        for _ in range(6):
            advance(3600)
            moment += timedelta(hours=1)
            jobs = await until(client, JOBS, lambda jobs: bool(set(names(jobs)) - set(started)))
            [name] = set(names(jobs)) - set(started)
            started.append(name)
            await finish(client, name, moment)
        hours = [datetime.fromtimestamp(int(name.removeprefix("nightly-")) * 60, UTC).hour for name in started]
        assert hours == [23, 0, 1, 2, 3, 4]
        kept = await until(client, JOBS, lambda jobs: len(jobs) == 3)
        assert names(kept) == started[-3:]
        [cron] = await until(client, CRON_JOBS, lambda crons: "active" not in crons[0]["status"])
        assert cron["status"]["lastScheduleTime"] == "2026-11-17T04:00:00Z"
        assert cron["status"]["lastSuccessfulTime"] == "2026-11-17T04:00:30Z"


async def test_a_finished_job_lives_exactly_as_long_as_it_may() -> None:
    start = datetime(2026, 11, 16, 22, 0, 0, tzinfo=UTC)
    async with on_virtual_time(start) as (_, client, advance):
        spec = a_cronjob_spec()["jobTemplate"]["spec"]
        await make(client, JOBS, "brief", spec={**spec, "ttlSecondsAfterFinished": 3600})
        await make(client, JOBS, "witness", spec={**spec, "ttlSecondsAfterFinished": 3599})
        for name in ("brief", "witness"):
            await finish(client, name, start)
        advance(3599)
        assert names(await until(client, JOBS, lambda jobs: len(jobs) == 1)) == ["brief"]
        advance(1)
        await until(client, JOBS, lambda jobs: not jobs)

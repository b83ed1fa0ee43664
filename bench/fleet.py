"""Embedded fleets: how fast one is up, how many pods its nodes run a second, how fast garbage goes.

Everything is in this one process (servers, controllers, nodes and the client that asks), so the rates are for one core.
"""

import asyncio
import resource
import time
from typing import Any, Final

import uvloop

from clusters.embedded import EmbeddedFleet
from clusters.fleet import FleetOptions
from clusters.nodes import SimulatedNodes
from multimirror.kube import Client, Connection
from multimirror.kube.resources import CONFIG_MAPS, PODS

COUNT: Final = 10_000


def main() -> None:
    uvloop.run(_up())
    uvloop.run(_pods())


async def _up() -> None:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        async with EmbeddedFleet(FleetOptions(workers=3)):
            times.append(time.perf_counter() - started)
    print(f"1 + 3 embedded clusters with nodes up: {min(times):.3f} s at best, {max(times):.3f} s at worst")


async def _pods() -> None:
    async with EmbeddedFleet(FleetOptions(workers=0, nodes=False)) as fleet:
        connection = Connection.from_kubeconfig(fleet.management.kubeconfig)
        async with Client(connection, concurrency=32) as client:
            owner = await client.create(CONFIG_MAPS, _owner(), "default")
            await _all(client.create(PODS, _pod(number, owner), "default") for number in range(COUNT))
            before = time.perf_counter(), time.process_time()
            async with SimulatedNodes(connection):
                await _until(client, lambda event: event.object["status"].get("phase") == "Succeeded", COUNT)
            wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
            print(f"{COUNT} pods bound and ended: {COUNT / wall:.0f}/s ({cpu / COUNT * 1e6:.0f} us of CPU each)")
            version = (await client.list(CONFIG_MAPS, "default")).resource_version
            before = time.perf_counter(), time.process_time()
            await client.delete(CONFIG_MAPS, "owner", "default", propagation="Background")
            await _until(client, lambda event: event.type == "DELETED", COUNT, version)
            wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
            print(f"{COUNT} dependents collected: {COUNT / wall:.0f}/s ({cpu / COUNT * 1e6:.0f} us of CPU each)")
    print(f"most memory used: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


async def _all(work: Any) -> None:
    tasks = []
    async with asyncio.TaskGroup() as group:
        for each in work:
            tasks.append(group.create_task(each))
            if len(tasks) % 500 == 0:
                await tasks[-1]


async def _until(client: Client, wanted: Any, count: int, version: str | None = None) -> None:
    seen: set[str] = set()
    async for event in client.watch(PODS, "default", resource_version=version, bookmarks=False):
        if wanted(event):
            seen.add(event.object["metadata"]["name"])
            if len(seen) == count:
                return


def _owner() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}


def _pod(number: int, owner: dict[str, Any]) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:05}", "ownerReferences": [reference]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    }

"""Room that is really there, on whole fleets: what is left on each node counts, whoever's pods are there.

Every cluster has two nodes with four gpu each (that nobody has seen: an extended resource).
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from clusters.background import BackgroundFleet
from clusters.nodes import PREFIX, NodeOptions
from multimirror.api import MIRROR_QUEUES, QUEUE_LABEL
from multimirror.kube.resources import NODES, PODS
from tests.e2e.dispatching import Stage, cluster_of, condition, running, running_fleet
from tests.waiting import eventually

Json = dict[str, Any]
pytestmark = pytest.mark.real_server
GPU = "example.com/gpu"
HOST = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def dispatching_fleet(kind: str) -> Iterator[BackgroundFleet]:
    with running_fleet(kind, node_options=NodeOptions(count=2, capacity={GPU: "4"})) as fleet:
        yield fleet


@pytest.fixture
def east(stage: Stage) -> str:
    """The worker that the queue uses."""
    return next(iter(stage.workers))


def asks(gpu: int, spec: Json | None = None, *, pods: int = 1) -> Callable[[Json], None]:
    def change(job: Json) -> None:
        job["spec"] |= {"parallelism": pods, "completions": pods}
        template = job["spec"]["template"]["spec"]
        template |= spec or {}
        (container,) = template["containers"]
        container["resources"] = {"requests": {GPU: str(gpu)}, "limits": {GPU: str(gpu)}}

    return change


def on(number: int) -> Json:
    """On that node."""
    return {"nodeSelector": {HOST: f"node-{number}"}}


@asynccontextmanager
async def foreign(stage: Stage, worker: str, gpu: int, node: str) -> AsyncIterator[None]:
    """Somebody else's pod holds so much of a node."""
    name = f"foreign-{node}"
    resources = {"requests": {GPU: str(gpu)}, "limits": {GPU: str(gpu)}}
    pod = {
        "metadata": {"name": name, "annotations": {f"{PREFIX}never-finish": "true"}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "resources": resources}],
        },
    }
    client = stage.workers[worker]
    await client.create(PODS, pod, stage.namespace)
    try:
        yield
    finally:
        await client.delete(PODS, name, stage.namespace, grace_period=0)


async def test_pods_that_fit_in_sum_and_on_no_node_wait_and_say_so(stage: Stage, east: str) -> None:
    await stage.set_queue(workers={"names": [east]})
    async with stage.dispatcher():
        await stage.cluster_condition(east, "RoomCounted", "True")
        await stage.submit("here", change=asks(2, on(1)), never_finish="true")
        await stage.submit("there", change=asks(2, on(2)), never_finish="true")
        for name in ("here", "there"):
            await stage.until(running, name)
        await stage.submit("whole", change=asks(3))  # four are left, two on each node
        await stage.event("Waiting", f"no worker cluster has 1 free place for pods of 3 {GPU}", "whole")
        await stage.event("Waiting", f"has 0 free places for pods of 3 {GPU}, the Job needs 1", "whole")
        await stage.event("Waiting", f"2 nodes with 2 {GPU} left each", "whole")
        await stage.finish("here")
        assert condition(await stage.done("whole"), "Complete")
        await stage.finish("there")
        await stage.done("there")


async def test_pods_for_which_there_are_too_few_nodes_never_fit(stage: Stage, east: str) -> None:
    await stage.set_queue(workers={"names": [east]})
    async with stage.dispatcher():
        await stage.cluster_condition(east, "RoomCounted", "True")
        await stage.submit("gang", change=asks(2, pods=5))  # more in sum than there is
        await stage.event("Waiting", f"has 8 {GPU} in all, the Job asks for 10", "gang")
        await stage.submit("wide", change=asks(3, on(1), pods=2))
        await stage.event("Waiting", f"has 1 place in all for pods of 3 {GPU}, the Job needs 2", "wide")


async def test_what_others_use_is_not_there_until_they_are_gone(stage: Stage, east: str) -> None:
    await stage.set_queue(workers={"names": [east]})
    async with stage.dispatcher():
        await stage.cluster_condition(east, "RoomCounted", "True")
        async with foreign(stage, east, 4, "node-1"), foreign(stage, east, 3, "node-2"):
            await eventually(lambda: _held(stage, east))
            await stage.submit("job", change=asks(2))
            await stage.event("Waiting", f"has 0 free places for pods of 2 {GPU}, the Job needs 1")
            assert cluster_of(await stage.job("job")) is None
        assert condition(await stage.done("job"), "Complete")


async def _held(stage: Stage, worker: str) -> bool:
    """The pods of others are there, for everybody to see."""
    found = await stage.workers[worker].list(PODS, stage.namespace)
    return len(found.items) == 2


async def test_a_job_goes_to_the_worker_whose_nodes_it_asks_for(stage: Stage) -> None:
    east, west = stage.workers
    await stage.set_queue(placement="Ordered", workers={"names": [east, west]})
    zone = {"nodeSelector": {"zone": stage.tag}}
    async with stage.dispatcher():
        for worker in (east, west):
            await stage.cluster_condition(worker, "RoomCounted", "True")
        await stage.submit("job", change=asks(1, zone))
        await stage.event("Waiting", "has no node that its nodeSelector, affinity and tolerations allow")
        await stage.workers[west].patch(NODES, "node-2", {"metadata": {"labels": {"zone": stage.tag}}})
        job = await stage.done("job")
        assert cluster_of(job) == west
        assert condition(job, "Complete")


async def test_two_jobs_at_once_do_not_count_on_the_same_place(stage: Stage, east: str) -> None:
    await stage.set_queue(workers={"names": [east]})
    async with stage.dispatcher():
        await stage.cluster_condition(east, "RoomCounted", "True")
        for name in ("a", "b", "c"):
            await stage.submit(name, change=asks(3), never_finish="true")

        async def placed() -> list[str]:
            names = [name for name in ("a", "b", "c") if cluster_of(await stage.job(name)) is not None]
            return names if len(names) == 2 else []

        there: list[str] = await eventually(placed)
        (last,) = {"a", "b", "c"} - set(there)
        await stage.event("Waiting", "free place", last)
        for name in there:
            await stage.finish(name)
        await stage.until(running, last)
        await stage.finish(last)
        for name in ("a", "b", "c"):
            assert condition(await stage.done(name), "Complete")


async def test_who_is_stopped_frees_a_whole_node(stage: Stage, east: str) -> None:
    """Team b borrows on both nodes; team a needs one of them as a whole. The Job that is older has to go as well as
    the younger one would: only together with its neighbour it frees a node."""
    b = f"{stage.queue}-b"
    spec = {"cohort": f"cohort-{stage.tag}", "workers": {"names": [east]}, "quota": {"resources": {GPU: "4"}}}
    await stage.set_queue(**spec)
    mine = (await stage.management.get(MIRROR_QUEUES, stage.queue))["spec"]
    made = {"apiVersion": MIRROR_QUEUES.api_version, "kind": MIRROR_QUEUES.kind, "metadata": {"name": b}}
    await stage.management.create(MIRROR_QUEUES, {**made, "spec": mine})

    def of_b(gpu: int, node: int) -> Callable[[Json], None]:
        def change(job: Json) -> None:
            asks(gpu, on(node))(job)
            job["metadata"]["labels"][QUEUE_LABEL] = b

        return change

    async with stage.dispatcher():
        await stage.cluster_condition(east, "RoomCounted", "True")
        for name, gpu, node in (("one", 2, 1), ("two", 2, 2), ("three", 2, 1)):
            await stage.submit(name, change=of_b(gpu, node), never_finish="true")
            await stage.until(running, name)
        await stage.submit("owner", change=asks(4), never_finish="true")  # two are left on node-2
        await stage.until(running, "owner")
        assert cluster_of(await stage.job("two")) is None, "the one on the node that was half empty"
        assert cluster_of(await stage.job("one")) is not None
        assert cluster_of(await stage.job("three")) is not None
        for name in ("owner", "one", "three", "two"):
            await stage.until(running, name)
            await stage.finish(name)
            assert condition(await stage.done(name), "Complete")

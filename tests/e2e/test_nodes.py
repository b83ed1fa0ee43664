"""The simulated node through the API alone: on an embedded cluster and on a real one, unchanged."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions
from clusters.nodes import PREFIX, NodeOptions, SimulatedNodes
from multimirror.kube import Client, Connection
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from multimirror.kube.watch import WatchEvent
from tests.waiting import DEADLINE

Json = dict[str, Any]


@dataclass
class Cluster:
    """One cluster, from one test's namespace."""

    client: Client
    namespace: str
    born: dict[str, str] = field(default_factory=dict)
    """The version at which each pod was created."""

    async def run(
        self,
        name: str,
        *,
        policy: str = "Never",
        spec: Json | None = None,
        owner: Json | None = None,
        **annotations: str,
    ) -> Json:
        """Create a pod that behaves as the annotations say."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": {f"{PREFIX}{key.replace('_', '-')}": text for key, text in annotations.items()},
                **({"ownerReferences": [owner]} if owner is not None else {}),
            },
            "spec": {
                "restartPolicy": policy,
                "containers": [{"name": "main", "image": "busybox", "command": ["true"]}],
                **(spec or {}),
            },
        }
        made = await self.client.create(PODS, pod, self.namespace)
        self.born[name] = made["metadata"]["resourceVersion"]
        return made

    async def life(self, name: str, until: Callable[[WatchEvent], bool]) -> list[WatchEvent]:
        """Everything that happened to a pod after its creation, up to the event that is waited for."""
        seen = []
        watch = self.client.watch(
            PODS,
            self.namespace,
            field_selector=f"metadata.name={name}",
            resource_version=self.born[name],
            bookmarks=False,
        )
        async with asyncio.timeout(DEADLINE), contextlib.aclosing(watch) as events:
            async for event in events:
                seen.append(event)
                if until(event):
                    return seen
        raise AssertionError(f"the watch ended; seen: {seen}")

    async def phase(self, name: str, phase: str) -> Json:
        """The pod, when it is in that phase."""
        events = await self.life(name, lambda event: event.object["status"].get("phase") == phase)
        return events[-1].object

    async def log(self, name: str, **params: str) -> str:
        """What its container printed."""
        answer = await self.client.request("GET", PODS.path(self.namespace, name, "log"), params)
        return answer.body.decode()


@pytest.fixture(
    scope="module", params=["embedded", pytest.param("local", marks=pytest.mark.xdist_group("local-nodes"))]
)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def fleet(kind: str) -> Iterator[BackgroundFleet]:
    options = FleetOptions(workers=0, node_options=NodeOptions(count=2, restart_backoff=0.2, lost_after=0.5))
    with BackgroundFleet(kind, options) as running:
        yield running


@pytest.fixture
async def cluster(fleet: BackgroundFleet) -> AsyncIterator[Cluster]:
    async with in_a_namespace(fleet) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def in_a_namespace(fleet: BackgroundFleet) -> AsyncIterator[Cluster]:
    async with Client(Connection.from_kubeconfig(fleet.management.kubeconfig, name="test")) as client:
        name = f"nodes-{secrets.token_hex(4)}"
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with contextlib.suppress(AlreadyExists):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            await client.create(SERVICE_ACCOUNTS, account, name)
        yield Cluster(client, name)


def condition(thing: Json, kind: str) -> tuple[str, str]:
    found = next(each for each in thing["status"]["conditions"] if each["type"] == kind)
    return found["status"], found.get("reason", "")


def terminated(pod: Json) -> Json:
    state: Json = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


async def test_nodes_are_registered_ready_and_renew_their_lease(cluster: Cluster) -> None:
    nodes = (await cluster.client.list(NODES)).items
    up = [node for node in nodes if condition(node, "Ready") == ("True", "KubeletReady")]
    assert len(up) == 2
    assert up[0]["status"]["capacity"]["cpu"] == "64"
    lease = await cluster.client.get(LEASES, up[0]["metadata"]["name"], "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == up[0]["metadata"]["name"]


async def test_a_pod_that_takes_no_time_is_bound_and_ended_and_nothing_else(cluster: Cluster) -> None:
    await cluster.run("quick")
    seen = await cluster.life("quick", lambda event: event.object["status"].get("phase") == "Succeeded")
    assert len(seen) == 2, "bound, succeeded"
    pod = seen[-1].object
    assert pod["spec"]["nodeName"].startswith("node-")
    assert condition(pod, "PodScheduled")[0] == "True"
    assert condition(pod, "Ready") == ("False", "PodCompleted")
    assert terminated(pod)["exitCode"] == 0


async def test_a_pod_runs_ready_and_succeeds(cluster: Cluster) -> None:
    await cluster.run("slow", duration="1s")
    running = await cluster.phase("slow", "Running")
    assert condition(running, "Ready")[0] == "True"
    assert running["status"]["podIP"].startswith("10.")
    assert running["status"]["startTime"]
    assert terminated(await cluster.phase("slow", "Succeeded"))["reason"] == "Completed"


async def test_an_exit_code_is_told(cluster: Cluster) -> None:
    await cluster.run("bad", exit_code="42")
    assert terminated(await cluster.phase("bad", "Failed"))["exitCode"] == 42


async def test_a_failed_container_is_restarted_where_the_pod_asks_for_it(cluster: Cluster) -> None:
    await cluster.run("stubborn", policy="OnFailure", fail_first="2")
    pod = await cluster.phase("stubborn", "Succeeded")
    container = pod["status"]["containerStatuses"][0]
    assert container["restartCount"] == 2
    assert container["lastState"]["terminated"]["exitCode"] == 1


async def test_logs_can_be_read_through_the_api(cluster: Cluster) -> None:
    await cluster.run("chatty", log="one\ntwo\nthree")
    await cluster.phase("chatty", "Succeeded")
    assert await cluster.log("chatty") == "one\ntwo\nthree\n"
    assert await cluster.log("chatty", tailLines="1") == "three\n"
    stamped = await cluster.log("chatty", timestamps="true", tailLines="1")
    assert stamped.endswith("Z three\n")


async def test_a_followed_log_ends_with_its_container(cluster: Cluster) -> None:
    await cluster.run("chatty", log="hello", duration="1s")
    await cluster.phase("chatty", "Running")
    async with asyncio.timeout(DEADLINE):
        assert await cluster.log("chatty", follow="true") == "hello\n"


async def test_a_deleted_pod_ends_before_it_goes(cluster: Cluster) -> None:
    await cluster.run("service", policy="Always")
    await cluster.phase("service", "Running")
    await cluster.client.delete(PODS, "service", cluster.namespace)
    seen = await cluster.life("service", lambda event: event.type == "DELETED")
    last = seen[-1].object
    assert last["status"]["phase"] == "Failed"
    assert terminated(last)["exitCode"] == 143


async def test_a_deleted_pod_that_is_held_says_how_it_ended_and_goes_when_let_go(cluster: Cluster) -> None:
    await cluster.run("held", never_finish="true")
    await cluster.phase("held", "Running")
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await cluster.client.patch(PODS, "held", hold, cluster.namespace)
    await cluster.client.delete(PODS, "held", cluster.namespace)
    pod = await cluster.phase("held", "Failed")
    assert pod["metadata"]["deletionTimestamp"]
    await cluster.life("held", lambda event: event.object["metadata"].get("deletionGracePeriodSeconds") == 0)
    await cluster.client.patch(PODS, "held", {"metadata": {"finalizers": None}}, cluster.namespace)
    with pytest.raises(NotFound):
        await cluster.client.get(PODS, "held", cluster.namespace)


async def test_a_pod_that_is_deleted_before_it_starts_has_tried(cluster: Cluster) -> None:
    made = await cluster.client.create(CONFIG_MAPS, {"metadata": {"name": "owner"}}, cluster.namespace)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made["metadata"]["uid"]}
    owner["controller"] = True
    await cluster.run("first", start_after="1h", fail_first="1", owner=owner)
    await cluster.life("first", lambda event: "nodeName" in event.object["spec"])
    await cluster.client.delete(PODS, "first", cluster.namespace)
    seen = await cluster.life("first", lambda event: event.type == "DELETED")
    assert seen[-1].object["status"]["phase"] == "Failed"
    await cluster.run("second", fail_first="1", owner=owner)
    await cluster.phase("second", "Succeeded")


async def test_a_pod_that_is_told_to_finish_ends_with_its_own_exit_code(cluster: Cluster) -> None:
    await cluster.run("told", never_finish="true", exit_code="3")
    await cluster.phase("told", "Running")
    finish = {"metadata": {"annotations": {"node.multimirror.dev/finish": "true"}}}
    await cluster.client.patch(PODS, "told", finish, cluster.namespace)
    assert terminated(await cluster.phase("told", "Failed"))["exitCode"] == 3


async def test_a_pod_that_ignores_sigterm_is_killed_when_its_grace_ends(cluster: Cluster) -> None:
    await cluster.run("deaf", never_finish="true", ignore_sigterm="1h", spec={"terminationGracePeriodSeconds": 1})
    await cluster.phase("deaf", "Running")
    await cluster.client.delete(PODS, "deaf", cluster.namespace)
    seen = await cluster.life("deaf", lambda event: event.type == "DELETED")
    assert terminated(seen[-1].object)["exitCode"] == 137


async def test_an_annotation_that_cannot_be_read_fails_the_pod_and_says_why(cluster: Cluster) -> None:
    await cluster.run("odd", duration="soon")
    pod = await cluster.phase("odd", "Failed")
    assert pod["status"]["reason"] == "InvalidSimulation"
    assert "node.multimirror.dev/duration: 'soon' is no duration" in pod["status"]["message"]


async def test_a_pod_that_no_node_suits_waits_and_says_so_until_one_does(cluster: Cluster) -> None:
    await cluster.run("choosy", spec={"nodeSelector": {"disk": "ssd"}})
    seen = await cluster.life("choosy", lambda event: bool(event.object["status"].get("conditions")))
    assert condition(seen[-1].object, "PodScheduled") == ("False", "Unschedulable")
    node = (await cluster.client.list(NODES)).items[0]["metadata"]["name"]
    await cluster.client.patch(NODES, node, {"metadata": {"labels": {"disk": "ssd"}}})
    pod = await cluster.phase("choosy", "Succeeded")
    assert pod["spec"]["nodeName"] == node
    assert condition(pod, "PodScheduled")[0] == "True"


async def test_a_cordoned_node_gets_no_pods(cluster: Cluster) -> None:
    names = [node["metadata"]["name"] for node in (await cluster.client.list(NODES)).items]
    for name in names[1:]:
        await cluster.client.patch(NODES, name, {"spec": {"unschedulable": True}})
    try:
        async with asyncio.timeout(DEADLINE):
            while True:  # the node hears of the cordon by a watch of its own
                name = f"pod-{secrets.token_hex(4)}"
                pods = [await cluster.run(f"{name}-{number}") for number in range(4)]
                ended = [await cluster.phase(pod["metadata"]["name"], "Succeeded") for pod in pods]
                if {pod["spec"]["nodeName"] for pod in ended} == {names[0]}:
                    break
    finally:
        for name in names[1:]:
            await cluster.client.patch(NODES, name, {"spec": {"unschedulable": None}})


async def test_an_evicted_pod_says_who_did_it(cluster: Cluster) -> None:
    await cluster.run("victim", evict="true")
    pod = await cluster.phase("victim", "Failed")
    assert condition(pod, "DisruptionTarget") == ("True", "TerminationByKubelet")
    assert pod["status"]["reason"] == "Evicted"


async def test_a_node_that_crashes_comes_back_without_its_containers(cluster: Cluster) -> None:
    await cluster.run("bomb", duration="500ms", crash_node="1s")
    running = await cluster.phase("bomb", "Running")
    node = running["spec"]["nodeName"]
    await cluster.run("bystander", never_finish="true", spec={"nodeSelector": {"kubernetes.io/hostname": node}})
    pod = await cluster.phase("bomb", "Failed")
    assert terminated(pod)["exitCode"] == 137
    assert condition(await cluster.client.get(NODES, node), "Ready")[0] == "True"
    await cluster.client.delete(PODS, "bystander", cluster.namespace, grace_period=0)


async def test_without_power_nothing_runs_and_when_it_is_back_containers_are_gone(
    cluster: Cluster, fleet: BackgroundFleet
) -> None:
    nodes = fleet.fleet.nodes["management"]

    async def switch(to: Callable[[], None]) -> None:
        to()

    await cluster.run("during", never_finish="true")
    await cluster.phase("during", "Running")
    fleet.run(switch(nodes.switch_off))
    try:
        await cluster.run("later")
        waiting = await cluster.client.get(PODS, "later", cluster.namespace)
        assert "nodeName" not in waiting["spec"]
    finally:
        fleet.run(switch(nodes.switch_on))
    assert terminated(await cluster.phase("during", "Failed"))["exitCode"] == 137
    await cluster.phase("later", "Succeeded")


async def test_a_node_that_is_gone_for_good_takes_its_pods_along_and_is_replaced(cluster: Cluster) -> None:
    await cluster.run("bomb", duration="500ms", crash_node="true")
    running = await cluster.phase("bomb", "Running")
    seen = await cluster.life("bomb", lambda event: event.type == "DELETED")
    assert condition(seen[-1].object, "DisruptionTarget") == ("True", "DeletionByPodGC")
    with pytest.raises(NotFound):
        await cluster.client.get(NODES, running["spec"]["nodeName"])
    await cluster.run("after")
    await cluster.phase("after", "Succeeded")


async def test_commands_run_as_processes_when_asked_for(tmp_path: Path) -> None:
    options = FleetOptions(workers=0, nodes=False)
    with BackgroundFleet("embedded", options) as fleet:
        connection = Connection.from_kubeconfig(fleet.management.kubeconfig)
        async with in_a_namespace(fleet) as cluster, SimulatedNodes(connection, NodeOptions(processes=True)):
            script = 'echo "hello from $(POD)"; exit 3'
            env = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
            main = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], "env": env}
            await cluster.run("real", spec={"containers": [main]})
            assert terminated(await cluster.phase("real", "Failed"))["exitCode"] == 3
            assert await cluster.log("real") == "hello from real\n"
            good = {"name": "good", "image": "busybox", "command": ["echo", "once"]}
            again = {
                "name": "bad",
                "image": "busybox",
                "command": ["sh", "-c", f"mkdir {tmp_path}/tried && exit 1; exit 0"],
            }
            await cluster.run("twice", policy="OnFailure", spec={"containers": [good, again]})
            pod = await cluster.phase("twice", "Succeeded")
            assert {each["name"]: each["restartCount"] for each in pod["status"]["containerStatuses"]} == {
                "good": 0,
                "bad": 1,
            }
            sleeper = {"name": "main", "image": "busybox", "command": ["sleep", "1000"]}
            await cluster.run("sleeper", spec={"containers": [sleeper]})
            await cluster.phase("sleeper", "Running")
            await cluster.client.delete(PODS, "sleeper", cluster.namespace)
            seen = await cluster.life("sleeper", lambda event: event.type == "DELETED")
            assert terminated(seen[-1].object)["exitCode"] == 143


async def test_nodes_that_are_started_again_go_on_where_they_were() -> None:
    with BackgroundFleet("embedded", FleetOptions(workers=0, nodes=False)) as fleet:
        connection = Connection.from_kubeconfig(fleet.management.kubeconfig)
        async with in_a_namespace(fleet) as cluster:
            async with SimulatedNodes(connection):
                await cluster.run("long", duration="1s")
                await cluster.run("forever", never_finish="true")
                await cluster.phase("long", "Running")
                await cluster.phase("forever", "Running")
            await cluster.client.delete(PODS, "forever", cluster.namespace)
            async with SimulatedNodes(connection):
                await cluster.phase("long", "Succeeded")
                await cluster.life("forever", lambda event: event.type == "DELETED")
            assert len((await cluster.client.list(NODES)).items) == 1


async def test_a_thousand_pods_at_once_cost_two_writes_each() -> None:
    with BackgroundFleet("embedded", FleetOptions(workers=0)) as fleet:
        async with in_a_namespace(fleet) as cluster:
            count = 1000
            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    group.create_task(cluster.run(f"pod-{number}"))
            ended: set[str] = set()
            changes = 0
            async with (
                asyncio.timeout(DEADLINE),
                contextlib.aclosing(cluster.client.watch(PODS, cluster.namespace)) as events,
            ):
                async for event in events:
                    if event.type != "BOOKMARK" and event.object["status"].get("phase") == "Succeeded":
                        ended.add(event.object["metadata"]["name"])
                        if len(ended) == count:
                            break
            versions = [int(pod["metadata"]["resourceVersion"]) for pod in (await cluster.client.list(PODS)).items]
            changes = max(versions) - min(versions) + 1
            assert changes <= 3 * count + 100, json.dumps(changes)

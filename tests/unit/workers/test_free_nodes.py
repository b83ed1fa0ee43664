"""What is left on each node: kept up to date pod by pod, the same as if it were added up anew."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.kinds.pod_sets import nanos
from multimirror.kube.resources import JOBS, NODES, PODS
from multimirror.workers import WorkerState
from multimirror.workers.followed import trim_node_with_labels, trim_pod
from multimirror.workers.free_nodes import FreeNodes
from multimirror.workers.node_table import NodesView
from multimirror.workers.state import conditions
from tests.unit.kube.virtual_time import VirtualTimeLoop, virtual_time
from tests.unit.workers.stage import Stage, a_copy, a_node, a_stage

Json = dict[str, Any]


def a_pod(
    name: str, node: str | None = "a", *, cpu: str = "1", owner: str = "", phase: str = "Running", **spec: Any
) -> Json:
    metadata: Json = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "1"}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Job", "controller": True, "uid": owner}]
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": metadata,
        "spec": {"containers": containers, **({"nodeName": node} if node else {}), **spec},
        "status": {"phase": phase},
    }  # fmt: skip


def kept(pod: Json) -> Json:
    found = trim_pod(pod)
    assert found is not None
    return found


def free(view: NodesView, resource: str = "cpu") -> dict[str, int]:
    return {node.name: node.free[resource] // nanos(1) for _, node in view.table.nodes()}


def test_a_pod_takes_its_requests_from_its_node_until_it_is_gone() -> None:
    nodes = FreeNodes()
    nodes.put_pod("team/p", kept(a_pod("p", cpu="3")))
    assert free(nodes.view()) == {}, "its node is not known yet"
    assert nodes.put_node(a_node("a", cpu="4", pods="10"))
    before = nodes.view()
    assert free(before) == {"a": 1}
    assert free(before, "pods") == {"a": 9}
    assert not nodes.put_pod("team/q", kept(a_pod("q", cpu="2"))), "that makes no room"
    assert free(nodes.view()) == {"a": -1}
    assert nodes.remove_pod("team/p")
    assert not nodes.remove_pod("team/p")
    assert free(nodes.view()) == {"a": 2}
    assert free(before) == {"a": 1}, "a view is what it was"


def test_the_requests_of_a_pod_are_counted_as_its_scheduler_counts_them() -> None:
    def requests(**spec: Any) -> dict[str, int]:
        found: dict[str, int] = kept(a_pod("p", **spec))["requests"]
        return found

    def container(cpu: str, **more: str) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    assert requests() == {"cpu": nanos(1)}
    assert requests(initContainers=[container("5")]) == {"cpu": nanos(5)}
    assert requests(initContainers=[container("5", restartPolicy="Always")]) == {"cpu": nanos(6)}
    assert requests(overhead={"cpu": "1"}) == {"cpu": nanos(2)}
    assert requests(resources={"requests": {"cpu": "9"}}) == {"cpu": nanos(9)}


def test_pods_that_take_nothing_of_a_node_are_not_kept() -> None:
    assert trim_pod(a_pod("p", node=None)) is None
    assert trim_pod(a_pod("p", phase="Succeeded")) is None
    assert trim_pod(a_pod("p", phase="Failed")) is None


def test_what_no_api_server_lets_in_breaks_nothing_and_is_bounded() -> None:
    assert trim_pod({**a_pod("p"), "spec": {"nodeName": "a", "containers": [1, 2]}}) is None
    assert trim_pod({**a_pod("p"), "spec": {"nodeName": "a", "containers": 7}}) is None
    assert trim_pod({**a_pod("p"), "spec": {"nodeName": {"a": "b"}}}) is None
    many = {f"example.com/r{number}": "1" for number in range(1000)}
    assert len(kept(a_pod("p", containers=[{"resources": {"requests": many}}]))["requests"]) <= 64
    node = {**a_node("a", cpu="1"), "spec": {"taints": [{"key": 1}] * 1000 + [7]}}
    node["metadata"] = {**node["metadata"], "uid": "u", "resourceVersion": "1"}
    node["metadata"]["labels"] = {f"k{number}": "v" for number in range(10_000)} | {"long": "v" * 10_000}
    found = trim_node_with_labels(node)
    assert found is not None
    assert len(found["metadata"]["labels"]) <= 256
    assert len(found["spec"]["taints"]) <= 64


def test_pods_of_our_copies_are_told_from_others_by_the_job_that_controls_them() -> None:
    nodes = FreeNodes()
    nodes.put_node(a_node("a", cpu="9", pods="10"))
    nodes.put_pod("team/ours", kept(a_pod("ours", owner="copy")))
    nodes.put_pod("team/theirs", kept(a_pod("theirs", owner="other")))
    assert nodes.view().seen == {}
    nodes.put_copy("copy", "original")
    held = {"cpu": nanos(1), "pods": nanos(1)}
    assert nodes.view().seen == {"original": ((0, held),)}
    nodes.put_node(a_node("a", unschedulable=True, cpu="9", pods="10"))
    assert nodes.view().seen == {"original": ((-1, held),)}, "it is there, and makes no room where it is"
    nodes.put_node(a_node("a", cpu="9", pods="10"))
    assert nodes.view().seen == {"original": ((0, held),)}
    nodes.remove_pod("team/ours")
    assert nodes.view().seen == {}
    nodes.put_pod("team/ours", kept(a_pod("ours", owner="copy")))
    nodes.remove_copy("copy")
    assert nodes.view().seen == {}


POD = st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "250m"]), st.sampled_from(["", "copy-1", "copy-2"]))
CHANGES = st.lists(
    st.tuples(st.just("node"), st.sampled_from("abc"), st.none() | st.tuples(st.booleans(), st.booleans()))
    | st.tuples(st.just("pod"), st.sampled_from("pqrs"), st.none() | POD)
    | st.tuples(st.just("copy"), st.sampled_from(["copy-1", "copy-2"]), st.booleans())
    | st.tuples(st.just("look"), st.just(""), st.none()),
    max_size=30,
)


@given(CHANGES)
def test_it_is_the_same_as_if_it_were_added_up_anew(changes: list[tuple[str, str, Any]]) -> None:
    nodes = FreeNodes()
    there: dict[str, Json] = {}
    pods: dict[str, Json] = {}
    copies: set[str] = set()
    for what, name, to in changes:
        if what == "node" and to is None:
            nodes.remove_node(name)
            there.pop(name, None)
        elif what == "node":
            there[name] = a_node(name, ready=to[0], unschedulable=to[1], cpu="4", pods="3")
            nodes.put_node(there[name])
        elif what == "pod" and to is None:
            nodes.remove_pod(name)
            pods.pop(name, None)
        elif what == "pod":
            pods[name] = kept(a_pod(name, to[0], cpu=to[1], owner=to[2]))
            nodes.put_pod(name, pods[name])
        elif what == "copy" and to:
            copies.add(name)
            nodes.put_copy(name, f"of-{name}")
        elif what == "copy":
            copies.discard(name)
            nodes.remove_copy(name)
        else:
            nodes.view()
    fresh = FreeNodes()
    for node in there.values():
        fresh.put_node(node)
    for key, pod in pods.items():
        fresh.put_pod(key, pod)
    for copy in copies:
        fresh.put_copy(copy, f"of-{copy}")
    assert described(nodes.view()) == described(fresh.view())


def described(view: NodesView) -> Any:
    """Whatever places nodes have."""
    names = {place: node.name for place, node in view.table.nodes()}
    seen = {
        uid: sorted((names.get(place, ""), sorted(amounts.items())) for place, amounts in held)
        for uid, held in view.seen.items()
    }
    return sorted((node.name, sorted(node.free.items())) for _, node in view.table.nodes()), seen


# --- through a session


def left(stage: Stage, name: str = "w") -> dict[str, int] | None:
    session = stage.worker(name).session
    view = session.nodes() if session is not None else None
    return free(view) if view is not None else None


@virtual_time
async def test_what_is_left_on_the_nodes_of_a_worker_is_followed() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("w")
        await cluster.put(NODES, a_node("a", cpu="4", pods="10"))
        copy = await cluster.put(JOBS, a_copy())
        await cluster.put(PODS, a_pod("foreign", cpu="3"))
        worker = await stage.connected("w")
        await stage.until(lambda: left(stage) == {"a": 1})
        assert worker.state.counts_nodes
        await cluster.put(PODS, a_pod("ours", owner=copy["metadata"]["uid"]))
        await stage.until(lambda: left(stage) == {"a": 0})
        session = worker.session
        assert session is not None
        view = session.nodes()
        assert view is not None
        assert list(view.seen) == ["uid-of-train"]
        told = len(stage.seen.states)
        await cluster.remove(PODS, "foreign", "team")
        await stage.until(lambda: len(stage.seen.states) > told)
        assert left(stage) == {"a": 3}


@virtual_time
async def test_pods_that_may_not_be_seen_cost_nothing_and_totals_count() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("w")
        await cluster.deny("list", "watch", plural="pods")
        await cluster.put(NODES, a_node("a", cpu="4"))
        worker = await stage.connected("w")
        assert left(stage) is None
        assert worker.state.capacity is not None
        assert worker.state.uncounted is None, "nobody has asked for it"
        assert cluster.count("GET", "pods") == 0


def test_what_has_changed_is_made_anew_in_small_steps_and_comes_to_the_same() -> None:
    """However it is mixed with changes, and with looks."""
    slowly, at_once = FreeNodes(), FreeNodes()

    def both(change: Callable[[FreeNodes], object]) -> None:
        change(slowly)
        change(at_once)

    for number in range(3000):
        node = trim_node_with_labels(a_node(f"n{number}", cpu="4"))
        both(lambda free, node=node: free.put_node(node))  # type: ignore[misc]
    assert slowly.is_far_behind()
    steps = slowly.catch_up()
    assert sum(1 for _ in itertools.islice(steps, 40)) == 40, "there are many more"
    for number in range(0, 3000, 7):
        name = f"n{number}"
        both(lambda free, name=name: free.remove_node(name))  # type: ignore[misc]
    slowly.view()
    for number in range(3000, 3100):
        node = trim_node_with_labels(a_node(f"n{number}", cpu="8"))
        both(lambda free, node=node: free.put_node(node))  # type: ignore[misc]
    for _ in steps:
        pass
    for _ in slowly.catch_up():
        pass
    assert not slowly.is_far_behind()
    assert list(slowly.view().table.nodes()) == list(at_once.view().table.nodes())


def test_a_worker_with_thousands_of_nodes_lets_others_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it connects."""
    made = [0]
    make = FreeNodes._node

    def counted(self: FreeNodes, name: str | None) -> Any:
        made[-1] += 1
        return make(self, name)

    class Turns(VirtualTimeLoop):
        def _run_once(self) -> None:
            made.append(0)
            super()._run_once()  # type: ignore[misc]

    async def story() -> None:
        async with a_stage() as stage:
            cluster = await stage.add("w", capacity={"mode": "Free"})
            for number in range(4000):
                await cluster.put(NODES, a_node(f"n{number}", cpu="4"))
            await stage.connected("w")
            assert len(left(stage) or ()) == 4000

    monkeypatch.setattr(FreeNodes, "_node", counted)
    with asyncio.Runner(loop_factory=Turns) as runner:
        runner.run(story())
    assert sum(made) >= 4000
    assert max(made) <= 2000, "a node takes some microseconds"


@virtual_time
async def test_a_worker_that_is_to_count_its_room_and_may_not_says_so_until_it_may() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("w", capacity={"mode": "Free"})
        await cluster.deny("list", "watch", plural="pods")
        await cluster.put(NODES, a_node("a", cpu="4"))
        worker = await stage.connected("w")
        assert told(worker.state) == (False, "PermissionDenied")
        assert worker.state.uncounted is not None
        assert "may not list and watch the pods of all namespaces" in worker.state.uncounted.message
        assert worker.state.ready, "its total counts"
        await cluster.grant()
        await stage.until(lambda: stage.worker("w").state.counts_nodes)
        assert told(stage.worker("w").state) == (True, "Counted")
        assert left(stage) == {"a": 4}
        await cluster.deny("list", "watch", plural="pods")
        await stage.until(lambda: bool(stage.worker("w").state.uncounted))
        assert left(stage) is None
        assert told(stage.worker("w").state) == (False, "PermissionDenied")


@pytest.mark.parametrize("mode", ["Auto", "Free"])
@pytest.mark.parametrize("broken", ["pods", "nodes"])
def test_what_is_left_is_not_known_while_pods_or_nodes_cannot_be_followed_and_its_status_says_why(
    broken: str, mode: str
) -> None:
    """Else pods that are long gone would be there for ever, and nothing would go where there is room."""

    @virtual_time
    async def story() -> None:
        async with a_stage() as stage:
            cluster = await stage.add("w", capacity={"mode": mode})
            await cluster.put(NODES, a_node("a", cpu="4", pods="10"))
            await cluster.put(PODS, a_pod("long-gone", cpu="3"))
            worker = await stage.connected("w")
            await stage.until(lambda: left(stage) == {"a": 1})
            cluster.broken = {broken}
            await cluster.end_watches()
            await cluster.remove(PODS, "long-gone", "team")
            await stage.until(lambda: left(stage) is None)
            await stage.until(lambda: not worker.state.counts_nodes)
            assert worker.state.ready
            assert told(worker.state) == (False, "NotFollowed")
            assert worker.state.uncounted is not None
            assert f"its {broken} cannot be followed now ({broken} cannot be read)" in worker.state.uncounted.message
            cluster.broken = set()
            await stage.until(lambda: left(stage) == {"a": 4})
            await stage.until(lambda: worker.state.counts_nodes)
            assert told(worker.state) == (True, "Counted")

    story()


def told(state: WorkerState) -> tuple[bool, str]:
    """What its status says."""
    ((_, holds, reason, _),) = [each for each in conditions(state, cordoned=False) if each[0] == "RoomCounted"]
    return holds, reason


def test_pods_that_come_and_go_all_over_a_worker_make_only_their_own_nodes_anew() -> None:
    nodes = FreeNodes()
    for number in range(100):
        nodes.put_node(a_node(f"n{number}", cpu="4", pods="10"))
    before = {node.name: node for _, node in nodes.view().table.nodes()}
    for number in (0, 40, 99):  # one in each block
        nodes.put_pod(f"team/p{number}", kept(a_pod(f"p{number}", node=f"n{number}")))
    after = {node.name: node for _, node in nodes.view().table.nodes()}
    assert {name for name, node in after.items() if node is not before[name]} == {"n0", "n40", "n99"}
    assert free(nodes.view()) == {f"n{number}": 3 if number in (0, 40, 99) else 4 for number in range(100)}

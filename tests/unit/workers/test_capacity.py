"""What nodes have to give: the sum is kept up to date node by node, and a heartbeat of a node is no news."""

import asyncio
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from multimirror.kube.resources import NODES
from multimirror.workers.capacity import Capacity
from multimirror.workers.followed import trim_node
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.stage import a_node, a_stage


def test_nodes_that_take_no_pods_give_nothing() -> None:
    capacity = Capacity()
    assert capacity.total() is None
    assert capacity.put(a_node("a", cpu="4", memory="1Gi"))
    assert capacity.put(a_node("b", cpu="500m"))
    assert not capacity.put(a_node("c", ready=False, cpu="8"))
    assert not capacity.put(a_node("d", unschedulable=True, cpu="8"))
    assert capacity.total() == {"cpu": Decimal("4.5"), "memory": Decimal(2**30)}

    assert capacity.put(a_node("a", ready=False, cpu="4", memory="1Gi"))
    assert capacity.total() == {"cpu": Decimal("0.5")}, "a resource that no node has is not 0, it is not known"
    assert capacity.remove("b")
    assert not capacity.remove("b")
    assert capacity.total() is None


def test_an_amount_of_nothing_is_an_amount() -> None:
    capacity = Capacity()
    assert capacity.put(a_node("a", gpu="0"))
    assert capacity.total() == {"gpu": Decimal(0)}


def test_a_heartbeat_of_a_node_changes_nothing() -> None:
    capacity = Capacity()
    first, second = (trim_node(stored(a_node("a", cpu="4", beat=beat))) for beat in "12")
    assert first is not None
    assert second is not None
    assert capacity.put(first)
    assert not capacity.put(second)
    assert first == second
    assert not capacity.put(a_node("a", cpu="4000m")), "the same, in other words"


def stored(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "metadata": {**node["metadata"], "uid": "u", "resourceVersion": "1"}}


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "gpu"]), st.sampled_from(["1", "100m", "3Gi", "1n", "99e999999", "x"]), max_size=3
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.tuples(AMOUNTS, st.booleans())), max_size=20))
def test_the_sum_is_that_of_the_nodes_that_are_there(
    changes: list[tuple[str, tuple[dict[str, str], bool] | None]],
) -> None:
    capacity = Capacity()
    nodes: dict[str, dict[str, Any]] = {}
    for name, change in changes:
        before = capacity.total()
        if change is None:
            told = capacity.remove(name)
            nodes.pop(name, None)
        else:
            amounts: dict[str, Any] = {**change[0]}
            nodes[name] = a_node(name, ready=change[1], **amounts)
            told = capacity.put(nodes[name])
        assert told or capacity.total() == before
    fresh = Capacity()
    for node in nodes.values():
        fresh.put(node)
    assert capacity.total() == fresh.total()


@virtual_time
async def test_a_thousand_heartbeats_of_nodes_are_not_told_and_a_change_is() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        for number in range(50):
            await cluster.put(NODES, a_node(f"node-{number}", cpu="4"))
        worker = await stage.connected("east")
        assert worker.state.capacity == {"cpu": Decimal(200)}

        told = len(stage.seen.states)
        for number in range(1000):
            await cluster.put(NODES, a_node(f"node-{number % 50}", cpu="4", beat=str(number)))
        await cluster.put(NODES, a_node("node-0", cpu="4", ready=False))
        await stage.until(lambda: worker.state.capacity == {"cpu": Decimal(196)})
        assert len(stage.seen.states) == told + 1
        await cluster.remove(NODES, "node-1")
        await stage.until(lambda: worker.state.capacity == {"cpu": Decimal(192)})


@virtual_time
async def test_a_declared_capacity_needs_no_nodes() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east", capacity={"mode": "Declared", "resources": {"cpu": "4"}})
        worker = await stage.connected("east")
        await asyncio.sleep(1)
        assert worker.state.capacity is None
        assert cluster.count("GET", "nodes") == 0

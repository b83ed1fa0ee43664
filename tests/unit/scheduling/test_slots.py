"""Places for pods on nodes: as many as a scheduler that knows only nodes would find, and never more."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.kinds.pod_sets import nanos
from multimirror.kinds.pod_shapes import MOST_CONDITIONS, PLACEMENT_LIMIT, PodShape, shape_of
from multimirror.scheduling import slots
from multimirror.scheduling.free_room import FreeRoom, Places
from multimirror.scheduling.slot_words import never_places, places_asked_for, too_few_places
from multimirror.workers.node_table import BLOCK, Node, NodesView, NodeTable

GPU = "example.com/gpu"


def a_node(
    name: str, *, labels: Mapping[str, str] | None = None, taints: tuple[tuple[str, str, str], ...] = (), **free: Any
) -> Node:
    amounts = {("example.com/gpu" if key == "gpu" else key): nanos(amount) for key, amount in free.items()}
    return Node(name, labels or {}, taints, dict(amounts), amounts)


def a_shape(**spec: Any) -> PodShape:
    """`gpu` and other amounts are requests, everything else is said as in a pod."""
    fields = ("nodeSelector", "affinity", "tolerations")
    requests = {(GPU if key == "gpu" else key): str(value) for key, value in spec.items() if key not in fields}
    said = {key: value for key, value in spec.items() if key in fields}
    shape = shape_of({"containers": [{"resources": {"requests": requests}}], **said})
    assert shape is not None
    return shape


def affinity(*terms: list[dict[str, Any]], fields: bool = False) -> dict[str, Any]:
    said = [{"matchFields" if fields else "matchExpressions": term} for term in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": said}}}


def test_what_is_left_on_two_nodes_is_not_one_place() -> None:
    table = NodeTable.of([a_node("a", gpu=3, cpu=8), a_node("b", gpu=3, cpu=8)])
    assert slots.slots(table, a_shape(gpu=4)) == 0
    assert slots.slots(table, a_shape(gpu=2)) == 2
    assert slots.slots(table, a_shape(gpu=1)) == 6
    assert slots.slots(table, a_shape(gpu=1, cpu=4)) == 4


def test_the_number_of_pods_of_a_node_is_a_limit_too() -> None:
    assert slots.slots(NodeTable.of([a_node("a", cpu=64, pods=3)]), a_shape(cpu=1)) == 3
    assert slots.slots(NodeTable.of([a_node("a", cpu=64)]), a_shape(cpu=1)) == 64, "one that does not say has none"


def test_extended_resources_that_a_node_does_not_name_are_not_there() -> None:
    table = NodeTable.of([a_node("a", cpu=4)])
    assert slots.slots(table, a_shape(gpu=1)) == 0
    assert slots.slots(table, a_shape(memory="1Gi")) == slots.UNLIMITED


def test_a_node_with_more_than_fits_on_it_takes_nothing_from_the_others() -> None:
    full = a_node("a", cpu=4)._replace(free={"cpu": -nanos(3)})
    assert slots.slots(NodeTable.of([full, a_node("b", cpu=2)]), a_shape(cpu=1)) == 2


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({}, "ab"),
        ({"nodeSelector": {"zone": "x"}}, "a"),
        ({"nodeSelector": {"zone": "x", "gen": "2"}}, ""),
        ({"affinity": affinity([{"key": "zone", "operator": "In", "values": ["y", "z"]}])}, "b"),
        ({"affinity": affinity([{"key": "zone", "operator": "NotIn", "values": ["y"]}])}, "a"),
        ({"affinity": affinity([{"key": "gen", "operator": "Exists"}])}, "b"),
        ({"affinity": affinity([{"key": "gen", "operator": "DoesNotExist"}])}, "a"),
        ({"affinity": affinity([{"key": "gen", "operator": "Gt", "values": ["1"]}])}, "b"),
        ({"affinity": affinity([{"key": "gen", "operator": "Lt", "values": ["2"]}])}, ""),
        ({"affinity": affinity([{"key": "zone", "operator": "Exists"}], [{"key": "gen", "operator": "Exists"}])}, "ab"),
        ({"affinity": affinity([{"key": "metadata.name", "operator": "In", "values": ["a"]}], fields=True)}, "a"),
        ({"affinity": affinity([])}, ""),
        ({"tolerations": [{"operator": "Exists"}]}, "abcd"),
        ({"tolerations": [{"key": "gpu", "value": "yes"}]}, "abc"),
        ({"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]}, "ab"),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "down", "operator": "Exists"}]}, "abcd"),
    ],
)  # fmt: skip
def test_pods_go_where_their_selector_affinity_and_tolerations_let_them(spec: dict[str, Any], names: str) -> None:
    table = NodeTable.of(
        [
            a_node("a", labels={"zone": "x"}, cpu=1),
            a_node("b", labels={"zone": "y", "gen": "2"}, cpu=1),
            a_node("c", labels={"gen": "no number"}, taints=(("gpu", "yes", "NoSchedule"),), cpu=1),
            a_node("d", taints=(("gpu", "yes", "NoSchedule"), ("down", "", "NoExecute")), cpu=1),
        ]
    )
    shape = a_shape(cpu=1, **spec)
    assert "".join(node.name for _, node in table.nodes() if slots.matches(node, shape)) == names
    assert slots.slots(table, shape) == len(names)


def test_a_template_that_says_too_much_about_its_nodes_has_no_shape() -> None:
    values = [f"{number:063}" for number in range(PLACEMENT_LIMIT // 63)]
    said = affinity([{"key": "zone", "operator": "In", "values": values}])
    assert shape_of({"containers": [], "affinity": said}) is None


@pytest.mark.parametrize(
    "said",
    [
        lambda number: {"tolerations": [{"key": f"k{each}"} for each in range(number)]},
        lambda number: {"affinity": affinity(*[[{"key": "k", "operator": "Exists"}]] * number)},
        lambda number: {"affinity": affinity([{"key": "k", "operator": "Exists"}] * number)},
        lambda number: {"affinity": affinity(*[[]] * number)},
    ],
    ids=["tolerations", "terms", "requirements", "terms without any"],
)
def test_a_template_that_would_cost_too_much_on_every_node_has_no_shape(said: Callable[[int], dict[str, Any]]) -> None:
    assert shape_of({"containers": [], **said(MOST_CONDITIONS)}) is not None
    assert shape_of({"containers": [], **said(MOST_CONDITIONS + 1)}) is None


def test_equal_shapes_are_one() -> None:
    assert a_shape(cpu=1) is a_shape(cpu="1000m")
    assert a_shape(cpu=1) != a_shape(cpu=1, nodeSelector={"zone": "x"})


AMOUNTS = st.fixed_dictionaries({"cpu": st.integers(0, 6), "gpu": st.integers(0, 3), "pods": st.integers(0, 4)})
NODES = st.lists(st.tuples(AMOUNTS, st.sampled_from(["x", "y"])), max_size=3)
SHAPES = st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([None, "x", "y"]))


def made(shape: tuple[int, int, str | None]) -> PodShape:
    cpu, gpu, zone = shape
    return a_shape(cpu=cpu, gpu=gpu, **({"nodeSelector": {"zone": zone}} if zone else {}))


def fits_by_force(nodes: list[tuple[dict[str, Any], str]], pods: list[tuple[int, int, str | None]]) -> bool:
    """Every way of putting every pod on some node is tried."""
    for places in product(range(len(nodes)), repeat=len(pods)):
        left = [dict(amounts) for amounts, _ in nodes]
        for (cpu, gpu, zone), place in zip(pods, places, strict=True):
            left[place]["cpu"] -= cpu
            left[place]["gpu"] -= gpu
            left[place]["pods"] -= 1 if zone in (None, nodes[place][1]) else 99
        if all(amount >= 0 for each in left for amount in each.values()):
            return True
    return False


@given(NODES, SHAPES, st.integers(1, 5))
def test_equal_pods_fit_exactly_if_any_way_of_putting_them_does(
    nodes: list[tuple[dict[str, Any], str]], shape: tuple[int, int, str | None], count: int
) -> None:
    table = NodeTable.of([a_node(str(n), labels={"zone": zone}, **amounts) for n, (amounts, zone) in enumerate(nodes)])
    assert slots.fits(table, ((made(shape), count),)) == fits_by_force(nodes, [shape] * count)


@given(NODES, SHAPES, SHAPES, st.integers(1, 2), st.integers(1, 2))
def test_several_sets_of_pods_never_fit_where_no_way_of_putting_them_does(
    nodes: list[tuple[dict[str, Any], str]],
    one: tuple[int, int, str | None],
    other: tuple[int, int, str | None],
    ones: int,
    others: int,
) -> None:
    table = NodeTable.of([a_node(str(n), labels={"zone": zone}, **amounts) for n, (amounts, zone) in enumerate(nodes)])
    if slots.fits(table, ((made(one), ones), (made(other), others))):
        assert fits_by_force(nodes, [one] * ones + [other] * others)


@given(st.lists(st.integers(0, 6), max_size=2 * BLOCK), st.integers(1, 3), st.integers(0, 40), st.integers(1, 3))
def test_what_is_put_somewhere_is_gone_for_all_shapes_and_comes_back_whole(
    cpus: list[int], cpu: int, count: int, other: int
) -> None:
    table = NodeTable.of([a_node(str(number), cpu=each) for number, each in enumerate(cpus)])
    shape, before = a_shape(cpu=cpu), slots.slots(table, a_shape(cpu=cpu))
    after, held = slots.put(table, shape, count)
    assert slots.slots(after, shape) == before - min(count, before)
    fresh = NodeTable.of([node for _, node in after.nodes()])
    assert slots.slots(after, a_shape(cpu=other)) == slots.slots(fresh, a_shape(cpu=other)), (
        "nothing is remembered wrong"
    )
    assert [node for _, node in after.changed(held, 1).nodes()] == [node for _, node in table.nodes()]
    assert slots.slots(table, shape) == before, "who has seen the table before still sees it"


# --- room on a worker


def room(nodes: list[Node], placed: dict[str, Any], seen: dict[str, Any] | None = None) -> FreeRoom:
    return FreeRoom.of(NodesView(NodeTable.of(nodes), seen or {}), placed.items())


def test_a_job_that_was_just_placed_holds_its_places_until_its_pods_are_seen_and_not_twice() -> None:
    shape = a_shape(gpu=2)
    gang = ((shape, 3),)
    held = {GPU: nanos(2), "pods": nanos(1)}
    nodes = [a_node("a", gpu=4, pods=9), a_node("b", gpu=4, pods=9)]
    assert slots.slots(room(nodes, {"job": gang}).table, shape) == 1
    less = [node._replace(free={GPU: nanos(2), "pods": nanos(8)}) for node in nodes]
    two = room(less, {"job": gang}, {"job": ((0, held), (1, held))})
    assert slots.slots(two.table, shape) == 1, "two are seen, and one is still to come"
    assert slots.slots(room(less, {}, {"job": ((0, held), (1, held))}).table, shape) == 2


def test_what_one_holds_is_free_when_it_is_gone_seen_or_not() -> None:
    shape = a_shape(gpu=2)
    held = {GPU: nanos(2), "pods": nanos(1)}
    node = a_node("a", gpu=4, pods=9)._replace(free={GPU: nanos(2), "pods": nanos(8)})
    there = room([node], {"job": ((shape, 2),)}, {"job": ((0, held),)})
    assert slots.slots(there.table, shape) == 0
    assert slots.slots(there.without(["job"]), shape) == 2


def test_places_that_one_waits_for_are_not_for_others() -> None:
    big, small, held = a_shape(gpu=4), a_shape(gpu=1), {GPU: nanos(3), "pods": nanos(1)}
    full = a_node("a", gpu=4, pods=9)._replace(free={GPU: nanos(1), "pods": nanos(8)})
    there = room([full, a_node("b", gpu=2, pods=9)], {"victim": ((a_shape(gpu=3), 1),)}, {"victim": ((0, held),)})
    kept = there.keep(((big, 1),), ["victim"])
    assert slots.slots(there.table, small) == 3
    assert slots.slots(kept.table, small) == 2, "what is left on the node that is being emptied is kept as well"


@given(st.lists(st.sets(st.sampled_from("xyz")), max_size=6))
def test_places_are_the_same_however_often_and_in_which_order_they_are_asked_for(asked: list[set[str]]) -> None:
    shape = a_shape(gpu=1)
    nodes = [a_node(name, gpu=2, pods=9)._replace(free={GPU: 0, "pods": nanos(8)}) for name in "abc"]
    held = {uid: ((number, {GPU: nanos(2), "pods": nanos(1)}),) for number, uid in enumerate("xyz")}
    there = room(nodes, {uid: ((a_shape(gpu=2), 1),) for uid in "xyz"}, held)
    places = Places(there, ((shape, 4),), [], [])
    assert places.lacking == [GPU]
    for gone in asked:
        assert places.suffice(gone) == (2 * len(gone) >= 4)


def test_pods_that_a_worker_says_are_a_job_s_count_as_its_own_no_further_than_it_could_have_them() -> None:
    nodes = [a_node(f"n{number}", gpu=2, pods=9)._replace(free={GPU: 0, "pods": nanos(8)}) for number in range(100)]
    said = tuple((number, {GPU: nanos(2), "pods": nanos(1)}) for number in range(100))
    there = room(nodes, {"job": ((a_shape(gpu=2), 3),)}, {"job": said})
    assert len(there.held_by("job")) == 2 * 3 + 8
    assert slots.slots(there.without(["job"]), a_shape(gpu=2)) == 2 * 3 + 8


class _Looked(tuple[Any, ...]):
    """What pods hold, and how often somebody went through it."""

    __slots__ = ()
    times = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).times += 1
        return super().__iter__()


def test_a_job_with_pods_on_all_nodes_is_looked_at_once_and_not_once_for_each_node() -> None:
    nodes = [a_node(f"n{number}", gpu=2, pods=9)._replace(free={GPU: 0, "pods": nanos(8)}) for number in range(100)]
    everywhere = _Looked((number, {GPU: nanos(2), "pods": nanos(1)}) for number in range(100))
    places = Places(FreeRoom(NodeTable.of(nodes), {"job": everywhere}), ((a_shape(gpu=1), 4),), [], [])
    assert list(places.neighbours()) == [frozenset({"job"})] * 4
    assert _Looked.times == 1


# --- in words


def test_the_words_name_the_places_and_what_is_left() -> None:
    shape = a_shape(gpu=4)
    tight = [a_node(name, gpu=8)._replace(free={GPU: nanos(3)}) for name in "ab"]
    table = NodeTable.of([*tight, a_node("c", gpu=24)])
    assert places_asked_for(((shape, 8),)) == f"8 free places for pods of 4 {GPU}"
    assert too_few_places(table, ((shape, 8),)) == (
        f"has 6 free places for pods of 4 {GPU}, the Job needs 8 (2 nodes with 3 {GPU} left each)"
    )


def test_the_words_say_what_will_never_fit() -> None:
    table = NodeTable.of([a_node("a", gpu=4), a_node("b", gpu=4)])
    assert never_places(table, ((a_shape(gpu=3), 3),)) == f"has 2 places in all for pods of 3 {GPU}, the Job needs 3"
    assert never_places(table, ((a_shape(gpu=5), 1),)) == f"has no node large enough for a pod of 5 {GPU}"
    elsewhere = a_shape(gpu=1, nodeSelector={"zone": "x"})
    assert never_places(table, ((elsewhere, 1),)) == "has no node that its nodeSelector, affinity and tolerations allow"

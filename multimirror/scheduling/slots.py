"""How many more pods of a shape a worker has places for. Pure.

    places of a node    0 if the pod may not go there (nodeSelector, required node affinity, taints that it does not
                        tolerate); else the least, over all that it asks for, of what is left divided by what is asked
    places of a worker  the sum

For pods that are all equal this is exact: a Job fits if it has as many places as pods. Several sets of pods are put one
after the other, each at the first places that it finds; that may refuse what a cleverer packing would fit, and never
fits what cannot be. What nodes are not asked for (topology spread, other pods, volumes, devices) is not seen here.
"""

from collections.abc import Callable, Iterator
from typing import Final

from multimirror.kinds.pod_shapes import Gang, PodShape, Requirement, Toleration
from multimirror.workers.node_table import BLOCK, Amounts, Block, Held, Node, NodeTable, Taint

UNLIMITED: Final = 2**31
"""Of pods that ask for nothing that is limited there."""
_EMPTY: Final = "if nothing ran there"
_MOST_REMEMBERED: Final = 1024
_tolerated: dict[tuple[PodShape, tuple[Taint, ...]], bool] = {}


def is_extended(resource: str) -> bool:
    """Nodes say of those what they have. (Of cpu, memory, ephemeral-storage and pods virtual ones may not.)"""
    return "/" in resource or resource.startswith("hugepages-")


def slots(table: NodeTable, shape: PodShape) -> int:
    """Places for pods of that shape, now."""
    return min(sum(_slots(block, shape) for block in table.blocks), UNLIMITED)


def slots_when_empty(table: NodeTable, shape: PodShape) -> int:
    """Places if nothing ran there."""
    return min(sum(_slots_when_empty(block, shape) for block in table.blocks), UNLIMITED)


def has_slots(table: NodeTable, shape: PodShape, count: int) -> bool:
    """At least so many. What is known already is asked first, and no more is found out than is needed."""
    unknown = []
    for block in table.blocks:
        known = block.remembered.get(shape)
        if known is None:
            unknown.append(block)
        else:
            count -= known
    for block in unknown:
        if count <= 0:
            break
        if _is_too_small(block.most_free, shape):
            block.remember(shape, 0)
            continue
        found = 0
        for places in _of(block, shape, _free):
            found += places
            if found >= count:
                return True
        count -= block.remember(shape, found)
    return count <= 0


def _slots(block: Block, shape: PodShape) -> int:
    known = block.remembered.get(shape)
    if known is None:
        small = _is_too_small(block.most_free, shape)
        known = block.remember(shape, 0 if small else sum(_of(block, shape, _free)))
    return known


def _slots_when_empty(block: Block, shape: PodShape) -> int:
    key = shape, _EMPTY
    known = block.remembered.get(key)
    if known is None:
        small = _is_too_small(block.most_allocatable, shape)
        known = block.remember(key, 0 if small else sum(_of(block, shape, _allocatable)))
    return known


def _is_too_small(most: Callable[[str], int | None], shape: PodShape) -> bool:
    """No node of a block has enough of something."""
    for name, amount in shape.asked:
        there = most(name)
        if there is not None and there < amount:
            return True
    return False


def fits(table: NodeTable, gang: Gang) -> bool:
    """There are places for all of them."""
    if len(gang) == 1:
        ((shape, count),) = gang
        return has_slots(table, shape, count)
    for shape, count in gang:
        if not has_slots(table, shape, count):
            return False
        table, _ = put(table, shape, count)
    return True


def fits_when_empty(table: NodeTable, gang: Gang) -> bool:
    if len(gang) > 1:
        empty = NodeTable.of(
            node._replace(free=node.allocatable) if node is not None else None
            for block in table.blocks
            for node in block.nodes
        )
        return fits(empty, gang)
    for shape, count in gang:
        left = count
        for block in table.blocks:
            if left <= 0:
                break
            left -= _slots_when_empty(block, shape)
        if left > 0:
            return False
    return True


def put(table: NodeTable, shape: PodShape, count: int) -> tuple[NodeTable, Held]:
    """With so many pods at the first places that they find, or as many as find one; and what they hold there."""
    held: list[tuple[int, Amounts]] = []
    left: dict[int, int] = {}
    for number, block in enumerate(table.blocks):
        if count <= 0:
            break
        if block.remembered.get(shape) == 0 or _is_too_small(block.most_free, shape):
            continue
        before = count
        for within, places in enumerate(_of(block, shape, _free)):
            taken = min(places, count)
            if taken > 0:
                held.append((number * BLOCK + within, {name: amount * taken for name, amount in shape.asked}))
                count -= taken
                if not count:
                    break
        known = block.remembered.get(shape, UNLIMITED)
        if count < before and known < UNLIMITED:
            left[number] = known - (before - count)
    after = table.changed(held, -1)
    for number, places in left.items():  # as many fewer: the next one of this shape does not have to count again
        after.blocks[number].remember(shape, places)
    return after, tuple(held)


def put_all(table: NodeTable, gang: Gang) -> tuple[NodeTable, Held]:
    held: Held = ()
    for shape, count in gang:
        table, more = put(table, shape, count)
        held += more
    return table, held


def binding(table: NodeTable, shape: PodShape) -> set[str]:
    """What there is too little of for more pods, on nodes that would have places for more if less ran there."""
    found: set[str] = set()
    for _, node in table.nodes():
        if not matches(node, shape):
            continue
        places = node_slots(node.free, shape)
        if places >= node_slots(node.allocatable, shape):
            continue
        found.update(name for name, amount in shape.asked if name in node.free and node.free[name] // amount <= places)
    return found


def _free(node: Node) -> Amounts:
    return node.free


def _allocatable(node: Node) -> Amounts:
    return node.allocatable


def _of(block: Block, shape: PodShape, amounts_of: Callable[[Node], Amounts]) -> Iterator[int]:
    for node in block.nodes:
        if node is None:
            yield 0
            continue
        places = node_slots(amounts_of(node), shape)
        yield places if places and matches(node, shape) else 0


def node_slots(there: Amounts, shape: PodShape) -> int:
    """As far as amounts go."""
    most = UNLIMITED
    for name, asked in shape.asked:
        amount = there.get(name)
        if amount is None:
            if is_extended(name):
                return 0
        elif amount < asked:
            return 0
        else:
            most = min(most, amount // asked)
    return most


# --- which nodes it may go to


def matches(node: Node, shape: PodShape) -> bool:
    labels = node.labels
    if any(labels.get(key) != value for key, value in shape.selector):
        return False
    if shape.terms is not None and not any(
        term and all(_holds(node, requirement) for requirement in term) for term in shape.terms
    ):
        return False
    return not node.taints or _tolerates_all(shape, node.taints)


def _holds(node: Node, requirement: Requirement) -> bool:
    of_a_field, key, operator, values = requirement
    value = node.labels.get(key)
    if of_a_field:
        value = node.name if key == "metadata.name" else None
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(operator, value, values)
    return False


def _compares(operator: str, value: str | None, values: frozenset[str]) -> bool:
    if value is None or len(values) != 1:
        return False
    try:
        there, asked = int(value), int(next(iter(values)))
    except ValueError:
        return False
    return there > asked if operator == "Gt" else there < asked


def _tolerates_all(shape: PodShape, taints: tuple[Taint, ...]) -> bool:
    """Remembered: thousands of nodes have the same."""
    key = shape, taints
    known = _tolerated.get(key)
    if known is None:
        if len(_tolerated) >= _MOST_REMEMBERED:
            _tolerated.clear()
        known = all(any(_tolerates(each, taint) for each in shape.tolerations) for taint in taints)
        _tolerated[key] = known
    return known


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    key, value, effect = taint
    if toleration.effect and toleration.effect != effect:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == key
    return toleration.operator == "Equal" and toleration.key == key and toleration.value == value

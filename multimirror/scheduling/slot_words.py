"""Places for pods, in words: how many there are, and what is left on the nodes that have none. Pure."""

from collections import Counter
from decimal import Decimal
from typing import Final

from multimirror.kinds.pod_shapes import Gang, PodShape
from multimirror.scheduling.slots import UNLIMITED, matches, node_slots, put, slots, slots_when_empty
from multimirror.workers.node_table import NodeTable

_TOLD: Final = 3


def text(amount: int) -> str:
    """As people write it: 1.5, 200; large amounts in powers of 1024."""
    value = Decimal(amount).scaleb(-9)
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
        if abs(value) >= size:
            return f"{(value / size).quantize(Decimal('0.1')).normalize():f}{suffix}"
    return f"{value.normalize():f}"


def places_asked_for(gang: Gang) -> str:
    """8 free places for pods of 4 gpu."""
    return " and ".join(f"{_places(count)} for pods of {_pod(shape)}" for shape, count in gang)


def too_few_places(table: NodeTable, gang: Gang) -> str:
    """Of a worker that would have enough if less ran there."""
    for shape, count in gang:
        there = slots(table, shape)
        if there < count:
            left = _left(table, shape)
            return f"has {_places(there)} for pods of {_pod(shape)}, the Job needs {count}" + (
                f" ({left})" if left else ""
            )
        table, _ = put(table, shape, count)
    return "has too few free places"


def never_places(table: NodeTable, gang: Gang) -> str:
    """Of a worker that has not enough nodes for it, whatever runs there."""
    for shape, count in gang:
        there = slots_when_empty(table, shape)
        if there >= count:
            continue
        if not any(matches(node, shape) for _, node in table.nodes()):
            return "has no node that its nodeSelector, affinity and tolerations allow"
        if not there:
            return f"has no node large enough for a pod of {_pod(shape)}"
        return f"has {_number(there, 'place')} in all for pods of {_pod(shape)}, the Job needs {count}"
    return "has too few places in all for its pods"


def _left(table: NodeTable, shape: PodShape) -> str:
    """Of the nodes without a place, those that lack least: 2 nodes with 3 gpu left each."""
    lacking: dict[str, Counter[int]] = {}
    for _, node in table.nodes():
        if not matches(node, shape) or node_slots(node.free, shape):
            continue
        for name, amount in shape.asked:
            there = node.free.get(name)
            if there is not None and there < amount:
                lacking.setdefault(name, Counter())[max(0, there)] += 1
                break
    if not lacking:
        return ""
    name = max(lacking, key=lambda each: (sum(lacking[each].values()), each))
    most = max(lacking[name])
    nodes = lacking[name][most]
    return f"{_number(nodes, 'node')} with {text(most)} {name} left{' each' if nodes > 1 else ''}"


def _pod(shape: PodShape) -> str:
    """What is special about it first: 4 nvidia.com/gpu, 8 cpu."""
    asked = sorted((("/" not in name, name, amount) for name, amount in shape.asked if name != "pods"))
    told = [f"{text(amount)} {name}" for _, name, amount in asked[:_TOLD]]
    return ", ".join(told) if told else "no requests"


def _places(number: int) -> str:
    return "free places without limit" if number >= UNLIMITED else f"{number} free place{'' if number == 1 else 's'}"


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

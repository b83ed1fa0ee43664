"""The nodes of a worker and what is left on each: a value that costs little to change, and never changes itself.

Nodes stand in blocks of 32, each at its own place. What is taken from a node makes a new node, a new block and a new
list of blocks, and everything else is shared: so every moment of a plan can keep the table that it saw. What is found
out about a block (how many pods of a shape it has places for) is remembered with the block, and holds for as long as
anybody uses it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

BLOCK: Final = 32
_MOST_REMEMBERED: Final = 512

Amounts = Mapping[str, int]
"""By resource, in billionths."""
Taint = tuple[str, str, str]
"""Key, value, effect."""
Held = tuple[tuple[int, Amounts], ...]
"""What pods hold: at which place, and how much."""


class Node(NamedTuple):
    """One that takes pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    """Those that keep pods away."""
    allocatable: Amounts
    free: Amounts
    """Less than nothing, where there is more than fits."""


class Block:
    """Up to 32 nodes; None: there is none at that place that takes pods."""

    __slots__ = ("_most_allocatable", "_most_free", "nodes", "remembered")

    def __init__(self, nodes: tuple[Node | None, ...], like: "Block | None" = None) -> None:
        """`like`: one with the same nodes, of which something else is free."""
        self.nodes = nodes
        self.remembered: dict[object, int] = {}
        self._most_free: dict[str, int] = {}
        self._most_allocatable: dict[str, int] = like._most_allocatable if like is not None else {}

    def most_free(self, resource: str) -> int | None:
        """What is left of it on the node that has most of it; None: not all of them name it, so it may have no limit.
        Found when it is asked for: a worker may name more than anybody asks for. (And people ask for more than any
        worker names: nothing is kept of that.)"""
        found = self._most_free.get(resource)
        if found is None:
            found = _most(resource, (node.free for node in self.nodes if node is not None))
            if found is not None:
                self._most_free[resource] = found
        return found

    def most_allocatable(self, resource: str) -> int | None:
        found = self._most_allocatable.get(resource)
        if found is None:
            found = _most(resource, (node.allocatable for node in self.nodes if node is not None))
            if found is not None:
                self._most_allocatable[resource] = found
        return found

    def remember(self, what: object, number: int) -> int:
        if len(self.remembered) >= _MOST_REMEMBERED:
            self.remembered.clear()
        self.remembered[what] = number
        return number


class NodeTable:
    """All of them."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: tuple[Block, ...] = ()) -> None:
        self.blocks = blocks

    @classmethod
    def of(cls, nodes: Iterable[Node | None]) -> "NodeTable":
        """In their places."""
        found = tuple(nodes)
        return cls(tuple(Block(found[start : start + BLOCK]) for start in range(0, len(found), BLOCK)))

    def nodes(self) -> Iterator[tuple[int, Node]]:
        for number, block in enumerate(self.blocks):
            for place, node in enumerate(block.nodes, number * BLOCK):
                if node is not None:
                    yield place, node

    def changed(self, held: Iterable[tuple[int, Amounts]], sign: int) -> "NodeTable":
        """With so much more of it free (1), or so much less (-1)."""
        by_block: dict[int, dict[int, dict[str, int]]] = {}
        for place, amounts in held:
            number, within = divmod(place, BLOCK)
            if place < 0 or number >= len(self.blocks):
                continue  # it holds nothing of a node that takes pods
            block = by_block.setdefault(number, {})
            node = self.blocks[number].nodes[within]
            if node is None:
                continue
            free = block.get(within)
            if free is None:
                free = block[within] = dict(node.free)
            for name, amount in amounts.items():
                if name in free:
                    free[name] += sign * amount
        if not by_block:
            return self
        blocks = list(self.blocks)
        for number, frees in by_block.items():
            nodes = list(blocks[number].nodes)
            for within, free in frees.items():
                node = nodes[within]
                if node is not None:
                    nodes[within] = node._replace(free=free)
            blocks[number] = Block(tuple(nodes), blocks[number])
        return NodeTable(tuple(blocks))


def _most(resource: str, amounts: Iterable[Amounts]) -> int | None:
    most = None
    for each in amounts:
        amount = each.get(resource)
        if amount is None:
            return None
        if most is None or amount > most:
            most = amount
    return most


@dataclass(frozen=True, slots=True)
class NodesView:
    """A worker's nodes at one moment, and the pods of ours on them."""

    table: NodeTable = field(default_factory=NodeTable)
    seen: Mapping[str, Held] = field(default_factory=lambda: MappingProxyType({}))
    """By the uid of the original: its pods that are there and not finished. At place -1: on a node that takes none."""

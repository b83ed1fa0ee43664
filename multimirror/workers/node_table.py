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

    def __init__(self, nodes: tuple[Node | None, ...], most_allocatable: Amounts | None = None) -> None:
        self.nodes = nodes
        self.remembered: dict[object, int] = {}
        self._most_free: Amounts | None = None
        self._most_allocatable = most_allocatable

    @property
    def most_free(self) -> Amounts:
        """Of each resource, what is left on the node that has most of it."""
        if self._most_free is None:
            self._most_free = _most(node.free for node in self.nodes if node is not None)
        return self._most_free

    @property
    def most_allocatable(self) -> Amounts:
        if self._most_allocatable is None:
            self._most_allocatable = _most(node.allocatable for node in self.nodes if node is not None)
        return self._most_allocatable

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
            blocks[number] = Block(tuple(nodes), blocks[number].most_allocatable)
        return NodeTable(tuple(blocks))


def _most(amounts: Iterable[Amounts]) -> Amounts:
    """Only of what all of them name: what one does not name may have no limit there."""
    nodes = tuple(amounts)
    named = set(nodes[0]).intersection(*nodes[1:]) if nodes else set()
    return {name: max(each[name] for each in nodes) for name in named}


@dataclass(frozen=True, slots=True)
class NodesView:
    """A worker's nodes at one moment, and the pods of ours on them."""

    table: NodeTable = field(default_factory=NodeTable)
    seen: Mapping[str, Held] = field(default_factory=lambda: MappingProxyType({}))
    """By the uid of the original: its pods that are there and not finished. At place -1: on a node that takes none."""

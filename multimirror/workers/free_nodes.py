"""What is left on each node of a worker, kept up to date as nodes and pods come and go.

A change of a pod costs the same with 10 and 100,000 of them: one sum is changed, and one node is made anew when
somebody looks (`view`), or before that, in small steps, where very many have changed (`catch_up`). Pods count from when
they are bound to a node until they are finished or gone, whoever made them. Those of our copies are told apart by the
uid of the Job that controls them, which has to be the one of a copy that we know.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from multimirror.batch import Json
from multimirror.workers.capacity import allocatable
from multimirror.workers.node_table import BLOCK, Amounts, Block, Held, Node, NodesView, NodeTable, Taint

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_FAR: Final = 1024
"""Nodes, or Jobs: to make so many anew takes some milliseconds."""
_Pod = tuple[str, Amounts, str]
"""On which node, what it asks for, and the uid of the Job that controls it."""


class _Place:
    """What is known about the node of one name, be it there or not."""

    __slots__ = ("allocatable", "labels", "number", "owners", "pods", "taints", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.pods = 0
        self.used: dict[str, int] = {}
        self.owners: Counter[str] = Counter()  # of its pods: the Jobs
        self.allocatable: Amounts = {}  # nothing: it takes no pods
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()

    def count(self, amounts: Amounts, owner: str, sign: int) -> None:
        self.pods += sign
        if owner:
            self.owners[owner] += sign
            if not self.owners[owner]:
                del self.owners[owner]
        for name, amount in amounts.items():
            left = self.used.get(name, 0) + sign * amount
            if left:
                self.used[name] = left
            else:
                self.used.pop(name, None)


class FreeNodes:
    """Every method that changes something says whether there may be more room since."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._numbers: list[str | None] = []
        """Which node has which place; None: a place that is free."""
        self._unused: list[int] = []
        self._pods: dict[str, _Pod] = {}
        self._by_owner: dict[str, dict[str, _Pod]] = {}
        """By the uid of the Job that controls them."""
        self._copies: dict[str, str] = {}
        """By the uid of a copy: that of its original."""
        self._seen: dict[str, dict[str, Held]] = {}
        """By the uid of the original, then of the copy."""
        self._blocks: list[Block] = []
        self._stale_places: set[int] = set()
        self._stale_owners: set[str] = set()
        self._view: NodesView | None = None

    # --- nodes

    def put_node(self, node: Json) -> bool:
        name = node["metadata"]["name"]
        place = self._place(name)
        before = place.allocatable, place.labels, place.taints
        found = node["metadata"].get("labels") or {}, _taints(node)
        place.allocatable, (place.labels, place.taints) = allocatable(node), found
        if (place.allocatable, *found) == before:
            self._drop(name, place)
            return False
        if bool(before[0]) != bool(place.allocatable):
            self._stale_owners.update(place.owners)
        self._stale(place)
        self._drop(name, place)
        return True

    def remove_node(self, name: str) -> None:
        place = self._places.get(name)
        if place is not None:
            place.allocatable, place.labels, place.taints = {}, {}, ()
            self._stale_owners.update(place.owners)
            self._stale(place)
            self._drop(name, place)

    # --- pods

    def put_pod(self, key: str, pod: Json) -> bool:
        """As `followed.trim_pod` made it: it is bound to a node, and not finished."""
        now = pod["node"], pod["requests"], pod["owner"]
        before = self._pods.get(key)
        if before == now:
            return False
        self.remove_pod(key)
        self._pods[key] = now
        self._count(now, 1)
        if owner := now[2]:
            self._by_owner.setdefault(owner, {})[key] = now
            self._stale_owners.add(owner)
        return before is not None

    def remove_pod(self, key: str) -> bool:
        before = self._pods.pop(key, None)
        if before is None:
            return False
        self._count(before, -1)
        if owner := before[2]:
            del self._by_owner[owner][key]
            if not self._by_owner[owner]:
                del self._by_owner[owner]
            self._stale_owners.add(owner)
        return True

    # --- whose they are

    def put_copy(self, copy: str, original: str) -> None:
        """Pods that this Job controls are those of our copy of that original."""
        if self._copies.get(copy) != original:
            self.remove_copy(copy)
            self._copies[copy] = original
            self._stale_owners.add(copy)

    def remove_copy(self, copy: str) -> None:
        original = self._copies.pop(copy, None)
        if original is not None and original in self._seen:
            self._seen[original].pop(copy, None)
            if not self._seen[original]:
                del self._seen[original]
            self._view = None

    # --- what there is

    def view(self) -> NodesView:
        """As it is now; what comes later does not change it."""
        if self._view is not None and not self._stale_places and not self._stale_owners:
            return self._view
        for _ in self.catch_up():
            pass
        seen = {
            original: next(iter(copies.values()))
            if len(copies) == 1
            else tuple(each for held in copies.values() for each in held)
            for original, copies in self._seen.items()
        }
        self._view = NodesView(NodeTable(tuple(self._blocks)), seen)
        return self._view

    def is_far_behind(self) -> bool:
        """So much has changed since somebody looked that a look would take long."""
        return len(self._stale_places) > _FAR or len(self._stale_owners) > _FAR

    def catch_up(self) -> Iterator[None]:
        """Make anew what has changed until now, in small steps. What changes meanwhile is for the next look."""
        stale: dict[int, list[int]] = {}
        for place in self._stale_places:
            stale.setdefault(place // BLOCK, []).append(place)
        for number in sorted(stale):
            self._make_block(number, stale[number])
            yield
        for number, owner in enumerate(tuple(self._stale_owners), 1):
            if owner in self._stale_owners:
                self._stale_owners.discard(owner)
                self._see(owner)
            if number % BLOCK == 0:
                yield

    def _make_block(self, number: int, places: list[int]) -> None:
        while number >= len(self._blocks):
            self._blocks.append(Block(()))
        nodes = list(self._blocks[number].nodes)
        nodes += [None] * (len(self._numbers[number * BLOCK : (number + 1) * BLOCK]) - len(nodes))
        for place in places:  # the others are as they were: one pod in each block costs a node in each
            nodes[place % BLOCK] = self._node(self._numbers[place])
        self._stale_places.difference_update(places)
        self._blocks[number] = Block(tuple(nodes))
        self._view = None

    def _see(self, owner: str) -> None:
        self._view = None
        original = self._copies.get(owner)
        if original is None:
            return
        pods = self._by_owner.get(owner)
        if pods:
            held = tuple((self._held_at(node), {**amounts, "pods": _ONE_POD}) for node, amounts, _ in pods.values())
            self._seen.setdefault(original, {})[owner] = held
        elif original in self._seen:
            self._seen[original].pop(owner, None)
            if not self._seen[original]:
                del self._seen[original]

    def _held_at(self, node: str) -> int:
        place = self._places.get(node)
        return place.number if place is not None and place.allocatable else -1

    def _node(self, name: str | None) -> Node | None:
        place = self._places.get(name) if name is not None else None
        if place is None or name is None or not place.allocatable:
            return None
        used = {**place.used, "pods": place.pods * _ONE_POD}
        free = {resource: amount - used.get(resource, 0) for resource, amount in place.allocatable.items()}
        return Node(name, place.labels, place.taints, place.allocatable, free)

    def _count(self, pod: _Pod, sign: int) -> None:
        name, amounts, owner = pod
        place = self._place(name)
        place.count(amounts, owner, sign)
        self._stale(place)
        self._drop(name, place)

    def _place(self, name: str) -> _Place:
        place = self._places.get(name)
        if place is None:
            if self._unused:
                number = self._unused.pop()
                self._numbers[number] = name
            else:
                number = len(self._numbers)
                self._numbers.append(name)
            place = self._places[name] = _Place(number)
        return place

    def _drop(self, name: str, place: _Place) -> None:
        """A place of which nothing is known any more is for another node."""
        if not place.pods and not place.allocatable:
            del self._places[name]
            self._numbers[place.number] = None
            self._unused.append(place.number)
            self._stale(place)

    def _stale(self, place: _Place) -> None:
        self._stale_places.add(place.number)


_ONE_POD: Final = 10**9


def _taints(node: Json) -> tuple[Taint, ...]:
    found = ((node.get("spec") or {}).get("taints")) or ()
    return tuple((each["key"], each["value"], each["effect"]) for each in found if each["effect"] in _KEEPS_AWAY)

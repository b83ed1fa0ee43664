"""The quota of queues that share: a tree of cohorts with queues as its leaves, and what is used of it.

A node has an own quota, and may limit what it borrows on top of that and what of it others use. From these follow, once
for each tree: `subtree`, what a node and those below it can use without borrowing; `local`, what of that is never lent;
`most`, the largest request that could ever fit. What is used is counted from the queues upwards: a node's use beyond
its local part is its parent's. So what is available to a queue is found on its way to the root alone. Amounts are whole
numbers (of billionths), so all of this is exact, and adding and then removing leaves no trace.

A queue without a cohort is a tree of its own, and its quota is the limit. A cohort that is only named is a root without
quota. Cohorts that are each other's parents make no tree: nothing is available to the queues that lead there (`cycle`).

What is not listed is not limited. A resource counts for a queue if the queue lists it, or a cohort above it does, for
then somebody has said what all those below have together: with a pool above, a queue that does not name the resource
has none of its own, and borrows. That some other queue of the tree lists a resource says nothing about those that do
not: they use it without a limit, as without a cohort, and it is not counted. A queue that is only to borrow lists 0.

`QuotaTree` never changes, and is made anew when a queue or a cohort does. `QuotaUsage` is forked for a pass, and for
trying things in it: a fork costs a copy of one list of pointers, and a node's sums are copied when they are changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple

from multimirror.api import CohortSpec, MirrorQueueSpec, Quota
from multimirror.kinds.pod_sets import Amounts, amounts_of

_ONLY_NAMED: Final = CohortSpec()
_NOTHING: Final[dict[str, int]] = {}


class NodeQuota(NamedTuple):
    """What a node has of one resource, whatever is used."""

    own: int
    borrow: int | None
    """The most on top of `subtree`; None: no limit of its own."""
    subtree: int
    local: int
    most: int


@dataclass(frozen=True, slots=True)
class CohortCycle:
    """These are each other's parents: nobody below them is placed until one of them has another parent, or none."""

    cohorts: tuple[str, ...]

    def __str__(self) -> str:
        return f"cohorts are each other's parents: {' in '.join((*self.cohorts, self.cohorts[0]))}"


@dataclass(frozen=True, slots=True)
class Short:
    """A resource of which more is asked than there is."""

    resource: str
    asked: int
    available: int


class Node:
    """A queue or a cohort in its tree. Compared by identity."""

    __slots__ = (
        "children",
        "cycle",
        "half_life",
        "height",
        "index",
        "is_queue",
        "name",
        "parent",
        "path",
        "quotas",
        "weight",
    )

    def __init__(self, name: str, weight: Fraction, parent: "Node | None", *, index: int, is_queue: bool) -> None:
        self.name, self.weight, self.parent, self.index, self.is_queue = name, weight, parent, index, is_queue
        self.children: list[Node] = []
        self.quotas: dict[str, NodeQuota] = {}
        """Of the resources that count here."""
        self.cycle: CohortCycle | None = None
        self.half_life: int | None = None
        """Of a cohort: in so many seconds half of what its members used before is forgotten; None: all of it is."""
        self.height = 0
        """Above the queues: 0 for a queue."""
        self.path: tuple[Node, ...] = (self, *(parent.path if parent is not None else ()))
        """It, and all above it up to the root."""
        if parent is not None:
            parent.children.append(self)

    @property
    def root(self) -> "Node":
        return self.path[-1]

    def queues(self) -> "Iterator[Node]":
        """It, if it is one, or all below it."""
        if self.is_queue:
            yield self
        for child in self.children:
            yield from child.queues()

    def below(self, ancestor: "Node") -> "Node":
        """The child of an ancestor on the way to this one: its side at that fork."""
        return self.path[self.path.index(ancestor) - 1]

    def __repr__(self) -> str:
        return f"<{'queue' if self.is_queue else 'cohort'} {self.name}>"


class QuotaTree:
    """All trees: what queues and cohorts have, and where they stand. A queue and a cohort may have the same name."""

    def __init__(
        self, queues: Mapping[str, MirrorQueueSpec], cohorts: Mapping[str, CohortSpec] = MappingProxyType({})
    ) -> None:
        self.nodes: list[Node] = []
        """Parents before their children."""
        self.queues: dict[str, Node] = {}
        self.cohorts: dict[str, Node] = {}
        self.cycles: dict[str, CohortCycle] = {}
        """By cohort: those on a cycle, and those that lead to one."""
        self.decays = False
        """Somewhere what was used before counts."""
        quotas: list[Quota] = []
        for name in (*cohorts, *(spec.cohort for spec in queues.values() if spec.cohort is not None)):
            self._make_cohort(name, cohorts, quotas)
        for name, queue in queues.items():
            parent = self.cohorts.get(queue.cohort) if queue.cohort is not None else None
            node = self.queues[name] = self._make(name, queue.weight, parent, quotas, queue.quota, is_queue=True)
            node.cycle = self.cycles.get(queue.cohort) if queue.cohort is not None else None
        _count(self.nodes, quotas)

    def _make_cohort(self, name: str, specs: Mapping[str, CohortSpec], quotas: list[Quota]) -> None:
        """It, after all above it."""
        way: list[str] = []
        at: str | None = name
        while at is not None and at not in self.cohorts and at not in self.cycles:
            if at in way:
                cycle = CohortCycle(tuple(way[way.index(at) :]))
                self.cycles |= dict.fromkeys(way, cycle)
                return
            way.append(at)
            at = specs.get(at, _ONLY_NAMED).parent
        if at in self.cycles:
            self.cycles |= dict.fromkeys(way, self.cycles[at])
            return
        parent = self.cohorts.get(at) if at is not None else None
        for each in reversed(way):
            spec = specs.get(each, _ONLY_NAMED)
            above = parent.half_life if parent is not None else None
            parent = self.cohorts[each] = self._make(each, spec.weight, parent, quotas, spec.quota, is_queue=False)
            parent.half_life = spec.half_life if spec.half_life is not None else above
            self.decays |= parent.half_life is not None

    def _make(
        self, name: str, weight: Fraction, parent: Node | None, quotas: list[Quota], quota: Quota, *, is_queue: bool
    ) -> Node:
        node = Node(name, weight, parent, index=len(self.nodes), is_queue=is_queue)
        self.nodes.append(node)
        quotas.append(quota)
        return node


def _count(nodes: list[Node], quotas: list[Quota]) -> None:
    """All that follows from the quotas: which resources count where, and the sums."""
    amounts = [
        (amounts_of(quota.resources), amounts_of(quota.borrow), amounts_of(quota.lend))
        if _says_something(quota)
        else _NONE
        for quota in quotas
    ]
    listed: list[frozenset[str]] = []
    """By node: what it lists, and those above it."""
    in_tree: dict[int, set[str]] = {}
    """By root: what anybody lists."""
    for node, (own, borrow, _) in zip(nodes, amounts, strict=True):
        names = frozenset((*own, *borrow)) if node.parent is not None else frozenset(own)
        in_tree.setdefault(node.root.index, set()).update(names)
        listed.append(names | listed[node.parent.index] if node.parent is not None else names)
    lent_to: list[dict[str, int]] = [{} for _ in nodes]
    """By node: what its children have that is not local."""
    for node in reversed(nodes):
        own, borrow, lend = amounts[node.index]
        parent = node.parent
        if parent is not None:
            parent.height = max(parent.height, node.height + 1)
        for name in listed[node.index] if node.is_queue else in_tree[node.root.index]:
            subtree = own.get(name, 0) + lent_to[node.index].get(name, 0)
            if parent is None:
                node.quotas[name] = NodeQuota(own.get(name, 0), None, subtree, 0, subtree)
                continue
            local = max(0, subtree - lend[name]) if name in lend else 0
            lent_to[parent.index][name] = lent_to[parent.index].get(name, 0) + subtree - local
            node.quotas[name] = NodeQuota(own.get(name, 0), borrow.get(name), subtree, local, 0)
    for node in nodes:
        if node.parent is not None:
            for name, quota in node.quotas.items():
                most = quota.local + node.parent.quotas[name].most
                if quota.borrow is not None:
                    most = min(most, quota.subtree + quota.borrow)
                node.quotas[name] = quota._replace(most=most)


_NONE: Final[tuple[dict[str, int], dict[str, int], dict[str, int]]] = ({}, {}, {})


def _says_something(quota: Quota) -> bool:
    return bool(quota.resources or quota.borrow or quota.lend)


class QuotaUsage:
    """What is used of the trees. Queues are known by their names; one that there is not uses nothing."""

    def __init__(self, tree: QuotaTree, used: Mapping[str, Amounts] = MappingProxyType({})) -> None:
        self.tree = tree
        self._used: list[dict[str, int]] = [_NOTHING] * len(tree.nodes)
        self._changes: list[int] = [0] * len(tree.nodes)
        """By node: how often its sums were changed; by root: or those of anything below it."""
        self._mine: set[int] = set()
        """The nodes whose sums nobody else sees."""
        for queue, amounts in used.items():
            self.add(queue, amounts)

    def fork(self) -> "QuotaUsage":
        """The same usage, to go on from independently."""
        fork = object.__new__(QuotaUsage)
        fork.tree, fork._used, fork._changes, fork._mine = self.tree, self._used.copy(), self._changes.copy(), set()
        self._mine = set()  # what is there now belongs to both: whoever changes a part of it copies that first
        return fork

    def add(self, queue: str, amounts: Amounts) -> None:
        self._change(queue, amounts, 1)

    def remove(self, queue: str, amounts: Amounts) -> None:
        self._change(queue, amounts, -1)

    def stamp(self, queue: str, node: Node) -> int:
        """Another one when the usage of the queue has changed, or that of anything between it and a node above it. In
        forks it says nothing."""
        changes, found = self._changes, 0
        for each in self.tree.queues[queue].path:
            found += changes[each.index]
            if each is node:
                break
        return found

    def stamp_of(self, root: Node) -> int:
        """Another one when the usage of anything in a tree has changed."""
        return self._changes[root.index]

    def used(self, node: Node, resource: str) -> int:
        """Of a cohort: what those below it use beyond what they have for themselves alone."""
        return self._used[node.index].get(resource, 0)

    def used_by(self, node: Node) -> Mapping[str, int]:
        """The same for all resources of which it uses anything."""
        return self._used[node.index]

    def over(self, node: Node, resource: str) -> int:
        """How much more it uses than it and those below it have; negative: how much less."""
        quota = node.quotas.get(resource)
        return self._used[node.index].get(resource, 0) - quota.subtree if quota is not None else 0

    def available(self, queue: str, resource: str) -> int | None:
        """The largest request of a queue that fits now; None: there is no limit."""
        node = self.tree.queues[queue]
        if node.cycle is not None:
            return 0
        return max(0, self._available(node, resource)) if resource in node.quotas else None

    def left(self, node: Node, resource: str) -> int:
        """The same for one that is limited, and on no cycle; negative where more is used than there is."""
        return self._available(node, resource)

    def most(self, queue: str, resource: str) -> int | None:
        """The largest request that could ever fit, if nobody used anything; None: there is no limit."""
        node = self.tree.queues[queue]
        if node.cycle is not None:
            return 0
        return node.quotas[resource].most if resource in node.quotas else None

    def fits(self, queue: str, requests: Amounts) -> bool:
        node = self.tree.queues[queue]
        quotas, limited = node.quotas, node.cycle is None
        for name, asked in requests.items():
            if asked > 0 and (not limited or (name in quotas and asked > self._available(node, name))):
                return False
        return True

    def short(self, queue: str, requests: Amounts) -> tuple[Short, ...]:
        """The resources of which less is available than is asked."""
        node = self.tree.queues[queue]
        quotas, limited, found = node.quotas, node.cycle is None, list[Short]()
        for name, asked in requests.items():
            if asked <= 0 or (limited and name not in quotas):
                continue
            available = self._available(node, name) if limited else 0
            if asked > available:
                found.append(Short(name, asked, max(0, available)))
        return tuple(found)

    def above_most(self, queue: str, requests: Amounts) -> tuple[Short, ...]:
        """The resources of which more is asked than could ever fit; `available` is what could."""
        node = self.tree.queues[queue]
        found: list[Short] = []
        for name, asked in requests.items():
            if asked > 0:
                most = 0 if node.cycle is not None else node.quotas[name].most if name in node.quotas else asked
                if asked > most:
                    found.append(Short(name, asked, most))
        return tuple(found)

    def above_own(self, queue: str, requests: Amounts) -> tuple[Short, ...]:
        """The resources of which more is asked than the queue has left of its own; `available` is what it has left."""
        node = self.tree.queues[queue]
        used, quotas, found = self._used[node.index], node.quotas, list[Short]()
        for name, asked in requests.items():
            if asked > 0 and name in quotas:
                own = quotas[name].subtree - used.get(name, 0)
                if asked > own:
                    found.append(Short(name, asked, max(0, own)))
        return tuple(found)

    def is_within_own(self, queue: str, requests: Amounts) -> bool:
        """No more is asked than the queue has left of its own."""
        node = self.tree.queues[queue]
        used, quotas = self._used[node.index], node.quotas
        for name, asked in requests.items():
            if asked > 0 and name in quotas and asked > quotas[name].subtree - used.get(name, 0):
                return False
        return True

    def left_within(self, node: Node, resource: str) -> Iterator[int]:
        """For a queue, and for each cohort above it but the root: the most that the queue may use on top, so that this
        one is within its quota; negative: it is not, whatever the queue does."""
        below: list[tuple[int, int, int]] = []
        for each in node.path[:-1]:
            quota, used = each.quotas[resource], self._used[each.index].get(resource, 0)
            most = quota.subtree - used
            for local, used_below, passed in reversed(below):  # what may come from below, from the top downwards
                if most + passed < 0:
                    most = -1
                    break
                most += passed + local - used_below
            yield most
            below.append((quota.local, used, max(0, used - quota.local)))

    def distance(self, queue: str, requests: Amounts) -> int:
        """How far a request has to borrow: 0 within the queue's own quota, else the height of the lowest cohort above
        it that holds the rest (the root's, where none does)."""
        node = self.tree.queues[queue]
        return max((self._distance(node, name, asked) for name, asked in requests.items() if asked > 0), default=0)

    def reaching(self, queue: str, requests: Amounts) -> Iterator[tuple[Node, dict[str, int]]]:
        """What a request would add to the usage of the queue, and of each cohort above it."""
        node = self.tree.queues[queue]
        adds = {name: asked for name, asked in requests.items() if asked and name in node.quotas}
        for each in node.path:
            yield each, adds
            used, quotas = self._used[each.index], each.quotas
            adds = {
                name: passed
                for name, amount in adds.items()
                if (passed := _passed_on(used.get(name, 0), amount, quotas[name].local))
            }

    def adding(self, queue: str, requests: Amounts, node: Node) -> dict[str, int]:
        """The same for the queue itself, or one cohort above it."""
        at, found = self.tree.queues[queue], dict[str, int]()
        for name, asked in requests.items():
            if not asked or name not in at.quotas:
                continue
            amount = asked
            for each in at.path:
                if each is node:
                    found[name] = amount
                    break
                amount = _passed_on(self._used[each.index].get(name, 0), amount, each.quotas[name].local)
                if not amount:
                    break
        return found

    def _available(self, node: Node, resource: str) -> int:
        usage = self._used
        root = node.path[-1]
        left = root.quotas[resource].subtree - usage[root.index].get(resource, 0)
        for each in node.path[-2::-1]:
            quota, used = each.quotas[resource], usage[each.index].get(resource, 0)
            local, borrow = quota.local, quota.borrow
            if borrow is not None:
                left = min(left, quota.subtree - max(local, used) + borrow)
            if used < local:
                left += local - used
        return left

    def _distance(self, node: Node, resource: str, asked: int) -> int:
        if resource not in node.quotas:
            return 0
        for each in node.path:
            quota, used = each.quotas[resource], self.used(each, resource)
            if used + asked <= quota.subtree:
                return each.height
            asked -= max(0, quota.local - used)
        return node.root.height

    def _change(self, queue: str, amounts: Amounts, sign: int) -> None:
        node = self.tree.queues.get(queue)
        if node is None:
            return
        self._changes[node.path[-1].index] += 1
        for resource, amount in amounts.items():
            if amount and resource in node.quotas:
                self._move(node, resource, sign * amount)

    def _move(self, node: Node, resource: str, amount: int) -> None:
        for each in node.path:
            used = self._used[each.index]
            if each.index not in self._mine:
                used = self._used[each.index] = dict(used)
                self._mine.add(each.index)
            self._changes[each.index] += 1
            before = used.get(resource, 0)
            if before + amount:
                used[resource] = before + amount
            else:
                used.pop(resource, None)
            amount = _passed_on(before, amount, each.quotas[resource].local)
            if not amount:
                return


def _passed_on(used: int, amount: int, local: int) -> int:
    """What of a change of usage is the parent's: what happens above the local part."""
    return max(0, used + amount - local) - max(0, used - local)

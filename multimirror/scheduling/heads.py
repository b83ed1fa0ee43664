"""Which of the first Jobs of all queues is next.

At each fork of a tree, its cohorts and queues send one Job up, and the best of these goes on: one that waits for Jobs
that are being stopped for it; then one that has waited so long that room is kept for it; then one whose namespace was
refused less often in this tree, so that nobody has to wait for thousands that do not fit; then one with which its side
of the fork does not borrow what the Job asks for; then one with which its side has the smaller share, together with
what it used before where the cohort has a half-life (`past_use`); then by the queue's own order: priority, the turn of
its namespace, age, uid. Between trees, nothing is shared, and the queues' own order decides.

What a Job is at a fork depends on its own side alone, so when something was placed, or stopped, only the way from its
queue to the root is put in order anew: each fork keeps a heap, in which an entry that was replaced is passed over. And
as long as nothing changes on that way, Jobs of a queue that ask for the same borrow the same, and have the same share:
that is found once.
"""

import heapq
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.past_use import NO_PAST, Past
from multimirror.scheduling.quota import Node, QuotaUsage
from multimirror.scheduling.shares import NO_SHARE, Share, share


class Precedence(IntEnum):
    """What comes before all else."""

    WAITS_FOR_VICTIMS = 0
    HAS_CLAIM = 1
    NONE = 2


class Head(NamedTuple):
    """The first Job of a queue."""

    queue: str
    requests: Amounts
    order: tuple[Any, ...]
    """Its place among the Jobs of its queue: smaller goes first, and no two are equal. It begins with the priority,
    negative."""
    precedence: Precedence = Precedence.NONE
    job: Any = None
    """Whatever the caller knows it by."""
    refused: int = 0
    """Who was refused often in its tree comes after those who were not: at each fork, before all but the precedence."""
    between: tuple[Any, ...] | None = None
    """Its place among the first of other trees; None: that of `order`."""
    asked: object = None
    """Jobs of a queue with the same ask for the same; None: nothing is known of it."""


_Standing = tuple[bool, float, Share]
"""Of a side with a Job: it borrows what the Job asks for; its share, which floats tell from most others at once: the
larger of two never has the smaller float."""
_WITHIN: Final[_Standing] = False, 0.0, NO_SHARE
_Key = tuple[int, int, bool, float, Share, tuple[Any, ...]]
_Entry = tuple[_Key, int, int]
"""With the version and the index of the node that sent it."""
_NODES_PER_CHECKPOINT: Final = 64
_TOP: Final = -1
"""The fork above all trees."""


class HeadOrder:
    """The heads of all queues. `usage` is looked at when a queue is put or refreshed: whoever changes it says so."""

    def __init__(self, usage: QuotaUsage, past: Past = NO_PAST) -> None:
        self._usage, self._past = usage, past
        nodes = len(usage.tree.nodes)
        self._best: list[Head | None] = [None] * nodes
        """By node: whom it sends up."""
        self._forks: list[list[_Entry] | None] = [None] * (nodes + 1)
        """By node, and last the fork above all trees."""
        self._versions = [0] * nodes
        """By node: which of its entries at the fork above it is the last."""
        self._standings: dict[tuple[int, str, object], tuple[int, _Standing]] = {}
        """Of a node, with a Job of a queue below it; and the stamp of the usage that it was found for."""
        self._unsettled: dict[int, Node] = {}
        """By index: what has begun, and is not in order yet."""
        self._shares: dict[tuple[int, int, bool], Share] = {}
        """Equal ones are one object where they can be: then it costs nothing to compare them."""

    def __contains__(self, queue: str) -> bool:
        return queue in self._usage.tree.queues

    def tree_of(self, queue: str) -> int:
        """By the index of its root."""
        return self._usage.tree.queues[queue].path[-1].index

    def begin(self, queue: str, head: Head) -> None:
        """This is its first Job when all begin. Nobody is next before all have begun, and `settle` was called: so each
        fork is put in order once, and not once for each queue."""
        node = self._usage.tree.queues[queue]
        self._best[node.index] = head
        for each in node.path:
            self._unsettled[each.index] = each

    def settle(self) -> Iterator[None]:
        """In small steps."""
        for number, index in enumerate(sorted(self._unsettled, reverse=True), 1):  # parents have the smaller ones
            node = self._unsettled[index]
            if number % _NODES_PER_CHECKPOINT == 0:
                yield None
            if not node.is_queue:
                self._best[index] = self._first(index)
            self._push(node, node.parent.index if node.parent is not None else _TOP)
        self._unsettled.clear()

    def put(self, queue: str, head: Head | None) -> None:
        """This is the first Job of a queue now; None: it has none."""
        node = self._usage.tree.queues[queue]
        self._best[node.index] = head
        self._send_up(node)

    def move(self, before: Head, after: Head) -> None:
        """The one that is next has another place among those of other trees, and nothing else of it has changed."""
        path = self._usage.tree.queues[after.queue].path
        for node in path:
            if self._best[node.index] is before:
                self._best[node.index] = after
        self._push(path[-1], _TOP)

    def refresh(self, queue: str) -> None:
        """What the queue uses has changed."""
        self._send_up(self._usage.tree.queues[queue])

    def best(self) -> Head | None:
        """Who is next; it stays until its queue is put again."""
        return self._first(_TOP)

    def _send_up(self, queue: Node) -> None:
        """This is done thousands of times in a pass, and is what `_push` and `_first` do at each fork."""
        best, versions, forks = self._best, self._versions, self._forks
        for node in queue.path:
            index, parent = node.index, node.parent
            fork = parent.index if parent is not None else _TOP
            version = versions[index] = versions[index] + 1
            head, heap = best[index], forks[fork]
            if heap is None:
                heap = forks[fork] = []
            if head is not None:
                heapq.heappush(heap, (self._key(node, head), version, index))
            while heap and heap[0][1] != versions[heap[0][2]]:
                heapq.heappop(heap)
            if parent is not None:
                best[fork] = best[heap[0][2]] if heap else None

    def _push(self, node: Node, fork: int) -> None:
        index = node.index
        version = self._versions[index] = self._versions[index] + 1
        head = self._best[index]
        if head is None:
            return
        heap = self._forks[fork]
        if heap is None:
            heap = self._forks[fork] = []
        heapq.heappush(heap, (self._key(node, head), version, index))

    def _first(self, fork: int) -> Head | None:
        heap, versions = self._forks[fork], self._versions
        while heap:
            _, version, index = heap[0]
            if version == versions[index]:
                return self._best[index]
            heapq.heappop(heap)
        return None

    def _key(self, node: Node, head: Head) -> _Key:
        queue, _, order, precedence, _, refused, between, asked = head
        if node.parent is None:
            return precedence, 0, False, 0.0, NO_SHARE, between or order
        stamp = self._usage.stamp(queue, node)
        key = node.index, queue, asked
        known = self._standings.get(key) if asked is not None else None
        if known is None or known[0] != stamp:
            known = self._standings[key] = stamp, self._standing(node, head)
        borrowing, number, side = known[1]
        return precedence, refused, borrowing, number, side, order

    def _standing(self, node: Node, head: Head) -> _Standing:
        usage = self._usage
        more = head.requests if node.is_queue else usage.adding(head.queue, head.requests, node)
        used, over, borrows = usage.used_by(node), False, False
        for name, quota in node.quotas.items():
            asked = more.get(name, 0)
            if used.get(name, 0) + asked > quota.subtree:
                over, borrows = True, borrows or asked > 0
        remembers = node.parent is not None and node.parent.half_life is not None
        if not over and not remembers:
            return _WITHIN
        side = share(usage, node, more=more)
        if remembers:
            side = self._past.added_to(side, node)
        side = self._shares.setdefault(side.written, side)
        return borrows, float(side), side

"""Which of the first Jobs of all queues is next.

At each fork of a tree, its cohorts and queues send one Job up, and the best of these goes on: one that waits for Jobs
that are being stopped for it; then one that has waited so long that room is kept for it; then one whose namespace was
refused less often in this pass, so that nobody has to wait for thousands that do not fit; then one with which its side
of the fork does not borrow what the Job asks for; then one with which its side has the smaller share, together with
what it used before where the cohort has a half-life (`past_use`); then by the queue's own order: priority, the turn of
its namespace, age, uid. Between trees, nothing is shared, and the queues' own order decides.

What a Job is at a fork depends on its own side alone, so when something was placed, or stopped, only the way from its
queue to the root is put in order anew: each fork keeps a heap, in which an entry that was replaced is passed over. And
as long as nothing changes on that way, Jobs of a queue that ask for the same borrow the same, and have the same share:
that is found once.
"""

import heapq
from enum import IntEnum
from typing import Any, Final, NamedTuple

from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.past_use import NO_PAST, Past
from multimirror.scheduling.quota import Node, QuotaUsage
from multimirror.scheduling.shares import NO_SHARE, Share, borrows, share


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
    """Who was refused often in a pass comes after those who were not: at each fork, before all but the precedence."""
    between: tuple[Any, ...] | None = None
    """Its place among the first of other trees; None: that of `order`."""
    asked: object = None
    """Jobs of a queue with the same ask for the same; None: nothing is known of it."""


_Standing = tuple[bool, float, Share]
"""Of a side with a Job: it borrows what the Job asks for; its share, which floats tell from most others at once: the
larger of two never has the smaller float."""
_Key = tuple[int, int, bool, float, Share, tuple[Any, ...]]
_TOP: Final = -1
"""The fork above all trees."""


class HeadOrder:
    """The heads of all queues. `usage` is looked at when a queue is put or refreshed: whoever changes it says so."""

    def __init__(self, usage: QuotaUsage, past: Past = NO_PAST) -> None:
        self._usage, self._past = usage, past
        self._best: dict[int, Head] = {}
        """By node: whom it sends up."""
        self._forks: dict[int, list[tuple[_Key, int, Node]]] = {}
        self._versions: dict[int, int] = {}
        """By node: which of its entries at the fork above it is the last."""
        self._standings: dict[tuple[int, str, object], tuple[int, _Standing]] = {}
        """Of a node, with a Job of a queue below it; and the stamp of the usage that it was found for."""

    def __contains__(self, queue: str) -> bool:
        return queue in self._usage.tree.queues

    def put(self, queue: str, head: Head | None) -> None:
        """This is the first Job of a queue now; None: it has none."""
        node = self._usage.tree.queues[queue]
        if head is not None:
            self._best[node.index] = head
        else:
            self._best.pop(node.index, None)
        self._send_up(node)

    def move(self, before: Head, after: Head) -> None:
        """The one that is next has another place among those of other trees, and nothing else of it has changed."""
        path = self._usage.tree.queues[after.queue].path
        for node in path:
            if self._best.get(node.index) is before:
                self._best[node.index] = after
        self._push(path[-1], _TOP)

    def refresh(self, queue: str) -> None:
        """What the queue uses has changed."""
        self._send_up(self._usage.tree.queues[queue])

    def best(self) -> Head | None:
        """Who is next; it stays until its queue is put again."""
        node = self._first(_TOP)
        return self._best[node.index] if node is not None else None

    def _send_up(self, queue: Node) -> None:
        for node in queue.path:
            fork = node.parent.index if node.parent is not None else _TOP
            self._push(node, fork)
            if node.parent is not None:
                first = self._first(fork)
                if first is not None:
                    self._best[fork] = self._best[first.index]
                else:
                    self._best.pop(fork, None)

    def _push(self, node: Node, fork: int) -> None:
        version = self._versions[node.index] = self._versions.get(node.index, 0) + 1
        head = self._best.get(node.index)
        if head is not None:
            heapq.heappush(self._forks.setdefault(fork, []), (self._key(node, head), version, node))

    def _first(self, fork: int) -> Node | None:
        heap = self._forks.get(fork)
        while heap:
            _, version, node = heap[0]
            if version == self._versions[node.index]:
                return node
            heapq.heappop(heap)
        return None

    def _key(self, node: Node, head: Head) -> _Key:
        if node.parent is None:
            return head.precedence, 0, False, 0.0, NO_SHARE, head.between or head.order
        stamp = self._usage.stamp(head.queue, node)
        key = node.index, head.queue, head.asked
        known = self._standings.get(key) if head.asked is not None else None
        if known is None or known[0] != stamp:
            known = self._standings[key] = stamp, self._standing(node, head)
        return (head.precedence, head.refused, *known[1], head.order)

    def _standing(self, node: Node, head: Head) -> _Standing:
        more = next(adds for each, adds in self._usage.reaching(head.queue, head.requests) if each is node)
        side = share(self._usage, node, more=more)
        if node.parent is not None and node.parent.half_life is not None:
            side = self._past.added_to(side, node)
        return borrows(self._usage, node, more), float(side), side

"""From whom to take next: down the tree, always the side with the largest share, to a queue's next candidate.

Sides that are not over their quota in something contended are passed over, and so is the own side of the fork where the
search begins; in a search of the whole tree the way to the own queue stays open, for its neighbours are there. On equal
shares a cohort comes before a queue, and of queues the one whose candidate would be stopped first. Each candidate is
offered once.

Of a fork with many sides, the `MOST_SIDES` with the largest shares are looked at. They are the same for every plan and
worker of a search, so they are found once (`Borrowers`); from then on shares of others only become smaller, so a heap
of them is put right when an entry that was larger comes to its top.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Final

from multimirror.scheduling.quota import Node, QuotaUsage
from multimirror.scheduling.running import RunningJob, RunningSnapshot, victim_order
from multimirror.scheduling.shares import Share, share
from multimirror.scheduling.trial import Trial

MOST_SIDES: Final = 64


class Borrowers:
    """The sides of forks that are over their quota, before anybody is stopped."""

    def __init__(self, usage: QuotaUsage, running: RunningSnapshot) -> None:
        self._usage, self._running = usage, running
        self._found: dict[tuple[int, frozenset[str]], list[Node]] = {}
        self.cut = False
        """There were more at some fork."""

    def at(self, fork: Node, contended: frozenset[str]) -> list[Node]:
        """Those with the largest shares."""
        key = fork.index, contended
        if key not in self._found:
            over = self._usage.over
            children = [child for child in fork.children if any(over(child, name) > 0 for name in contended)]
            if len(children) > MOST_SIDES:
                ranks = (_Rank(child, share(self._usage, child), self._first(child)) for child in children)
                children = [each.node for each in heapq.nsmallest(MOST_SIDES, ranks)]
                self.cut = True
            self._found[key] = children
        return self._found[key]

    def _first(self, node: Node) -> Callable[[], RunningJob | None]:
        return lambda: next(iter(self._running.of(node.name)), None)


class _Rank:
    """A side of a fork. The smallest is asked first."""

    __slots__ = ("_first", "node", "share")

    def __init__(self, node: Node, share: Share, first: Callable[[], RunningJob | None]) -> None:
        self.node, self.share, self._first = node, share, first

    def __lt__(self, other: "_Rank") -> bool:
        if self.share != other.share:
            return other.share < self.share
        if self.node.is_queue != other.node.is_queue:
            return other.node.is_queue
        if not self.node.is_queue:
            return self.node.name < other.node.name
        ours, theirs = self._first(), other._first()
        if ours is None or theirs is None:
            return theirs is None and ours is not None
        return victim_order(ours) < victim_order(theirs)


class Givers:
    """For one trial. Who is offered is judged, and taken, by the caller."""

    def __init__(
        self,
        trial: Trial,
        contended: frozenset[str],
        borrowers: Borrowers,
        candidates: Callable[[str], Iterator[RunningJob]],
        *,
        whole_tree: bool,
    ) -> None:
        self.contended = contended
        self._trial, self._borrowers, self._candidates = trial, borrowers, candidates
        self._path = frozenset(trial.queue.path)
        self._whole_tree = whole_tree
        self._heaps: dict[int, list[_Rank]] = {}
        """By node: the children that may still give something."""
        self._lines: dict[int, Iterator[RunningJob]] = {}
        self._next: dict[int, RunningJob | None] = {}

    def next(self, at: Node) -> RunningJob | None:
        """Of those below a node, the next candidate; None: there is none left."""
        heap = self._heaps.get(at.index)
        if heap is None:
            heap = self._heaps[at.index] = self._heap(at)
        while heap:
            child = heap[0].node
            if self._trial.share(child) is not heap[0].share:
                heapq.heapreplace(heap, self._rank(child))
                continue
            job = self._of(child)
            if job is None:
                heapq.heappop(heap)
                continue
            if child.is_queue:
                heapq.heapreplace(heap, self._rank(child))
            return job
        return None

    def _heap(self, at: Node) -> list[_Rank]:
        children = [child for child in self._borrowers.at(at, self.contended) if child not in self._path]
        if self._whole_tree:
            children += [child for child in at.children if child in self._path and not child.is_queue]
        heap = [self._rank(child) for child in children]
        heapq.heapify(heap)
        return heap

    def _rank(self, child: Node) -> _Rank:
        return _Rank(child, self._trial.share(child), lambda: self._peek(child))

    def _of(self, child: Node) -> RunningJob | None:
        if child not in self._path and not any(self._trial.usage.over(child, name) > 0 for name in self.contended):
            return None
        if not child.is_queue:
            return self.next(child)
        job = self._peek(child)
        del self._next[child.index]
        return job

    def _peek(self, queue: Node) -> RunningJob | None:
        if queue.index not in self._next:
            line = self._lines.get(queue.index)
            if line is None:
                line = self._lines[queue.index] = self._candidates(queue.name)
            self._next[queue.index] = next(line, None)
        return self._next[queue.index]

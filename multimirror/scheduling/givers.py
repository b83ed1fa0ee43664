"""From whom to take next: down the tree, always the side with the largest share, to a queue's next candidate.

Sides that are not over their quota in something contended are passed over, and so is the own side of the fork where the
search begins; in a search of the whole tree the way to the own queue stays open, for its neighbours are there. On equal
shares a cohort comes before a queue, and of queues the one whose candidate would be stopped first. Each candidate is
offered once.
"""

from collections.abc import Callable, Collection, Iterator

from multimirror.scheduling.quota import Node
from multimirror.scheduling.running import RunningJob, victim_order
from multimirror.scheduling.trial import Trial


class Givers:
    """For one trial. Who is offered is judged, and taken, by the caller."""

    def __init__(
        self,
        trial: Trial,
        contended: Collection[str],
        candidates: Callable[[str], Iterator[RunningJob]],
        *,
        whole_tree: bool,
    ) -> None:
        self.contended = contended
        self._trial, self._candidates = trial, candidates
        self._path = frozenset(trial.queue.path)
        self._whole_tree = whole_tree
        self._open: dict[int, list[Node]] = {}
        """By node: the children that may still give something."""
        self._lines: dict[int, Iterator[RunningJob]] = {}
        self._next: dict[int, RunningJob | None] = {}

    def next(self, at: Node) -> RunningJob | None:
        """Of those below a node, the next candidate; None: there is none left."""
        children = self._open.get(at.index)
        if children is None:
            children = self._open[at.index] = [child for child in at.children if self._may_give(child)]
        while children:
            children[:] = [child for child in children if child in self._path or self._is_over(child)]
            child = self._largest(children)
            if child is None:
                return None
            job = self._pop(child) if child.is_queue else self.next(child)
            if job is not None:
                return job
            children.remove(child)
        return None

    def _may_give(self, child: Node) -> bool:
        if child in self._path:
            return self._whole_tree and not child.is_queue
        return self._is_over(child)

    def _is_over(self, node: Node) -> bool:
        return any(self._trial.usage.over(node, name) > 0 for name in self.contended)

    def _largest(self, children: list[Node]) -> Node | None:
        largest: Node | None = None
        for child in children:
            if largest is None or self._comes_before(child, largest):
                largest = child
        return largest

    def _comes_before(self, one: Node, other: Node) -> bool:
        ours, theirs = self._trial.share(one), self._trial.share(other)
        if ours != theirs:
            return theirs < ours
        if one.is_queue != other.is_queue:
            return other.is_queue
        if not one.is_queue:
            return one.name < other.name
        first, second = self._peek(one), self._peek(other)
        if first is None or second is None:
            return second is None
        return victim_order(first) < victim_order(second)

    def _peek(self, queue: Node) -> RunningJob | None:
        if queue.index not in self._next:
            line = self._lines.get(queue.index)
            if line is None:
                line = self._lines[queue.index] = self._candidates(queue.name)
            self._next[queue.index] = next(line, None)
        return self._next[queue.index]

    def _pop(self, queue: Node) -> RunningJob | None:
        job = self._peek(queue)
        del self._next[queue.index]
        return job

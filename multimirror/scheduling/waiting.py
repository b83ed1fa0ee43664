"""Everything that waits, in line: by queue and namespace, higher priority first, then the oldest.

`Waiting` is kept in order as candidates come and go, for sorting tens of thousands anew in each pass would block the
event loop. A pass works on a snapshot of it, which costs a shallow copy of one table: lines are copied when they are
changed while a snapshot may still show them.

Thousands wait, and most of them ask for one of a few things. So what is equal is kept once, for all who wait: what is
asked for (`Shape`), and the names of queues and namespaces.
"""

import sys
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from multimirror.api.placement import Claim
from multimirror.kinds.kind import Ref
from multimirror.scheduling.candidates import Candidate

Asked = tuple[tuple[str, int], ...]
"""What is asked for, by resource, in the order of their names; nothing of which nothing is asked."""


Age = tuple[str, str, str, Ref]
"""When it was created, and what tells it from others that were created then. No two of one Ref ever meet."""
Line = tuple[str, str]
"""A queue and a namespace."""
Position = tuple[int, Age]
"""Of a waiter in its line."""


class Shape:
    """All that a decision depends on, its queue and what is free aside: one of equal shape gets the same answer. Equal
    ones are one object for as long as anybody has it, so that a pass finds answers by identity."""

    __slots__ = ("__weakref__", "asked")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def __deepcopy__(self, memo: object) -> "Shape":
        return self


class _Requests(dict[str, int]):
    """What candidates ask for, in the order in which they do; shared, and never changed."""

    __slots__ = ("__weakref__",)


_SHAPES: Final[WeakValueDictionary[tuple[object, ...], Shape]] = WeakValueDictionary()
_REQUESTS: Final[WeakValueDictionary[tuple[tuple[str, int], ...], _Requests]] = WeakValueDictionary()
_NOBODY: Final[Mapping[str, str]] = {}


class Waiter(NamedTuple):
    """A candidate in line, with what a pass needs again and again. Sorts by priority and age."""

    rank: int
    """The priority, negative."""
    age: Age
    candidate: Candidate
    asked: Asked
    shape: Shape

    @property
    def namespace(self) -> str:
        return self.candidate.namespace

    @property
    def name(self) -> str:
        return self.candidate.name


class _Line:
    """Those of one queue and namespace, in their order."""

    __slots__ = ("owner", "waiters")

    def __init__(self, owner: object, waiters: Iterable[Waiter] = ()) -> None:
        self.owner, self.waiters = owner, list(waiters)


class QueueLines:
    """The lines of one queue."""

    __slots__ = ("count", "growing", "lines", "owner", "version")

    def __init__(self, owner: object, before: "QueueLines | None") -> None:
        self.owner = owner
        self.lines: dict[str, _Line] = dict(before.lines) if before is not None else {}
        self.count: int = before.count if before is not None else 0
        self.growing: int = before.growing if before is not None else 0
        """Of them, those that have a worker."""
        self.version: int = before.version if before is not None else 0
        """Another one when somebody came, went or was changed: no two queues ever have the same."""


@dataclass(frozen=True, slots=True)
class WaitingSnapshot:
    """What waited at one moment."""

    queues: Mapping[str, QueueLines]
    claimed: Mapping[Ref, Waiter] = field(default_factory=dict)
    """Those that room was kept for before."""

    def end_of(self, line: Line) -> Position | None:
        """The last one of a line; None: there is nobody."""
        queue = self.queues.get(line[0])
        found = queue.lines.get(line[1]) if queue is not None else None
        return place_of(found.waiters[-1]) if found is not None else None

    def find(self, candidate: Candidate) -> Waiter | None:
        """A candidate in its line; None: it does not wait, or is another one."""
        queue = self.queues.get(candidate.queue)
        line = queue.lines.get(candidate.namespace) if queue is not None else None
        if line is None:
            return None
        place = bisect_left(line.waiters, position_of(candidate), key=place_of)
        waiter = line.waiters[place] if place < len(line.waiters) else None
        return waiter if waiter is not None and waiter.candidate.ref == candidate.ref else None


class Waiting:
    """All candidates that wait, by queue, in line."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._owner = object()
        self._queues: dict[str, QueueLines] = {}
        self._waiters: dict[Ref, Waiter] = {}
        self._claimed: dict[Ref, Waiter] = {}
        self._version = 0
        for candidate in candidates:
            self.put(candidate)

    def put(self, candidate: Candidate) -> bool:
        """This one waits, as it is now. Whether that is news: that it has another version is not, for whether there is
        room for it does not depend on that (we write that it waits, and that is one)."""
        before, news, known = self._waiters.get(candidate.ref), True, 0
        if before is not None:
            if before.candidate == candidate:
                return False
            news = replace(before.candidate, version=candidate.version) != candidate
            known = self.version(before.candidate.queue)
            self.remove(candidate.ref)
        waiter = self._waiters[candidate.ref] = _waiter(candidate)
        queue = self._own(candidate.queue)
        insort(self._own_line(queue, candidate.namespace).waiters, waiter)
        queue.count += 1
        queue.growing += candidate.growth is not None
        queue.version = self._next_version() if news else known
        if candidate.claim is not None:
            self._claimed[candidate.ref] = waiter
        return news

    def remove(self, ref: Ref) -> Candidate | None:
        """This one waits no longer. Gives it, if it did."""
        waiter = self._waiters.pop(ref, None)
        if waiter is None:
            return None
        self._claimed.pop(ref, None)
        candidate = waiter.candidate
        queue = self._own(candidate.queue)
        line = self._own_line(queue, candidate.namespace)
        del line.waiters[bisect_left(line.waiters, waiter)]
        if not line.waiters:
            del queue.lines[candidate.namespace]
        queue.count -= 1
        queue.growing -= candidate.growth is not None
        queue.version = self._next_version()
        if not queue.count:
            del self._queues[candidate.queue]
        return candidate

    def get(self, ref: Ref) -> Candidate | None:
        waiter = self._waiters.get(ref)
        return waiter.candidate if waiter is not None else None

    @property
    def claims(self) -> list[tuple[Candidate, Claim]]:
        """Those for which room is kept, as it is written down."""
        candidates = (waiter.candidate for waiter in self._claimed.values())
        return [(each, each.claim) for each in candidates if each.claim is not None]

    def count(self, queue: str) -> int:
        """How many wait in a queue for a worker."""
        found = self._queues.get(queue)
        return found.count - found.growing if found is not None else 0

    def version(self, queue: str) -> int:
        """Another one when somebody came, went or was changed in a queue, but for the version of an object; 0: nobody
        waits there."""
        found = self._queues.get(queue)
        return found.version if found is not None else 0

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Candidate]:
        """In no order."""
        return (waiter.candidate for waiter in tuple(self._waiters.values()))

    def snapshot(self) -> WaitingSnapshot:
        """What waits now; who comes or goes later does not change it."""
        self._owner = object()
        return WaitingSnapshot(dict(self._queues), dict(self._claimed))

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _own(self, name: str) -> QueueLines:
        """The queue, to be changed: a copy where a snapshot may show it."""
        queue = self._queues.get(name)
        if queue is None or queue.owner is not self._owner:
            queue = self._queues[name] = QueueLines(self._owner, queue)
        return queue

    def _own_line(self, queue: QueueLines, namespace: str) -> _Line:
        line = queue.lines.get(namespace)
        if line is None or line.owner is not self._owner:
            line = queue.lines[namespace] = _Line(self._owner, line.waiters if line is not None else ())
        return line


def position_of(candidate: Candidate) -> Position:
    """Where a candidate is in its line."""
    return -candidate.priority, (candidate.created, candidate.namespace, candidate.name, candidate.ref)


def place_of(waiter: Waiter) -> Position:
    return waiter.rank, waiter.age


def _waiter(candidate: Candidate) -> Waiter:
    candidate = _shared(candidate)
    shape = _shape(candidate)
    return Waiter(*position_of(candidate), candidate, shape.asked, shape)


def _shared(candidate: Candidate) -> Candidate:
    """The same candidate, made of what others have, too."""
    asked = tuple(candidate.requests.items())
    requests = _REQUESTS.get(asked)
    if requests is None:
        requests = _REQUESTS[asked] = _Requests(asked)
    return replace(
        candidate,
        namespace=sys.intern(candidate.namespace),
        queue=sys.intern(candidate.queue),
        requests=requests,
        avoid=candidate.avoid or _NOBODY,
    )


def _shape(candidate: Candidate) -> Shape:
    asked = tuple(sorted((name, amount) for name, amount in candidate.requests.items() if amount))
    key = (
        candidate.ref.kind,
        candidate.namespace,
        candidate.clusters,
        asked,
        tuple(sorted(candidate.avoid.items())),
        candidate.problem,
        candidate.growth.shape if candidate.growth is not None else None,
        candidate.preemptions if candidate.preemptible else None,
        candidate.gang,
    )
    shape = _SHAPES.get(key)
    if shape is None:
        shape = _SHAPES[key] = Shape(asked)
    return shape

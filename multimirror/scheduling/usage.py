"""Who has what: the reservations of objects that are assigned and not finished, and their sums.

A reservation counts from the moment it is decided, so that two placements never count on the same capacity. Rebuilt
from the informers' caches alone after a restart: nothing here is a record.

Sums are forked for each pass (`UsageCache.snapshot`, `UsageSums.fork`): a fork costs a shallow copy of the tables, and
what it then changes is copied first, so that neither side ever sees the other's changes. A pass plans on a fork of its
own, and can try things on a fork of that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_sets import Amounts
from multimirror.kinds.pod_shapes import Gang


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one assigned object counts for, and where."""

    queue: str
    namespace: str
    worker: str
    requests: Amounts
    gang: Gang = ()
    """The pods that it is for."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A sum of reservations."""

    jobs: int = 0
    resources: Amounts = field(default_factory=dict)

    def plus(self, requests: Amounts, sign: int = 1, *, jobs: int = 1) -> "Usage":
        """With one reservation more, or less (-1); or (`jobs`=0) with one that is so much larger."""
        resources = dict(self.resources)
        for name, amount in requests.items():
            left = resources.get(name, 0) + sign * amount
            if left:
                resources[name] = left
            else:
                resources.pop(name, None)
        return Usage(self.jobs + sign * jobs, resources)

    def of(self, resource: str) -> int:
        return self.resources.get(resource, 0)


NOTHING: Final = Usage()
_TURNS_KEPT: Final = 1000
"""Namespaces of a queue whose last turn is remembered, of many that come and go: all others had theirs before."""


class _QueueUsage:
    """The sums of one queue. Changed only by the sums that own it."""

    __slots__ = ("by_namespace", "by_worker", "owner", "turns", "usage")

    def __init__(self, owner: object, before: "_QueueUsage | None") -> None:
        self.owner = owner
        self.usage: Usage = before.usage if before is not None else NOTHING
        self.by_namespace: Counter[str] = Counter(before.by_namespace if before is not None else None)
        self.by_worker: Counter[str] = Counter(before.by_worker if before is not None else None)
        self.turns: dict[str, int] = dict(before.turns if before is not None else ())


class UsageSums:
    """Sums by queue, namespace and worker. What the methods return is not to be changed by the caller."""

    def __init__(self) -> None:
        self._owner = object()
        self._queues: dict[str, _QueueUsage] = {}
        self._workers: dict[str, Usage] = {}
        self._turn = 0

    def fork(self) -> Self:
        """The same sums, to go on from independently."""
        fork = type(self)()
        fork._queues, fork._workers, fork._turn = dict(self._queues), dict(self._workers), self._turn
        self._owner = object()  # what is there now belongs to both: whoever changes a part of it copies that first
        return fork

    def add(self, reservation: Reservation) -> None:
        self._took_its_turn(self._count(reservation, 1), reservation)

    def grow(self, more: Reservation) -> None:
        """An object that counts already counts for so much more."""
        queue = self._own(more.queue)
        queue.usage = queue.usage.plus(more.requests, jobs=0)
        self._workers[more.worker] = self.worker(more.worker).plus(more.requests, jobs=0)
        self._took_its_turn(queue, more)

    def _took_its_turn(self, queue: _QueueUsage, reservation: Reservation) -> None:
        self._turn += 1
        queue.turns.pop(reservation.namespace, None)
        queue.turns[reservation.namespace] = self._turn
        if len(queue.turns) > _TURNS_KEPT:
            del queue.turns[next(iter(queue.turns))]

    def remove(self, reservation: Reservation) -> None:
        """Its namespace keeps its turn: it was served."""
        self._count(reservation, -1)

    def change(self, before: Reservation, after: Reservation) -> None:
        """The same object counts otherwise now; that is no new turn."""
        self._count(before, -1)
        self._count(after, 1)

    def queue(self, name: str) -> Usage:
        queue = self._queues.get(name)
        return queue.usage if queue is not None else NOTHING

    def worker(self, name: str) -> Usage:
        return self._workers.get(name, NOTHING)

    def by_namespace(self, queue: str) -> Mapping[str, int]:
        """How many objects each namespace has in a queue."""
        found = self._queues.get(queue)
        return found.by_namespace if found is not None else {}

    def by_worker(self, queue: str) -> Counter[str]:
        """How many objects of a queue each worker has."""
        found = self._queues.get(queue)
        return found.by_worker if found is not None else Counter()

    def turns(self, queue: str) -> Mapping[str, int]:
        """When each namespace of a queue was last given something: the larger, the later."""
        found = self._queues.get(queue)
        return found.turns if found is not None else {}

    def _own(self, name: str) -> _QueueUsage:
        """The sums of a queue, to be changed."""
        queue = self._queues.get(name)
        if queue is None or queue.owner is not self._owner:
            queue = self._queues[name] = _QueueUsage(self._owner, queue)
        return queue

    def _count(self, reservation: Reservation, sign: int) -> _QueueUsage:
        queue = self._own(reservation.queue)
        queue.usage = queue.usage.plus(reservation.requests, sign)
        _step(queue.by_namespace, reservation.namespace, sign)
        _step(queue.by_worker, reservation.worker, sign)
        self._workers[reservation.worker] = self.worker(reservation.worker).plus(reservation.requests, sign)
        return queue


class UsageCache:
    """All reservations, and their sums, kept up to date one by one."""

    def __init__(self) -> None:
        self.sums = UsageSums()
        self._reservations: dict[Ref, Reservation] = {}
        self._on: dict[str, dict[Ref, Reservation]] = {}
        self._versions: Counter[str] = Counter()

    def put(self, ref: Ref, reservation: Reservation | None) -> bool:
        """This object counts for that now (None: for nothing). Whether it is a change."""
        before = self._reservations.get(ref)
        if before == reservation:
            return False
        if before is not None:
            del self._reservations[ref]
            del self._on[before.worker][ref]
            self._versions[before.worker] += 1
        if reservation is not None:
            self._reservations[ref] = reservation
            self._on.setdefault(reservation.worker, {})[ref] = reservation
            self._versions[reservation.worker] += 1
        if before is None:
            assert reservation is not None
            self.sums.add(reservation)
        elif reservation is None:
            self.sums.remove(before)
        else:
            self.sums.change(before, reservation)
        return True

    def get(self, ref: Ref) -> Reservation | None:
        return self._reservations.get(ref)

    def on(self, worker: str) -> Iterable[Ref]:
        """The objects that are assigned to a worker."""
        return tuple(self._on.get(worker, ()))

    def reservations(self, worker: str) -> Iterable[tuple[Ref, Reservation]]:
        """And what they have there."""
        return tuple(self._on.get(worker, {}).items())

    def version(self, worker: str) -> int:
        """Another one whenever somebody has something else there."""
        return self._versions[worker]

    def snapshot(self) -> UsageSums:
        """The sums as they are now; what is put later does not change them."""
        return self.sums.fork()


def _step(counter: Counter[str], key: str, sign: int) -> None:
    counter[key] += sign
    if not counter[key]:
        del counter[key]

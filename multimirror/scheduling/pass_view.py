"""Workers and queues as one pass sees them: what each has now, with what is placed and kept in the course of the pass.

What is the same for many is found once: which workers a queue has, which of them take anything, and which have room for
what is asked for (`scores.Ranking`).
"""

from collections.abc import Container, Iterator, Mapping
from typing import Final

from multimirror.api import MirrorQueueSpec, Placement, QueueingStrategy
from multimirror.kinds.pod_sets import Amounts, amounts_of
from multimirror.kinds.pod_shapes import Gang
from multimirror.scheduling.candidates import WorkerSnapshot
from multimirror.scheduling.claims import Claims
from multimirror.scheduling.decisions import PlacementDecision
from multimirror.scheduling.filters import QueueLimits, WorkerInfo, could_take, has_room, is_open, is_welcome
from multimirror.scheduling.order import QueueOrder
from multimirror.scheduling.preempting import Preempting
from multimirror.scheduling.scores import Ranking
from multimirror.scheduling.shared_quota import SharedQuota
from multimirror.scheduling.slots import fits_when_empty
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.waiting import Asked, Shape, Waiter

_WORKERS_PER_CHECKPOINT: Final = 32
_TABLES_PER_CHECKPOINT: Final = 8
"""Workers whose nodes are looked at in one step."""
_DEFAULT_ORDER: Final = QueueOrder()


class PassQueue:
    """A queue in this pass."""

    __slots__ = (
        "blocked",
        "claimed",
        "keeps",
        "limits",
        "names",
        "open",
        "opens",
        "order",
        "refused",
        "shares",
        "spec",
        "strict",
    )

    def __init__(
        self, name: str, spec: MirrorQueueSpec, names: tuple[str, ...], open_names: tuple[str, ...], *, shares: bool
    ) -> None:
        self.spec, self.names, self.open, self.shares = spec, names, open_names, shares
        self.limits = QueueLimits(name, spec.quota.jobs, {} if shares else amounts_of(spec.quota.resources))
        self.strict = spec.queueing_strategy is QueueingStrategy.STRICT_FIFO
        self.order = QueueOrder(self.strict, spec.max_priority or 0)
        self.refused: dict[Shape, PlacementDecision] = {}
        """What was decided about shapes that do not fit."""
        self.blocked: PlacementDecision | None = None
        """Why everybody else of the queue waits."""
        self.keeps = False
        """Its first Job that does not fit keeps of the quota what it may."""
        self.opens = False
        """It is known when the first one will have waited long enough."""
        self.claimed: dict[tuple[object, ...], PlacementDecision] = {}
        """What was decided about shapes that would fit, if nothing were kept for others."""


class PassView:
    """Changed as the pass goes on: whoever uses or keeps something on a worker says so (`look_at`)."""

    def __init__(
        self,
        specs: Mapping[str, MirrorQueueSpec],
        workers: Mapping[str, WorkerSnapshot],
        usage: UsageSums,
        shared: SharedQuota,
        *,
        preempting: Preempting,
        claims: Claims,
    ) -> None:
        self._specs, self._snapshots, self._usage, self._shared = specs, workers, usage, shared
        self._preempting, self._claims = preempting, claims
        self.workers: dict[str, WorkerInfo] = {}
        """As they are now. Replaced as a whole when one changes: decisions keep the one that they were made on."""
        self._free = {name: each.free for name, each in workers.items() if each.free is not None}
        """What is left on their nodes, where that is known; nothing is kept for anybody there."""
        self._counted: set[Gang] = set()
        """The pods of which it is known how many places there are for them."""
        self._queues: dict[str, PassQueue | None] = {}
        self._changed: list[str] = []
        """Workers, each time that one became another."""
        self._rankings: dict[tuple[tuple[str, ...], Placement, Asked, Gang], Ranking] = {}
        self._members: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}
        self._places_now: dict[tuple[str, ...], tuple[dict[str, WorkerInfo], list[WorkerInfo]]] = {}
        self._opened: dict[tuple[tuple[str, ...], bool], tuple[str, ...]] = {}

    def begin(self) -> Iterator[None]:
        """In small steps, before anything is asked."""
        for number, snapshot in enumerate(self._snapshots.values(), 1):
            self.workers[snapshot.name] = self._info(snapshot, snapshot.capacity)
            if number % _WORKERS_PER_CHECKPOINT == 0:
                yield None

    # --- queues

    def queue(self, name: str) -> PassQueue | None:
        if name in self._queues:
            return self._queues[name]
        spec = self._specs.get(name)
        queue = None
        if spec is not None:
            names = self._names(spec)
            open_names = self._open(names, fenced=spec.fence is not None)
            queue = PassQueue(name, spec, names, open_names, shares=name in self._shared)
        self._queues[name] = queue
        return queue

    def order(self, name: str) -> QueueOrder:
        queue = self.queue(name)
        return queue.order if queue is not None else _DEFAULT_ORDER

    def refused_shapes(self, name: str) -> Container[Shape]:
        queue = self.queue(name)
        return queue.refused if queue is not None else ()

    def _names(self, spec: MirrorQueueSpec) -> tuple[str, ...]:
        """The queue's workers, in its order; those that it names and nobody has made included. Many queues have the
        same, and selecting them costs more than everything else about a queue."""
        wanted = spec.workers
        key = (wanted.names, repr(wanted.selector))
        if key not in self._members:
            selected = [name for name, each in self._snapshots.items() if wanted.include(name, each.spec.labels)]
            self._members[key] = tuple(sorted({*wanted.names, *selected}, key=wanted.rank))
        return self._members[key]

    def _open(self, names: tuple[str, ...], *, fenced: bool) -> tuple[str, ...]:
        """Those of them that take anything at all."""
        key = (names, fenced)
        if key not in self._opened:
            there = (self.workers[name] for name in names if name in self.workers)
            self._opened[key] = tuple(info.name for info in there if is_open(info, fenced=fenced))
        return self._opened[key]

    # --- workers, for one that waits

    def best(self, waiter: Waiter, queue: PassQueue) -> WorkerInfo | None:
        """The one to take; None: none has room that would take it."""
        return self._ranking(waiter, queue).best(waiter, self.workers, self._changed)

    def is_full(self, waiter: Waiter, queue: PassQueue) -> bool:
        """None has room for what it asks for, whoever asks."""
        return self._ranking(waiter, queue).is_empty(self.workers, self._changed)

    def _ranking(self, waiter: Waiter, queue: PassQueue) -> Ranking:
        """Of the queue's workers, for what is asked for. Many queues have the same."""
        key = queue.open, queue.spec.placement, waiter.asked, waiter.candidate.gang
        if key not in self._rankings:
            self._rankings[key] = Ranking(queue.spec.placement, waiter, queue.open)
        return self._rankings[key]

    def places(self, waiter: Waiter, queue: PassQueue) -> Iterator[WorkerInfo]:
        """The workers that would take it if less ran there."""
        infos = (self.workers[each] for each in queue.open)
        return (info for info in infos if is_welcome(waiter.candidate, info) and could_take(waiter, info))

    def infos(self, queue: PassQueue) -> list[WorkerInfo]:
        """The workers of a queue that take anything, as they are now. Many queues have the same."""
        known = self._places_now.get(queue.open)
        if known is None or known[0] is not self.workers:
            known = self._places_now[queue.open] = self.workers, [self.workers[each] for each in queue.open]
        return known[1]

    def waits_in_line(self, waiter: Waiter, queue: PassQueue) -> bool:
        """It waits for what others would have to wait for too: a worker that is open, that it may go to, and that
        could take it if less ran there."""
        infos = (self.workers[each] for each in queue.open)
        return any(is_welcome(waiter.candidate, info) and could_take(waiter, info) for info in infos)

    def stands_aside(self, waiter: Waiter, queue: PassQueue) -> bool:
        """There is room for it right now, where its own wishes do not let it go."""
        infos = (self.workers[each] for each in queue.open)
        return any(has_room(waiter, info) and not is_welcome(waiter.candidate, info) for info in infos)

    # --- nodes

    @property
    def knows_nodes(self) -> bool:
        return bool(self._free)

    def is_counted(self, gang: Gang) -> bool:
        """It is known how many places nodes have for these pods, if any nodes are known."""
        return not self._free or gang in self._counted

    def count_places(self, gang: Gang) -> Iterator[None]:
        """How many places nodes have is remembered with them: with what is found here in small steps, a decision about
        thousands of nodes takes no longer than others."""
        self._counted.add(gang)
        if len(gang) != 1:
            return  # several sets of pods are put one after the other, and little of that is remembered
        for number, free in enumerate(tuple(self._free.values()), 1):
            free.fits(gang)
            fits_when_empty(free.table, gang)
            if number % _TABLES_PER_CHECKPOINT == 0:
                yield None

    # --- what changes

    def take(self, worker: str, gang: Gang) -> None:
        """These go there."""
        free = self._free.get(worker)
        if free is not None:
            self._free[worker] = free.take(gang)
        self.look_at(worker)

    def look_at(self, worker: str | None) -> None:
        """What is used there, or kept, has changed."""
        before = self.workers.get(worker) if worker is not None else None
        if worker is not None and before is not None:
            self.workers = {**self.workers, worker: self._info(before.snapshot, before.capacity)}
            self._changed.append(worker)

    def _info(self, snapshot: WorkerSnapshot, capacity: Amounts) -> WorkerInfo:
        """A worker as everybody sees it: what is kept there is used."""
        name = snapshot.name
        used, free = self._usage.worker(name), self._free.get(name)
        for kept in (self._preempting.kept_on(name), self._claims.kept_on(name)):
            if kept.jobs or kept.resources:
                used = used.plus(kept.resources, jobs=kept.jobs)
        left = self._claims.kept_in(name, self._preempting.kept_in(name, free))
        return WorkerInfo.of(snapshot, capacity, used, left, free)

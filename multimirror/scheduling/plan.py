"""One pass over everything that waits: who goes next, and where. Pure: nothing that is given is changed.

The pass is a generator, so that whoever runs it can do other things in between; no step takes more than a few
milliseconds, however many wait. What changes meanwhile is for the next pass: queues, workers, waiting candidates and
usage are those of the moment when `plan` was called. Whoever carries a step out makes sure that its candidate is still
the one that was decided on.

A candidate that does not fit lets those behind it in its queue pass, unless the queue is strict. In a strict queue the
first one that waits for room, or for quota, holds up all others: they would have to wait for the same. What its own
wishes keep waiting holds up nobody: a choice of clusters that are not there, closed or full while others have room, a
namespace that no worker has, workers that refused it, more than any worker could ever give. (`_Pass._waits_in_line`.)

In one pass room only shrinks, so what did not fit once is not asked again for one of the same shape: a pass over
thousands of equal ones costs little.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from multimirror.api import QUEUE_LABEL, Hold, MirrorQueueSpec, QueueingStrategy
from multimirror.kinds.pod_sets import Amounts, amounts_of
from multimirror.scheduling.candidates import Candidate, Growth, WorkerSnapshot
from multimirror.scheduling.filters import (
    AboveQuota,
    FilterResult,
    QueueLimits,
    WorkerInfo,
    could_take,
    has_room,
    is_open,
    is_too_large,
    is_welcome,
    lacked_by_all,
    result,
    with_room,
)
from multimirror.scheduling.growth import GrowthWaits, objection
from multimirror.scheduling.order import Line, Position, Progress, QueueOrder, Waiter, WaitingSnapshot, in_order
from multimirror.scheduling.preempting import GIVE_UP_SECONDS, Awaited, Preempting, RunningState
from multimirror.scheduling.preemption_words import Nobody, NotYet, RoomOnItsWay, Stops, WaitsFor
from multimirror.scheduling.quota import QuotaTree
from multimirror.scheduling.refusals import Objection, QueueHeld
from multimirror.scheduling.scores import best_first
from multimirror.scheduling.shared_quota import SharedQuota, quota_tree
from multimirror.scheduling.usage import Reservation, UsageSums
from multimirror.scheduling.victims import NobodyToStop, Preemption, Protected

_TOLD: Final = 8
"""Workers in one sentence."""
_WORKERS_PER_CHECKPOINT: Final = 32
_MOST_RESOURCES: Final = 64
"""Different ones that an object may ask for: usage is counted for each, over all objects."""
_DEFAULT_ORDER: Final = QueueOrder()
_NO_QUEUE: Final = f"it names no queue; give it the label {QUEUE_LABEL}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The workers that a decision was about, as they were then: words are made of it when they are wanted."""

    waiter: Waiter
    names: tuple[str, ...]
    workers: Mapping[str, WorkerInfo]
    fenced: bool

    def result(self, worker: str) -> FilterResult:
        return result(self.waiter, worker, self.workers.get(worker), fenced=self.fenced)


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The whole decision about one candidate: a worker, or why it waits."""

    chosen: str | None
    reason: str = ""
    why: object = ""
    """In words; made when it is read."""
    compared: Comparison | None = field(default=None, compare=False, repr=False)
    holds_up: bool = field(default=False, compare=False)
    """In a strict queue: those behind it wait for it."""
    for_room: bool = field(default=False, compare=False)
    """It waits for what others have, quota or room: they could be stopped for it."""
    again: float | None = field(default=None, compare=False)
    """When to look again, by the clock, if nothing happens before."""
    preemption: Preemption | None = field(default=None, compare=False, repr=False)
    """Those are to be stopped for it."""

    @property
    def results(self) -> tuple[FilterResult, ...]:
        """Every worker of the queue, in the queue's order."""
        compared = self.compared
        return tuple(compared.result(name) for name in compared.names) if compared is not None else ()

    def __str__(self) -> str:
        """For people: the worker that was chosen first, and no more than a few."""
        why, told = str(self.why), self._told()
        return f"{why} ({told})" if why and told else why or told

    def _told(self) -> str:
        if self.compared is None:
            return ""
        names = sorted(self.compared.names, key=lambda name: name != self.chosen)
        words = [f"{name}: {self.compared.result(name).why}" for name in names[:_TOLD]]
        if len(names) > _TOLD:
            words.append(f"and {len(names) - _TOLD} more")
        return "; ".join(words)


@dataclass(frozen=True, slots=True)
class Placed:
    """It goes to `decision.chosen`."""

    candidate: Candidate
    decision: PlacementDecision

    @property
    def reservation(self) -> Reservation:
        """What it counts for from now on."""
        assert self.decision.chosen is not None
        return _reservation(self.candidate, self.decision.chosen)


@dataclass(frozen=True, slots=True)
class Waits:
    """It does not go anywhere now, and `decision` says why."""

    candidate: Candidate
    decision: PlacementDecision


@dataclass(frozen=True, slots=True)
class Preempts:
    """It waits, and others are to be stopped for it: `decision.preemption`."""

    candidate: Candidate
    decision: PlacementDecision

    @property
    def worker(self) -> str | None:
        """Where there will be room for it."""
        return self.preemption.worker

    @property
    def preemption(self) -> Preemption:
        assert self.decision.preemption is not None
        return self.decision.preemption


Step = Placed | Waits | Preempts
"""What a pass decides, one after the other."""


def plan(
    waiting: WaitingSnapshot,
    queues: Mapping[str, MirrorQueueSpec],
    workers: Mapping[str, WorkerSnapshot],
    usage: UsageSums,
    *,
    in_flight: Mapping[str, int] = MappingProxyType({}),
    resume: Mapping[Line, Position] = MappingProxyType({}),
    tree: QuotaTree | None = None,
    state: RunningState | None = None,
) -> Iterator[Step | None]:
    """Decide about everybody who waits, in order. None is a checkpoint: nothing is decided, but time has passed.

    `in_flight`: how many placements of each namespace were decided before, and are not written yet. `resume`: how far
    passes came that were broken off; then not everybody is looked at again (see `order`). `tree`: the quota of these
    queues and their cohorts (`quota_tree`); without it, cohorts are what a name makes of them. `state`: what runs;
    without it, nobody is stopped for anybody."""
    specs = dict(queues)
    shared = SharedQuota(tree if tree is not None else quota_tree(specs), specs)
    state = state or RunningState()
    progress = Progress(Counter(in_flight), resume=resume, ahead=_ahead(waiting, state, shared))
    preempting = Preempting(state, specs, (each.name for each in workers.values() if not each.state.ready))
    made = _Pass(waiting, specs, dict(workers), usage.fork(), progress=progress, shared=shared, preempting=preempting)
    return made.steps(state)


def _ahead(waiting: WaitingSnapshot, state: RunningState, shared: SharedQuota) -> dict[str, list[Waiter]]:
    """Those that others are being stopped for, by queue, in their order."""
    found: dict[str, list[Waiter]] = {}
    for each in state.awaited.values():
        waiter = waiting.find(each.candidate) if each.candidate.queue in shared else None
        if waiter is not None:
            found.setdefault(each.candidate.queue, []).append(waiter)
    return {queue: sorted(waiters) for queue, waiters in found.items()}


class _Queue:
    """A queue in this pass."""

    __slots__ = ("blocked", "keeps", "limits", "names", "open", "order", "refused", "shares", "spec", "strict")

    def __init__(
        self, name: str, spec: MirrorQueueSpec, names: tuple[str, ...], open_names: tuple[str, ...], *, shares: bool
    ) -> None:
        self.spec, self.names, self.open, self.shares = spec, names, open_names, shares
        self.limits = QueueLimits(name, spec.quota.jobs, {} if shares else amounts_of(spec.quota.resources))
        self.strict = spec.queueing_strategy is QueueingStrategy.STRICT_FIFO
        self.order = QueueOrder(self.strict, spec.max_priority or 0)
        self.refused: dict[tuple[object, ...], PlacementDecision] = {}
        """What was decided about shapes that do not fit."""
        self.blocked: PlacementDecision | None = None
        """Why everybody else of the queue waits."""
        self.keeps = False
        """Its first Job that does not fit keeps of the quota what it may."""


class _Pass:
    def __init__(
        self,
        waiting: WaitingSnapshot,
        specs: Mapping[str, MirrorQueueSpec],
        workers: Mapping[str, WorkerSnapshot],
        usage: UsageSums,
        *,
        progress: Progress,
        shared: SharedQuota,
        preempting: Preempting,
    ) -> None:
        self._waiting, self._specs, self._snapshots, self._usage = waiting, specs, workers, usage
        self._progress, self._shared, self._preempting = progress, shared, preempting
        self._workers: dict[str, WorkerInfo] = {}
        """As they are now. Replaced as a whole when one changes: decisions keep the one that they were made on."""
        self._queues: dict[str, _Queue | None] = {}
        self._members: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}
        self._opened: dict[tuple[tuple[str, ...], bool], tuple[str, ...]] = {}

    def steps(self, state: RunningState) -> Iterator[Step | None]:
        for number, snapshot in enumerate(self._snapshots.values(), 1):
            self._workers[snapshot.name] = self._info(snapshot, snapshot.capacity)
            if number % _WORKERS_PER_CHECKPOINT == 0:
                yield None
        yield from self._shared.count(
            self._usage, state.leaving, (waiter.candidate for line in self._progress.ahead.values() for waiter in line)
        )
        for waiter in in_order(self._waiting, self._usage, self._order, self._progress, self._shared.heads):
            if waiter is None:
                yield None
                continue
            decision = self._decide(waiter)
            if decision.chosen is None:
                self._progress.refused[waiter.namespace] += 1
                stops = decision.preemption is not None
                yield Preempts(waiter.candidate, decision) if stops else Waits(waiter.candidate, decision)
            else:
                self._reserve(waiter.candidate, decision.chosen)
                yield Placed(waiter.candidate, decision)

    def _decide(self, waiter: Waiter) -> PlacementDecision:
        name = waiter.candidate.queue
        queue = self._queue(name)
        if queue is None:
            why = f"there is no MirrorQueue {name}" if name else _NO_QUEUE
            return PlacementDecision(None, reason="QueueMissing", why=why)
        awaited = self._preempting.release(waiter.candidate.ref)
        if awaited is not None:
            decision = self._place_awaited(waiter, name, queue, awaited)
        elif queue.blocked is not None:
            return queue.blocked
        else:
            known = queue.refused.get(waiter.shape)
            decision = known if known is not None else self._place_or_stop(waiter, name, queue)
            if decision.chosen is None and decision.preemption is None:
                queue.refused[waiter.shape] = decision
        if decision.holds_up:
            first = f"{waiter.namespace}/{waiter.name}"
            why = f"queue {name} is strictly first in, first out, and {first} is first"
            queue.blocked = PlacementDecision(None, reason="BlockedByQueue", why=why)
        return decision

    def _place_awaited(self, waiter: Waiter, name: str, queue: _Queue, awaited: Awaited) -> PlacementDecision:
        """One that others are, or were, stopped for: nothing is kept from it."""
        candidate, preempting = waiter.candidate, self._preempting
        self._look_at(awaited.worker)
        decision = self._place(waiter, name, queue)
        if decision.chosen is not None:
            preempting.not_busy(name)
            return decision
        is_there = awaited.worker is None or awaited.worker in queue.open
        if decision.for_room and is_there and not preempting.is_given_up(awaited) and self._fits_later(waiter, queue):
            preempting.keep(candidate.ref, awaited)
            self._look_at(awaited.worker)
            again = awaited.since + GIVE_UP_SECONDS
            return replace(decision, reason="WaitsForVictims", why=WaitsFor(awaited), compared=None, again=again)
        self._shared.forget(candidate)
        preempting.not_busy(name)
        return self._place_or_stop(waiter, name, queue)

    def _place_or_stop(self, waiter: Waiter, name: str, queue: _Queue) -> PlacementDecision:
        """Or the first of its queue that does not fit keeps of the quota what it may."""
        decision = self._place(waiter, name, queue)
        if not decision.for_room or not queue.shares:
            return decision
        decision = self._make_room(waiter, queue, decision)
        if decision.for_room and not queue.keeps and decision.reason not in ("NoWorkerFits", "WaitsForVictims"):
            queue.keeps = self._waits_in_line(waiter, queue)
            if queue.keeps:
                self._shared.keep(waiter.candidate)
        return decision

    def _make_room(self, waiter: Waiter, queue: _Queue, decision: PlacementDecision) -> PlacementDecision:
        """By stopping others, where the queue may; or room is on its way."""
        candidate, preempting = waiter.candidate, self._preempting
        if preempting.is_anybody_leaving and self._fits_later(waiter, queue):
            # Nothing is kept for it: kept room counts as its queue's, which might have to give for it what it runs.
            return replace(decision, reason="WaitsForVictims", why=RoomOnItsWay(decision.why))
        if not queue.spec.preempts:
            return decision
        opens = preempting.opens(candidate)
        if opens is None or opens > preempting.now:
            return replace(decision, again=opens)
        found = preempting.search(waiter, self._places(waiter, queue), partial(self._shared.search, candidate))
        match found:
            case Preemption():
                self._look_at(found.worker)
                again = preempting.now + GIVE_UP_SECONDS
                why = Stops(found)
                return replace(
                    decision, reason="WaitsForVictims", why=why, compared=None, again=again, preemption=found
                )
            case Protected():
                why_not = NotYet(found, preempting.now)
                return replace(decision, reason="Protected", why=why_not, compared=None, again=found.until)
            case NobodyToStop() if self._shared.is_within_own(candidate):
                return replace(decision, reason="NobodyToStop", why=Nobody(decision.why, found))
        return decision

    def _fits_later(self, waiter: Waiter, queue: _Queue) -> bool:
        """When those are gone who are leaving, there will be quota and room for it."""
        if not self._shared.fits_later(waiter.candidate):
            return False
        return self._preempting.has_room(self._places(waiter, queue), waiter.asked)

    def _places(self, waiter: Waiter, queue: _Queue) -> Iterator[WorkerInfo]:
        """The workers that would take it if less ran there."""
        infos = (self._workers[each] for each in queue.open)
        return (info for info in infos if is_welcome(waiter.candidate, info) and could_take(waiter, info))

    def _place(self, waiter: Waiter, name: str, queue: _Queue) -> PlacementDecision:
        candidate = waiter.candidate
        if candidate.problem:
            return PlacementDecision(None, reason="Invalid", why=candidate.problem)
        if queue.spec.hold is not Hold.NONE:
            return self._held(candidate, name, queue.spec.hold)
        if candidate.growth is not None:
            return self._grow(candidate, candidate.growth, name, queue)
        if len(candidate.requests) > _MOST_RESOURCES:
            why = (
                f"it asks for {len(candidate.requests)} different resources, more than the {_MOST_RESOURCES} that count"
            )
            return PlacementDecision(None, reason="NeverFits", why=why)
        if candidate.clusters is not None and queue.names and candidate.clusters.isdisjoint(queue.names):
            why = f"none of its multimirror.dev/clusters ({_some(candidate.clusters)}) is a worker of queue {name}"
            return PlacementDecision(None, reason="NeverFits", why=why)
        exceeded = queue.limits.exceeded(candidate.requests, self._usage.queue(name))
        if isinstance(exceeded, AboveQuota):
            return PlacementDecision(None, reason="NeverFits", why=exceeded)
        if exceeded is not None:
            holds_up = queue.strict and self._waits_in_line(waiter, queue)
            return PlacementDecision(None, reason="QuotaExceeded", why=exceeded, holds_up=holds_up)
        found = self._shared.objection(candidate) if queue.shares else None
        if found is not None:
            return self._without_quota(waiter, queue, found)
        if not queue.names:
            return PlacementDecision(None, reason="NoWorkers", why=f"queue {name} has no worker clusters")
        workers = self._workers
        compared = Comparison(waiter, queue.names, workers, fenced=queue.spec.fence is not None)
        places = [workers[each] for each in queue.open]
        ranked = best_first(queue.spec.placement, waiter.asked, with_room(waiter.asked, places))
        chosen = next((info for info in ranked if is_welcome(candidate, info)), None)
        if chosen is not None:
            return PlacementDecision(chosen.name, compared=compared)
        if len(places) == len(queue.names) and all(is_too_large(waiter, info) for info in places):
            resource = lacked_by_all(waiter.asked, places)
            lack = f"has {resource}" if resource is not None else "is large enough"
            why = f"no worker cluster of its queue {lack}"
            return PlacementDecision(None, reason="NeverFits", why=why, compared=compared)
        why = "no worker cluster can take it now"
        holds_up = queue.strict and self._waits_in_line(waiter, queue) and not self._stands_aside(waiter, queue)
        return PlacementDecision(
            None, reason="NoWorkerFits", why=why, compared=compared, holds_up=holds_up, for_room=True
        )

    def _held(self, candidate: Candidate, name: str, hold: Hold) -> PlacementDecision:
        why = QueueHeld(name, hold, self._waiting.queues[name].count)
        if candidate.growth is not None:
            return PlacementDecision(None, reason="GrowthWaits", why=GrowthWaits(candidate.growth, why))
        if hold is Hold.HOLD:
            return PlacementDecision(None, reason="Held", why=why)
        return PlacementDecision(None, reason="Draining", why=why)

    def _without_quota(self, waiter: Waiter, queue: _Queue, found: Objection) -> PlacementDecision:
        candidate = waiter.candidate
        if self._shared.never_fits(candidate, found):
            return PlacementDecision(None, reason=found.reason, why=found.why)
        holds_up = queue.strict and self._waits_in_line(waiter, queue)
        return PlacementDecision(None, reason=found.reason, why=found.why, holds_up=holds_up, for_room=True)

    def _waits_in_line(self, waiter: Waiter, queue: _Queue) -> bool:
        """It waits for what others would have to wait for too: a worker that is open, that it may go to, and that
        could take it if less ran there."""
        infos = (self._workers[each] for each in queue.open)
        return any(is_welcome(waiter.candidate, info) and could_take(waiter, info) for info in infos)

    def _stands_aside(self, waiter: Waiter, queue: _Queue) -> bool:
        """There is room for it right now, where its own wishes do not let it go."""
        infos = (self._workers[each] for each in queue.open)
        return any(has_room(waiter.asked, info) and not is_welcome(waiter.candidate, info) for info in infos)

    def _grow(self, candidate: Candidate, growth: Growth, name: str, queue: _Queue) -> PlacementDecision:
        worker = self._workers.get(growth.worker)
        found = objection(candidate, growth, queue.limits, self._usage.queue(name), worker)
        if found is None and queue.shares:
            found = self._shared.objection_to_growth(candidate, growth)
        if found is not None:
            return PlacementDecision(None, reason=found.reason, why=found.why)
        return PlacementDecision(growth.worker)

    def _reserve(self, candidate: Candidate, worker: str) -> None:
        if candidate.growth is not None:
            self._usage.grow(_reservation(candidate, worker))
        else:
            self._usage.add(_reservation(candidate, worker))
        if candidate.queue in self._shared:
            self._shared.place(candidate)
        self._progress.in_flight[candidate.namespace] += 1
        self._look_at(worker)

    def _look_at(self, worker: str | None) -> None:
        """What is used there, or kept, has changed."""
        before = self._workers.get(worker) if worker is not None else None
        if worker is not None and before is not None:
            self._workers = {**self._workers, worker: self._info(before.snapshot, before.capacity)}

    def _info(self, snapshot: WorkerSnapshot, capacity: Amounts) -> WorkerInfo:
        """A worker as everybody sees it: what is kept there is used."""
        used, kept = self._usage.worker(snapshot.name), self._preempting.kept_on(snapshot.name)
        if kept.jobs or kept.resources:
            used = used.plus(kept.resources, jobs=kept.jobs)
        return WorkerInfo.of(snapshot, capacity, used)

    def _order(self, name: str) -> QueueOrder:
        queue = self._queue(name)
        return queue.order if queue is not None else _DEFAULT_ORDER

    def _queue(self, name: str) -> _Queue | None:
        if name in self._queues:
            return self._queues[name]
        spec = self._specs.get(name)
        queue = None
        if spec is not None:
            names = self._names(spec)
            open_names = self._open(names, fenced=spec.fence is not None)
            queue = _Queue(name, spec, names, open_names, shares=name in self._shared)
        self._queues[name] = queue
        return queue

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
            there = (self._workers[name] for name in names if name in self._workers)
            self._opened[key] = tuple(info.name for info in there if is_open(info, fenced=fenced))
        return self._opened[key]


def _reservation(candidate: Candidate, worker: str) -> Reservation:
    return Reservation(candidate.queue, candidate.namespace, worker, candidate.requests)


def _some(names: frozenset[str]) -> str:
    """No more of them than fit into a sentence."""
    shown = ", ".join(sorted(names)[:_TOLD])
    return f"{shown} and {len(names) - _TOLD} more" if len(names) > _TOLD else shown

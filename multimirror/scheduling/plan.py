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
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from multimirror.api import QUEUE_LABEL, Hold, MirrorQueueSpec, Placement, QueueingStrategy
from multimirror.api import Preempts as MayStop
from multimirror.kinds.pod_sets import Amounts, amounts_of
from multimirror.kinds.pod_shapes import Gang
from multimirror.scheduling.candidates import Candidate, Growth, WorkerSnapshot
from multimirror.scheduling.claim_words import HasClaim, KeptForClaim
from multimirror.scheduling.claiming import Claiming
from multimirror.scheduling.claims import Held, waits_since
from multimirror.scheduling.decisions import (
    Comparison,
    Placed,
    PlacementDecision,
    Preempts,
    Rest,
    Step,
    Waits,
    cut,
    reservation_of,
)
from multimirror.scheduling.filters import (
    NO_ROOM,
    AboveQuota,
    QueueLimits,
    WorkerInfo,
    could_take,
    has_room,
    is_open,
    is_too_large,
    is_welcome,
    lacked_by_all,
    no_room,
)
from multimirror.scheduling.growth import GrowthWaits, objection
from multimirror.scheduling.order import Progress, QueueOrder, in_order, is_next, rank_of
from multimirror.scheduling.past_use import NO_PAST, Past
from multimirror.scheduling.preempting import GIVE_UP_SECONDS, Awaited, Preempting, RunningState
from multimirror.scheduling.preemption_words import Nobody, NotYet, RoomOnItsWay, Stops, WaitsFor
from multimirror.scheduling.quota import QuotaTree
from multimirror.scheduling.refusals import Objection, QueueHeld
from multimirror.scheduling.scores import Ranking
from multimirror.scheduling.shared_quota import SharedQuota, quota_tree
from multimirror.scheduling.slots import fits_when_empty
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.victims import NobodyToStop, Preemption, Protected
from multimirror.scheduling.waiting import Asked, Line, Position, Shape, Waiter, WaitingSnapshot

_WORKERS_PER_CHECKPOINT: Final = 32
_TABLES_PER_CHECKPOINT: Final = 8
"""Workers whose nodes are looked at in one step."""
_MOST_RESOURCES: Final = 64
"""Different ones that an object may ask for: usage is counted for each, over all objects."""
_DEFAULT_ORDER: Final = QueueOrder()
_KEPT_PERHAPS: Final = ("QuotaExceeded", "GrowthWaits")
_KEEPS_NOTHING: Final = ("NoWorkerFits", "WaitsForVictims", "Claimed")
_NO_QUEUE: Final = f"it names no queue; give it the label {QUEUE_LABEL}"


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
    held_since: Mapping[str, float] = MappingProxyType({}),
    past: Past = NO_PAST,
) -> Iterator[Step | None]:
    """Decide about everybody who waits, in order. None is a checkpoint: nothing is decided, but time has passed.

    `in_flight`: how many placements of each namespace were decided before, and are not written yet. `resume`: how far
    passes came that were broken off; then not everybody is looked at again (see `order`). `tree`: the quota of these
    queues and their cohorts (`quota_tree`); without it, cohorts are what a name makes of them. `state`: what runs;
    without it, nobody is stopped for anybody. `held_since`: by queue, since when it is held, for words. `past`: what
    was used before, where a cohort of the tree has a half-life."""
    specs = dict(queues)
    shared = SharedQuota(tree if tree is not None else quota_tree(specs), specs, past)
    state = state or RunningState()
    progress = Progress(Counter(in_flight), resume=resume, ahead=_ahead(waiting, state, shared))
    made = _Pass(
        waiting,
        specs,
        dict(workers),
        usage.fork(),
        progress=progress,
        shared=shared,
        state=state,
        held_since=held_since,
    )
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
        state: RunningState,
        held_since: Mapping[str, float],
    ) -> None:
        self._waiting, self._specs, self._snapshots, self._usage = waiting, specs, workers, usage
        self._progress, self._shared, self._held_since = progress, shared, held_since
        self._preempting = Preempting(state, specs, (each.name for each in workers.values() if not each.state.ready))
        self._claiming = Claiming(
            waiting, state, usage, shared=shared, preempting=self._preempting, look_at=self._look_at
        )
        self._claims = self._claiming.claims
        self._workers: dict[str, WorkerInfo] = {}
        """As they are now. Replaced as a whole when one changes: decisions keep the one that they were made on."""
        self._free = {name: each.free for name, each in workers.items() if each.free is not None}
        """What is left on their nodes, where that is known; nothing is kept for anybody there."""
        self._counted: set[Gang] = set()
        """The pods of which it is known how many places there are for them."""
        self._queues: dict[str, _Queue | None] = {}
        self._progress.is_answered = self._is_answered
        self._changed: list[str] = []
        """Workers, each time that one became another."""
        self._rankings: dict[tuple[tuple[str, ...], Placement, Asked, Gang], Ranking] = {}
        self._members: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}
        self._places_now: dict[tuple[str, ...], tuple[dict[str, WorkerInfo], list[WorkerInfo]]] = {}
        self._opened: dict[tuple[tuple[str, ...], bool], tuple[str, ...]] = {}

    def steps(self, state: RunningState) -> Iterator[Step | None]:
        for number, snapshot in enumerate(self._snapshots.values(), 1):
            self._workers[snapshot.name] = self._info(snapshot, snapshot.capacity)
            if number % _WORKERS_PER_CHECKPOINT == 0:
                yield None
        yield from self._shared.count(
            self._usage,
            self._waiting.queues,
            state.leaving,
            (waiter.candidate for line in self._progress.ahead.values() for waiter in line),
        )
        yield from self._begin_claims()
        refused = self._progress.refused
        for waiter in in_order(self._waiting, self._usage, self._order, self._progress, self._shared.heads):
            if waiter is None:
                yield None
                continue
            decision = self._known(waiter)
            if decision is not None:
                refused[waiter.candidate.namespace] += 1
                yield Waits(waiter.candidate, decision)
                continue
            if self._free and waiter.candidate.gang not in self._counted:
                yield from self._count_places(waiter.candidate.gang)
            decision = self._decide(waiter)
            if decision.chosen is None:
                refused[waiter.candidate.namespace] += 1
                stops = decision.preemption is not None
                yield Preempts(waiter.candidate, decision) if stops else Waits(waiter.candidate, decision)
            else:
                self._reserve(waiter.candidate, decision.chosen)
                yield Placed(waiter.candidate, decision)

    def _is_answered(self, waiter: Waiter) -> bool:
        """It does not fit, and neither stops others nor keeps anything from them."""
        queue = self._queue(waiter.candidate.queue)
        if queue is None or queue.blocked is not None or waiter.shape in queue.refused:
            return True
        if self._waiting.claimed or queue.spec.head_wait is not None:
            return False  # what is kept for others, or for it, may be another in its turn
        if queue.strict or not (queue.keeps or MayStop.RECLAIM in queue.spec.preempts):
            return False
        return queue.shares and self._shared.is_hopeless(waiter.candidate)

    def _count_places(self, gang: Gang) -> Iterator[None]:
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

    def _known(self, waiter: Waiter) -> PlacementDecision | None:
        """What was decided about one of the same shape, or about all of its queue, where it is sure that this one is no
        exception: most who wait are answered here."""
        queue = self._queues.get(waiter.candidate.queue)
        if queue is None or queue.spec.head_wait is not None or self._preempting.awaited or self._claims:
            return None
        return queue.blocked or queue.refused.get(waiter.shape)

    def _decide(self, waiter: Waiter) -> PlacementDecision:
        name = waiter.candidate.queue
        queue = self._queue(name)
        if queue is None:
            why = f"there is no MirrorQueue {name}" if name else _NO_QUEUE
            return PlacementDecision(None, reason="QueueMissing", why=why)
        awaited = self._preempting.release(waiter.candidate.ref)
        held = self._claims.of(name)
        mine = held if held is not None and held.candidate.ref == waiter.candidate.ref else None
        if mine is not None:
            self._claiming.release(mine)
        if awaited is not None:
            decision = self._place_awaited(waiter, name, queue, awaited)
        elif queue.blocked is not None:
            decision = queue.blocked
        else:
            decision = self._look_up(waiter, name, queue, has_claim=mine is not None)
        if decision.holds_up:
            first = f"{waiter.namespace}/{waiter.name}"
            why = f"queue {name} is strictly first in, first out, and {first} is first"
            queue.blocked = PlacementDecision(None, reason="BlockedByQueue", why=why)
        if queue.spec.head_wait is not None and awaited is None:
            return self._claim(waiter, queue, decision)
        return decision

    def _look_up(self, waiter: Waiter, name: str, queue: _Queue, *, has_claim: bool) -> PlacementDecision:
        """What was decided about one of the same shape; or decide. That something is kept does not concern the one that
        it is kept for, which need not be the first in line: an older one may have come back."""
        shape = waiter.shape
        known = queue.refused.get(shape)
        if known is None and queue.claimed and not has_claim:
            known = queue.claimed.get((shape, waiter.rank, waiter.candidate.run_seconds))
        if known is not None:
            return known
        decision = self._place_or_stop(waiter, name, queue)
        if decision.chosen is None and decision.preemption is None:
            if decision.reason == "Claimed":
                queue.claimed[shape, waiter.rank, waiter.candidate.run_seconds] = decision
            else:
                queue.refused[shape] = decision
        return decision

    def _place_awaited(self, waiter: Waiter, name: str, queue: _Queue, awaited: Awaited) -> PlacementDecision:
        """One that others are, or were, stopped for: nothing is kept from it."""
        candidate, preempting = waiter.candidate, self._preempting
        self._look_at(awaited.worker)
        with self._claiming.lifted(self._claims):
            decision = self._place(waiter, name, queue)
            if decision.chosen is not None and self._comes_after(name, awaited):
                decision = replace(decision, chosen=None, for_room=True)
            if decision.chosen is not None:
                preempting.not_busy(name)
                return decision
            is_there = awaited.worker is None or awaited.worker in queue.open
            waits = decision.for_room and is_there and not preempting.is_given_up(awaited)
            if waits and self._fits_later(waiter, queue):
                preempting.keep(candidate.ref, awaited)
                self._look_at(awaited.worker)
                again = awaited.since + GIVE_UP_SECONDS
                return replace(decision, reason="WaitsForVictims", why=WaitsFor(awaited), compared=None, again=again)
        self._shared.forget(candidate)
        preempting.not_busy(name)
        return self._place_or_stop(waiter, name, queue)

    def _comes_after(self, name: str, awaited: Awaited) -> bool:
        """Its victims are there still, and those of another one of its tree are gone: what is free is that one's."""
        queues = self._shared.tree.queues
        return bool(awaited.leaving) and any(
            not other.leaving and queues[other.candidate.queue].root is queues[name].root
            for other in self._preempting.awaited.values()
            if other.candidate.queue in queues
        )

    def _place_or_stop(self, waiter: Waiter, name: str, queue: _Queue) -> PlacementDecision:
        """Or the first of its queue that does not fit keeps of the quota what it may."""
        decision = self._place_beside_claims(waiter, name, queue)
        if not decision.for_room or not queue.shares:
            return decision
        made = self._make_room(waiter, queue, decision)
        if decision.reason == "Claimed" and made.preemption is None:
            return replace(decision, again=made.again)
        if not self._may_claim(waiter, queue):
            self._keep_own(waiter, queue, made)
        return made

    def _keep_own(self, waiter: Waiter, queue: _Queue, decision: PlacementDecision) -> None:
        """The first of its queue that does not fit, and has no claim, keeps of its own quota what is left."""
        if decision.for_room and queue.shares and not queue.keeps and decision.reason not in _KEEPS_NOTHING:
            queue.keeps = self._waits_in_line(waiter, queue)
            if queue.keeps:
                self._shared.keep(waiter.candidate)

    # --- claims

    def _begin_claims(self) -> Iterator[None]:
        """Those that are written down count from the beginning."""
        claimants: dict[str, Waiter] = {}
        for waiter in self._claiming.known(self._specs, self._order):
            name = waiter.candidate.queue
            queue = self._queue(name)
            held = self._make_claim(waiter, queue) if queue is not None and self._waits_in_line(waiter, queue) else None
            if held is not None:
                self._claiming.keep(held)
                if is_next(self._waiting, waiter, self._order(name)):
                    claimants[name] = waiter
            yield None
        self._progress.claimants = claimants

    def _make_claim(self, waiter: Waiter, queue: _Queue) -> Held | None:
        infos = list(self._places(waiter, queue))
        return self._claiming.make(waiter, queue.spec, queue.limits, infos, map(self._workers.__getitem__, queue.open))

    def _may_claim(self, waiter: Waiter, queue: _Queue) -> bool:
        """It has waited long enough, and no other one of its queue is before it."""
        if queue.spec.head_wait is None or self._claiming.opens(waiter.candidate, queue.spec) is None:
            return False
        held = self._claims.of(waiter.candidate.queue)
        return held is None or rank_of(waiter, queue.order) < held.rank

    def _claim(self, waiter: Waiter, queue: _Queue, decision: PlacementDecision) -> PlacementDecision:
        """Of those that wait for room, the first of its queue that has waited long enough keeps what becomes free."""
        candidate, head_wait, held = waiter.candidate, queue.spec.head_wait, self._claims.of(waiter.candidate.queue)
        if decision.chosen is not None or decision.preemption is not None or candidate.growth is not None:
            return decision
        if head_wait is None or not (decision.for_room or decision.reason == "QuotaExceeded"):
            return decision
        if queue.limits.jobs == 0 or not self._waits_in_line(waiter, queue):
            return decision
        if not self._may_claim(waiter, queue):
            opens = waits_since(candidate, self._claims.now) + head_wait
            if held is not None or queue.opens:
                return decision
            queue.opens = True
            return replace(decision, again=min(opens, decision.again or opens))
        if held is not None:
            self._claiming.release(held)
        made = self._make_claim(waiter, queue)
        if made is None:
            if held is not None:
                self._claiming.keep(held)
            self._keep_own(waiter, queue, decision)
            return decision
        self._claiming.keep(made)
        moves = max(self._claims.now, made.claim.since) + head_wait
        why = HasClaim(decision.why, made, self._claims.now)
        return replace(decision, why=why, claim=made.claim, again=min(moves, decision.again or moves), rest=Rest.NEVER)

    def _place_beside_claims(self, waiter: Waiter, name: str, queue: _Queue) -> PlacementDecision:
        """What is kept for others is not there, unless it may pass them."""
        if not self._claims:
            return self._place(waiter, name, queue)
        candidate = waiter.candidate
        node = self._shared.tree.queues.get(name)
        root = node.root.index if node is not None else None
        within = partial(self._shared.is_within_own, candidate)
        passed = self._claims.passed_by(candidate, rank_of(waiter, queue.order), root, within)
        with self._claiming.lifted(passed):
            decision = self._place(waiter, name, queue)
        if decision.chosen is not None or not (decision.for_room or decision.reason in _KEPT_PERHAPS):
            return decision
        binding = list(self._claims)
        with self._claiming.lifted(binding):
            alone = self._place(waiter, name, queue)
            info = self._workers.get(alone.chosen) if alone.chosen is not None else None
        if info is None:
            return decision
        held = [each for each in binding if each not in passed]
        by_worker = decision.reason in ("NoWorkerFits", "GrowthWaits")
        why = KeptForClaim.of(waiter, info, held, root, self._claims.now, in_quota=not by_worker)
        if candidate.growth is not None:
            return replace(decision, why=GrowthWaits(candidate.growth, why))
        return replace(decision, reason="Claimed", why=why, compared=None, for_room=True, rest=Rest.NEVER)

    def _make_room(self, waiter: Waiter, queue: _Queue, decision: PlacementDecision) -> PlacementDecision:
        """By stopping others, where the queue may; or room is on its way."""
        candidate, preempting = waiter.candidate, self._preempting
        if preempting.is_anybody_leaving and self._fits_later(waiter, queue):
            # Nothing is kept for it: kept room counts as its queue's, which might have to give for it what it runs.
            why_waits = RoomOnItsWay(decision.why)
            return replace(decision, reason="WaitsForVictims", why=why_waits, rest=Rest.WITH_ALL)
        if not queue.spec.preempts:
            return decision
        if not (self._shared.may_stop_others(candidate) or self._shared.is_within_own(candidate)):
            return decision
        rest = Rest.WITH_ALL if self._shared.anybody_to_stop(candidate) else Rest.WITH_TREE
        opens = preempting.opens(candidate)
        if opens is None:
            return decision.until(Rest.NEVER if rest is Rest.WITH_ALL else rest)
        if opens > preempting.now:
            return decision.until(rest, opens)
        decision = decision.until(rest)
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
                usage, node = self._shared.charged, self._shared.tree.queues[candidate.queue]
                nobody = Nobody(decision.why, found, usage, preempting.running, node)
                return replace(decision, reason="NobodyToStop", why=nobody)
        return decision

    def _fits_later(self, waiter: Waiter, queue: _Queue) -> bool:
        """When those are gone who are leaving, there will be quota and room for it."""
        if not self._shared.fits_later(waiter.candidate):
            return False
        return self._preempting.has_room(self._places(waiter, queue), waiter)

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
            return self._grow(waiter, candidate.growth, name, queue)
        if len(candidate.requests) > _MOST_RESOURCES:
            why = (
                f"it asks for {len(candidate.requests)} different resources, more than the {_MOST_RESOURCES} that count"
            )
            return PlacementDecision(None, reason="NeverFits", why=why)
        if candidate.clusters is not None and queue.names and candidate.clusters.isdisjoint(queue.names):
            why = f"none of its multimirror.dev/clusters ({_some(candidate.clusters)}) is a worker of queue {name}"
            return PlacementDecision(None, reason="NeverFits", why=why)
        exceeded = queue.limits.exceeded(candidate.requests, self._claiming.used(name))
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
        chosen = self._ranking(waiter, queue).best(waiter, workers, self._changed)
        if chosen is not None:
            return PlacementDecision(chosen.name, compared=compared)
        places = self._infos(queue)
        if len(places) == len(queue.names) and all(is_too_large(waiter, info) for info in places):
            resource = lacked_by_all(waiter.asked, places)
            lack = f"has {resource}" if resource is not None else "is large enough"
            why = f"no worker cluster of its queue {lack}"
            return PlacementDecision(None, reason="NeverFits", why=why, compared=compared)
        why = no_room(waiter, places) if self._free else NO_ROOM
        holds_up = queue.strict and self._waits_in_line(waiter, queue) and not self._stands_aside(waiter, queue)
        return PlacementDecision(
            None, reason="NoWorkerFits", why=why, compared=compared, holds_up=holds_up, for_room=True
        )

    def _infos(self, queue: _Queue) -> list[WorkerInfo]:
        """The workers of a queue that take anything, as they are now. Many queues have the same."""
        known = self._places_now.get(queue.open)
        if known is None or known[0] is not self._workers:
            known = self._places_now[queue.open] = self._workers, [self._workers[each] for each in queue.open]
        return known[1]

    def _ranking(self, waiter: Waiter, queue: _Queue) -> Ranking:
        """Of the queue's workers, for what is asked for. Many queues have the same."""
        key = queue.open, queue.spec.placement, waiter.asked, waiter.candidate.gang
        if key not in self._rankings:
            self._rankings[key] = Ranking(queue.spec.placement, waiter, queue.open)
        return self._rankings[key]

    def _held(self, candidate: Candidate, name: str, hold: Hold) -> PlacementDecision:
        why = QueueHeld(name, hold, self._waiting.queues[name].count, self._held_since.get(name))
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
        return any(has_room(waiter, info) and not is_welcome(waiter.candidate, info) for info in infos)

    def _grow(self, waiter: Waiter, growth: Growth, name: str, queue: _Queue) -> PlacementDecision:
        found = self._objection_to_growth(waiter.candidate, growth, name, queue)
        if found is None:
            return PlacementDecision(growth.worker)
        return PlacementDecision(None, reason=found.reason, why=found.why, rest=Rest.WITH_ALL)

    def _objection_to_growth(self, candidate: Candidate, growth: Growth, name: str, queue: _Queue) -> Objection | None:
        worker = self._workers.get(growth.worker)
        found = objection(candidate, growth, queue.limits, self._claiming.used(name), worker)
        if found is None and queue.shares:
            found = self._shared.objection_to_growth(candidate, growth)
        return found

    def _reserve(self, candidate: Candidate, worker: str) -> None:
        if candidate.growth is not None:
            self._usage.grow(reservation_of(candidate, worker))
        else:
            self._usage.add(reservation_of(candidate, worker))
        if candidate.queue in self._shared:
            self._shared.place(candidate)
        self._progress.in_flight[candidate.namespace] += 1
        free = self._free.get(worker)
        if free is not None:
            self._free[worker] = free.take(candidate.gang)
        self._look_at(worker)

    def _look_at(self, worker: str | None) -> None:
        """What is used there, or kept, has changed."""
        before = self._workers.get(worker) if worker is not None else None
        if worker is not None and before is not None:
            self._workers = {**self._workers, worker: self._info(before.snapshot, before.capacity)}
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


def _some(names: frozenset[str]) -> str:
    """No more of them than fit into a sentence."""
    shown, more = cut(sorted(names))
    return " ".join((", ".join(shown), *more))

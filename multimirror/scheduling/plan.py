"""One pass over everything that waits: who goes next, and where. Pure: nothing that is given is changed.

The pass is a generator, so that whoever runs it can do other things in between; no step takes more than a few
milliseconds, however many wait. What changes meanwhile is for the next pass: queues, workers, waiting candidates and
usage are those of the moment when `plan` was called. Whoever carries a step out makes sure that its candidate is still
the one that was decided on.

A candidate that does not fit lets those behind it in its queue pass, unless the queue is strict. In a strict queue the
first one that waits for room, or for quota, holds up all others: they would have to wait for the same. What its own
wishes keep waiting holds up nobody: a choice of clusters that are not there, closed or full while others have room, a
namespace that no worker has, workers that refused it, more than any worker could ever give. (`PassView.waits_in_line`.)

In one pass room only shrinks, so what did not fit once is not asked again for one of the same shape: a pass over
thousands of equal ones costs little.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from multimirror.api import QUEUE_LABEL, MirrorQueueSpec
from multimirror.api import Preempts as MayStop
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.claiming import Claiming
from multimirror.scheduling.claims import Claims
from multimirror.scheduling.decisions import (
    Placed,
    PlacementDecision,
    Preempts,
    Rest,
    Step,
    Waits,
    reservation_of,
)
from multimirror.scheduling.keeping import Keeping
from multimirror.scheduling.order import Progress, in_order
from multimirror.scheduling.pass_view import PassQueue, PassView
from multimirror.scheduling.past_use import NO_PAST, Past
from multimirror.scheduling.placing import Placing
from multimirror.scheduling.preempting import GIVE_UP_SECONDS, Awaited, Preempting, RunningState
from multimirror.scheduling.preemption_words import Nobody, NotYet, RoomOnItsWay, Stops, WaitsFor
from multimirror.scheduling.quota import QuotaTree
from multimirror.scheduling.shared_quota import SharedQuota, quota_tree
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.victims import NobodyToStop, Preemption, Protected
from multimirror.scheduling.waiting import Line, Position, Waiter, WaitingSnapshot

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
        self._waiting, self._usage, self._progress, self._shared = waiting, usage, progress, shared
        self._claims = claims = Claims(state.now)
        self._preempting = Preempting(state, specs, (each.name for each in workers.values() if not each.state.ready))
        self._view = PassView(specs, workers, usage, shared, preempting=self._preempting, claims=claims)
        self._claiming = Claiming(
            waiting,
            state,
            usage,
            claims=claims,
            shared=shared,
            preempting=self._preempting,
            look_at=self._view.look_at,
        )
        self._placing = Placing(waiting, self._view, shared, self._claiming, held_since)
        self._keeping = Keeping(waiting, specs, self._view, shared, claiming=self._claiming, placing=self._placing)
        progress.is_answered, progress.known = self._is_answered, self._view.refused_shapes

    def steps(self, state: RunningState) -> Iterator[Step | None]:
        yield from self._view.begin()
        yield from self._shared.count(
            self._usage,
            self._waiting.queues,
            state.leaving,
            (waiter.candidate for line in self._progress.ahead.values() for waiter in line),
        )
        yield from self._keeping.begin(self._progress)
        refused = self._progress.refused
        for waiter in in_order(self._waiting, self._usage, self._view.order, self._progress, self._shared.heads):
            if waiter is None:
                yield None
                continue
            decision = self._known(waiter)
            if decision is not None:
                refused[waiter.candidate.namespace] += 1
                yield Waits(waiter.candidate, decision)
                continue
            if not self._view.is_counted(waiter.candidate.gang):
                yield from self._view.count_places(waiter.candidate.gang)
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
        queue = self._view.queue(waiter.candidate.queue)
        if queue is None or waiter.shape in queue.refused or queue.blocked is not None:
            return True
        if self._waiting.claimed or queue.spec.head_wait is not None:
            return False  # what is kept for others, or for it, may be another in its turn
        if not queue.shares or queue.strict or not (queue.keeps or MayStop.RECLAIM in queue.spec.preempts):
            return False
        return self._shared.is_hopeless(waiter.candidate) or self._has_no_room(waiter, queue)

    def _has_no_room(self, waiter: Waiter, queue: PassQueue) -> bool:
        """No worker has any for what it asks for, and there is nobody to stop."""
        candidate = waiter.candidate
        if candidate.growth is not None or not self._view.is_counted(candidate.gang):
            return False  # it has a worker; or nodes have to be looked at, which takes many steps
        if self._shared.anybody_to_stop(candidate):
            return False
        return self._view.is_full(waiter, queue)

    def _known(self, waiter: Waiter) -> PlacementDecision | None:
        """What was decided about one of the same shape, or about all of its queue, where it is sure that this one is no
        exception: most who wait are answered here."""
        queue = self._view.queue(waiter.candidate.queue)
        found = (queue.blocked or queue.refused.get(waiter.shape)) if queue is not None else None
        if found is None or queue is None or queue.spec.head_wait is not None or self._preempting.awaited:
            return None
        return found if not self._claims else None

    def _decide(self, waiter: Waiter) -> PlacementDecision:
        name = waiter.candidate.queue
        queue = self._view.queue(name)
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
            return self._keeping.claim(waiter, queue, decision)
        return decision

    def _look_up(self, waiter: Waiter, name: str, queue: PassQueue, *, has_claim: bool) -> PlacementDecision:
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

    def _place_awaited(self, waiter: Waiter, name: str, queue: PassQueue, awaited: Awaited) -> PlacementDecision:
        """One that others are, or were, stopped for: nothing is kept from it."""
        candidate, preempting = waiter.candidate, self._preempting
        self._view.look_at(awaited.worker)
        with self._claiming.lifted(self._claims):
            decision = self._placing.place(waiter, name, queue)
            if decision.chosen is not None and self._comes_after(name, awaited):
                decision = replace(decision, chosen=None, for_room=True)
            if decision.chosen is not None:
                preempting.not_busy(name)
                return decision
            is_there = awaited.worker is None or awaited.worker in queue.open
            waits = decision.for_room and is_there and not preempting.is_given_up(awaited)
            if waits and self._fits_later(waiter, queue):
                preempting.keep(candidate.ref, awaited)
                self._view.look_at(awaited.worker)
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

    def _place_or_stop(self, waiter: Waiter, name: str, queue: PassQueue) -> PlacementDecision:
        """Or the first of its queue that does not fit keeps of the quota what it may."""
        decision = self._keeping.place_beside_claims(waiter, name, queue)
        if not decision.for_room or not queue.shares:
            return decision
        made = self._make_room(waiter, queue, decision)
        if decision.reason == "Claimed" and made.preemption is None:
            return replace(decision, again=made.again)
        if not self._keeping.may_claim(waiter, queue):
            self._keeping.keep_own(waiter, queue, made)
        return made

    def _make_room(self, waiter: Waiter, queue: PassQueue, decision: PlacementDecision) -> PlacementDecision:
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
        found = preempting.search(waiter, self._view.places(waiter, queue), partial(self._shared.search, candidate))
        match found:
            case Preemption():
                self._view.look_at(found.worker)
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

    def _fits_later(self, waiter: Waiter, queue: PassQueue) -> bool:
        """When those are gone who are leaving, there will be quota and room for it."""
        if not self._shared.fits_later(waiter.candidate):
            return False
        return self._preempting.has_room(self._view.places(waiter, queue), waiter)

    def _reserve(self, candidate: Candidate, worker: str) -> None:
        if candidate.growth is not None:
            self._usage.grow(reservation_of(candidate, worker))
        else:
            self._usage.add(reservation_of(candidate, worker))
        if candidate.queue in self._shared:
            self._shared.place(candidate)
        self._progress.in_flight[candidate.namespace] += 1
        self._view.take(worker, candidate.gang)

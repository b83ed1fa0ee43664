"""What is kept for those that do not fit: claims for those that have waited long, and their queue's own quota."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from multimirror.api import MirrorQueueSpec
from multimirror.api import Preempts as MayStop
from multimirror.scheduling.claim_words import HasClaim, KeptForClaim
from multimirror.scheduling.claiming import Claiming
from multimirror.scheduling.claims import Held, waits_since
from multimirror.scheduling.decisions import PlacementDecision, Rest
from multimirror.scheduling.growth import GrowthWaits
from multimirror.scheduling.order import Progress, is_next, rank_of
from multimirror.scheduling.pass_view import PassQueue, PassView
from multimirror.scheduling.placing import Placing
from multimirror.scheduling.shared_quota import SharedQuota
from multimirror.scheduling.waiting import Waiter, WaitingSnapshot

_KEPT_PERHAPS: Final = ("QuotaExceeded", "GrowthWaits")
_KEEPS_NOTHING: Final = ("NoWorkerFits", "WaitsForVictims", "Claimed")


class Keeping:
    """Of one pass."""

    def __init__(
        self,
        waiting: WaitingSnapshot,
        specs: Mapping[str, MirrorQueueSpec],
        view: PassView,
        shared: SharedQuota,
        *,
        claiming: Claiming,
        placing: Placing,
    ) -> None:
        self._waiting, self._specs, self._view, self._shared = waiting, specs, view, shared
        self._claiming, self._claims, self._placing = claiming, claiming.claims, placing

    def begin(self, progress: Progress) -> Iterator[None]:
        """Those that are written down count from the beginning."""
        claimants: dict[str, Waiter] = {}
        for waiter in self._claiming.known(self._specs, self._view.order):
            name = waiter.candidate.queue
            queue = self._view.queue(name)
            waits = queue is not None and self._view.waits_in_line(waiter, queue)
            held = self._make_claim(waiter, queue) if queue is not None and waits else None
            if held is not None:
                self._claiming.keep(held)
                if is_next(self._waiting, waiter, self._view.order(name)):
                    claimants[name] = waiter
            yield None
        progress.claimants = claimants

    def keep_own(self, waiter: Waiter, queue: PassQueue, decision: PlacementDecision) -> None:
        """The first of its queue that does not fit, and has no claim, keeps of its own quota what is left; not where
        the queue can reclaim it."""
        if MayStop.RECLAIM in queue.spec.preempts:
            return
        if decision.for_room and queue.shares and not queue.keeps and decision.reason not in _KEEPS_NOTHING:
            queue.keeps = self._view.waits_in_line(waiter, queue)
            if queue.keeps:
                self._shared.keep(waiter.candidate)

    def may_claim(self, waiter: Waiter, queue: PassQueue) -> bool:
        """It has waited long enough, and no other one of its queue is before it."""
        if queue.spec.head_wait is None or self._claiming.opens(waiter.candidate, queue.spec) is None:
            return False
        held = self._claims.of(waiter.candidate.queue)
        return held is None or rank_of(waiter, queue.order) < held.rank

    def claim(self, waiter: Waiter, queue: PassQueue, decision: PlacementDecision) -> PlacementDecision:
        """Of those that wait for room, the first of its queue that has waited long enough keeps what becomes free."""
        candidate, head_wait, held = waiter.candidate, queue.spec.head_wait, self._claims.of(waiter.candidate.queue)
        if decision.chosen is not None or decision.preemption is not None or candidate.growth is not None:
            return decision
        if head_wait is None or not (decision.for_room or decision.reason == "QuotaExceeded"):
            return decision
        if queue.limits.jobs == 0 or not self._view.waits_in_line(waiter, queue):
            return decision
        if not self.may_claim(waiter, queue):
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
            self.keep_own(waiter, queue, decision)
            return decision
        self._claiming.keep(made)
        moves = max(self._claims.now, made.claim.since) + head_wait
        why = HasClaim(decision.why, made, self._claims.now)
        return replace(decision, why=why, claim=made.claim, again=min(moves, decision.again or moves), rest=Rest.NEVER)

    def place_beside_claims(self, waiter: Waiter, name: str, queue: PassQueue) -> PlacementDecision:
        """What is kept for others is not there, unless it may pass them."""
        if not self._claims:
            return self._placing.place(waiter, name, queue)
        candidate = waiter.candidate
        node = self._shared.tree.queues.get(name)
        root = node.root.index if node is not None else None
        within = partial(self._shared.is_within_own, candidate)
        passed = self._claims.passed_by(candidate, rank_of(waiter, queue.order), root, within)
        with self._claiming.lifted(passed):
            decision = self._placing.place(waiter, name, queue)
        if decision.chosen is not None or not (decision.for_room or decision.reason in _KEPT_PERHAPS):
            return decision
        binding = list(self._claims)
        with self._claiming.lifted(binding):
            alone = self._placing.place(waiter, name, queue)
            info = self._view.workers.get(alone.chosen) if alone.chosen is not None else None
        if info is None:
            return decision
        held = [each for each in binding if each not in passed]
        by_worker = decision.reason in ("NoWorkerFits", "GrowthWaits")
        why = KeptForClaim.of(waiter, info, held, root, self._claims.now, in_quota=not by_worker)
        if candidate.growth is not None:
            return replace(decision, why=GrowthWaits(candidate.growth, why))
        return replace(decision, reason="Claimed", why=why, compared=None, for_room=True, rest=Rest.NEVER)

    def _make_claim(self, waiter: Waiter, queue: PassQueue) -> Held | None:
        infos, there = list(self._view.places(waiter, queue)), self._view.workers
        return self._claiming.make(waiter, queue.spec, queue.limits, infos, map(there.__getitem__, queue.open))

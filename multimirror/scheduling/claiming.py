"""Claims in the course of a pass: those that are written down count from its beginning, others are made as it goes on.

What a claim keeps is used, for all that it binds: on its worker, in the books of its tree, in the quota of its queue.
It is lifted for the one that it belongs to, for those that may pass it, and for those that others are stopped for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from multimirror.api import Hold, MirrorQueueSpec, QueueingStrategy
from multimirror.api.placement import Claim
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.claims import Claims, Ends, Held, claimed_quota, places, starts_on, starts_when, waits_since
from multimirror.scheduling.filters import QueueLimits, WorkerInfo
from multimirror.scheduling.order import QueueOrder, is_next, rank_of
from multimirror.scheduling.preempting import Preempting, RunningState
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.shared_quota import SharedQuota
from multimirror.scheduling.usage import Usage, UsageSums
from multimirror.scheduling.waiting import Waiter, WaitingSnapshot


class Claiming:
    """`usage` is that of the pass, and changes with it."""

    def __init__(
        self,
        waiting: WaitingSnapshot,
        state: RunningState,
        usage: UsageSums,
        *,
        claims: Claims,
        shared: SharedQuota,
        preempting: Preempting,
        look_at: Callable[[str | None], None],
    ) -> None:
        """`look_at` is told of every worker on which more is kept, or less."""
        self.claims = claims
        self._waiting, self._usage, self._shared, self._preempting = waiting, usage, shared, preempting
        self._look_at = look_at
        self._ends = Ends(state, usage)
        self._wanting: frozenset[int] | None = None

    def known(self, specs: Mapping[str, MirrorQueueSpec], order_of: Callable[[str], QueueOrder]) -> list[Waiter]:
        """Those that have a claim already: one of each queue, those first whose claims are oldest."""
        best: dict[str, tuple[tuple[object, ...], Waiter]] = {}
        for ref, waiter in self._waiting.claimed.items():
            candidate = waiter.candidate
            spec, claim = specs.get(candidate.queue), candidate.claim
            if spec is None or claim is None or ref in self._preempting.awaited or self.opens(candidate, spec) is None:
                continue
            order = order_of(candidate.queue)
            if order.strict and not is_next(self._waiting, waiter, order):
                continue
            key = (rank_of(waiter, order), claim.since, waiter.age)
            if candidate.queue not in best or key < best[candidate.queue][0]:
                best[candidate.queue] = key, waiter
        return [waiter for _, waiter in sorted(best.values(), key=lambda each: each[0][1:])]

    def opens(self, candidate: Candidate, spec: MirrorQueueSpec) -> float | None:
        """Since when it may have a claim; None: it may not yet, or never."""
        if spec.head_wait is None or spec.hold is not Hold.NONE or candidate.growth is not None:
            return None
        opens = waits_since(candidate, self.claims.now) + spec.head_wait
        return opens if opens <= self.claims.now else None

    def make(
        self,
        waiter: Waiter,
        spec: MirrorQueueSpec,
        limits: QueueLimits,
        infos: Sequence[WorkerInfo],
        open_workers: Iterable[WorkerInfo],
    ) -> Held | None:
        """The claim of one that may have one; None: not beside the others, or it asks for more than is due to its
        queue. `infos`: the workers that could take it if less ran there."""
        candidate, strict = waiter.candidate, spec.queueing_strategy is QueueingStrategy.STRICT_FIFO
        node = self._shared.tree.queues.get(candidate.queue)
        quota, borrows = {}, False
        if node is not None:
            charged = self._shared.charged
            found = claimed_quota(charged, node, candidate.requests, self._wants(), own_only=strict)
            if found is None:
                return None
            quota, borrows = found, bool(charged.above_own(candidate.queue, candidate.requests))
        placed = self._place(waiter, spec, infos)
        if placed is None:
            return None
        claim, worker, starts = placed
        if any(info.name == worker and info.whole is not None for info in infos):
            starts = None  # others may go to other nodes there meanwhile, so it is not sure
        held = Held(
            waiter,
            rank_of(waiter, QueueOrder(strict, spec.max_priority or 0)),
            waits_since(candidate, self.claims.now),
            claim,
            worker,
            starts,
            quota,
            node.root.index if node is not None else None,
            borrows,
        )
        workers = list(open_workers)

        def whole(name: str) -> int | None:
            amounts = [info.capacity.get(name) for info in workers]
            known = [amount for amount in amounts if amount is not None]
            return sum(known) if len(known) == len(amounts) else None

        def has(name: str) -> int:
            assert node is not None
            return node.root.quotas[name].subtree

        if not self.claims.leaves_half(held, has, whole):
            return None
        quota_starts = self._quota_starts(candidate, limits) if starts is not None else None
        return replace(
            held, starts=max(starts, quota_starts) if starts is not None and quota_starts is not None else None
        )

    def _place(
        self, waiter: Waiter, spec: MirrorQueueSpec, infos: Sequence[WorkerInfo]
    ) -> tuple[Claim, str | None, float | None] | None:
        """On which worker, whether that takes anything, and when there will be room."""
        now, claim = self.claims.now, self._valid(waiter.candidate)
        assert spec.head_wait is not None
        rooms = {info.name: self._preempting.room(info, waiter) for info in infos}
        here = rooms.get(claim.worker) if claim is not None else None
        starts = starts_on(here, self._ends.on(here.worker), now) if here is not None else None
        if claim is not None and now - claim.since < spec.head_wait:
            return claim, here.worker if here is not None else None, starts
        best = next(iter(places(rooms.values(), self._ends, now)), None)
        if claim is not None and here is not None and (best is None or not best.is_sooner(starts)):
            return claim, here.worker, starts
        return (Claim(best.worker, float(int(now))), best.worker, best.starts) if best is not None else None

    def _valid(self, candidate: Candidate) -> Claim | None:
        """What is written down, unless it was for an earlier wait."""
        claim = candidate.claim
        if claim is None or claim.since > self.claims.now or claim.since < int(waits_since(candidate, 0.0)):
            return None
        return claim

    def _quota_starts(self, candidate: Candidate, limits: QueueLimits) -> float | None:
        """When there is quota for it; in a tree only if there is now."""
        now, name = self.claims.now, candidate.queue
        if name in self._shared and self._shared.objection(candidate) is not None:
            return None
        used = self._usage.queue(name)

        def fits(gone: Sequence[RunningJob]) -> bool:
            left = used
            for job in gone:
                left = left.plus(job.requests, -1)
            return limits.exceeded(candidate.requests, left) is None

        return starts_when(fits, self._ends.of(name), now)

    def _wants(self) -> frozenset[int]:
        """The queues and cohorts with Jobs that wait."""
        if self._wanting is None:
            nodes = (self._shared.tree.queues.get(name) for name in self._waiting.queues)
            self._wanting = frozenset(each.index for node in nodes if node is not None for each in node.path)
        return self._wanting

    # --- what is kept

    def keep(self, held: Held) -> None:
        self.claims.put(held)
        if held.quota:
            self._shared.claim(held.candidate.queue, held.quota)
        self._look_at(held.worker)

    def release(self, held: Held) -> None:
        self.claims.remove(held)
        if held.quota:
            self._shared.unclaim(held.candidate.queue)
        self._look_at(held.worker)

    @contextmanager
    def lifted(self, helds: Iterable[Held]) -> Iterator[None]:
        """Without these."""
        lifted = list(helds)
        for held in lifted:
            self.release(held)
        yield
        for held in lifted:
            self.keep(held)

    def used(self, queue: str) -> Usage:
        """Of the quota of a queue that shares with nobody, with what is kept."""
        held, used = self.claims.of(queue), self._usage.queue(queue)
        return used.plus(held.candidate.requests) if held is not None else used

"""What has to hold of one pass, and of one search for victims, against what these were given: P2, P6, P7, P10, P14."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Final

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.api import Preempts as Policy
from multimirror.batch.times import seconds_of
from multimirror.kinds.kind import Ref
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.decisions import Placed, PlacementDecision, Preempts, Step
from multimirror.scheduling.filters import QuotaUsed, WorkerInfo
from multimirror.scheduling.preempting import WAIT_SECONDS, RunningState
from multimirror.scheduling.quota import Node, QuotaUsage, Short
from multimirror.scheduling.refusals import AboveMost, CohortShort, KeptForOthers, Overtaken, OwnOnly, QueueShort
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.shares import share
from multimirror.scheduling.trial import Room
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.victims import Plan, Preemption, Preemptor, Victim
from tests.unit.scheduling.reference_quota import Place, Reference
from tests.unit.scheduling.sharing_words import unwrapped, wrong_places, wrong_victims, wrong_words

MOST_STOPS: Final = 3
Note = Callable[[str, str], None]


class PassCheck:
    """One pass, step by step: what is charged grows with what it places."""

    def __init__(
        self,
        note: Note,
        waiting: Sequence[Candidate],
        queues: Mapping[str, MirrorQueueSpec],
        cohorts: Mapping[str, CohortSpec],
        *,
        usage: UsageSums,
        state: RunningState,
    ) -> None:
        self._note, self._queues, self._cohorts, self._usage, self._state = note, queues, cohorts, usage, state
        self._waiting = [candidate for candidate in waiting if candidate.growth is None]
        self._charged = {name: Counter(usage.queue(name).resources) for name in queues}
        self._on: dict[str, Counter[str]] = {}
        """By worker: what this pass has placed there."""
        self._leaving = list(state.leaving)
        self._keeps = bool(state.awaited) or any(spec.head_wait is not None for spec in queues.values())
        """On workers there may be less left than is not used."""
        self._moments: list[tuple[dict[str, Counter[str]], dict[str, Counter[str]]]] = [(copied(self._charged), {})]
        """What was charged, and on which worker this pass had placed what, before each step that placed somebody."""
        self._read: dict[int, object] = {}
        self._served: set[Ref] = set()

    def check(self, steps: Sequence[Step]) -> None:
        for step in steps:
            candidate, decision = step.candidate, step.decision
            if isinstance(step, Placed):
                self._is_in_order(candidate)
                self._charged[candidate.queue].update(candidate.requests)
                self._may_borrow(candidate)
                self._on.setdefault(str(decision.chosen), Counter()).update(candidate.requests)
                self._waiting = [each for each in self._waiting if each.ref != candidate.ref]
                self._moments.append((copied(self._charged), copied(self._on)))
                continue
            self._is_true(candidate, decision)
            if decision.reason == "WaitsForVictims":
                self._served.add(candidate.ref)
            if isinstance(step, Preempts) or (decision.claim is not None and candidate.claim is None):
                self._asks_in_order(step)
            if isinstance(step, Preempts):
                self._are_borrowers(step.preemption)
                self._leaving += [victim.job for victim in step.preemption.victims]
                self._keeps = True

    def _is_in_order(self, candidate: Candidate) -> None:
        """P10: of two of one queue and shape, the one with the higher priority goes first, then the older one; but for
        one that others were stopped for, or that room is kept for, before the other one waited again."""
        if candidate.ref in self._state.awaited or candidate.claim is not None or candidate.growth is not None:
            return
        for other in self._ahead_of(candidate):
            self._note("P10", f"{candidate.name} is placed before {other.name} of the same queue and shape")

    def _asks_in_order(self, step: Step) -> None:
        """P10: nor are others stopped for one, or is room kept for it, before one that goes first and may ask by now:
        who was made room for is placed before all others."""
        candidate, spec = step.candidate, self._queues[step.candidate.queue]
        least = WAIT_SECONDS if isinstance(step, Preempts) else spec.head_wait or 0.0
        for other in self._ahead_of(candidate):
            if other.ref in self._served:
                continue  # room was made for it, or is on its way, in this pass
            waits_since = max(seconds_of(other.created, self._state.now), other.stopped or 0.0)
            if waits_since + least <= self._state.now and other.ref not in self._state.awaited and other.claim is None:
                self._note("P10", f"room is made, or kept, for {candidate.name} before {other.name} of its shape")

    def _ahead_of(self, candidate: Candidate) -> Iterator[Candidate]:
        """Those of its queue and shape that go first."""
        for other in self._waiting:
            if (
                other.queue == candidate.queue
                and _shape(other) == _shape(candidate)
                and self._is_before(other, candidate)
            ):
                yield other

    def _is_before(self, other: Candidate, candidate: Candidate) -> bool:
        if other.namespace == candidate.namespace:
            return (-other.priority, other.created) < (-candidate.priority, candidate.created)
        most = self._queues[candidate.queue].max_priority or 0
        return min(other.priority, most) > min(candidate.priority, most)

    def _may_borrow(self, candidate: Candidate) -> None:
        """P6: who must not be stopped, or was too often, is placed on what is its queue's own."""
        if candidate.preemptible and candidate.preemptions < MOST_STOPS:
            return
        there, queue = Reference(self._queues, self._cohorts, self._charged), candidate.queue
        for name, amount in candidate.requests.items():
            if amount > 0 and there.counts(queue, name) and there.over(Place(True, queue), name) > 0:
                self._note("P6", f"{candidate.name} must not borrow {name}, and its queue does with it")

    def _are_borrowers(self, found: Preemption) -> None:
        """P2: a queue within its own quota loses no Job to another one. What its own Jobs were promised is not used."""
        by_queue: dict[str, list[RunningJob]] = {}
        for victim in found.victims:
            if victim.reason is not Policy.PRIORITY:
                by_queue.setdefault(victim.job.queue, []).append(victim.job)
        for queue, jobs in by_queue.items():
            used = self._charged[queue].copy()
            for job in self._leaving:
                if job.queue == queue:
                    used.subtract(job.requests)
            if not any(self._lose(queue, used, order) for order in permutations(jobs[:5])):
                names = [job.name for job in jobs]
                self._note("P2", f"queue {queue} loses {names} to another one, and is within its own quota")

    def _lose(self, queue: str, used: Counter[str], jobs: Sequence[RunningJob]) -> bool:
        """One after the other, the queue uses more than it has of something that the next one uses."""
        left, there = used.copy(), Reference(self._queues, self._cohorts, {})
        place = Place(True, queue)
        for job in jobs:
            if not any(
                amount > 0 and there.counts(queue, name) and left[name] > there.own(place, name)
                for name, amount in job.requests.items()
            ):
                return False
            left.subtract(job.requests)
        return True

    # --- words

    def _is_true(self, candidate: Candidate, decision: PlacementDecision) -> None:
        """P14: there is a reason, and its number is true for the state that it was computed from: all of one shape get
        the answer that the first of them got in this pass."""
        if not decision.reason or not str(decision):
            self._note("P14", f"{candidate.name} waits, and nobody says why")
        self._words_are_true(candidate, decision.why)
        why = unwrapped(decision.why)
        said = [self._said(candidate, why, charged) for charged, _ in self._moments]
        if said[0] is not None and not any(each is not None and each[0] == each[1] for each in said):
            self._note("P14", f"{candidate.name} is told {why}, and what is true is {said[-1]}")
        if decision.reason == "NoWorkerFits" and decision.compared is not None:
            for name, info in decision.compared.workers.items():
                for wrong in wrong_places(candidate, info, decision.compared.result(name).why):
                    self._note("P14", f"{candidate.name} is told wrongly: {wrong}")
                if not any(self._is_left(candidate, info, on.get(name, Counter())) for _, on in self._moments):
                    self._note("P14", f"{candidate.name} is told that {dict(info.left)} is left on {name}")

    def _words_are_true(self, candidate: Candidate, why: object) -> None:
        """Those of equal shape are told the same: it is read once."""
        if id(why) in self._read:
            return
        self._read[id(why)] = why
        found = [self._wrong(candidate, why, charged) for charged, _ in self._moments]
        if all(found):
            self._note("P14", f"{candidate.name} is told: {why}; but {found[-1]}")

    def _wrong(self, candidate: Candidate, why: object, charged: Mapping[str, Counter[str]]) -> list[str]:
        there = Reference(self._queues, self._cohorts, charged)
        return [*wrong_words(candidate, why, there), *wrong_victims(why, there, self._state)]

    def _said(
        self, candidate: Candidate, why: object, charged: Mapping[str, Counter[str]]
    ) -> tuple[object, object] | None:
        """What is said, and what is so: what is asked, and what there is."""
        there = Reference(self._queues, self._cohorts, charged)
        match why:
            case QueueShort(short=short) | CohortShort(short=short) | Overtaken(short=short):
                return (short.asked, short.available), self._available(there, candidate, short)
            case QuotaUsed(resource=name, asked=asked, left=left) if name:
                return (asked, left), self._available(there, candidate, Short(name, asked, left))
            case KeptForOthers(short=short, left=left):
                return left, there.available(candidate.queue, short.resource)
            case AboveMost(short=short):
                return short.available, there.most(candidate.queue, short.resource)
            case OwnOnly(short=short):
                over = there.over(Place(True, candidate.queue), short.resource)
                return (short.asked, short.available), (candidate.requests[short.resource], max(0, -over))
        return None

    def _available(self, there: Reference, candidate: Candidate, short: Short) -> tuple[int, int | None]:
        return candidate.requests[short.resource], there.available(candidate.queue, short.resource)

    def _is_left(self, candidate: Candidate, info: WorkerInfo, placed: Counter[str]) -> bool:
        """What is said to be left on a worker is; less only where something is kept for those that wait."""
        for name in candidate.requests:
            if name in info.capacity:
                left = info.capacity[name] - self._usage.worker(info.name).of(name) - placed[name]
                if info.left[name] > left or (info.left[name] < left and not self._keeps):
                    return False
        return True


def copied(counters: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    return {name: counter.copy() for name, counter in counters.items()}


def _shape(candidate: Candidate) -> tuple[object, ...]:
    return (
        sorted(candidate.requests.items()),
        candidate.clusters,
        candidate.problem,
        sorted(candidate.avoid),
        candidate.preemptible,
        candidate.preemptions >= MOST_STOPS,
    )


# --- searches ---------------------------------------------------------------------------------------------------------


def too_many(preemptor: Preemptor, usage: QuotaUsage, rooms: Sequence[Room] | None, found: Preemption) -> list[Victim]:
    """P7: of those who are found, the ones without whom the Job would fit, and the others may be stopped for it."""
    room = next((room for room in rooms or () if room.worker == found.worker), None)
    spared = []
    for victim in found.victims:
        rest = [each for each in found.victims if each is not victim]
        if _fits(preemptor, usage, room, rest) and _is_legal(preemptor, usage, found, rest):
            spared.append(victim)
    return spared


def _fits(preemptor: Preemptor, usage: QuotaUsage, room: Room | None, victims: Sequence[Victim]) -> bool:
    without = usage.fork()
    for victim in victims:
        without.remove(victim.job.queue, victim.job.requests)
    if preemptor.own_quota_only and without.above_own(preemptor.queue, preemptor.requests):
        return False
    if not without.fits(preemptor.queue, preemptor.requests):
        return False
    return room is None or not room.lacking([victim.job for victim in victims])


def _is_legal(preemptor: Preemptor, usage: QuotaUsage, found: Preemption, victims: Sequence[Victim]) -> bool:
    """By the table of plans: with the Job counted in, and those gone."""
    after = usage.fork()
    after.add(preemptor.queue, preemptor.requests)
    for victim in victims:
        after.remove(victim.job.queue, victim.job.requests)
    queue = usage.tree.queues[preemptor.queue]
    asked = [name for name, amount in preemptor.requests.items() if amount > 0 and name in queue.quotas]

    def is_within(node: Node) -> bool:
        return all(after.over(node, name) <= 0 for name in asked)

    if found.plan is Plan.PRIORITY:
        most = {name: max(usage.used(queue, name), queue.quotas[name].subtree) for name in asked}
        if any(after.used(queue, name) > most[name] for name in asked):
            return False
    if (found.plan is Plan.BOTH or preemptor.own_quota_only) and not is_within(queue):
        return False
    for victim in victims:
        if victim.reason is Policy.PRIORITY:
            continue
        theirs = usage.tree.queues[victim.job.queue]
        fork = next(node for node in theirs.path if node in queue.path)
        if victim.reason is Policy.RECLAIM:
            if not is_within(queue.below(fork)):
                return False
        elif not _is_fair(after, queue.below(fork), theirs.below(fork), found.contended):
            return False
    return True


def _is_fair(after: QuotaUsage, ours: Node, theirs: Node, contended: Sequence[str]) -> bool:
    if ours.weight and not theirs.weight:
        return True
    return share(after, ours) <= share(after, theirs) and share(after, ours, resources=contended) <= share(
        after, theirs, resources=contended
    )

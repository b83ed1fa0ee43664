"""The properties of sharing, P1 to P14, each as a check of its own, over everything that a dispatcher does.

Writes are looked at when they take effect, as the API servers see them: what a Job is charged for is what is written on
it, whatever the dispatcher thinks (P1, P2, P3, P5, P6, P11). Passes are looked at when they are planned, against what
they were planned on (P2, P10, P13, P14), and so is every search for victims (P7). The others are about what comes in
the end, and are asked for when all is quiet (P4, P8, P9, P14; and P12, in a test of its own).

What was decided just before somebody changed the rules may be written just after: so rules count that were in force
within the last second. A check notes what is wrong in `violations`, by name; it never raises, for that would only be
one more failure to back off from.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.api import Preempts as Policy
from multimirror.api.placement import (
    admitted_queue_of,
    attempt_of,
    claim_of,
    cluster_of,
    fence_of,
    preempted_by_of,
    preempted_of,
    preemptions_of,
)
from multimirror.batch import is_finished
from multimirror.kinds.pod_sets import Amounts, nanos
from multimirror.kinds.reserved import reserved_of
from multimirror.scheduling import plan as planning
from multimirror.scheduling import preemption as searching
from multimirror.scheduling.candidates import WorkerSnapshot
from multimirror.scheduling.decisions import Placed, Step
from multimirror.scheduling.preempting import GIVE_UP_SECONDS, RunningState
from multimirror.scheduling.quota import QuotaUsage
from multimirror.scheduling.trial import Room
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.victims import NoPreemption, Preemption, Preemptor, Surroundings
from multimirror.scheduling.waiting import WaitingSnapshot
from tests.unit.scheduling.reference_quota import Place, Reference
from tests.unit.scheduling.sharing_plan_checks import MOST_STOPS, PassCheck, too_many

if TYPE_CHECKING:
    from tests.unit.scheduling.sharing_world import SharingWorld

Json = dict[str, Any]
_JUST_NOW: Final = 1.0
"""Seconds in which what was decided is written."""
_REASONS: Final = {policy.value: policy for policy in Policy}


@dataclass(frozen=True)
class _Rules:
    """What operators have written down, from a moment on."""

    since: float
    queues: Mapping[str, MirrorQueueSpec]
    cohorts: Mapping[str, CohortSpec]
    capacities: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class _Charge:
    """A Job that has a worker, as it is written down."""

    uid: str
    name: str
    queue: str
    worker: str
    requests: Amounts
    leaves: bool


class Watch:
    """For one world."""

    def __init__(self, world: "SharingWorld") -> None:
        self._world = world
        self.violations: list[str] = []
        self.decisions = 0
        """Writes that place a Job, take it back, tell it to go, or keep room for it."""
        self.quiet = False
        """Nothing happens from outside."""
        self.double = 3
        """One pass in so many is planned twice."""
        self._passes = 0
        self._history: list[_Rules] = []
        self._placed: dict[str, float] = {}
        self._placements = 0
        self._planned: dict[str, tuple[float, int]] = {}
        """By uid: when the pass began that placed it, and as which of all that were placed."""
        self._due: dict[str, set[str]] = {}
        """By the uid of one that others are stopped for: those whose going it waits for. Nobody: it is next."""
        self._due_since: dict[str, float] = {}
        """When the last of them was gone."""
        self._promised: dict[str, float] = {}
        self._victims: dict[str, dict[str, tuple[str, str]]] = {}
        """By the same: on which worker its victims were, and at which attempt."""
        self._stopped_quietly: set[tuple[str, str]] = set()
        """Who was stopped for whom since anything happened from outside."""

    def note(self, name: str, words: str) -> None:
        self.violations.append(f"{name}: {words}")

    # --- what happens from outside

    def happened(self) -> None:
        self._stopped_quietly.clear()

    def rules_changed(self) -> None:
        """Queues, cohorts or workers are others now: nobody is owed anything that was promised before."""
        world = self._world
        self._history = self._rules() if self._history else []
        self._history.append(_Rules(self._now(), world.queues, world.cohorts, world.capacities))
        self._due.clear()
        self.happened()

    def job_is_changed(self, uid: str) -> None:
        self._due.pop(uid, None)
        self.happened()

    def job_is_gone(self, job: Json) -> None:
        """Deleted: with it goes what it said of whom it made room for."""
        uid = job["metadata"]["uid"]
        for other in [other for other, victims in self._due.items() if uid in victims]:
            del self._due[other]
        by = preempted_by_of(job)
        if by is not None:
            self._due.pop(by, None)
            self._victims.get(by, {}).pop(uid, None)
        self.job_is_changed(uid)

    # --- writes to originals

    def original_written(self, before: Json, after: Json) -> None:
        was, now = cluster_of(before), cluster_of(after)
        if is_finished(after.get("status") or {}) and not is_finished(before.get("status") or {}):
            self._left(after["metadata"]["uid"])
            self.happened()
        if was is None and now is not None:
            self.decisions += 1
            self._assigned(after, now)
        elif was is not None and now is None:
            self.decisions += 1
            self._taken_back(before, was)
        elif now is not None and _grew(before, after):
            self._within_limits(after, now)
        if claim_of(before) != claim_of(after):
            self.decisions += 1
        if preempted_of(before) is None and preempted_of(after) is not None:
            self.decisions += 1
            self._told_to_go(before, after)

    def _assigned(self, job: Json, worker: str) -> None:
        uid = job["metadata"]["uid"]
        self._in_turn(job)
        self._victims_are_gone(job, worker)
        self._due.pop(uid, None)
        self._placed[uid] = self._now()
        self._within_limits(job, worker)

    def _within_limits(self, job: Json, worker: str) -> None:
        """P1, P2 and P3, after a Job was placed, or has grown."""
        charges = self.charges()
        mine = next(charge for charge in charges if charge.uid == job["metadata"]["uid"])
        asked = [name for name, amount in mine.requests.items() if amount > 0]
        found = [self._above(rules, charges, mine, asked) for rules in self._rules()]
        if all(found):
            self.violations.extend(found[-1])
        if worker in self._world.nodes:
            self._has_places(job, worker)
            return
        capacities = [rules.capacities[worker] for rules in self._rules()]
        for name in asked:
            used = sum(charge.requests.get(name, 0) for charge in charges if charge.worker == worker)
            if all(name in each and used > nanos(each[name]) for each in capacities):
                self.note("P3", f"{used} {name} are charged on {worker} after {mine.name}, of {capacities[-1][name]}")

    def _has_places(self, job: Json, worker: str) -> None:
        """P3, where what is free is counted: what we add finds places on nodes, beside all pods that are there."""
        slots = self._world.nodes[worker].slots(_pod_requests(job))
        if attempt_of(job) and not self._world.pods_there(job["metadata"]["uid"]) and len(self._rules()) == 1:
            if slots < job["spec"]["parallelism"]:
                self.note("P3", f"{job['metadata']['name']} is placed on {worker}, and there are {slots} places for it")

    def _above(self, rules: _Rules, charges: Sequence[_Charge], mine: _Charge, asked: Sequence[str]) -> list[str]:
        if mine.queue not in rules.queues:
            return ["P1: it has no queue"]
        there = Reference(rules.queues, rules.cohorts, _by_queue(charges))
        before = Reference(rules.queues, rules.cohorts, _by_queue([each for each in charges if each is not mine]))
        path, found = there.path(mine.queue), []
        for name in asked:
            if not there.counts(mine.queue, name):
                continue
            for place in path:
                above = there.above_limit(place, name)
                if above > 0 and above > before.above_limit(place, name):
                    found.append(f"P1: {place} uses {above} {name} more than it may, after {mine.name}")
            if there.over(path[0], name) <= 0:
                continue  # it borrows nothing
            for place in there.members(path[-1]):
                lend = there.lend(place, name) if place.is_queue else None
                if place != path[0] and lend is not None and there.lent(place.name, name) > lend:
                    found.append(f"P2: {place} lends more {name} than {lend}, after {mine.name}")
        return found

    def _in_turn(self, job: Json) -> None:
        """P5: who was made room for is next in its tree; what is planned in this order is written side by side."""
        uid = job["metadata"]["uid"]
        planned, place = self._planned.get(uid, (0.0, 0))
        jobs = {each["metadata"]["uid"]: each for each in self._world.jobs()}
        tree = self._root(job)
        owed = [
            other
            for other, victims in self._due.items()
            if not victims
            and other in jobs
            and self._due_since[other] < planned
            and not (self._due_since[other], 0) <= self._planned.get(other, (-1.0, 0)) < (planned, place)
            and self._promised[other] > planned - GIVE_UP_SECONDS + _JUST_NOW
            and self._root(jobs[other]) == tree
        ]
        if owed and uid not in owed:
            first = jobs[owed[0]]["metadata"]["name"]
            self.note("P5", f"{job['metadata']['name']} was placed before {first}, for which others were stopped")

    def _root(self, job: Json) -> Place | None:
        queue = job["metadata"]["labels"]["multimirror.dev/queue"]
        rules = self._history[-1]
        return Reference(rules.queues, rules.cohorts, {}).path(queue)[-1] if queue in rules.queues else None

    def _victims_are_gone(self, job: Json, worker: str) -> None:
        """P11: nobody is placed while pods are there that were stopped for it; unless those are charged still, and
        there is room beside them, since something else became free."""
        charged = {charge.uid for charge in self.charges() if charge.worker == worker}
        for victim, (where, attempt) in self._victims.pop(job["metadata"]["uid"], {}).items():
            if where == worker and victim not in charged and self._world.pods_there(victim, worker, attempt):
                self.note("P11", f"{job['metadata']['name']} is placed on {worker}, and pods of its victim are there")

    def _taken_back(self, job: Json, worker: str) -> None:
        """P3: who makes room is charged until its pods are gone, or nobody can tell and the queue's policy is over."""
        uid = job["metadata"]["uid"]
        self._left(uid)
        self._placed.pop(uid, None)
        if preempted_of(job) is None:
            return
        for where, _ in self._world.pods_there(uid, worker, str(attempt_of(job))):
            cut, fence = self._world.cut_since.get(where), fence_of(job)
            lost_after = self._history[-1].queues[admitted_queue_of(job) or ""].on_worker_lost.after
            if cut is None or self._now() - cut < (fence if fence is not None else lost_after):
                self.note("P3", f"{job['metadata']['name']} is not charged any more, and its pods are on {where}")

    def _left(self, uid: str) -> None:
        for other, victims in self._due.items():
            if uid in victims:
                victims.discard(uid)
                self._due_since[other] = self._now()

    def _told_to_go(self, before: Json, after: Json) -> None:
        """P6, and what follows for P4, P5 and P11."""
        uid, name, by = after["metadata"]["uid"], after["metadata"]["name"], preempted_by_of(after)
        reason = _REASONS.get(str(preempted_of(after)))
        if by is None or reason is None:
            return
        if preemptions_of(after) > MOST_STOPS:
            self.note("P6", f"{name} was stopped {preemptions_of(after)} times")
        reserved = reserved_of(before)
        if reserved is not None and not reserved.preemptible:
            self.note("P6", f"{name} must not be stopped")
        ran, queue = self._now() - self._placed.get(uid, 0.0), admitted_queue_of(before) or ""
        least = min(rules.queues[queue].min_runtime for rules in self._rules()) * (
            0.5 if reason is Policy.RECLAIM else 1
        )
        if ran < least - _JUST_NOW:
            self.note("P6", f"{name} has run {ran:.0f} s of {least:.0f}")
        self._takes_nothing_back(uid, by, name)
        leaving = {charge.uid for charge in self.charges() if charge.leaves}
        self._due.setdefault(by, set()).update(leaving)
        self._due.pop(uid, None)
        self._promised[by] = self._now()
        self._victims.setdefault(by, {})[uid] = cluster_of(before) or "", str(attempt_of(before))

    def _takes_nothing_back(self, uid: str, by: str, name: str) -> None:
        """P4: nobody takes back what was taken from him, nor by way of others. That he takes from a third one is
        possible, where room is short as well: victims are those on one worker, and there may be lesser ones elsewhere.
        Of one that is out of reach nobody knows when something changes."""
        reached, stopped = {by}, {by}
        while stopped:
            stopped = {after for before, after in self._stopped_quietly if before in stopped} - reached
            reached |= stopped
        disturbed = any(self._world.was_cut(worker) for worker in self._world.capacities)
        if uid in reached and (self.quiet or not disturbed):
            self.note("P4", f"{name} is stopped for one that was stopped for it, and nothing else has changed")
        self._stopped_quietly.add((uid, by))

    # --- what happens on workers

    def copy_made(self, copy: Json) -> None:
        self._one_copy(copy["metadata"]["labels"]["multimirror.dev/origin-uid"], "has a copy more")

    def pods_start(self, worker: str, copy: Json) -> None:
        uid = copy["metadata"]["labels"]["multimirror.dev/origin-uid"]
        there = [
            name for name, other in self._world.pods_there(uid) if other["metadata"]["uid"] != copy["metadata"]["uid"]
        ]
        if there and self._is_certain(uid, there):
            self.note("P11", f"{copy['metadata']['name']} starts on {worker}, and has pods on {there[0]}")

    def _one_copy(self, uid: str, words: str) -> None:
        """P11: at most one copy may have pods."""
        may = [(name, copy) for name, copy in self._world.live_copies(uid) if _may_have_pods(copy)]
        if len(may) > 1 and self._is_certain(uid, [name for name, _ in may]):
            self.note(
                "P11", f"{may[0][1]['metadata']['name']} {words}, and may have pods on {[name for name, _ in may]}"
            )

    def _is_certain(self, uid: str, workers: Sequence[str]) -> bool:
        """None of these workers was out of reach for so long that the queue's policy lets the Job move."""
        return not any(self._world.was_lost(worker) for worker in workers) or self._world.is_fenced(uid)

    # --- passes

    def plan(
        self,
        waiting: WaitingSnapshot,
        queues: Mapping[str, MirrorQueueSpec],
        workers: Mapping[str, WorkerSnapshot],
        usage: UsageSums,
        **more: Any,
    ) -> Iterator[Step | None]:
        self._passes += 1
        steps = list(planning.plan(waiting, queues, workers, usage, **more))
        if self._passes % self.double == 0:
            again = list(planning.plan(waiting, queues, workers, usage, **more))
            if _described(steps) != _described(again):
                self.note("P13", "the same caches, another plan")
        state = more.get("state") or RunningState()
        assert self._world.dispatcher is not None
        cohorts = dict(self._world.dispatcher._cache.cohort_specs)
        everybody = self._world.dispatcher._scheduler.waiting()  # not only those whom the pass is about
        check = PassCheck(self.note, everybody, queues, cohorts, usage=usage, state=state)
        check.check([step for step in steps if step is not None])
        for step in steps:
            if isinstance(step, Placed):
                self._placements += 1
                self._planned[step.candidate.ref.uid] = self._now(), self._placements
        return iter(steps)

    def find_preemption(
        self,
        preemptor: Preemptor,
        usage: QuotaUsage,
        around: Surroundings,
        rooms: Sequence[Room] | None = None,
        **more: Any,
    ) -> Preemption | NoPreemption:
        found = searching.find_preemption(preemptor, usage, around, rooms, **more)
        if isinstance(found, Preemption):
            for spared in too_many(preemptor, usage, rooms, found):
                self.note("P7", f"{spared.job.name} is stopped by {found.plan}, and the others would do")
        return found

    def has_run(self, job: Json) -> bool:
        """As long as the longest that its queue gives it; so it is not protected."""
        least = self._history[-1].queues[admitted_queue_of(job) or ""].min_runtime
        return self._now() - self._placed.get(job["metadata"]["uid"], self._now()) > least + _JUST_NOW

    # --- what is written down

    def charges(self) -> list[_Charge]:
        return [charge for job in self._world.jobs() if (charge := _charge(job)) is not None]

    def reference(self) -> Reference:
        return Reference(self._world.queues, self._world.cohorts, _by_queue(self.charges()))

    def _rules(self) -> list[_Rules]:
        """Those that are in force, last, and those that were just now."""
        pairs = zip(self._history, self._history[1:], strict=False)
        ended = [each for each, after in pairs if after.since >= self._now() - _JUST_NOW]
        return [*ended, self._history[-1]]

    def _now(self) -> float:
        return self._world.clock()


def _charge(job: Json) -> _Charge | None:
    worker, reserved = cluster_of(job), reserved_of(job)
    if worker is None or reserved is None or is_finished(job.get("status") or {}):
        return None
    metadata = job["metadata"]
    queue, leaves = admitted_queue_of(job) or "", preempted_of(job) is not None
    return _Charge(metadata["uid"], metadata["name"], queue, worker, reserved.requests, leaves)


def _by_queue(charges: Sequence[_Charge]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for charge in charges:
        found.setdefault(charge.queue, Counter()).update(charge.requests)
    return found


def _grew(before: Json, after: Json) -> bool:
    was, now = reserved_of(before), reserved_of(after)
    if was is None or now is None or was == now:
        return False
    return any(amount > was.requests.get(name, 0) for name, amount in now.requests.items())


def _may_have_pods(copy: Json) -> bool:
    status = copy.get("status") or {}
    return not copy["spec"].get("suspend") or bool(status.get("active") or status.get("terminating"))


def _described(steps: Sequence[Step | None]) -> list[tuple[object, ...]]:
    return [
        (type(step), step.candidate, step.decision.reason, str(step.decision)) for step in steps if step is not None
    ]


def _pod_requests(job: Json) -> dict[str, int]:
    requests = job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return {name: int(amount) for name, amount in requests.items()}

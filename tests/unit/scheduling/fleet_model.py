"""A fleet without clusters: the whole planner, what it decides on, and somebody who watches.

Objects are real ones, with our annotations; what runs and who waits for whom is read off them as the dispatcher does
(`RunningCache`, `Marks`), so a restart is a new cache. Writes take effect at once, pods take as long to stop as they
like, and time is a number. What must never happen is noted in `violations`, by the names of the specification's
properties.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.api import Preempts as Policy
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds import JOB, KINDS, Ref
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.marks import Marks
from multimirror.scheduling.order import Waiting
from multimirror.scheduling.plan import Placed, Preempts, Step, plan
from multimirror.scheduling.preempting import GIVE_UP_SECONDS
from multimirror.scheduling.quota import QuotaUsage
from multimirror.scheduling.running_cache import RunningCache
from multimirror.scheduling.shared_quota import quota_tree
from multimirror.scheduling.usage import Reservation, UsageCache
from tests.unit.scheduling.builders import worker

START: Final = 1_800_000_000.0
MOST_PASSES: Final = 80
"""Who is not at rest after so many, with nothing from outside, never will be."""
MOST_STOPS: Final = 3


@dataclass(slots=True, eq=False)
class Job:
    name: str
    queue: str
    cpu: int
    priority: int
    created: float
    preemptible: bool = True
    worker: str | None = None
    placed: float = 0.0
    mark: str | None = None
    """Why it is being stopped."""
    by: str | None = None
    since: float = 0.0
    stops: int = 0
    reason: str = ""
    """Why it waits."""

    @property
    def ref(self) -> Ref:
        return Ref(JOB.resource.name, self.name)

    @property
    def requests(self) -> dict[str, int]:
        return {"cpu": nanos(self.cpu)}

    @property
    def order(self) -> tuple[int, float, str]:
        return -self.priority, self.created, self.name

    @property
    def shape(self) -> tuple[object, ...]:
        return self.queue, self.cpu, self.preemptible, self.stops >= MOST_STOPS

    def obj(self) -> dict[str, Any]:
        annotations = {
            "multimirror.dev/cluster": self.worker,
            "multimirror.dev/preempted": self.mark,
            "multimirror.dev/preempted-by": self.by,
            "multimirror.dev/preempted-at": format_time(utc_datetime(self.since)) if self.by else None,
            "multimirror.dev/preemptions": str(self.stops) if self.stops else None,
            "multimirror.dev/preemptible": None if self.preemptible else "false",
        }
        return {
            "metadata": {
                "name": self.name,
                "namespace": "team",
                "uid": self.name,
                "resourceVersion": "1",
                "labels": {"multimirror.dev/priority": str(self.priority)},
                "annotations": {key: value for key, value in annotations.items() if value is not None},
            },
            "spec": {},
            "status": {"startTime": format_time(utc_datetime(self.placed))} if self.worker else {},
        }

    def candidate(self) -> Candidate:
        return Candidate(
            ref=self.ref,
            namespace="team",
            name=self.name,
            queue=self.queue,
            priority=self.priority,
            created=format_time(utc_datetime(self.created)),
            requests=self.requests,
            preemptible=self.preemptible,
            preemptions=self.stops,
            stopped=self.since if self.by else None,
        )


@dataclass(slots=True)
class Fleet:
    queues: dict[str, MirrorQueueSpec]
    cohorts: dict[str, CohortSpec]
    workers: dict[str, WorkerSnapshot]
    now: float = START
    jobs: dict[str, Job] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    submitted: int = 0
    writes: int = 0
    due: dict[str, set[str]] = field(default_factory=dict)
    """By one that others are stopped for: those of them that are not gone. Empty: it is next (P5)."""
    promised: dict[str, float] = field(default_factory=dict)
    """When that was."""
    _awaited: set[str] = field(default_factory=set)
    """Those that others are being stopped for."""
    _marks: Marks | None = None
    _running: RunningCache | None = None
    _waiting: Waiting = field(default_factory=Waiting)

    # --- what happens

    def submit(self, queue: str, cpu: int, priority: int, *, preemptible: bool = True) -> Job:
        self.submitted += 1
        name = f"job-{self.submitted:03}"
        job = self.jobs[name] = Job(name, queue, cpu, priority, self.now, preemptible)
        return job

    def end(self, job: Job) -> None:
        """It was deleted: with it goes what it said of whom it made room for."""
        for name in [name for name, victims in self.due.items() if job.name in victims]:
            del self.due[name]
        self.due.pop(job.name, None)
        del self.jobs[job.name]

    def pods_gone(self, job: Job) -> None:
        """Of one that is being stopped."""
        job.worker, job.mark = None, None
        for victims in self.due.values():
            victims.discard(job.name)

    def disturbed(self) -> None:
        """Quotas or workers are others now: nobody is owed anything that was promised before."""
        self.due.clear()

    def restart(self) -> None:
        self._marks = self._running = None

    # --- what there is

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.worker is None]

    def assigned(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.worker is not None]

    def leaving(self) -> list[Job]:
        return [job for job in self.assigned() if job.mark is not None]

    def usage(self, *, later: bool = False) -> QuotaUsage:
        """`later`: as if those were gone who are leaving."""
        usage = QuotaUsage(quota_tree(self.queues, self.cohorts))
        for job in self.assigned():
            if not later or job.mark is None:
                usage.add(job.queue, job.requests)
        return usage

    # --- passes

    def settle(self) -> bool:
        """Passes and stops, until nothing more happens. Whether that comes."""
        for _ in range(MOST_PASSES):
            before = self.writes
            self.run_pass()
            for job in self.leaving():
                self.pods_gone(job)
                self.writes += 1
            self.now += 6
            if self.writes == before:
                return True
        return False

    def run_pass(self) -> list[Step]:
        steps = list(self._steps())
        if self._described(steps) != self._described(list(self._steps())):
            self.violations.append("P13: the same caches, another plan")
        for step in steps:
            if isinstance(step, Placed):
                self._place(step)
            elif isinstance(step, Preempts):
                self._stop(step)
                self.jobs[step.candidate.name].reason = step.decision.reason
            else:
                self._wait(step)
        return steps

    def _steps(self) -> Iterator[Step]:
        if self._running is None or self._marks is None:
            self._running, self._waiting = RunningCache(lambda: self.now), Waiting()
            self._marks = Marks(self._running, KINDS, self._waiting)
        usage, there = UsageCache(), set()
        for job in self.jobs.values():
            reservation = Reservation(job.queue, "team", job.worker, job.requests) if job.worker is not None else None
            self._running.observe(job.ref, JOB, job.obj(), reservation)
            self._marks.observe(job.ref, job.obj())
            if reservation is not None:
                usage.put(job.ref, reservation)
            there.add(job.ref)
            if reservation is None:
                self._waiting.put(job.candidate())
            else:
                self._waiting.remove(job.ref)
        for gone in [candidate.ref for candidate in self._waiting if candidate.ref not in there]:
            self._waiting.remove(gone)
        for uid in [job.uid for job in (*self._running.jobs, *self._running.leaving.values())]:
            if uid not in self.jobs:
                self._running.observe(Ref(JOB.resource.name, uid), JOB, None, None)
        state = self._marks.state(self.now)
        self._awaited = {ref.uid for ref in state.awaited}
        found = plan(
            self._waiting.snapshot(),
            self.queues,
            self.workers,
            usage.snapshot(),
            tree=quota_tree(self.queues, self.cohorts),
            state=state,
        )
        return (step for step in found if step is not None)

    @staticmethod
    def _described(steps: list[Step]) -> list[tuple[object, ...]]:
        return [(type(step), step.candidate, step.decision.reason, str(step.decision)) for step in steps]

    def _wait(self, step: Step) -> None:
        job = self.jobs[step.candidate.name]
        job.reason = step.decision.reason
        if not job.reason or not str(step.decision):
            self.violations.append(f"P14: {job.name} waits, and nobody knows why")

    def _place(self, step: Placed) -> None:
        job = self.jobs[step.candidate.name]
        self._in_turn(job)
        job.worker, job.placed, job.mark, job.by = step.decision.chosen, self.now, None, None
        self.writes += 1
        self.due.pop(job.name, None)
        self._within_limits(job)

    def _in_turn(self, job: Job) -> None:
        tree = self._tree(job)
        owed = [name for name in self.due if self._is_next(self.jobs[name]) and self._tree(self.jobs[name]) == tree]
        if owed and job.name not in owed:
            self.violations.append(f"P5: {job.name} was placed before {owed[0]}, for which others were stopped")
        first = min((other for other in self.waiting() if other.shape == job.shape), key=lambda other: other.order)
        if first is not job and job.name not in self.due and first.order[:2] < job.order[:2]:
            self.violations.append(f"P10: {job.name} was placed before {first.name} of the same queue and shape")

    def _is_next(self, job: Job) -> bool:
        """Nobody is stopping any more whom it could count on, and it has not waited for too long."""
        victims, since = self.due[job.name], self.promised.get(job.name, 0.0)
        return not victims and not self.leaving() and self.now - since < GIVE_UP_SECONDS

    def _tree(self, job: Job) -> object:
        return self.queues[job.queue].cohort or job.queue

    def _within_limits(self, job: Job) -> None:
        usage, before = self.usage(), self.usage()
        before.remove(job.queue, job.requests)
        node = usage.tree.queues.get(job.queue)
        for each in node.path if node is not None else ():
            quota = each.quotas.get("cpu")
            if quota is None:
                continue
            over, most = usage.over(each, "cpu"), quota.borrow if each.parent is not None else 0
            if most is not None and over > most and over > before.over(before.tree.nodes[each.index], "cpu"):
                self.violations.append(f"P1: {each} uses {over - most} more than it may after {job.name}")
        if job.stops >= MOST_STOPS or not job.preemptible:
            if node is not None and usage.over(node, "cpu") > 0:
                self.violations.append(f"P6: {job.name} must not borrow, and {node} does")
        used = sum(nanos(other.cpu) for other in self.assigned() if other.worker == job.worker)
        assert job.worker is not None
        if used > self.workers[job.worker].capacity["cpu"]:
            self.violations.append(f"P3: more is charged on {job.worker} than it has, after {job.name}")

    def _stop(self, step: Preempts) -> None:
        assert self._marks is not None
        taker = self.jobs[step.candidate.name]
        usage = self.usage(later=True)
        for name in self._awaited & {job.name for job in self.waiting()}:
            usage.add(self.jobs[name].queue, self.jobs[name].requests)  # what is promised to it is its queue's
        self._awaited.add(taker.name)
        victims = [self.jobs[victim.job.uid] for victim in step.preemption.victims]
        for victim, found in zip(victims, step.preemption.victims, strict=True):
            self._may_be_stopped(victim, found.reason, usage)
            victim.mark, victim.by, victim.since = found.reason.value, taker.name, self.now
            victim.stops += found.reason is not Policy.PRIORITY
            if victim.stops > MOST_STOPS:
                self.violations.append(f"P6: {victim.name} was stopped {victim.stops} times")
            self.due.pop(victim.name, None)
            self.writes += 1
        self.promised[taker.name] = self.now
        self.due[taker.name] = {victim.name for victim in victims}
        self._marks.remember(taker.ref, step.worker)

    def _may_be_stopped(self, victim: Job, why: Policy, usage: QuotaUsage) -> None:
        if victim.mark is not None:
            self.violations.append(f"P6: {victim.name} is stopped twice")
        if not victim.preemptible:
            self.violations.append(f"P6: {victim.name} must not be stopped")
        least = self.queues[victim.queue].min_runtime * (0.5 if why is Policy.RECLAIM else 1.0)
        if self.now - victim.placed < least:
            self.violations.append(f"P6: {victim.name} has run {self.now - victim.placed:.0f} s of {least:.0f}")
        node = usage.tree.queues[victim.queue]
        if why is not Policy.PRIORITY and usage.over(node, "cpu") <= 0:
            self.violations.append(f"P2: {node} is within its own quota, and loses {victim.name}")


def a_fleet(queues: Mapping[str, MirrorQueueSpec], cohorts: Mapping[str, CohortSpec], capacities: list[int]) -> Fleet:
    workers = {f"w{number}": worker(f"w{number}", capacity=cpu) for number, cpu in enumerate(capacities)}
    return Fleet(dict(queues), dict(cohorts), workers)

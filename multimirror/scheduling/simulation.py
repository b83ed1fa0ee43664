"""A scheduler of quota alone: Jobs that wait, run and are stopped, in memory and without a clock.

It decides with what the dispatcher's planner decides with (`quota`, `shares`, `heads`, `preemption`, `sharing`), and
has nothing else of it: no workers, no times, no writes. `vectors` replays recorded situations on it, and tests look
whether it ever comes to rest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from multimirror.api import CohortSpec, Hold, MirrorQueueSpec, Preempts, QueueingStrategy
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.heads import Head, HeadOrder, Precedence
from multimirror.scheduling.preemption import MOST_STOPS
from multimirror.scheduling.quota import QuotaTree, QuotaUsage
from multimirror.scheduling.running import RunningJob, RunningJobs, RunningSnapshot
from multimirror.scheduling.sharing import Outcome, PassQuota
from multimirror.scheduling.victims import Preemption, Preemptor, Surroundings, Victim

MOST_PASSES: Final = 300
"""Who is not at rest after so many never will be."""


@dataclass(slots=True, kw_only=True)
class SimulatedJob:
    """A Job: it waits unless `placed` says when it was placed."""

    name: str
    queue: str
    requests: Amounts
    priority: int = 0
    age: float = 0.0
    """When it was created, or what counts instead."""
    uid: str = ""
    placed: float | None = None
    leaving: bool = False
    """It is being stopped, and still charged."""
    backing_off: bool = False
    stops: int = 0
    """By Reclaim or FairShare."""

    def __post_init__(self) -> None:
        self.uid = self.uid or self.name

    @property
    def waits(self) -> bool:
        return self.placed is None

    @property
    def runs(self) -> bool:
        return self.placed is not None and not self.leaving

    @property
    def order(self) -> tuple[int, float, str]:
        return -self.priority, self.age, self.uid


@dataclass(slots=True)
class PassResult:
    """What one pass decided."""

    placed: list[SimulatedJob] = field(default_factory=list)
    stopped: list[Victim] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """By name, of those that wait."""


class Simulation:
    """Queues, cohorts and Jobs."""

    def __init__(
        self,
        queues: Mapping[str, MirrorQueueSpec],
        cohorts: Mapping[str, CohortSpec],
        jobs: Iterable[SimulatedJob] = (),
        *,
        most_stops: int | None = MOST_STOPS,
    ) -> None:
        """`most_stops` None: nobody is stopped too often."""
        self.queues, self.cohorts = dict(queues), dict(cohorts)
        self.jobs = {job.name: job for job in jobs}
        self.slow_evictions = False
        self.stopped: list[Victim] = []
        """By others, in all passes."""
        self._most_stops = most_stops
        self._ticks = max((job.placed for job in self.jobs.values() if job.placed is not None), default=0.0)
        self._waits_for: dict[str, tuple[Victim, ...]] = {}
        """By the name of one that others are, or were, stopped for, until it is placed."""

    def tick(self) -> float:
        """A time later than all before."""
        self._ticks += 1
        return self._ticks

    def usage(self) -> QuotaUsage:
        usage = QuotaUsage(QuotaTree(self.queues, self.cohorts))
        for job in self.jobs.values():
            if job.placed is not None:
                usage.add(job.queue, job.requests)
        return usage

    def settle(self) -> bool:
        """Passes, until nothing more happens. False: that was never."""
        for _ in range(MOST_PASSES):
            result = self.run_pass()
            if not self.slow_evictions:
                self.finish_evictions([job.name for job in self.jobs.values() if job.leaving])
            if not result.placed and not result.stopped:
                return True
        return False

    def stop(self, name: str) -> None:
        """It is taken back, not for another Job."""
        job = self.jobs[name]
        if job.runs:
            job.leaving = True

    def remove(self, name: str) -> None:
        """It has finished, or was deleted."""
        del self.jobs[name]
        self._waits_for.pop(name, None)

    def finish_evictions(self, names: Iterable[str]) -> None:
        """Their pods are gone."""
        for name in names:
            job = self.jobs[name]
            job.placed, job.leaving = None, False

    def run_pass(self, *, heads_only: bool = False) -> PassResult:
        """`heads_only`: only the first Job of each queue is looked at."""
        result = _Pass(self, heads_only=heads_only).run()
        for job in result.placed:
            job.placed = self.tick()
            self._waits_for.pop(job.name, None)
        for victim in result.stopped:
            job = self.jobs[victim.job.name]
            job.leaving = True
            job.stops += victim.reason is not Preempts.PRIORITY
        self.stopped += result.stopped
        return result

    def waits_for_victims(self, job: SimulatedJob) -> bool:
        """Others are, or were, stopped for it, and it was not placed yet."""
        return job.name in self._waits_for

    def waits_for(self, job: SimulatedJob, victims: Iterable[Victim] | None) -> None:
        """These are stopped for it; None: nobody is any more."""
        if victims is None:
            del self._waits_for[job.name]
        else:
            self._waits_for[job.name] = tuple(victims)

    def preemptor(self, job: SimulatedJob) -> Preemptor:
        return Preemptor(
            uid=job.uid,
            queue=job.queue,
            requests=job.requests,
            priority=job.priority,
            preempts=self.queues[job.queue].preempts,
            own_quota_only=self._most_stops is not None and job.stops >= self._most_stops,
        )

    def running(self) -> RunningSnapshot:
        return RunningJobs(_running(job) for job in self.jobs.values() if job.runs).snapshot()

    def leaving(self) -> list[RunningJob]:
        return [_running(job) for job in self.jobs.values() if job.leaving]


def _running(job: SimulatedJob) -> RunningJob:
    return RunningJob(
        uid=job.uid,
        queue=job.queue,
        requests=job.requests,
        priority=job.priority,
        placed=job.placed or 0.0,
        name=job.name,
    )


class _Pass:
    def __init__(self, simulation: Simulation, *, heads_only: bool) -> None:
        self._simulation, self._heads_only = simulation, heads_only
        self._result = PassResult()
        lines: dict[str, list[SimulatedJob]] = {}
        for job in simulation.jobs.values():
            spec = simulation.queues.get(job.queue)
            if job.waits and not job.backing_off and spec is not None and spec.hold is Hold.NONE:
                lines.setdefault(job.queue, []).append(job)
        waiting = [job for line in lines.values() for job in line if simulation.waits_for_victims(job)]
        self._before = simulation.usage()
        self._quota = PassQuota(self._before, simulation.leaving(), map(simulation.preemptor, waiting))
        self._running = simulation.running()
        self._order = HeadOrder(self._quota.later)
        self._lines = {
            queue: sorted(line, key=lambda job: (not simulation.waits_for_victims(job), job.order))
            for queue, line in lines.items()
        }
        self._blocked: set[str] = set()
        """Queues of which one waits that others of the queue may have to wait for."""
        self._done: set[str] = set()
        """Queues of which nobody else is looked at."""
        self._preempting = {job.queue for job in waiting}

    def run(self) -> PassResult:
        for queue in self._lines:
            self._put_next(queue)
        while (head := self._order.best()) is not None:
            job: SimulatedJob = head.job
            self._decide(job)
            self._lines[job.queue].pop(0)
            if self._heads_only or (job.queue in self._blocked and self._is_strict(job.queue)):
                self._done.add(job.queue)
            self._put_next(job.queue)
        return self._result

    def _put_next(self, queue: str) -> None:
        line = self._lines[queue]
        if not line or queue in self._done:
            self._order.put(queue, None)
            return
        job = line[0]
        first = self._simulation.waits_for_victims(job)
        precedence = Precedence.WAITS_FOR_VICTIMS if first else Precedence.NONE
        self._order.put(queue, Head(queue, job.requests, job.order, precedence, job))

    def _is_strict(self, queue: str) -> bool:
        return self._simulation.queues[queue].queueing_strategy is QueueingStrategy.STRICT_FIFO

    def _decide(self, job: SimulatedJob) -> None:
        asks = self._simulation.preemptor(job)
        if self._quota.fits(asks):
            self._quota.place(asks)
            self._result.placed.append(job)
            self._preempting.discard(job.queue)
            return
        self._result.outcomes[job.name] = outcome = self._wait(job, asks)
        if outcome is not Outcome.NO_FIT or not self._before.above_most(job.queue, job.requests):
            self._blocked.add(job.queue)

    def _wait(self, job: SimulatedJob, asks: Preemptor) -> Outcome:
        """It does not fit: for whom does it wait?"""
        simulation = self._simulation
        if simulation.waits_for_victims(job):
            if self._quota.fits_later(asks):
                return Outcome.WAITS_FOR_VICTIMS
            simulation.waits_for(job, None)
            self._quota.forget(asks)
            self._preempting.discard(job.queue)
        if self._before.above_most(job.queue, job.requests):
            return Outcome.NO_FIT
        if self._quota.fits_later(asks):
            self._quota.wait(asks)
            return Outcome.WAITS_FOR_VICTIMS
        if asks.preempts and job.queue not in self._preempting:
            around = Surroundings(running=self._running, leaving=self._quota.leaving)
            found = self._quota.search(asks, around)
            if isinstance(found, Preemption):
                self._stop(job, asks, found)
                return Outcome.WAITS_FOR_VICTIMS
        if job.queue not in self._blocked:
            self._quota.keep(asks)
        if self._before.fits(job.queue, job.requests):
            return Outcome.LOST
        return Outcome.NOBODY_TO_STOP if asks.preempts else Outcome.NO_FIT

    def _stop(self, job: SimulatedJob, asks: Preemptor, found: Preemption) -> None:
        self._quota.stop(found, asks)
        self._result.stopped += found.victims
        self._simulation.waits_for(job, found.victims)
        self._preempting.add(job.queue)
        for victim in found.victims:
            self._order.refresh(victim.job.queue)

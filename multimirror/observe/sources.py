"""Where the read model comes from: the dispatcher's caches and its scheduler, behind the questions of FleetState."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple, Self

from multimirror.api import CohortSpec, MirrorQueueSpec, QueueingStrategy, WorkerClusterSpec
from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json
from multimirror.kinds import JOB, KINDS, Kind, Ref, is_held
from multimirror.kinds.pod_sets import quantities_of
from multimirror.kube import key_of
from multimirror.observe.sharing import RecentStarts
from multimirror.observe.snapshot import DecisionView, InLine, Original, QueueHead, Usage, WorkerFit
from multimirror.observe.start_rates import StartRates
from multimirror.reconcile.cache import ManagementCache
from multimirror.reconcile.starts import Starts
from multimirror.scheduling.assignments import Assignments
from multimirror.scheduling.order import QueueOrder, in_order
from multimirror.scheduling.scheduler import Scheduler
from multimirror.scheduling.usage import Reservation
from multimirror.scheduling.usage import Usage as SchedulerUsage
from multimirror.scheduling.waiting import WaitingSnapshot
from multimirror.workers import TokenState, Workers, WorkerState


class _Usage(NamedTuple):
    jobs: int
    resources: Mapping[str, Decimal]

    @classmethod
    def of(cls, sums: SchedulerUsage) -> Self:
        return cls(sums.jobs, quantities_of(sums.resources))


class CachedFleet:
    """A FleetState."""

    def __init__(
        self,
        management: ManagementCache,
        workers: Workers,
        assignments: Assignments,
        scheduler: Scheduler,
        *,
        starts: Starts,
        rates: StartRates,
    ) -> None:
        self._management, self._workers, self._scheduler = management, workers, scheduler
        self._usage, self._starts, self._rates = assignments.usage, starts, rates

    def worker_clusters(self) -> Iterable[Json]:
        return self._management.clusters.list()

    def mirror_queues(self) -> Iterable[Json]:
        return self._management.queues.list()

    def cohorts(self) -> Iterable[Json]:
        return self._management.cohorts.list()

    def worker_state(self, worker: str) -> WorkerState | None:
        found = self._workers.get(worker)
        if found is None:
            return None
        suspicion = self._starts.suspicion(worker)
        return replace(found.state, not_starting=suspicion) if suspicion else found.state

    def worker_token(self, worker: str) -> TokenState | None:
        found = self._workers.get(worker)
        return found.token if found is not None else None

    def worker_spec(self, worker: str) -> WorkerClusterSpec | None:
        return self._workers.specs.get(worker)

    def queue_spec(self, queue: str) -> MirrorQueueSpec | None:
        return self._management.queue_specs.get(queue)

    @property
    def queue_specs(self) -> Mapping[str, MirrorQueueSpec]:
        return self._management.queue_specs

    @property
    def cohort_specs(self) -> Mapping[str, CohortSpec]:
        return self._management.cohort_specs

    def kinds(self) -> Iterable[str]:
        return (f"{kind.resource.kind}.{kind.resource.group}" for kind in KINDS)

    def worker_usage(self, worker: str) -> Usage:
        return _Usage.of(self._usage.sums.worker(worker))

    def queue_usage(self, queue: str) -> Usage:
        return _Usage.of(self._usage.sums.queue(queue))

    def running_by_worker(self, queue: str) -> Mapping[str, int]:
        return self._usage.sums.by_worker(queue)

    def finished_by_worker(self, queue: str) -> Mapping[str, int]:
        return self._management.originals.finished.get(queue, {})

    def pending(self, queue: str) -> int:
        return self._scheduler.pending(queue)

    def head(self, queue: str) -> QueueHead | None:
        head = self._scheduler.heads.get(queue)
        if head is None:
            return None
        candidate, decision = head.candidate, head.decision
        return QueueHead(
            job=f"{candidate.namespace}/{candidate.name}",
            since=candidate.created,
            reason=decision.reason,
            message=str(decision),
        )

    def recent_starts(self, queue: str) -> RecentStarts | None:
        return self._rates.recent(queue)

    def waiting_requests(self) -> Iterable[tuple[str, Mapping[str, int]]]:
        return ((candidate.queue, candidate.requests) for candidate in self._scheduler.waiting())

    def quota_resources(self) -> Collection[str]:
        return {name for spec in self._management.queue_specs.values() for name in spec.quota.resources}

    def copy_states(self, worker: str) -> Iterable[str]:
        found = self._workers.get(worker)
        if found is None or found.session is None:
            return ()
        session = found.session
        copies = [(kind, copy) for kind in KINDS for copy in session.all_copies(kind.resource)]
        return (_copy_state(kind, copy) for kind, copy in copies)

    def original(self, key: str) -> Original | None:
        originals = self._management.originals
        job = originals.find(JOB, key)
        if job is None:
            return None
        return Original(
            key=key_of(job),
            uid=job["metadata"]["uid"],
            queue=originals.queue_of(job),
            cluster=cluster_of(job),
            attempt=attempt_of(job),
            finished=JOB.outcome(job).finished,
            suspended=JOB.is_suspended(job),
            held=is_held(JOB, job),
        )

    def line(self, queue: str) -> Iterator[InLine | None]:
        spec, waiting = self._management.queue_specs.get(queue), self._scheduler.snapshot()
        if queue not in waiting.queues:
            return
        strict = spec is not None and spec.queueing_strategy is QueueingStrategy.STRICT_FIFO
        order = QueueOrder(strict, (spec.max_priority or 0) if spec is not None else 0)
        usage = self._usage.snapshot()
        alone = WaitingSnapshot({queue: waiting.queues[queue]})
        for waiter in in_order(alone, usage, lambda _: order):
            if waiter is None:
                yield None
                continue
            candidate = waiter.candidate
            yield InLine(
                key=f"{candidate.namespace}/{candidate.name}",
                uid=candidate.ref.uid,
                priority=candidate.priority,
                since=candidate.created,
                requests=candidate.requests,
                grows=candidate.growth is not None,
            )
            usage.add(Reservation(queue, candidate.namespace, "", candidate.requests))

    def starts_by_deadlines(self, uid: str) -> float | None:
        return self._scheduler.starts_by_deadlines(Ref(JOB.resource.name, uid))

    def decision(self, uid: str, *, workers: bool = True) -> DecisionView | None:
        found = self._scheduler.decisions.get(Ref(JOB.resource.name, uid))
        if found is None:
            return None
        why = str(found.why)
        if not workers:
            return DecisionView(reason=found.reason, message=why, why=why)
        compared = tuple(WorkerFit(each.worker, each.fits, each.why) for each in found.results)
        return DecisionView(reason=found.reason, message=str(found), why=why, workers=compared)


def _copy_state(kind: Kind, copy: Json) -> str:
    if "deletionTimestamp" in copy["metadata"]:
        return "terminating"
    outcome = kind.outcome(copy)
    if outcome.finished:
        return "complete" if outcome.success else "failed"
    return "suspended" if kind.is_suspended(copy) else "running"

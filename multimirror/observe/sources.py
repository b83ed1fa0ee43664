"""Where the read model comes from: the dispatcher's caches and its scheduler, behind the questions of FleetState."""

from collections.abc import Iterable, Mapping

from multimirror.api import MirrorQueueSpec, WorkerClusterSpec
from multimirror.api.placement import attempt_of, cluster_of, is_held
from multimirror.batch import Json, Phase, is_finished, phase
from multimirror.kube import key_of
from multimirror.observe.snapshot import DecisionView, Original, QueueHead, Usage, WorkerFit
from multimirror.reconcile.cache import Knowledge
from multimirror.scheduling.scheduler import Scheduler
from multimirror.workers import WorkerState


class CachedFleet:
    """A FleetState."""

    def __init__(self, known: Knowledge, scheduler: Scheduler) -> None:
        self._known, self._scheduler = known, scheduler

    def worker_clusters(self) -> Iterable[Json]:
        return self._known.clusters.list()

    def mirror_queues(self) -> Iterable[Json]:
        return self._known.queues.list()

    def worker_state(self, worker: str) -> WorkerState | None:
        found = self._known.worker(worker)
        return found.state if found is not None else None

    def worker_spec(self, worker: str) -> WorkerClusterSpec | None:
        return self._known.workers.specs.get(worker) if self._known.workers is not None else None

    def queue_spec(self, queue: str) -> MirrorQueueSpec | None:
        return self._known.specs.get(queue)

    def kinds(self) -> Iterable[str]:
        return ("Job.batch",)

    def worker_usage(self, worker: str) -> Usage:
        return self._known.originals.ledger.worker(worker)

    def queue_usage(self, queue: str) -> Usage:
        return self._known.originals.ledger.queue(queue)

    def running_by_worker(self, queue: str) -> Mapping[str, int]:
        return self._known.originals.ledger.spread(queue)

    def finished_by_worker(self, queue: str) -> Mapping[str, int]:
        return self._known.originals.finished.get(queue, {})

    def pending(self, queue: str) -> int:
        return self._scheduler.pending(queue)

    def head(self, queue: str) -> QueueHead | None:
        head = self._scheduler.heads.get(queue)
        if head is None:
            return None
        return QueueHead(
            job=f"{head.job.namespace}/{head.job.name}",
            since=head.job.created,
            reason=head.explanation.reason,
            message=str(head.explanation),
        )

    def copy_states(self, worker: str) -> Iterable[str]:
        found = self._known.worker(worker)
        copies = tuple(found.session.all_copies()) if found is not None and found.session is not None else ()
        return (_copy_state(copy) for copy in copies)

    def original(self, key: str) -> Original | None:
        job = self._known.originals.informer.get(key)
        if job is None or self._known.originals.get(job["metadata"]["uid"]) is None:
            return None
        return Original(
            key=key_of(job),
            uid=job["metadata"]["uid"],
            queue=self._known.originals.queue_of(job),
            cluster=cluster_of(job),
            attempt=attempt_of(job),
            finished=is_finished(job.get("status") or {}),
            suspended=bool(job["spec"].get("suspend")),
            held=is_held(job),
        )

    def decision(self, uid: str) -> DecisionView | None:
        found = self._scheduler.explanations.get(uid)
        if found is None:
            return None
        workers = tuple(WorkerFit(each.worker, each.score is not None, each.why) for each in found.verdicts)
        return DecisionView(reason=found.reason, message=str(found), workers=workers)


def _copy_state(copy: Json) -> str:
    if "deletionTimestamp" in copy["metadata"]:
        return "terminating"
    match phase(copy.get("status") or {}):
        case Phase.COMPLETE:
            return "complete"
        case Phase.FAILED:
            return "failed"
        case _:
            return "suspended" if copy["spec"].get("suspend") else "running"

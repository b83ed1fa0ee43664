"""The Jobs of the management cluster that are ours, and who holds what. Reads come from here, never from the API.

The API cannot select Jobs by managedBy, so all are watched; of those that are not ours nothing but the name is kept.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from multimirror.api import QUEUE_LABEL
from multimirror.api.placement import attempt_of, cluster_of, queue_of, stock_writers
from multimirror.batch import Json, is_finished
from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_sets import job_pod_sets, total
from multimirror.kube import Change, Client, Informer, Object
from multimirror.kube.own_writes import OwnWrites
from multimirror.kube.resources import JOBS
from multimirror.scheduling.usage import Reservation, UsageCache

_BY_UID: Final = "uid"
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class Originals:
    """Our Jobs, by uid."""

    def __init__(self, client: Client, managed_by: str, namespaces: Informer) -> None:
        self.informer = Informer(client, JOBS, trim=self._trim)
        self.informer.add_index(_BY_UID, self._uids)
        self.writes = OwnWrites(self.informer)
        self.usage = UsageCache()
        self.finished: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Finished Jobs that are still there, by queue and by the worker that had them last ("": none)."""
        self._managed_by = managed_by
        self._namespaces = namespaces
        self._ended: dict[str, tuple[str, str]] = {}  # uid of a finished Job: its queue and its worker
        self._assumed: dict[str, int] = {}  # uid: the attempt that was just sent
        self.on_change: Callable[[Change], None] = lambda _: None
        """Told of every change to one of our Jobs, after the books are up to date."""
        self.on_stray: Callable[[Json], None] = lambda _: None
        """Told of a new Job that asks for a queue, and is not ours."""
        self.informer.add_handler(self._changed)

    def get(self, uid: str) -> Json | None:
        """The Job as the cache has it. Shared: do not change it."""
        return next(iter(self.informer.by_index(_BY_UID, uid)), None)

    def all(self) -> Iterable[Json]:
        """Every Job that is ours."""
        return (job for job in self.informer.list() if self._is_ours(job))

    def queue_of(self, job: Json) -> str:
        """The name of its queue; empty where there is none."""
        return queue_of(job, self._namespaces.get(job["metadata"]["namespace"])) or ""

    def assume(self, uid: str, attempt: int, reservation: Reservation) -> None:
        """This attempt is being written; until the cache shows it, or it failed, its reservation counts."""
        self._assumed[uid] = attempt
        self.usage.put(job_ref(uid), reservation)

    def unassume(self, uid: str) -> None:
        """It was not written."""
        if self._assumed.pop(uid, None) is not None:
            self._account(uid, self.get(uid))

    def _changed(self, change: Change) -> None:
        job = change.object
        if not self._is_ours(job):
            if change.old is None and not change.initial and QUEUE_LABEL in (job["metadata"].get("labels") or {}):
                self.on_stray(job)
            return
        self._account(job["metadata"]["uid"], change.new)
        self.on_change(change)

    def _account(self, uid: str, job: Json | None) -> None:
        self._count_end(uid, job)
        if job is not None and self._assumed.get(uid, 0) > attempt_of(job):
            return  # this is older than what we sent
        self._assumed.pop(uid, None)
        self.usage.put(job_ref(uid), self._reservation(job))

    def _reservation(self, job: Json | None) -> Reservation | None:
        if job is None or is_finished(job.get("status") or {}):
            return None
        cluster = cluster_of(job)
        if cluster is None:
            return None
        return Reservation(self.queue_of(job), job["metadata"]["namespace"], cluster, total(job_pod_sets(job)))

    def _count_end(self, uid: str, job: Json | None) -> None:
        ended = job is not None and is_finished(job.get("status") or {})
        if ended and uid not in self._ended:
            assert job is not None
            self._ended[uid] = queue, worker = self.queue_of(job), cluster_of(job) or ""
            self.finished[queue][worker] += 1
        elif job is None and uid in self._ended:
            queue, worker = self._ended.pop(uid)
            self.finished[queue][worker] -= 1

    def _is_ours(self, job: Json) -> bool:
        return bool((job.get("spec") or {}).get("managedBy") == self._managed_by)

    def _uids(self, job: Object) -> list[str]:
        return [job["metadata"]["uid"]] if self._is_ours(job) else []

    def _trim(self, job: Object) -> Object:
        metadata = job["metadata"]
        if self._is_ours(job):
            writers = stock_writers(metadata.pop("managedFields", None))
            if writers:
                metadata["managedFields"] = writers
            return job
        kept = {key: metadata[key] for key in _KEPT if key in metadata}
        queue = (metadata.get("labels") or {}).get(QUEUE_LABEL)
        if queue is not None:
            kept["labels"] = {QUEUE_LABEL: queue}
        return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": kept}


def job_ref(uid: str) -> Ref:
    """A Job of this uid."""
    return Ref(JOBS.name, uid)

"""What happened, and which Job or orphan pod therefore wants attention.

A new Job or a changed spec is looked at now; changes of pods and of status after a short while, many at a time.
"""

import time
from collections.abc import Callable
from typing import Final

from builtin_controller import metrics
from builtin_controller.ledger import Ledger
from builtin_controller.memory import Memory
from builtin_controller.options import Options
from builtin_controller.orphans import pod_key, selector_key
from builtin_controller.pods import Pod, controller_of
from builtin_controller.times import parse_time
from builtin_controller.vocabulary import FAILED, SUCCEEDED, TRACKING_FINALIZER
from multimirror.batch import Json, is_finished, selector_matches
from multimirror.kube import Change, Informer, WorkQueue, key_of

BY_NAMESPACE: Final = "namespace"


class Triggers:
    """Listens to both informers and fills both queues."""

    def __init__(
        self,
        *,
        jobs: Informer,
        pods: Informer,
        queue: WorkQueue,
        orphan_queue: WorkQueue,
        ledger: Ledger,
        mind: Memory,
        options: Options,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._jobs = jobs
        self._queue = queue
        self._orphan_queue = orphan_queue
        self._ledger = ledger
        self._memory = mind
        self._options = options
        self._clock = clock
        jobs.add_index(BY_NAMESPACE, lambda job: [job["metadata"]["namespace"]])
        jobs.add_handler(self.on_job)
        pods.add_handler(self.on_pod)

    def on_job(self, change: Change) -> None:
        """A Job was added, changed or deleted."""
        job, key = change.object, change.key
        if change.new is None:
            self._queue.add(key)
            self._memory.job_deleted(key, job["metadata"]["uid"])
            self._orphan_queue.add(selector_key(job))
        elif change.old is None:
            self._queue.add(key)
            manager = (job.get("spec") or {}).get("managedBy")
            if manager is not None and self._options.foreign(manager):
                metrics.EXTERNAL.labels(manager).inc()
        elif is_finished(job.get("status") or {}):
            self._orphan_queue.add(selector_key(job))
        else:
            self._updated(key, change.old, job)

    def _updated(self, key: str, old: Json, new: Json) -> None:
        if old["metadata"].get("generation") == new["metadata"].get("generation"):
            self._queue.add_after(key, self._options.sync_batch_period)
        else:
            self._queue.add(key)
        started = parse_time((new.get("status") or {}).get("startTime"))
        deadline = new["spec"].get("activeDeadlineSeconds")
        if started is not None and deadline is not None and deadline != old["spec"].get("activeDeadlineSeconds"):
            self._queue.add_after(key, deadline - (self._clock() - started))

    def on_pod(self, change: Change) -> None:
        """A pod was added, changed or deleted."""
        was, now = _ended_and_tracked(change.old), _ended_and_tracked(change.new)
        if was != now:
            metrics.TERMINATED_TRACKED.labels("add" if now else "delete").inc()
        pod = self._ledger.observe(change)
        if pod is None:
            return
        if change.new is None or pod.deleting:
            self._deleted(pod, final=change.new is None)
        elif change.old is None:
            self._added(pod)
        else:
            self._changed(pod, change.old)

    def _added(self, pod: Pod) -> None:
        if controller_of(pod.raw) is None:
            self._ownerless(pod, look_for_jobs=True)
            return
        job = self._job_of(pod.raw)
        if job is not None:
            self._memory.created(key_of(job))
            self._soon(job)

    def _changed(self, pod: Pod, old: Json) -> None:
        controller, before = controller_of(pod.raw), controller_of(old)
        moved = controller != before
        if moved and before is not None:
            self._released(pod, self._job_of(old))
        if controller is not None:
            self._released(pod, self._job_of(pod.raw))
        else:
            relabelled = pod.metadata.get("labels") != old["metadata"].get("labels")
            self._ownerless(pod, look_for_jobs=moved or relabelled)

    def _released(self, pod: Pod, job: Json | None) -> None:
        if job is not None:
            if not pod.tracked:
                self._memory.released(key_of(job), pod.uid)
            self._soon(job)

    def _ownerless(self, pod: Pod, *, look_for_jobs: bool) -> None:
        if pod.tracked:
            self._orphan_queue.add(pod_key(pod))
        if look_for_jobs:
            for job in self._jobs.by_index(BY_NAMESPACE, pod.namespace):
                if selector_matches(job["spec"].get("selector"), pod.metadata.get("labels")):
                    self._soon(job)

    def _deleted(self, pod: Pod, *, final: bool) -> None:
        """A pod that is being deleted counts as deleted: waiting for its end would only delay its replacement."""
        job = self._job_of(pod.raw)
        if job is None or is_finished(job.get("status") or {}):
            if pod.tracked:  # no sync will take this finalizer off
                self._orphan_queue.add(pod_key(pod))
            return
        key = key_of(job)
        self._memory.deleted(key)
        if final or not pod.tracked:
            self._memory.released(key, pod.uid)
        self._soon(job)

    def _job_of(self, raw: Json) -> Json | None:
        """The Job that controls the pod, if we know it."""
        controller = controller_of(raw)
        if controller is None or controller.get("kind") != "Job":
            return None
        job = self._jobs.get(f"{raw['metadata'].get('namespace')}/{controller['name']}")
        return job if job is not None and job["metadata"]["uid"] == controller["uid"] else None

    def _soon(self, job: Json) -> None:
        self._queue.add_after(key_of(job), self._options.sync_batch_period)


def _ended_and_tracked(raw: Json | None) -> bool:
    if raw is None or (raw.get("status") or {}).get("phase") not in (SUCCEEDED, FAILED):
        return False
    return TRACKING_FINALIZER in (raw["metadata"].get("finalizers") or ())

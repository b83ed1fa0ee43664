"""The event handlers of all caches: every change ends as Refs in the management cluster's work queue.

They are called by the caches, on the event loop, and only take notes: they never wait, and decide nothing.
"""

import asyncio
from collections.abc import Callable, Iterator

from multimirror.api.placement import Copy, attempt_of, cluster_namespace_of, cluster_of, copy_uid_of, origin_uid
from multimirror.batch import Json
from multimirror.kinds import Kind, Ref
from multimirror.kube import Change, Resource
from multimirror.kube.queue import BULK, LIVE
from multimirror.reconcile.cache import ManagementCache, spec_changed
from multimirror.reconcile.execute import WorkerContext
from multimirror.reconcile.lanes import Lanes
from multimirror.reconcile.memory import LastSeen
from multimirror.reconcile.observer import Observer
from multimirror.reconcile.starts import FORGOTTEN_AFTER_SECONDS, Starts
from multimirror.scheduling.assignments import Assignments
from multimirror.scheduling.scheduler import Scheduler
from multimirror.workers import Workers


class EventHandlers:
    """`report` is called when our own objects' status may have changed."""

    def __init__(
        self,
        *,
        management: ManagementCache,
        workers: Workers,
        observer: Observer,
        lanes: Lanes,
        scheduler: Scheduler,
        assignments: Assignments,
        starts: Starts,
        context: WorkerContext,
        report: Callable[[], None],
    ) -> None:
        self._originals, self._workers, self._observer, self._lanes = management.originals, workers, observer, lanes
        self._scheduler, self._assignments, self._report = scheduler, assignments, report
        self._starts = starts
        self._memory, self._timer, self._announcements = context.memory, context.timer, context.announcements
        self._originals.subscribe(self)
        workers.subscribe(self)
        management.queues.add_handler(self._queue_changed)
        management.cohorts.add_handler(self._cohort_changed)
        management.namespaces.add_handler(self._namespace_changed)

    # --- workers

    def copy_changed(self, worker: str, resource: Resource, change: Change) -> None:
        """A worker's cache changed."""
        uid = origin_uid(change.object)
        if not uid:
            return
        ref = Ref(resource.name, uid)
        if change.new is not None:
            self._observer.copy_seen(worker, ref)
        else:
            self._observer.copy_gone(ref)
            connection = self._workers.get(worker)
            if connection is not None:
                connection.note_impostor(change.key, there=False)
        if change.initial:
            return  # the session is not open yet; see state_changed
        kind, obj = self._originals.kind(ref), self._originals.get(ref)
        copy = Copy(worker, change.object)
        if obj is not None and not kind.outcome(obj).finished and not self._observer.is_impostor(ref, obj, copy):
            notes = self._memory.of(ref)
            if change.new is None and kind.outcome(change.object).finished:
                attempt = copy.attempt
                if notes.last_seen is None or notes.last_seen.attempt <= attempt:  # not what an earlier one left
                    notes.last_seen = LastSeen(worker, attempt, change.object["status"])
            elif notes.changed_at is None and change.old is not None:
                notes.changed_at = asyncio.get_running_loop().time()
        self._lanes.add(ref)

    def state_changed(self, worker: str, *, reconnected: bool) -> None:
        """A worker came, went, or can be talked to about more or less."""
        connection = self._workers.get(worker)
        if connection is not None:
            self._lanes.open(worker)
        else:
            self._lanes.close(worker)
        self._lanes.add_all(self._assignments.usage.on(worker), priority=BULK if reconnected else LIVE)
        if reconnected and connection is not None:
            self._lanes.add_all(self._observer.refs_on(worker))  # orphans, and what was left behind, too
        self.capacity_changed(worker)

    def capacity_changed(self, worker: str) -> None:
        """That is for those who wait: who is there stays."""
        self._scheduler.wake()
        self._report()

    # --- the management cluster

    def original_changed(self, ref: Ref, change: Change) -> None:
        new = change.new
        self._scheduler.marks.observe(ref, new)
        if self._assignments.observe(ref, new) and not change.initial:
            self._scheduler.wake()  # what it gave back may be what another one waits for
        if self._starts.observe(self._originals.kind(ref), ref, new):
            self._scheduler.wake()
            # A failure is forgotten by itself, and nothing else may happen then.
            loop = asyncio.get_running_loop()
            loop.call_later(FORGOTTEN_AFTER_SECONDS + 1, self._scheduler.wake)
        if not change.initial:
            self._timer.original_changed(change.old, new, asyncio.get_running_loop().time())
        if new is None:
            self._memory.forget(ref)
        else:
            self._follow_copy(ref, new)
            self._keep_copy_uid(ref, change.old, new)
        self._lanes.add(ref, priority=BULK if change.initial else LIVE)
        self._report()

    def _follow_copy(self, ref: Ref, obj: Json) -> None:
        """Its copy is where it was put, whatever its WorkerCluster allows now."""
        cluster, namespace = cluster_of(obj), cluster_namespace_of(obj)
        if cluster is not None and namespace is not None:
            self._workers.follow(cluster, namespace, self._originals.kind(ref).resource)

    def _keep_copy_uid(self, ref: Ref, old: Json | None, new: Json) -> None:
        """The next attempt takes the uid of the last one's copy off the object; what claims to be that may stay."""
        if old is not None and attempt_of(old) != attempt_of(new) and (uid := copy_uid_of(old)) is not None:
            self._memory.of(ref).note_copy(attempt_of(old), uid)

    def unmanaged_created(self, kind: Kind, obj: Json) -> None:
        if not self._lanes.is_working:
            return  # whoever works says so
        message = (
            f"this {kind.resource.kind} asks for a queue, but spec.managedBy was not set when it was created, and "
            "cannot be set later: it runs on this cluster. Is admission in place, and was the queue there?"
        )
        self._announcements.tell(kind, obj, "NotManaged", message)

    def _queue_changed(self, change: Change) -> None:
        if change.initial or not spec_changed(change):
            return
        # Its rules are others now: for those that wait, for those whose worker is lost, and for finished copies.
        self._lanes.add_all(self._in_queue(change.object["metadata"]["name"]))
        self._scheduler.wake()
        self._report()

    def _cohort_changed(self, change: Change) -> None:
        if not change.initial and spec_changed(change):
            self._scheduler.wake()
            self._report()

    def _in_queue(self, name: str) -> Iterator[Ref | None]:
        return (ref if self._originals.queue_of(obj) == name else None for ref, obj in self._originals.all())

    def _namespace_changed(self, change: Change) -> None:
        if change.initial or (
            change.old is not None
            and change.new is not None
            and change.old["metadata"].get("labels") == change.new["metadata"].get("labels")
        ):
            return
        for waiting in self._scheduler.waiting():
            if waiting.namespace == change.object["metadata"]["name"]:
                self._lanes.add(waiting.ref)

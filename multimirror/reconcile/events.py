"""What happened, and who has to look at it: every change in a cache ends as uids on the management lane.

Handlers are called by the caches, on the event loop, and only take notes: they never wait, and decide nothing.
"""

import asyncio
from collections.abc import Callable

import structlog

from multimirror.api import MirrorQueueSpec, SpecError
from multimirror.api.placement import Copy, origin_uid
from multimirror.batch import Json, is_finished
from multimirror.kube import Change, Resource
from multimirror.kube.queue import BULK, LIVE
from multimirror.reconcile.cache import Knowledge
from multimirror.reconcile.execute import ManagementActor
from multimirror.reconcile.lanes import Lanes
from multimirror.scheduling.scheduler import Scheduler

_log = structlog.get_logger(__name__)


class Listening:
    """The handlers of all caches. `report` is called when our own objects' status may have changed."""

    def __init__(
        self,
        known: Knowledge,
        lanes: Lanes,
        scheduler: Scheduler,
        actor: ManagementActor,
        report: Callable[[], None],
    ) -> None:
        self._known, self._lanes, self._scheduler, self._actor = known, lanes, scheduler, actor
        self._report = report
        known.originals.on_change = self._job_changed
        known.originals.on_stray = self._stray
        known.queues.add_handler(self._queue_changed)
        known.namespaces.add_handler(self._namespace_changed)

    # --- workers

    def copy_changed(self, worker: str, resource: Resource, change: Change) -> None:
        """A worker's cache changed."""
        uid = origin_uid(change.object)
        if not uid:
            return
        if change.new is not None:
            self._known.copy_seen(worker, uid)
        if change.initial:
            return  # the session is not open yet; see state_changed
        job = self._known.originals.get(uid)
        if job is not None and not is_finished(job.get("status") or {}):
            notes = self._known.memory.of(uid)
            if change.new is None and is_finished(change.object.get("status") or {}):
                notes.last_words = (worker, Copy(worker, change.object).attempt, change.object["status"])
            elif notes.heard is None and change.old is not None:
                notes.heard = asyncio.get_running_loop().time()
        self._lanes.add(uid)

    def state_changed(self, worker: str, *, reconnected: bool) -> None:
        """A worker came, went, or has more or less room."""
        connection = self._known.worker(worker)
        if connection is not None:
            self._lanes.open(worker)
        else:
            self._lanes.close(worker)
        uids = set(self._known.originals.ledger.on(worker))
        if reconnected and connection is not None and connection.session is not None:
            uids.update(origin_uid(copy) for copy in connection.session.all_copies())  # orphans, too
        for uid in uids - {""}:
            self._lanes.add(uid, priority=BULK if reconnected else LIVE)
        self._scheduler.wake()
        self._report()

    # --- the management cluster

    def _job_changed(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        if change.new is None:
            self._known.memory.forget(uid)
        self._lanes.add(uid, priority=BULK if change.initial else LIVE)
        if not change.initial and (change.new is None or is_finished(change.new.get("status") or {})):
            self._scheduler.wake()
        self._report()

    def _stray(self, job: Json) -> None:
        message = (
            "this Job asks for a queue, but spec.managedBy was not set when it was created, and cannot be set later: "
            "it runs on this cluster. Is admission in place, and was the queue there?"
        )
        self._actor.tell(job, "NotManaged", message)

    def _queue_changed(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        self._known.specs.pop(name, None)
        if change.new is not None:
            try:
                self._known.specs[name] = MirrorQueueSpec.read(change.new)
            except SpecError as error:
                _log.warning("a queue cannot be used", queue=name, error=str(error))
        if change.old is not None and change.new is not None and change.old.get("spec") == change.new.get("spec"):
            return
        self._look_at_queue(name)

    def _namespace_changed(self, change: Change) -> None:
        if change.initial or (
            change.old is not None
            and change.new is not None
            and change.old["metadata"].get("labels") == change.new["metadata"].get("labels")
        ):
            return
        for waiting in self._scheduler.waiting():
            if waiting.namespace == change.object["metadata"]["name"]:
                self._lanes.add(waiting.uid)

    def _look_at_queue(self, name: str) -> None:
        """Its rules are others now: for those that wait, for those whose worker is lost, and for finished copies."""
        for job in self._known.originals.all():
            if self._known.originals.queue_of(job) == name:
                self._lanes.add(job["metadata"]["uid"], priority=BULK)
        self._scheduler.wake()
        self._report()

"""Where decisions are made and carried out: one lane of work for the management cluster, and one for each worker.

Everything that happens to a Job or to one of its copies puts the Job's uid on the management lane. There `decide` is
asked; what concerns the management cluster is done at once, what concerns a worker goes on that worker's own lane,
where the question is asked again. So a worker that hangs holds up its own lane and nothing else (I8), and no decision
is older than the caches at the moment of the write. A lane waits until the caches have seen its own last write to that
Job, so that nothing is done twice. While a Job waits in a lane its news pile up and are told as one.
"""

import asyncio
from typing import Final

from multimirror.batch import Json
from multimirror.kube import Controller, RequeueAfter, WorkQueue, key_of
from multimirror.kube.queue import LIVE
from multimirror.options import DispatcherOptions
from multimirror.reconcile.actions import (
    Action,
    CreateCopy,
    DeleteCopy,
    LookAgain,
    PatchStatus,
    Place,
    Refuse,
    SyncCopy,
    Unassign,
    Warn,
)
from multimirror.reconcile.cache import Knowledge
from multimirror.reconcile.decide import decide
from multimirror.reconcile.execute import ManagementActor, WorkerActor
from multimirror.scheduling.scheduler import Scheduler

_BREATH: Final = 20


class Lanes:
    """`run` the management lane; the workers' lanes live in its task group."""

    def __init__(
        self,
        known: Knowledge,
        actor: ManagementActor,
        scheduler: Scheduler,
        queue: WorkQueue,
        options: DispatcherOptions,
    ) -> None:
        self._known, self._actor, self._scheduler, self._options = known, actor, scheduler, options
        self._management = Controller("management", self._on_management, queue=queue, concurrency=options.concurrency)
        self._workers: dict[str, Controller] = {}
        self._group: asyncio.TaskGroup | None = None
        self._looked_at = 0
        self.origin = ""
        """The identity of the management cluster, on every copy."""

    def add(self, uid: str, *, priority: int = LIVE) -> None:
        """Look at this Job."""
        self._management.queue.add(uid, priority=priority)

    async def run(self) -> None:
        """Until stopped, or cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for worker in self._known.workers or ():
                self.open(worker.name)
            try:
                await self._management.run()
            finally:
                self._group = None
                for lane in self._workers.values():
                    lane.stop()

    def stop(self) -> None:
        """Take up nothing more."""
        self._management.stop()
        for lane in self._workers.values():
            lane.stop()

    def open(self, worker: str) -> Controller | None:
        """The worker's own lane; made when first needed, while we work."""
        if worker in self._workers:
            return self._workers[worker]
        if self._group is None:
            return None

        async def reconcile(uid: str) -> RequeueAfter | None:
            return await self._on_worker(worker, uid)

        lane = Controller(f"worker {worker}", reconcile, concurrency=self._options.worker_concurrency)
        self._workers[worker] = lane
        self._group.create_task(lane.run(), name=f"lane of {worker}")
        return lane

    def close(self, worker: str) -> None:
        """There is no such worker any more."""
        lane = self._workers.pop(worker, None)
        if lane is not None:
            lane.stop()

    async def looked(self) -> None:
        """Wait until every Job that wanted to be looked at has been."""
        await self._management.queue.idle()

    async def idle(self) -> None:
        """Wait until every Job that wanted attention has had it (what waits for a time aside)."""
        await self.looked()
        for lane in tuple(self._workers.values()):
            await lane.queue.idle()

    # --- the management lane

    async def _on_management(self, uid: str) -> RequeueAfter | None:
        self._looked_at += 1
        if self._looked_at % _BREATH == 0:
            await asyncio.sleep(0)  # thousands that need nothing must not keep the heartbeats waiting
        originals, memory = self._known.originals, self._known.memory
        job = originals.get(uid)
        if job is not None:
            await originals.writes.seen(key_of(job))
            job = originals.get(uid)
        actions = decide(self._known.situation(uid, job))
        self._offer_or_withdraw(uid, job, actions)
        for worker in {action.worker for action in actions if isinstance(action, CreateCopy | DeleteCopy | SyncCopy)}:
            lane = self.open(worker)
            if lane is not None:
                lane.queue.add(uid)
        again = [action.seconds for action in actions if isinstance(action, LookAgain)]
        if job is None:
            memory.forget(uid)
        else:
            for action in actions:
                result = await self._act(job, action)
                if result is not None:
                    again.append(result.seconds)
            if any(isinstance(action, Place) and action.avoid for action in actions):
                end = memory.next_refusal_end(uid, self._known.clock())
                again += [end + 0.1] if end is not None else []
        return RequeueAfter(min(again)) if again else None

    async def _act(self, job: Json, action: Action) -> RequeueAfter | None:
        if isinstance(action, PatchStatus):
            return await self._actor.patch_status(job, action)
        if isinstance(action, Unassign):
            return await self._actor.unassign(job, action)
        if isinstance(action, Refuse):
            self._actor.refuse(job, action)
        elif isinstance(action, Warn):
            self._actor.warn(job, action)
        return None

    def _offer_or_withdraw(self, uid: str, job: Json | None, actions: list[Action]) -> None:
        place = next((action for action in actions if isinstance(action, Place)), None)
        if place is None or job is None:
            self._scheduler.withdraw(uid)
            return
        self._scheduler.offer(self._known.candidate(job, dict(place.avoid)))

    # --- a worker's lane

    async def _on_worker(self, name: str, uid: str) -> RequeueAfter | None:
        worker = self._known.worker(name)
        session = worker.session if worker is not None else None
        if worker is None or session is None:
            return None
        originals = self._known.originals
        job = originals.get(uid)
        if job is not None:
            await originals.writes.seen(key_of(job))
        for copy in session.copies(uid):
            await session.writes(copy["metadata"]["namespace"]).seen(key_of(copy))
        job = originals.get(uid)
        actor = WorkerActor(
            worker,
            origin=self.origin,
            memory=self._known.memory,
            originals=originals,
            management=self._actor,
            refusal_seconds=self._options.refusal_seconds,
        )
        result: RequeueAfter | None = None
        for action in decide(self._known.situation(uid, job)):
            if isinstance(action, DeleteCopy) and action.worker == name:
                await actor.delete(session, uid, action)
            elif isinstance(action, SyncCopy) and action.worker == name and job is not None:
                await actor.sync(session, job, action)
            elif isinstance(action, CreateCopy) and action.worker == name and job is not None:
                namespace = self._namespace_there(name, job["metadata"]["namespace"])
                key = f"{namespace}/{job['metadata']['name']}"
                worker.follow(namespace)
                if not session.writes(namespace).settled(key):
                    await session.writes(namespace).seen(key)
                    return RequeueAfter(0.01)
                result = await actor.create(session, job, action, namespace)
                if result is None:
                    self.add(uid)
        return result

    def _namespace_there(self, worker: str, namespace: str) -> str:
        spec = self._known.workers.specs.get(worker) if self._known.workers is not None else None
        there = spec.namespace_for(namespace) if spec is not None else None
        return there or namespace  # it was allowed when the Job was assigned

"""One work queue for the management cluster, and one for each worker: its lane.

Everything that happens to an object or to one of its copies puts its Ref on the management lane. There `decide` is
asked; what concerns the management cluster is done at once, what concerns a worker goes on that worker's own lane,
where the question is asked again. So a worker that hangs holds up its own lane and nothing else (I8), and no decision
is older than the caches at the time of the write. A lane waits until the caches have seen its own last write to that
object, so that nothing is done twice. While an object waits in a lane its news pile up and are told as one. In every
lane namespaces take turns: what one tenant's thousand Jobs need done does not delay another tenant's first.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from multimirror.api.placement import Copy
from multimirror.batch import Json
from multimirror.kinds import Kind, Ref, ref_of
from multimirror.kube import Controller, RequeueAfter, WorkQueue, key_of
from multimirror.kube.queue import BULK, LIVE
from multimirror.kube.supervise import Supervisor
from multimirror.options import DispatcherOptions
from multimirror.reconcile.actions import (
    Action,
    Annotate,
    AskPods,
    AskStopping,
    CreateCopy,
    Enqueue,
    Grow,
    NoteResumed,
    PatchStatus,
    Preempt,
    RejectStatus,
    Requeue,
    Reserve,
    Show,
    Tell,
    Unassign,
    WorkerAction,
)
from multimirror.reconcile.decide import decide
from multimirror.reconcile.execute import ManagementExecutor, WorkerContext, WorkerExecutor
from multimirror.reconcile.later_deadlines import wants_later
from multimirror.reconcile.observer import Observer
from multimirror.reconcile.originals import Originals
from multimirror.reconcile.showing import Showing
from multimirror.scheduling.scheduler import Scheduler
from multimirror.workers import Workers

_YIELD_EVERY: Final = 20
_ADD_AT_ONCE: Final = 200


class Lanes:
    """`run` the management lane; the workers' lanes live inside."""

    def __init__(
        self,
        *,
        queue: WorkQueue[Ref],
        waiting: WorkQueue[Ref],
        originals: Originals,
        workers: Workers,
        observer: Observer,
        scheduler: Scheduler,
        executor: ManagementExecutor,
        context: WorkerContext,
        options: DispatcherOptions,
    ) -> None:
        """`waiting`: those of which the scheduler has found that they wait, and that do not show it yet."""
        self._originals, self._workers, self._observer, self._scheduler = originals, workers, observer, scheduler
        self._executor, self._context = executor, context
        self._memory, self._clock = context.memory, context.clock
        self._worker_concurrency = options.worker_concurrency
        self._management = Controller[Ref](
            "management", self._on_management, queue=queue, concurrency=options.concurrency
        )
        self._showing = Showing(waiting, originals, observer, executor, lambda ref: ref in scheduler.decisions)
        self._lanes: dict[str, Controller[Ref]] = {}
        self._tasks: Supervisor | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._bulks: deque[tuple[Iterator[Ref | None], int]] = deque()
        self._bulk_added = asyncio.Event()
        self._all_added = asyncio.Event()
        self._all_added.set()
        self._reconciled = 0

    @property
    def is_working(self) -> bool:
        return self._tasks is not None

    def add(self, ref: Ref, *, priority: int = LIVE) -> None:
        """Look at this object. Before we work nothing is noted: then all are looked at anyway."""
        if self.is_working:
            self._management.queue.add(ref, priority=priority)

    def add_all(self, refs: Iterable[Ref | None], *, priority: int = BULK) -> None:
        """Look at all of these, which may be very many: they are read little by little. None is passed over."""
        if self.is_working:
            self._bulks.append((iter(refs), priority))
            self._all_added.clear()
            self._bulk_added.set()

    async def run(self) -> None:
        """Until stopped, or cancelled."""
        async with Supervisor() as tasks:
            self._tasks = tasks
            tasks.start("adding many", self._add_bulks())
            self._keep_running(tasks.start("showing who waits", self._showing.run(), may_return=True))
            self.add_all(ref for ref, _ in self._originals.all())
            for worker in self._workers:
                self.open(worker.name)
                self.add_all(self._observer.refs_on(worker.name))
            try:
                await self._management.run()
            finally:
                self._tasks = None
                self._bulks.clear()
                self._all_added.set()
                self._showing.stop()
                for lane in self._lanes.values():
                    lane.stop()
            if self._running:
                await asyncio.wait(self._running)  # what they do comes to its end

    def stop(self) -> None:
        """Take up nothing more."""
        self._management.stop()
        self._showing.stop()
        for lane in self._lanes.values():
            lane.stop()

    def open(self, worker: str) -> Controller[Ref] | None:
        """The worker's own lane; made when first needed, while we work."""
        if worker in self._lanes:
            return self._lanes[worker]
        if self._tasks is None:
            return None

        async def reconcile(ref: Ref) -> RequeueAfter | None:
            return await self._on_worker(worker, ref)

        name = f"worker {worker}"
        queue = WorkQueue[Ref](name, group=self._observer.tenant)
        lane = Controller[Ref](name, reconcile, queue=queue, concurrency=self._worker_concurrency)
        self._lanes[worker] = lane
        self._keep_running(self._tasks.start(f"lane of {worker}", lane.run(), may_return=True))
        return lane

    def _keep_running(self, lane: asyncio.Task[None]) -> None:
        """It comes to its end before we do."""
        self._running.add(lane)
        lane.add_done_callback(self._running.discard)

    def close(self, worker: str) -> None:
        """There is no such worker any more."""
        lane = self._lanes.pop(worker, None)
        if lane is not None:
            lane.stop()

    async def looked(self) -> None:
        """Wait until every object that wanted to be looked at has been."""
        await self._all_added.wait()
        await self._management.queue.idle()

    async def idle(self) -> None:
        """Wait until every object that wanted attention has had it (what waits for a time aside)."""
        await self.looked()
        for lane in tuple(self._lanes.values()):
            await lane.queue.idle()
        await self._showing.idle()

    async def _add_bulks(self) -> None:
        while True:
            await self._bulk_added.wait()
            self._bulk_added.clear()
            while self._bulks:
                refs, priority = self._bulks[0]
                some = tuple(islice(refs, _ADD_AT_ONCE))
                for ref in some:
                    if ref is not None:
                        self.add(ref, priority=priority)
                if not some:
                    self._bulks.popleft()
                await asyncio.sleep(0)
            self._all_added.set()

    # --- the management lane

    async def _on_management(self, ref: Ref) -> RequeueAfter | None:
        self._reconciled += 1
        if self._reconciled % _YIELD_EVERY == 0:
            await asyncio.sleep(0)  # thousands that need nothing must not keep the heartbeats waiting
        await self._own_write_seen(ref)
        state = self._observer.observe(ref)
        if state.original is not None and wants_later(state.kind, state.original):
            state = replace(state, kept_for=self._scheduler.kept_for(state.original))
        actions = decide(state)
        self._offer_or_withdraw(ref, actions)
        for worker in {action.worker for action in actions if isinstance(action, WorkerAction)}:
            lane = self.open(worker)
            if lane is not None:
                lane.queue.add(ref)
        again = [action.seconds for action in actions if isinstance(action, Requeue)]
        if state.original is None:
            self._memory.forget(ref)
            self._context.announcements.forget(ref)
            return _earliest(again)
        for action in actions:
            result = await self._execute(state.kind, state.original, action)
            if result is not None:
                again.append(result.seconds)
        if any(isinstance(action, Enqueue) and action.avoid for action in actions):
            end = self._memory.next_refusal_end(ref, self._clock())
            again += [end + 0.1] if end is not None else []
        return _earliest(again)

    async def _own_write_seen(self, ref: Ref) -> None:
        obj = self._originals.get(ref)
        if obj is not None:
            await self._originals.writes(ref).seen(key_of(obj))

    async def _execute(self, kind: Kind, obj: Json, action: Action) -> RequeueAfter | None:
        match action:
            case PatchStatus():
                return await self._executor.patch_status(kind, obj, action)
            case Unassign():
                return await self._executor.unassign(kind, obj, action)
            case Preempt():
                return await self._executor.preempt(kind, obj, action)
            case NoteResumed():
                await self._executor.note_resumed(kind, obj)
            case Reserve():
                await self._executor.reserve(kind, obj, action)
            case Annotate():
                await self._executor.annotate(kind, obj, action)
            case RejectStatus():
                self._executor.reject_status(kind, obj, action)
            case Show():
                self._showing.add(ref_of(kind, obj))
            case Tell():
                self._context.announcements.tell_once(kind, obj, action.reason, action.message, action.type)
            case _:
                pass  # the workers' lanes', or the scheduler's
        return None

    def _offer_or_withdraw(self, ref: Ref, actions: list[Action]) -> None:
        candidate = None
        for action in actions:
            if isinstance(action, Enqueue):
                candidate = self._observer.candidate(ref, dict(action.avoid))
            elif isinstance(action, Grow):
                candidate = self._observer.growth(ref, action.to)
        if candidate is None:
            self._scheduler.withdraw(ref)
        else:
            self._scheduler.offer(candidate)

    # --- a worker's lane

    async def _on_worker(self, name: str, ref: Ref) -> RequeueAfter | None:
        worker = self._workers.get(name)
        session = worker.session if worker is not None else None
        if worker is None or session is None:
            return None
        await self._own_write_seen(ref)
        resource = self._originals.kind(ref).resource
        for copy in (Copy(name, found) for found in session.copies(ref.uid, resource)):
            await session.writes(copy.namespace, resource).seen(f"{copy.namespace}/{copy.name}")
        state = self._observer.observe(ref)
        executor = WorkerExecutor(worker, session, self._context)
        result: RequeueAfter | None = None
        for action in decide(state):
            if isinstance(action, WorkerAction) and action.worker == name:
                result = await executor.execute(ref, state, action) or result
                if result is None and isinstance(action, CreateCopy | AskPods | AskStopping):
                    self.add(ref)
        return result


def _earliest(seconds: list[float]) -> RequeueAfter | None:
    return RequeueAfter(min(seconds)) if seconds else None

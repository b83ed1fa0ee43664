"""The dispatcher put together: caches in the middle, one lane of work for each cluster.

    async with Dispatcher(client) as dispatcher:    # works inside, has stopped outside
        ...

A process of its own follows first and works only once it leads: `following()`, then `work()`.

Everything that happens to a Job or to one of its copies puts the Job's uid on the management lane. There `decide` is
asked; what concerns the management cluster is done at once, what concerns a worker goes on that worker's own lane,
where the question is asked again. So a worker that hangs holds up its own lane and nothing else (I8), and no decision
is older than the caches at the moment of the write. A lane waits until the caches have seen its own last write to that
Job, so that nothing is done twice.

Nothing is decided before the caches of the management cluster are filled and each worker has been tried once (I9);
every write asks the guard first, which a leader's client carries.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

import structlog

from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS, MirrorQueueSpec, SpecError
from multimirror.batch import Json, is_finished
from multimirror.dispatch.acting import ManagementActor, WorkerActor
from multimirror.dispatch.memory import Memory
from multimirror.dispatch.options import DispatcherOptions
from multimirror.dispatch.originals import Originals
from multimirror.dispatch.placing import Explanation
from multimirror.dispatch.reporting import Reporter
from multimirror.dispatch.scheduler import Scheduler
from multimirror.dispatch.views import Candidate, WorkerView, candidate, policy_of
from multimirror.kube import (
    BULK,
    LIVE,
    Change,
    Client,
    Controller,
    EventRecorder,
    Informer,
    RequeueAfter,
    Resource,
    WorkQueue,
    key_of,
)
from multimirror.mirror import (
    Action,
    Copy,
    CreateCopy,
    DeleteCopy,
    LookAgain,
    PatchStatus,
    Place,
    Reach,
    Refuse,
    Situation,
    SyncCopy,
    Unassign,
    Warn,
    attempt_of,
    cluster_of,
    decide,
    origin_uid,
)
from multimirror.workers import NAMESPACES, Access, Worker, Workers, identity_of, trim_namespace

COMPONENT: Final = "multimirror"
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
_EVENTS_PER_SECOND: Final = 50.0
_FIRST_CONTACT: Final = 8.0
_BREATH: Final = 20

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Everything between the Jobs of a management cluster and its workers."""

    def __init__(
        self,
        client: Client,
        options: DispatcherOptions | None = None,
        *,
        guard: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`guard` is called before each write; what it raises stops the write (see LeaderElector.check)."""
        self.options = options = options or DispatcherOptions()
        self._reader, self._clock = client, clock
        self._guard = guard
        self._writer = writer = client.guarded(guard) if guard is not None else client
        self._events = EventRecorder(writer, COMPONENT, qps=_EVENTS_PER_SECOND, capacity=5000)
        self._memory = Memory()
        self._namespaces = Informer(client, NAMESPACES, trim=trim_namespace)
        self._queues = Informer(client, MIRROR_QUEUES)
        self._clusters = Informer(client, WORKER_CLUSTERS)
        self._secrets = Informer(client, SECRETS, options.namespace)
        self.originals = Originals(client, options.managed_by, self._namespaces)
        self._specs: dict[str, MirrorQueueSpec] = {}
        self._lane = Controller(
            "management", self._on_management, queue=WorkQueue("management"), concurrency=options.concurrency
        )
        self._lanes: dict[str, tuple[Controller, asyncio.Task[None]]] = {}
        self._looked_at = 0
        self._claims: dict[str, str] = {}  # worker: the identity of its cluster
        self._group: asyncio.TaskGroup | None = None
        self._workers: Workers | None = None
        self._actor = ManagementActor(writer, self.originals, self._memory, self._events)
        self._scheduler = Scheduler(
            writer,
            self.originals,
            self._memory,
            self._events,
            queues=lambda: self._specs,
            workers=self._views,
            again=self._lane.queue.add,
            concurrency=options.concurrency,
        )
        self._reporter: Reporter | None = None
        self._running: AsyncExitStack | None = None
        self.origin = ""
        """The identity of the management cluster, on every copy."""
        self.ready = asyncio.Event()
        """Set while work is being done."""
        self.originals.on_change = self._job_changed
        self.originals.on_stray = self._stray
        self._queues.add_handler(self._queue_changed)
        self._namespaces.add_handler(self._namespace_changed)

    # --- life

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow all clusters: caches fill and stay true, nothing is written."""
        self.origin = await identity_of(self._reader)
        access = Access(
            origin=self.origin,
            secret_namespace=self.options.namespace,
            directory=self.options.kubeconfig_directory,
            concurrency=self.options.worker_concurrency,
            pulse=self.options.pulse,
            guard=self._guard,
        )
        self._workers = workers = Workers(self._clusters, self._secrets, self, access)
        self._reporter = Reporter(
            self._writer,
            clusters=self._clusters,
            queues=self._queues,
            workers=workers,
            originals=self.originals,
            scheduler=self._scheduler,
            options=self.options,
        )
        async with AsyncExitStack() as stack:
            for informer in (self._namespaces, self._queues, self._clusters, self._secrets, self.originals.informer):
                await stack.enter_async_context(informer)
            task = asyncio.get_running_loop().create_task(workers.run(), name="workers")
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])

    @property
    def has_synced(self) -> bool:
        """The caches of the management cluster have been filled."""
        informers = (self._namespaces, self._queues, self._clusters, self._secrets, self.originals.informer)
        return all(informer.has_synced for informer in informers)

    @property
    def working(self) -> bool:
        """Whether something may be in progress."""
        return self.ready.is_set()

    async def synced(self) -> None:
        """Wait until there is a true picture: our own caches, and each worker tried once (or given up on for now)."""
        for informer in (self._namespaces, self._queues, self._clusters, self._secrets, self.originals.informer):
            await informer.synced()
        assert self._workers is not None
        try:
            async with asyncio.timeout(_FIRST_CONTACT):
                await self._workers.settled()
        except TimeoutError:
            _log.warning("starts without having heard from every worker")

    async def work(self) -> None:
        """Decide and act until `stop`, or until cancelled. The caches have to be followed meanwhile."""
        await self.synced()
        assert self._workers is not None
        assert self._reporter is not None
        async with self._events, asyncio.TaskGroup() as group:
            self._group = group
            for worker in self._workers:
                self._lane_of(worker.name)
            reporter = group.create_task(self._reporter.run(), name="reporter")
            scheduler = group.create_task(self._scheduler.run(), name="scheduler")
            self.ready.set()
            try:
                await self._lane.run()
                self._scheduler.stop()
                await asyncio.wait([scheduler])
            finally:
                self.ready.clear()
                self._group = None
                reporter.cancel()
                for controller, _ in self._lanes.values():
                    controller.stop()

    def stop(self) -> None:
        """Take up nothing more; `work` returns when what runs has come to its end."""
        self._lane.stop()
        self._scheduler.stop()
        for controller, _ in self._lanes.values():
            controller.stop()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.following())
            group = await stack.enter_async_context(asyncio.TaskGroup())
            working = group.create_task(self.work(), name="dispatcher")
            stack.callback(self.stop)
            waiting = asyncio.ensure_future(self.ready.wait())
            await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            self._running = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            await self._running.aclose()
            self._running = None

    # --- questions

    def explain(self, namespace: str, name: str) -> Explanation | None:
        """Why a Job waits: every worker with its reason. None for one that does not wait."""
        job = self.originals.informer.get(f"{namespace}/{name}")
        return self._scheduler.explanations.get(job["metadata"]["uid"]) if job is not None else None

    async def idle(self) -> None:
        """Wait until every Job that wanted attention has had it (what waits for a time aside)."""
        await self._lane.queue.idle()
        for lane, _ in tuple(self._lanes.values()):
            await lane.queue.idle()

    def worker(self, name: str) -> Worker | None:
        """A worker's connection and state."""
        return self._workers.get(name) if self._workers is not None else None

    # --- what happened

    def copy_changed(self, worker: str, change: Change) -> None:
        """A worker's cache changed."""
        uid = origin_uid(change.object)
        if not uid:
            return
        if change.initial:
            return  # the session is not open yet; see state_changed
        job = self.originals.get(uid)
        if job is not None and not is_finished(job.get("status") or {}):
            notes = self._memory.of(uid)
            if change.new is None and is_finished(change.object.get("status") or {}):
                notes.last_words = (worker, Copy(worker, change.object).attempt, change.object["status"])
            elif notes.heard is None and change.old is not None:
                notes.heard = asyncio.get_running_loop().time()
        self._lane.queue.add(uid)

    def state_changed(self, worker: str, *, reconnected: bool) -> None:
        """A worker came, went, or has more or less room."""
        if self._workers is not None and self._workers.get(worker) is not None:
            self._lane_of(worker)
        elif worker in self._lanes:
            self._lanes.pop(worker)[0].stop()
        uids = set(self.originals.ledger.on(worker))
        connection = self.worker(worker)
        if reconnected and connection is not None and connection.session is not None:
            uids.update(origin_uid(copy) for copy in connection.session.all_copies())  # orphans, too
        for uid in uids - {""}:
            self._lane.queue.add(uid, priority=BULK if reconnected else LIVE)
        self._scheduler.wake()
        if self._reporter is not None:
            self._reporter.wake()

    def claim(self, worker: str, identity: str) -> str | None:
        """Two names for one cluster would fight over the same copies: the first to come keeps it."""
        for name in [name for name, claimed in self._claims.items() if name == worker or self.worker(name) is None]:
            del self._claims[name]
        same = next((name for name, claimed in self._claims.items() if claimed == identity), None)
        if same is None:
            self._claims[worker] = identity
        return same

    def _job_changed(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        if change.new is None:
            self._memory.forget(uid)
        self._lane.queue.add(uid, priority=BULK if change.initial else LIVE)
        if not change.initial and (change.new is None or is_finished(change.new.get("status") or {})):
            self._scheduler.wake()
        if self._reporter is not None:
            self._reporter.wake()

    def _stray(self, job: Json) -> None:
        message = (
            "this Job asks for a queue, but spec.managedBy was not set when it was created, and cannot be set later: "
            "it runs on this cluster. Is admission in place, and was the queue there?"
        )
        self._actor.tell(job, "NotManaged", message)

    def _queue_changed(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        self._specs.pop(name, None)
        if change.new is not None:
            try:
                self._specs[name] = MirrorQueueSpec.read(change.new)
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
                self._lane.queue.add(waiting.uid)

    def _look_at_queue(self, name: str) -> None:
        """Its rules are others now: for those that wait, for those whose worker is lost, and for finished copies."""
        for job in self.originals.all():
            if self.originals.queue_of(job) == name:
                self._lane.queue.add(job["metadata"]["uid"], priority=BULK)
        self._scheduler.wake()
        if self._reporter is not None:
            self._reporter.wake()

    # --- lanes

    def _lane_of(self, worker: str) -> Controller | None:
        """The worker's own lane; made when first needed, while we work."""
        if worker in self._lanes:
            return self._lanes[worker][0]
        if self._group is None:
            return None

        async def reconcile(uid: str) -> RequeueAfter | None:
            return await self._on_worker(worker, uid)

        lane = Controller(f"worker {worker}", reconcile, concurrency=self.options.worker_concurrency)
        self._lanes[worker] = lane, self._group.create_task(lane.run(), name=f"lane of {worker}")
        return lane

    async def _on_management(self, uid: str) -> RequeueAfter | None:
        self._looked_at += 1
        if self._looked_at % _BREATH == 0:
            await asyncio.sleep(0)  # thousands that need nothing must not keep the heartbeats waiting
        job = self.originals.get(uid)
        if job is not None:
            await self.originals.writes.seen(key_of(job))
            job = self.originals.get(uid)
        actions = decide(self._situation(uid, job))
        self._offer_or_withdraw(uid, job, actions)
        for worker in {action.worker for action in actions if isinstance(action, CreateCopy | DeleteCopy | SyncCopy)}:
            lane = self._lane_of(worker)
            if lane is not None:
                lane.queue.add(uid)
        again = [action.seconds for action in actions if isinstance(action, LookAgain)]
        if job is None:
            self._memory.forget(uid)
        else:
            for action in actions:
                result = await self._act(job, action)
                if result is not None:
                    again.append(result.seconds)
            if any(isinstance(action, Place) and action.avoid for action in actions):
                end = self._memory.next_refusal_end(uid, self._clock())
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
            notes = self._memory.of(job["metadata"]["uid"])
            if notes.told != action.message:
                notes.told = action.message
                self._actor.tell(job, action.reason, action.message)
        return None

    def _offer_or_withdraw(self, uid: str, job: Json | None, actions: list[Action]) -> None:
        place = next((action for action in actions if isinstance(action, Place)), None)
        if place is None or job is None:
            self._scheduler.withdraw(uid)
            return
        self._scheduler.offer(self._candidate(job, dict(place.avoid)))

    async def _on_worker(self, name: str, uid: str) -> RequeueAfter | None:
        worker = self.worker(name)
        session = worker.session if worker is not None else None
        if worker is None or session is None or self._workers is None:
            return None
        job = self.originals.get(uid)
        if job is not None:
            await self.originals.writes.seen(key_of(job))
        for copy in session.copies(uid):
            await session.writes(copy["metadata"]["namespace"]).seen(key_of(copy))
        job = self.originals.get(uid)
        spec = self._workers.specs.get(name)
        actor = WorkerActor(
            worker,
            origin=self.origin,
            memory=self._memory,
            originals=self.originals,
            management=self._actor,
            refusal_seconds=self.options.refusal_seconds,
        )
        result: RequeueAfter | None = None
        for action in decide(self._situation(uid, job)):
            if isinstance(action, DeleteCopy) and action.worker == name:
                await actor.delete(session, action)
            elif isinstance(action, SyncCopy) and action.worker == name and job is not None:
                await actor.sync(session, job, action)
            elif isinstance(action, CreateCopy) and action.worker == name and job is not None:
                metadata = job["metadata"]
                namespace = spec.namespace_for(metadata["namespace"]) if spec is not None else metadata["namespace"]
                if namespace is None:
                    namespace = metadata["namespace"]  # it was allowed when the Job was assigned
                if not session.writes(namespace).settled(f"{namespace}/{metadata['name']}"):
                    await session.writes(namespace).seen(f"{namespace}/{metadata['name']}")
                    return RequeueAfter(0.01)
                result = await actor.create(session, job, action, namespace)
                self._lane.queue.add(uid)
        return result

    # --- what is known

    def _situation(self, uid: str, job: Json | None) -> Situation:
        assert self._workers is not None
        copies = [Copy(worker.name, copy) for worker in self._workers for copy in worker.copies(uid)]
        if job is None:
            return Situation(None, copies, workers=self._reach(copies), now=self._clock())
        now = self._clock()
        notes = self._memory.find(uid)
        words = notes.last_words if notes is not None else None
        current = cluster_of(job)
        return Situation(
            job,
            copies,
            policy=policy_of(self._specs.get(self.originals.queue_of(job))),
            workers=self._reach(copies, current),
            refusals=self._memory.refusals(uid, now),
            last_words=words[2] if words is not None and words[:2] == (current, attempt_of(job)) else None,
            now=now,
        )

    def _reach(self, copies: list[Copy], current: str | None = None) -> Mapping[str, Reach]:
        names = {copy.worker for copy in copies} | ({current} if current is not None else set())
        reach = {}
        for name in names:
            worker = self.worker(name)
            if worker is not None:
                state = worker.state
                since = state.lost_since if worker.is_settled else None
                reach[name] = Reach(worker.session is not None and state.ready, since, state.why_not_ready[1])
        return reach

    def _candidate(self, job: Json, avoid: Mapping[str, str]) -> Candidate:
        queue = self.originals.queue_of(job)
        found = candidate(job, queue, avoid)
        spec = self._specs.get(queue)
        namespace = self._namespaces.get(job["metadata"]["namespace"])
        if spec is not None and not spec.admits((namespace or {}).get("metadata", {}).get("labels")):
            return replace(found, problem=f"queue {queue} may not be used from namespace {found.namespace}")
        return found

    def _views(self) -> Mapping[str, WorkerView]:
        assert self._workers is not None
        specs = self._workers.specs
        return {
            worker.name: WorkerView(name=worker.name, spec=specs[worker.name], state=worker.state)
            for worker in self._workers
            if worker.name in specs
        }

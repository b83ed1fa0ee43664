"""The dispatcher put together: caches in the middle, one lane of work for each cluster.

    async with Dispatcher(client) as dispatcher:    # works inside, has stopped outside
        ...

A process of its own follows first and works only once it leads: `following()`, then `work()`.

    knowledge   the caches, and the questions that are answered from them
    listening   what happened: uids of Jobs that have to be looked at
    lanes       decide and act, for the management cluster and for each worker
    scheduler   passes over what waits, and the assignments that they decide
    reporting   the status of our own objects

Nothing is decided before the caches of the management cluster are filled and each worker has been tried once (I9);
every write asks the guard first, which a leader's client carries.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Final, Self

import structlog

from multimirror.batch import Json
from multimirror.kube import Client, EventRecorder, WorkQueue
from multimirror.observe.explain import explained
from multimirror.observe.reporter import Reporter
from multimirror.options import DispatcherOptions
from multimirror.reconcile.cache import Knowledge
from multimirror.reconcile.events import Listening
from multimirror.reconcile.execute import ManagementActor
from multimirror.reconcile.lanes import Lanes
from multimirror.scheduling.filters import Explanation
from multimirror.scheduling.recall import recall
from multimirror.scheduling.scheduler import Scheduler
from multimirror.workers import Worker, WorkerOptions, Workers, identity_of

COMPONENT: Final = "multimirror"
_EVENTS_PER_SECOND: Final = 50.0
_FIRST_CONTACT: Final = 8.0
_FIRST_LOOK: Final = 30.0

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
        self._reader, self._guard = client, guard
        writer = client.guarded(guard) if guard is not None else client
        self._events = EventRecorder(writer, COMPONENT, qps=_EVENTS_PER_SECOND, capacity=5000)
        self._known = known = Knowledge(client, options, clock)
        queue = WorkQueue("management")
        actor = ManagementActor(writer, known.originals, known.memory, self._events)
        self._scheduler = Scheduler(
            writer,
            known.originals,
            known.memory,
            self._events,
            queues=lambda: known.specs,
            workers=known.views,
            again=queue.add,
            concurrency=options.concurrency,
        )
        self._lanes = Lanes(known, actor, self._scheduler, queue, options)
        self._reporter = Reporter(writer, known, self._scheduler, options)
        self._listening = Listening(known, self._lanes, self._scheduler, actor, self._reporter.wake)
        self._running: AsyncExitStack | None = None
        self.ready = asyncio.Event()
        """Set while work is being done."""

    # --- life

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow all clusters: caches fill and stay true, nothing is written."""
        self._lanes.origin = origin = await identity_of(self._reader)
        access = WorkerOptions(
            origin=origin,
            secret_namespace=self.options.namespace,
            directory=self.options.kubeconfig_directory,
            concurrency=self.options.worker_concurrency,
            heartbeat=self.options.heartbeat,
            guard=self._guard,
        )
        known = self._known
        known.workers = workers = Workers(known.clusters, known.secrets, access, clock=known.clock)
        workers.subscribe(self._listening)
        async with AsyncExitStack() as stack:
            for informer in known.informers:
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
        return all(informer.has_synced for informer in self._known.informers)

    @property
    def working(self) -> bool:
        """Whether something may be in progress."""
        return self.ready.is_set()

    async def synced(self) -> None:
        """Wait until there is a true picture: our own caches, and each worker tried once (or given up on for now)."""
        for informer in self._known.informers:
            await informer.synced()
        assert self._known.workers is not None, "the caches are followed"
        try:
            async with asyncio.timeout(_FIRST_CONTACT):
                await self._known.workers.settled()
        except TimeoutError:
            _log.warning("starts without having heard from every worker")

    async def work(self) -> None:
        """Decide and act until `stop`, or until cancelled. The caches have to be followed meanwhile."""
        await self.synced()
        await recall(self._reader, COMPONENT, self._known.originals, self._known.memory)
        self._known.begin()
        async with self._events, asyncio.TaskGroup() as group:
            reporter = group.create_task(self._reporter.run(), name="reporter")
            first_look = group.create_task(self._first_look(), name="first look")
            scheduler = group.create_task(self._scheduler.run(), name="scheduler")
            self.ready.set()
            try:
                await self._lanes.run()
                self._scheduler.stop()
                await asyncio.wait([scheduler])
            finally:
                self.ready.clear()
                reporter.cancel()
                first_look.cancel()

    async def _first_look(self) -> None:
        """Queues are counted when all Jobs were looked at; or so late that there is always another one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK):
                await self._lanes.looked()
        self._reporter.counted()

    def stop(self) -> None:
        """Take up nothing more; `work` returns when what runs has come to its end."""
        self._lanes.stop()
        self._scheduler.stop()

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

    @property
    def origin(self) -> str:
        """The identity of the management cluster, on every copy."""
        return self._lanes.origin

    def explain(self, namespace: str, name: str) -> Explanation | None:
        """Why a Job waits: every worker with its reason. None for one that does not wait."""
        job = self._known.originals.informer.get(f"{namespace}/{name}")
        return self._scheduler.explanations.get(job["metadata"]["uid"]) if job is not None else None

    def explained(self, key: str) -> Json | None:
        """Where the Job `namespace/name` is, and why it is not further, as JSON. None where we know no such Job."""
        return explained(key, self._known, self._scheduler)

    async def idle(self) -> None:
        """Wait until every Job that wanted attention has had it (what waits for a time aside)."""
        await self._lanes.idle()

    def worker(self, name: str) -> Worker | None:
        """A worker's connection and state."""
        return self._known.worker(name)

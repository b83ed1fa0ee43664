"""The dispatcher put together: caches in the middle, one lane of work for each cluster.

    async with await Dispatcher.connect(client) as dispatcher:    # works inside, has stopped outside
        ...

A process of its own follows first and works only once it leads: `following()`, then `work()`.

    reconcile.cache      what is followed on the management cluster
    workers              what is followed on each worker
    reconcile.events     what happened: Refs of objects that have to be looked at
    reconcile.lanes      decide and act, for the management cluster and for each worker
    scheduling           passes over what waits, and the assignments that they decide
    observe              the status of our own objects, and explanations

Nothing is decided before the caches of the management cluster are filled and each worker has been tried once (I9);
every write asks the guard first, which a leader's client carries.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Final, Self

import structlog

from multimirror.api.ownership import Signer
from multimirror.batch import Json
from multimirror.batch.times import utc_datetime
from multimirror.kinds import JOB, KINDS, Kind, Ref, ref_of
from multimirror.kube import Client, EventRecorder, WorkQueue
from multimirror.kube.manager import background
from multimirror.kube.supervise import Supervisor
from multimirror.kube.write_guard import WriteGuard
from multimirror.observe.explain import explanation
from multimirror.observe.positions import Positions
from multimirror.observe.questions import Questions
from multimirror.observe.reporter import Reporter
from multimirror.observe.snapshot import job_view
from multimirror.observe.sources import CachedFleet
from multimirror.observe.start_rates import StartRates
from multimirror.observe.what_if import WhatIf
from multimirror.options import DispatcherOptions
from multimirror.reconcile.cache import ManagementCache
from multimirror.reconcile.events import EventHandlers
from multimirror.reconcile.execute import ManagementExecutor, WorkerContext
from multimirror.reconcile.lanes import Lanes
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.metrics import DispatchTimer
from multimirror.reconcile.observer import Observer
from multimirror.reconcile.starts import Starts
from multimirror.reconcile.wholes import WholeOriginals
from multimirror.scheduling.announcements import Announcements
from multimirror.scheduling.assignments import Assignments
from multimirror.scheduling.decisions import PlacementDecision
from multimirror.scheduling.past_use import PastUses
from multimirror.scheduling.scheduler import Scheduler
from multimirror.workers import TokenRenewal, Worker, WorkerOptions, Workers, copies_of, copy_key, identity_of

COMPONENT: Final = "multimirror"
_EVENTS_PER_SECOND: Final = 50.0
_FIRST_CONTACT_SECONDS: Final = 8.0
_FIRST_LOOK_SECONDS: Final = 30.0
_SETTLE_SECONDS: Final = 3.0

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Everything between the objects of a management cluster and its workers."""

    def __init__(
        self,
        client: Client,
        signer: Signer,
        options: DispatcherOptions | None = None,
        *,
        guard: WriteGuard | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`signer` has the identity of the management cluster, and the key by which copies are known to be ours (see
        `connect`). `guard` is asked before each write; what it raises stops the write (see LeaderElector.guard)."""
        options = options or DispatcherOptions()
        writer = client.guarded(guard) if guard is not None else client
        self.origin: Final = signer.origin
        self.ready: Final = asyncio.Event()
        """Set while work is being done."""
        self._client, self._guard = client, guard
        self._events = EventRecorder(
            writer, COMPONENT, qps=_EVENTS_PER_SECOND, capacity=5000, wall_clock=lambda: utc_datetime(clock())
        )
        self._cache = cache = ManagementCache(client, options, clock=clock)
        of_workers = WorkerOptions(
            origin=signer.origin,
            made_by_us=signer.signed,
            secret_namespace=options.namespace,
            directory=options.kubeconfig_directory,
            concurrency=options.worker_concurrency,
            heartbeat=options.heartbeat,
            guard=guard,
            plain_http=options.plain_http,
            known_copies=self._known_copies,
            also_followed=tuple(
                copies_of(kind.resource, signer.origin, trim=kind.read_copy, at_once=False)
                for kind in KINDS
                if kind is not JOB
            ),
        )
        self._workers = workers = Workers(cache.clusters, cache.secrets, of_workers, clock=clock)
        originals, memory = cache.originals, Memory()
        self._announcements = announcements = Announcements(self._events, KINDS)
        starts = Starts(clock)
        observer = Observer(cache, workers, memory, clock, starts, max_job_bytes=options.max_job_bytes)
        self._wholes = wholes = WholeOriginals(client)
        self._rates = rates = StartRates(clock)
        queue = WorkQueue[Ref]("management", group=observer.tenant)
        waiting = WorkQueue[Ref]("waiting", group=observer.tenant)
        assignments = Assignments(KINDS, originals.queue_of, again=queue.add, clock=clock)
        past_uses = PastUses(cache.past_use)
        self._scheduler = scheduler = Scheduler(
            writer,
            originals,
            assignments,
            announcements,
            queues=lambda: cache.queue_specs,
            cohorts=lambda: cache.cohort_specs,
            held_since=lambda: cache.held_since,
            past_uses=past_uses,
            workers=observer.worker_snapshots,
            worker=observer.worker_snapshot,
            clock=clock,
            keep=self._assigned,
            unshown=waiting.add_after,
            concurrency=options.concurrency,
        )
        context = WorkerContext(
            signer=signer,
            memory=memory,
            originals=originals,
            announcements=announcements,
            wholes=wholes,
            timer=DispatchTimer(),
            refusal_seconds=options.refusal_seconds,
            clock=clock,
        )
        executor = ManagementExecutor(writer, originals, memory, announcements, clock)
        self._lanes = lanes = Lanes(
            queue=queue,
            waiting=waiting,
            originals=originals,
            workers=workers,
            observer=observer,
            scheduler=scheduler,
            executor=executor,
            context=context,
            options=options,
        )
        self._assignments = assignments
        self._fleet = CachedFleet(cache, workers, assignments, scheduler, starts=starts, rates=rates)
        what_if = WhatIf(scheduler, observer.candidate)
        self.questions: Final = Questions(self._fleet, self.ready.is_set, what_if)
        self._reporter = reporter = Reporter(
            writer, self._fleet, options, clock=clock, tell=self._events.event, past_uses=past_uses
        )
        self._positions = Positions(writer, self._fleet, originals, clock=clock)
        self._tokens = TokenRenewal(writer, cache.secrets, workers, of_workers, changed=reporter.wake, clock=clock)
        EventHandlers(
            management=cache,
            workers=workers,
            observer=observer,
            lanes=lanes,
            scheduler=scheduler,
            assignments=assignments,
            starts=starts,
            context=context,
            report=self._reporter.wake,
        )
        self._running: AbstractAsyncContextManager[None] | None = None

    @classmethod
    async def connect(
        cls,
        client: Client,
        options: DispatcherOptions | None = None,
        *,
        guard: WriteGuard | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Ask the management cluster who it is, find the key of our copies (or make it), and put a dispatcher together.

        Raises CopyKeyError.
        """
        options = options or DispatcherOptions()
        key = await copy_key(client, options.namespace, managed_by=options.managed_by)
        signer = Signer(key, await identity_of(client))
        return cls(client, signer, options, guard=guard, clock=clock)

    # --- life

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow all clusters: caches fill and stay true, nothing is written."""
        async with AsyncExitStack() as stack:
            for informer in self._cache.informers:
                await stack.enter_async_context(informer)
            tasks = await stack.enter_async_context(Supervisor())
            tasks.start("workers", self._follow_workers())
            yield

    async def _follow_workers(self) -> None:
        """From when it is known what we have there: how much a worker may show depends on it."""
        await self._cache.synced()
        await self._workers.run()

    def _known_copies(self, worker: str) -> int:
        """How many objects of ours a worker has, or had and may still have."""
        finished = sum(by_worker[worker] for by_worker in self._cache.originals.finished.values())
        return self._assignments.usage.sums.worker(worker).jobs + finished

    def _assigned(self, kind: Kind, obj: Json) -> None:
        """An object has a worker, and this is the whole of it."""
        self._wholes.keep(kind, obj)
        self._rates.assigned(obj)

    @property
    def has_synced(self) -> bool:
        """The caches of the management cluster have been filled."""
        return self._cache.has_synced

    @property
    def working(self) -> bool:
        """Whether something may be in progress."""
        return self.ready.is_set()

    async def synced(self) -> None:
        """Wait until there is a true picture: our own caches, and each worker tried once (or given up on for now)."""
        await self._cache.synced()
        try:
            async with asyncio.timeout(_FIRST_CONTACT_SECONDS):
                await self._workers.settled()
        except TimeoutError:
            _log.warning("starts without having heard from every worker")

    async def work(self) -> None:
        """Decide and act until `stop`, or until cancelled. The caches have to be followed meanwhile."""
        await self.synced()
        await self._announcements.recall(self._client, COMPONENT)
        self._workers.begin()
        async with self._events, Supervisor() as tasks:
            tasks.start("reporter", self._reporter.run())
            tasks.start("tokens", self._tokens.run())
            tasks.start("positions", self._positions.run())
            tasks.start("first look", self._first_look(), may_return=True)
            scheduler = tasks.start("scheduler", self._scheduler.run(), may_return=True)
            self.ready.set()
            try:
                await self._lanes.run()
                self._scheduler.stop()
                await asyncio.wait([scheduler])
                if self._guard is not None:  # what still writes is cancelled next, and had better be answered
                    await self._guard.settled(_SETTLE_SECONDS)
            finally:
                self.ready.clear()

    async def _first_look(self) -> None:
        """Queues are counted when all objects were looked at; or so late that there is always another one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_SECONDS):
                await self._lanes.looked()
        self._reporter.counted()

    def stop(self) -> None:
        """Take up nothing more; `work` returns when what runs has come to its end."""
        self._lanes.stop()
        self._scheduler.stop()

    async def __aenter__(self) -> Self:
        self._running = background(self, self.ready.wait)
        await self._running.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            await running.__aexit__(kind, error, trace)

    # --- questions

    def explain(self, namespace: str, name: str) -> PlacementDecision | None:
        """Why a Job waits: every worker with its reason. None for one that does not wait."""
        job = self._cache.originals.find(JOB, f"{namespace}/{name}")
        return self._scheduler.decisions.get(ref_of(JOB, job)) if job is not None else None

    def explained(self, key: str) -> Json | None:
        """Where the Job `namespace/name` is, and why it is not further, as JSON. None where we know no such Job.

        Needs filled caches, and not that we lead.
        """
        leads = self.ready.is_set()
        view = job_view(self._fleet, key, deciding=leads)
        return explanation(view, leads=leads) if view is not None else None

    async def idle(self) -> None:
        """Wait until every object that wanted attention has had it (what waits for a time aside)."""
        await self._lanes.idle()

    def worker(self, name: str) -> Worker | None:
        """A worker's connection and state."""
        return self._workers.get(name)

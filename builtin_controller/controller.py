"""The Job controller: two caches, two queues, and workers on them.

    async with JobController(client) as controller:     # works inside, has stopped outside
        ...

A process of its own (command.py) follows the API server first and works only once it leads: `following()`, `work()`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Final, Literal, Self

from builtin_controller.acting import Actor
from builtin_controller.ganging import POD_GROUPS, WORKLOADS, Gangs
from builtin_controller.ledger import Ledger
from builtin_controller.memory import Memory
from builtin_controller.options import WORKLOAD_WITH_JOB, Options
from builtin_controller.orphans import Orphans
from builtin_controller.pods import trim_pod
from builtin_controller.syncing import Parts, Syncer
from builtin_controller.triggers import Triggers
from multimirror.batch import Json
from multimirror.kube import Client, Controller, EventRecorder, Informer, WorkQueue
from multimirror.kube.manager import background
from multimirror.kube.resources import JOBS, PODS
from multimirror.kube.supervise import Supervisor

COMPONENT: Final = "job-controller"
_EVENTS_PER_SECOND: Final = 1000.0  # the budget of each object is what limits them
_LONGEST_SYNC: Final = 3600.0  # every call in it has its own deadline; there may be 100,000 of them


class JobController:
    """Runs the Jobs of one cluster."""

    def __init__(
        self,
        client: Client,
        options: Options | None = None,
        *,
        width: int = 16,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`width`: how many calls of one sync are in flight at once."""
        self.options = options = options or Options()
        self._events = EventRecorder(client, COMPONENT, qps=_EVENTS_PER_SECOND, capacity=10_000)
        self._jobs = Informer(client, JOBS, options.namespace)
        self._pods = Informer(client, PODS, options.namespace, trim=trim_pod)
        self._informers = [self._jobs, self._pods]
        gangs = None
        if options.enabled(WORKLOAD_WITH_JOB):
            workloads = Informer(client, WORKLOADS, options.namespace)
            groups = Informer(client, POD_GROUPS, options.namespace)
            gangs = Gangs(client, workloads, groups, self._tell)
            self._informers += [workloads, groups]
        queue, orphan_queue = (
            WorkQueue(name, backoff_initial=options.api_backoff_base, backoff_maximum=options.api_backoff_max)
            for name in ("job", "job_orphan_pod")
        )
        ledger = Ledger()
        memory = Memory(options.expectations_lifetime)
        self._actor = actor = Actor(client, memory, self._tell, width=width)
        parts = Parts(
            client=client,
            jobs=self._jobs,
            pods=self._pods,
            queue=queue,
            ledger=ledger,
            memory=memory,
            actor=actor,
            gangs=gangs,
            record=self._tell,
            options=options,
            clock=clock,
        )
        orphans = Orphans(self._jobs, self._pods, ledger, memory, actor, options)
        Triggers(
            jobs=self._jobs,
            pods=self._pods,
            queue=queue,
            orphan_queue=orphan_queue,
            ledger=ledger,
            mind=memory,
            options=options,
            clock=clock,
        )
        self._workers = [
            Controller("job", Syncer(parts).sync, queue=queue, concurrency=options.workers, timeout=_LONGEST_SYNC),
            Controller(
                "job_orphan_pod", orphans.sync, queue=orphan_queue, concurrency=options.workers, timeout=_LONGEST_SYNC
            ),
        ]
        self.working = False
        """Whether syncs may be running."""
        self._running: AbstractAsyncContextManager[None] | None = None

    @property
    def has_synced(self) -> bool:
        """All caches have been filled."""
        return all(informer.has_synced for informer in self._informers)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the API server: caches fill and stay true, queues fill, nothing is written."""
        async with AsyncExitStack() as stack:
            for informer in self._informers:
                await stack.enter_async_context(informer)
            yield

    async def synced(self) -> None:
        """Wait until all caches have been filled."""
        for informer in self._informers:
            await informer.synced()

    async def work(self) -> None:
        """Sync Jobs until `stop`, or until cancelled. The caches have to be followed meanwhile."""
        await self.synced()
        self.working = True
        try:
            async with self._events, Supervisor() as tasks:
                await asyncio.wait([tasks.start(each.name, each.run(), may_return=True) for each in self._workers])
        finally:
            self.working = False

    def stop(self) -> None:
        """Take up nothing more; `work` returns when the calls that run have been answered."""
        self._actor.stop()
        for workers in self._workers:
            workers.stop()

    async def __aenter__(self) -> Self:
        self._running = background(self, self.synced)
        await self._running.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            await running.__aexit__(kind, error, trace)

    def _tell(self, job: Json, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        about = {**job, "apiVersion": JOBS.api_version, "kind": JOBS.kind}
        self._events.event(about, reason, message, type=kind)

"""What `kubectl get` shows: the status of each WorkerCluster, MirrorQueue and Cohort, kept up to date; and the gauges.

Workers and queues have a task each, so that a thousand queues to write do not delay the word that a worker is lost. An
object whose status cannot be made, or written, costs itself alone, and a part of it that part: conditions come first,
and do not depend on numbers. Between objects everything else gets its turn.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.api.mirror_queue_status import BORROWING, OVERUSED
from multimirror.batch import Json
from multimirror.kube import Client
from multimirror.kube.supervise import Supervisor
from multimirror.observe import metrics
from multimirror.observe.borrowing import BorrowingEvents, Tell
from multimirror.observe.cohorts import cohort_view, queues_by_cohort
from multimirror.observe.copies import CopyCounter
from multimirror.observe.quota_counter import QuotaCounter
from multimirror.observe.snapshot import (
    FleetSnapshot,
    FleetState,
    fleet_snapshot,
    mirror_queue_view,
    worker_cluster_view,
)
from multimirror.observe.status import (
    cohort_conditions,
    cohort_numbers,
    mirror_queue_conditions,
    mirror_queue_numbers,
    worker_cluster_conditions,
    worker_cluster_numbers,
)
from multimirror.observe.status_writer import StatusWriter
from multimirror.options import DispatcherOptions
from multimirror.scheduling.past_use import PastUses

_log = structlog.get_logger(__name__)
_SLICE: Final = 20
"""Objects between two turns of everything else."""
_SHORTEST_PAUSE: Final = 1.0
Parts = tuple[tuple[str, Callable[[], Json]], ...]
"""A status: what its parts are called, and how they are made."""


class Reporter:
    """Writes our own objects' status. `wake` it when something changed; `run` it as a task."""

    def __init__(
        self,
        client: Client,
        state: FleetState,
        options: DispatcherOptions,
        *,
        clock: Callable[[], float] = time.time,
        tell: Tell = lambda about, reason, message: None,
        past_uses: PastUses | None = None,
    ) -> None:
        """`tell` the users of an object something: what is said of the condition that it begins to borrow."""
        self._state, self._options, self._clock = state, options, clock
        self._workers = StatusWriter(client, WORKER_CLUSTERS, report_seconds=options.report_seconds)
        self._queues = StatusWriter(
            client, MIRROR_QUEUES, report_seconds=options.report_seconds, unhurried=(BORROWING, OVERUSED)
        )
        self._borrowing = BorrowingEvents(tell)
        self._cohorts = StatusWriter(client, COHORTS, report_seconds=options.report_seconds)
        self._workers_changed, self._queues_changed = asyncio.Event(), asyncio.Event()
        self._copies = CopyCounter(shortest_interval=options.report_seconds)
        self._quotas = QuotaCounter(state, past_uses, clock=clock)
        self._shown_workers: set[str] = set()
        self._shown_queues: set[str] = set()
        self._shown_cohorts: set[str] = set()
        self._broken: dict[str, str] = {}  # uid, or worker whose copies cannot be counted: what was logged about it
        self._counted = False
        self._quota_resources: Collection[str] = ()

    def wake(self) -> None:
        """Something may have changed."""
        self._workers_changed.set()
        self._queues_changed.set()

    def counted(self) -> None:
        """Every Job has been looked at: what is known of queues is all there is to know."""
        self._counted = True
        self.wake()

    def snapshot(self) -> FleetSnapshot:
        """The fleet now."""
        return fleet_snapshot(self._state, self._copies.counts, self._quotas.counted)

    async def run(self) -> None:
        """Until cancelled. Queues are reported on once they are `counted`: before, half of their Jobs are missing."""
        async with Supervisor() as tasks:
            tasks.start("report workers", self._rounds(self._report_workers, self._workers_changed))
            tasks.start("report queues", self._rounds(self._report_queues, self._queues_changed))
            await self._count_copies()

    async def _rounds(self, report: Callable[[], Awaitable[None]], changed: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.report_seconds):
                    await changed.wait()
            changed.clear()
            await report()
            await asyncio.sleep(min(_SHORTEST_PAUSE, self._options.report_seconds))

    async def _report_workers(self) -> None:
        clusters = tuple(self._state.worker_clusters())
        names = {cluster["metadata"]["name"] for cluster in clusters}
        for name in self._shown_workers - names:
            metrics.forget_worker(name)
        self._shown_workers = names
        self._quota_resources = self._state.quota_resources()
        await self._report(clusters, self._workers, self._worker_status)

    async def _report_queues(self) -> None:
        queues = tuple(self._state.mirror_queues()) if self._counted else ()
        names = {queue["metadata"]["name"] for queue in queues}
        for name in self._shown_queues - names:
            metrics.forget_queue(name)
        self._shown_queues = names
        if queues:
            await self._quotas.count()
        await self._report(queues, self._queues, self._queue_status)
        await self._report_cohorts()

    async def _report_cohorts(self) -> None:
        cohorts = tuple(self._state.cohorts())
        names = {cohort["metadata"]["name"] for cohort in cohorts}
        for name in self._shown_cohorts - names:
            metrics.forget_cohort(name)
        self._shown_cohorts = names
        if cohorts:
            queues = queues_by_cohort(self._state.queue_specs.values(), self._state.cohort_specs)
            await self._report(cohorts, self._cohorts, lambda cohort: self._cohort_status(cohort, queues))

    async def _report(self, objects: Collection[Json], writer: StatusWriter, status: Callable[[Json], Parts]) -> None:
        for number, obj in enumerate(writer.in_turn(objects), start=1):
            uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
            try:
                parts = status(obj)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one object must not silence the others
                self._log_once(uid, f"{type(error).__name__}: {error}", name=name)
            else:
                self._broken.pop(uid, None)
                await self._write(obj, writer, parts)
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    async def _write(self, obj: Json, writer: StatusWriter, parts: Iterable[tuple[str, Callable[[], Json]]]) -> None:
        for part, make in parts:
            key = f"{part} of {obj['metadata']['uid']}"
            try:
                status = make()
                if await writer.write(obj, part, status) and writer is self._queues:
                    self._borrowing.written(obj, status)
            except Exception as error:  # noqa: BLE001 - nor one part of it the others
                self._log_once(key, f"{type(error).__name__}: {error}", name=obj["metadata"]["name"])
            else:
                self._broken.pop(key, None)

    def _worker_status(self, cluster: Json) -> Parts:
        view = worker_cluster_view(self._state, cluster, self._copies.counts, self._quota_resources)
        metrics.show_worker(view)
        before, contact = cluster.get("status") or {}, self._options.contact_seconds
        return (
            ("conditions", lambda: worker_cluster_conditions(view, before, self._clock(), contact_seconds=contact)),
            ("numbers", lambda: worker_cluster_numbers(view)),
        )

    def _queue_status(self, queue: Json) -> Parts:
        view, before = mirror_queue_view(self._state, queue, self._quotas.counted), queue.get("status") or {}
        metrics.show_queue(view)
        return (
            ("conditions", lambda: mirror_queue_conditions(view, before, self._clock())),
            ("numbers", lambda: mirror_queue_numbers(view, before)),
        )

    def _cohort_status(self, cohort: Json, queues: Mapping[str, int]) -> Parts:
        counted, before = self._quotas.counted, cohort.get("status") or {}
        quota = counted.cohort(cohort["metadata"]["name"]) if counted is not None else None
        view = cohort_view(cohort, self._state.cohort_specs, queues, quota)
        metrics.show_cohort(view)
        return (
            ("conditions", lambda: cohort_conditions(view, before, self._clock())),
            ("numbers", lambda: cohort_numbers(view, before)),
        )

    async def _count_copies(self) -> None:
        while True:
            workers = [cluster["metadata"]["name"] for cluster in self._state.worker_clusters()]
            self._copies.keep(workers)
            for worker in workers:
                if not self._copies.is_due(worker):
                    continue
                try:
                    await self._copies.count(worker, self._state.copy_states(worker))
                except Exception as error:  # noqa: BLE001 - a worker may hold anything
                    self._log_once(f"copies on {worker}", f"{type(error).__name__}: {error}", name=worker)
                else:
                    self._broken.pop(f"copies on {worker}", None)
            await asyncio.sleep(self._options.report_seconds)

    def _log_once(self, key: str, error: str, *, name: str) -> None:
        """Each round would say the same."""
        if self._broken.get(key) != error:
            self._broken[key] = error
            _log.error("status not reported", name=name, error=error, exc_info=True)

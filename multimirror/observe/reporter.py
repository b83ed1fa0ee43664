"""The status of WorkerClusters and MirrorQueues: what people see with `kubectl get`, written sparingly.

A condition that changed is written at once, numbers at most every few seconds (where there are many workers, more
seldom: a few writes a second in all), the last contact about once a minute, and nothing that did not change. A write
that fails is made good by the next one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import structlog

from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS, MirrorQueueSpec, SpecError
from multimirror.batch import Json, Phase, phase
from multimirror.batch.quantities import canonical
from multimirror.batch.times import format_time, moment, seconds_of
from multimirror.kinds.pod_sets import quantities_of
from multimirror.kube import Client, KubeError, Resource
from multimirror.observe import metrics
from multimirror.options import DispatcherOptions
from multimirror.reconcile.cache import Knowledge
from multimirror.reconcile.execute import changes
from multimirror.scheduling.scheduler import Scheduler
from multimirror.workers import Worker, conditions, merged_conditions

_log = structlog.get_logger(__name__)
_WRITES_PER_SECOND: Final = 4


class Reporter:
    """Writes our own objects' status. `wake` it when something changed; `run` it as a task."""

    def __init__(
        self,
        client: Client,
        known: Knowledge,
        scheduler: Scheduler,
        options: DispatcherOptions,
    ) -> None:
        self._client, self._known, self._scheduler, self._options = client, known, scheduler, options
        self._clock = known.clock
        self._news = asyncio.Event()
        self._written: dict[str, tuple[str | None, float]] = {}  # from which version, and when; None: it failed
        self._count_at: dict[str, float] = {}
        self._counted = False
        self._clusters: set[str] = set()
        self._queues: set[str] = set()
        self._pause = options.report_seconds

    def wake(self) -> None:
        """Something may have changed."""
        self._news.set()

    def counted(self) -> None:
        """Every Job has been looked at: what is known of queues is all there is to know."""
        self._counted = True
        self.wake()

    async def run(self) -> None:
        """Until cancelled. Queues are reported on once they are `counted`: before, half of their Jobs are missing."""
        while True:
            try:
                async with asyncio.timeout(self._options.report_seconds):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            clusters, queues = tuple(self._known.clusters.list()), tuple(self._known.queues.list())
            self._forget(clusters, queues)
            self._pause = max(self._options.report_seconds, len(clusters) / _WRITES_PER_SECOND)
            for cluster in clusters:
                await self._write(WORKER_CLUSTERS, cluster, self._cluster_status(cluster))
                await asyncio.sleep(0)  # fifty of them at a stretch would keep a Job waiting
            for queue in queues if self._counted else ():
                await self._write(MIRROR_QUEUES, queue, self._queue_status(queue))
            await asyncio.sleep(min(1.0, self._options.report_seconds))

    def _forget(self, clusters: Iterable[Json], queues: Iterable[Json]) -> None:
        """Those that were there last time, and are not any more."""
        there = {cluster["metadata"]["name"] for cluster in clusters}
        for name in self._clusters - there:
            metrics.forget_worker(name)
        self._clusters, there = there, {queue["metadata"]["name"] for queue in queues}
        for name in self._queues - there:
            metrics.forget_queue(name)
        self._queues = there

    async def _write(self, resource: Resource, obj: Json, status: Json) -> None:
        before, name = obj.get("status") or {}, obj["metadata"]["name"]
        patch = changes(before, status)
        key, current = f"{resource.plural}/{name}", obj["metadata"]["resourceVersion"]
        version, when = self._written.get(key, ("", 0.0))
        if not patch or version == current:
            return  # nothing new, or our last write has not come back yet
        if ("conditions" not in patch or version is None) and self._clock() < when + self._pause:
            return
        written: str | None = current
        try:
            await self._client.patch(
                resource, name, {"metadata": {"uid": obj["metadata"]["uid"]}, "status": patch}, subresource="status"
            )
        except KubeError as error:
            _log.debug("a status of ours was not written", resource=resource.name, name=name, error=str(error))
            written = None
        self._written[key] = written, self._clock()

    def _cluster_status(self, cluster: Json) -> Json:
        name, before = cluster["metadata"]["name"], cluster.get("status") or {}
        worker = self._known.worker(name)
        if worker is None or self._known.workers is None:
            return before
        spec = self._known.workers.specs.get(name)
        state, use = worker.state, self._known.originals.usage.sums.worker(name)
        metrics.WORKER_UP.labels(name).set(1 if state.connected else 0)
        metrics.ASSIGNED_JOBS.labels(name).set(use.jobs)
        self._count_copies(worker)
        generation = cluster["metadata"].get("generation", 1)
        wanted = conditions(state, cordoned=spec is not None and spec.cordoned)
        now = self._clock()
        found = merged_conditions(
            before.get("conditions") or [], wanted, now=format_time(moment(now)), generation=generation
        )
        capacity = spec.capacity if spec is not None and spec.capacity is not None else state.capacity
        status: Json = {
            **before,
            "observedGeneration": generation,
            "conditions": found,
            "jobs": use.jobs,
            "used": _quantities(quantities_of(use.resources)),
            "kinds": ["Job.batch"] if state.ready else [],
        }
        if state.version:
            status["version"] = state.version
        if capacity is not None:
            status["capacity"] = _quantities(capacity)
        contact = seconds_of(before.get("lastContact"), 0.0)
        if state.last_contact is not None and (
            state.last_contact > contact + self._options.contact_seconds or (not state.connected and contact == 0)
        ):
            status["lastContact"] = format_time(moment(state.last_contact))
            if state.latency is not None:
                status["latencyMilliseconds"] = round(state.latency * 1000)
        return status

    def _count_copies(self, worker: Worker) -> None:
        """Now and then: there may be tens of thousands. It takes a thousandth of the time, however many there are."""
        started = time.monotonic()
        if started < self._count_at.get(worker.name, 0.0):
            return
        found = Counter(_state_of(copy) for copy in worker.session.all_copies()) if worker.session is not None else {}
        for state in metrics.STATES:
            metrics.COPIES.labels(worker.name, state).set(found.get(state, 0))
        now = time.monotonic()
        self._count_at[worker.name] = now + max(self._options.report_seconds, 1000 * (now - started))

    def _queue_status(self, queue: Json) -> Json:
        name, before = queue["metadata"]["name"], queue.get("status") or {}
        usage = self._known.originals.usage.sums
        running, pending = usage.queue(name).jobs, self._scheduler.pending(name)
        metrics.PENDING.labels(name).set(pending)
        metrics.RUNNING.labels(name).set(running)
        generation = queue["metadata"].get("generation", 1)
        found = merged_conditions(
            before.get("conditions") or [],
            [_queue_condition(queue)],
            now=format_time(moment(self._clock())),
            generation=generation,
        )
        finished = self._known.originals.finished[name]
        status: Json = {
            **{key: value for key, value in before.items() if key != "head"},
            "observedGeneration": generation,
            "conditions": found,
            "pending": pending,
            "running": running,
            "finished": finished.total(),
            "workers": _by_worker(usage.by_worker(name), finished),
        }
        head = self._scheduler.heads.get(name)
        if head is not None and pending:
            status["head"] = {
                "job": f"{head.candidate.namespace}/{head.candidate.name}",
                "since": head.candidate.created,
                "reason": head.decision.reason,
                "message": str(head.decision),
            }
        return status


def _by_worker(running: Counter[str], finished: Counter[str]) -> list[Json]:
    """Of each worker that has, or had, a Job of the queue that is still there."""
    names = sorted(name for name in running | finished if name)
    return [{"name": name, "running": running[name], "finished": finished[name]} for name in names]


def _state_of(copy: Json) -> str:
    if "deletionTimestamp" in copy["metadata"]:
        return "terminating"
    match phase(copy.get("status") or {}):
        case Phase.COMPLETE:
            return "complete"
        case Phase.FAILED:
            return "failed"
        case _:
            return "suspended" if copy["spec"].get("suspend") else "running"


def _queue_condition(queue: Json) -> tuple[str, bool, str, str]:
    try:
        MirrorQueueSpec.read(queue)
    except SpecError as error:
        return "Ready", False, "InvalidSpec", str(error)
    return "Ready", True, "Ready", "Jobs are taken"


def _quantities(amounts: Any) -> dict[str, str]:
    return {name: canonical(_plain(amount)) for name, amount in sorted(amounts.items()) if amount}


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"

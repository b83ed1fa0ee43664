"""Cordon and drain: a worker gets no new Jobs, and then has none.

Without eviction a drain waits: Jobs come to their own end. With it, each copy that has started is deleted there, and
only if it has not finished in the meantime (by uid and resourceVersion); the dispatcher sees that it is gone and
starts the Job on another worker, as it does whenever somebody deletes a copy. A Job that its user suspended runs
nowhere and is not waited for: to move it would be to start it.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from multimirror.api import CLUSTER_ANNOTATION, WORKER_CLUSTERS
from multimirror.batch import Json, Phase, is_finished, phase
from multimirror.cli.copies import copies_of, delete_copy
from multimirror.cli.errors import CommandError
from multimirror.cli.progress import Progress
from multimirror.cli.workers import WorkerConnection, cluster_named
from multimirror.kube import Client, Informer, key_of
from multimirror.kube.resources import JOBS

_NAMED: Final = 3
_PAUSE: Final = 1.0
"""Between two lines of progress, however many Jobs end."""


async def cordon(management: Client, name: str, *, cordoned: bool) -> bool:
    """Whether that changed anything."""
    cluster = await cluster_named(management, name)
    spec = cluster["spec"]
    assert isinstance(spec, dict)
    if bool(spec.get("cordoned")) == cordoned:
        return False
    await management.patch(WORKER_CLUSTERS, name, {"spec": {"cordoned": cordoned}})
    return True


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker has of ours that is not finished."""

    running: tuple[Json, ...]
    suspended: tuple[Json, ...]

    def __str__(self) -> str:
        count = len(self.running)
        names = ", ".join(sorted(key_of(job) for job in self.running)[:_NAMED])
        more = f" and {count - _NAMED} more" if count > _NAMED else ""
        return f"{count} Job{'' if count == 1 else 's'} still there: {names}{more}"


def load(jobs: Iterable[Json], worker: str) -> Load:
    """Of all Jobs, those that are assigned to that worker and have not finished."""
    there = [
        job
        for job in jobs
        if (job["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION) == worker
        and not is_finished(job.get("status") or {})
    ]
    idle = [job for job in there if job["spec"].get("suspend") and not (job.get("status") or {}).get("active")]
    return Load(tuple(job for job in there if job not in idle), tuple(idle))


async def drain(
    management: Client, name: str, seconds: float | None, evict_from: WorkerConnection | None = None
) -> Load:
    """Wait until no Job runs there, `seconds` at most; `evict_from`: do not wait for their own end."""
    progress = Progress()
    news = asyncio.Event()
    last = Load((), ())
    await management.request("GET", JOBS.path(), {"limit": 1})  # a cache would wait for ever for what it may not read
    async with Informer(management, JOBS) as jobs:
        jobs.add_handler(lambda _change: news.set())
        await jobs.synced()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    news.clear()
                    last = load(jobs.list(), name)
                    if not last.running:
                        return last
                    progress.say(str(last))
                    if evict_from is not None:
                        await _evict(evict_from, last)
                    await news.wait()
                    await asyncio.sleep(_PAUSE)
        except TimeoutError:
            remedy = "It stays cordoned. Drain again to go on waiting; --evict starts them elsewhere."
            raise CommandError(f"{name} is not empty after {seconds:g} s: {last}", remedy) from None


async def _evict(worker: WorkerConnection, there: Load) -> None:
    async with worker.client() as client:
        for job in there.running:
            if _may_move(job):
                await _delete_copy(client, worker, job)


def _may_move(job: Json) -> bool:
    """It has started, as its own status says, and its end is not announced: then the dispatcher starts it again."""
    status = job.get("status") or {}
    return (
        bool(status.get("startTime")) and phase(status) is Phase.RUNNING and "deletionTimestamp" not in job["metadata"]
    )


async def _delete_copy(client: Client, worker: WorkerConnection, job: Json) -> None:
    namespace = worker.spec.namespace_for(job["metadata"]["namespace"])
    if namespace is None:
        return
    for copy in await copies_of(client, job, namespace, worker.signer):
        if not is_finished(copy.get("status") or {}) and "deletionTimestamp" not in copy["metadata"]:
            await delete_copy(client, copy, unchanged=True)  # one that has just changed may have finished: look again

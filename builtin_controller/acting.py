"""The API calls of a sync, each with its event and its note in memory. No decisions here.

Calls on many pods run side by side, but never more than `width` at once, so that none of them waits out its deadline in
our own queue. A call that fails is told as an error, and does not stop the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeVar

import structlog

from builtin_controller import memory
from builtin_controller.claiming import REMOVE_FINALIZER
from builtin_controller.job import Job
from builtin_controller.memory import Memory
from builtin_controller.pods import Pod, controller_of
from multimirror.batch import Json
from multimirror.kube import ApiError, Client
from multimirror.kube.errors import LeadershipLost, NotFound
from multimirror.kube.resources import JOBS, PODS

Item = TypeVar("Item")
_log = structlog.get_logger(__name__)


class Recorder(Protocol):
    """Tells people about a Job."""

    def __call__(self, job: Json, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None: ...


class StoppingError(LeadershipLost):
    """The controller stops: the call that runs comes to its end, the rest of the sync is left to whoever comes next."""


class CannotCreateError(Exception):
    """A pod that would be lost as soon as it exists."""


async def side_by_side(
    items: Sequence[Item], call: Callable[[Item], Awaitable[None]], width: int
) -> list[tuple[Item, Exception]]:
    """Call for each item, `width` at a time; gives the items whose call failed, in the order of failing."""
    rest = iter(items)
    failed: list[tuple[Item, Exception]] = []

    async def work() -> None:
        for item in rest:
            try:
                await call(item)
            except (ApiError, CannotCreateError) as error:
                failed.append((item, error))

    if len(items) <= 1:
        await work()
        return failed
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(width, len(items))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return failed


class Actor:
    """Writes to the API server in the name of Jobs."""

    def __init__(self, client: Client, mind: Memory, record: Recorder, *, width: int) -> None:
        self._client = client
        self._memory = mind
        self._record = record
        self._width = width
        self._stopping = False

    def stop(self) -> None:
        """Write no more; syncs that run end at their next call."""
        self._stopping = True

    def _check(self) -> None:
        if self._stopping:
            raise StoppingError("the controller stops")

    async def write_status(self, raw: Json, status: Json) -> Json:
        """Replace a Job's status, if nobody wrote since `raw` was read; gives the Job as it is then."""
        self._check()
        written = await self._client.replace(JOBS, {**raw, "status": status}, subresource="status")
        metadata = written["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        self._memory.wrote(key, metadata["uid"], memory.JOBS, metadata["resourceVersion"])
        return written

    async def create_pods(self, job: Job, pods: Sequence[Json]) -> tuple[int, list[Exception]]:
        """Create in slow start: one, then two, four, ...; once one fails, the rest is left for another sync.

        Gives how many there are to be counted as active, and the errors.
        """
        self._memory.expect(job.key, job.uid, creations=len(pods))
        swallowed = done = 0
        batch = 1
        errors: list[Exception] = []

        async def create(pod: Json) -> None:
            nonlocal swallowed
            try:
                await self._create(job, pod)
            except ApiError as error:
                if not _namespace_terminates(error):
                    self._record(job.raw, "Warning", "FailedCreate", f"Error creating: {error.message}")
                    raise
                swallowed += 1  # everything in this namespace ends soon: no event, no error, no correction

        while done < len(pods) and not errors:
            part = pods[done : done + batch]
            failed = await side_by_side(part, create, self._width)
            done += len(part)
            errors += [error for _, error in failed]
            batch *= 2
        skipped = len(pods) - done
        self._memory.created(job.key, len(errors) + skipped)
        return len(pods) - len(errors) - skipped, errors

    async def _create(self, job: Job, pod: Json) -> None:
        if not pod["metadata"]["labels"]:
            raise CannotCreateError("unable to create pods, no labels")
        self._check()
        created = await self._client.create(PODS, pod)
        metadata = created["metadata"]
        self._memory.wrote(job.key, job.uid, memory.PODS, metadata["resourceVersion"])
        self._record(job.raw, "Normal", "SuccessfulCreate", f"Created pod: {metadata['name']}")

    async def kill_pods(self, job: Job, pods: Sequence[Pod]) -> tuple[int, list[Exception]]:
        """Delete pods of a Job that ends; their finalizers stay until they are counted. Gives how many are deleted."""

        async def kill(pod: Pod) -> None:
            await self._delete(job, pod)

        failed = await side_by_side(pods, kill, self._width)
        errors = [error for _, error in failed if not isinstance(error, NotFound)]
        return len(pods) - len(errors), errors

    async def remove_pods(self, job: Job, pods: Sequence[Pod]) -> tuple[int, int, list[Exception]]:
        """Delete pods that are not to be counted: finalizer first. Gives how many went, and how many ready ones."""
        self._memory.expect(job.key, job.uid, deletions=len(pods))
        ready = 0

        async def remove(pod: Pod) -> None:
            nonlocal ready
            if pod.tracked:
                await self._patch(pod, REMOVE_FINALIZER)
            try:
                await self._delete(job, pod)
            finally:
                ready += pod.ready

        failed = await side_by_side(pods, remove, self._width)
        for _ in failed:
            self._memory.deleted(job.key)
        errors = [error for _, error in failed if not isinstance(error, NotFound)]
        return len(pods) - len(errors), ready, errors

    async def _delete(self, job: Job, pod: Pod) -> None:
        self._check()
        try:
            await self._client.delete(PODS, pod.name, pod.namespace)
        except NotFound:
            raise
        except ApiError as error:
            self._record(job.raw, "Warning", "FailedDelete", f"Error deleting: {error.message}")
            raise
        self._record(job.raw, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.name}")

    async def release_pods(self, key: str, pods: Sequence[Pod]) -> tuple[set[str], list[Exception]]:
        """Take the tracking finalizers off. Gives the UIDs of the pods that have lost it, or are gone."""
        self._memory.expect_release(key, [pod.uid for pod in pods])

        async def release(pod: Pod) -> None:
            await self._patch(pod, REMOVE_FINALIZER)
            self._memory.confirm_release(key, pod.uid)

        failed = await side_by_side(pods, release, self._width)
        released = {pod.uid for pod in pods}
        errors: list[Exception] = []
        for pod, error in failed:
            self._memory.released(key, pod.uid)  # no event will tell
            if not isinstance(error, NotFound):
                released.discard(pod.uid)
                errors.append(error)
        return released, errors

    async def patch_pods(self, pods: Sequence[Pod], patch: Callable[[Pod], Json]) -> list[tuple[Pod, Exception]]:
        """Patch each; gives those that failed."""
        return await side_by_side(pods, lambda pod: self._patch(pod, patch(pod)), self._width)

    async def _patch(self, pod: Pod, patch: Json) -> None:
        self._check()
        patched = await self._client.patch(PODS, pod.name, patch, pod.namespace, patch_type="strategic")
        controller = controller_of(patched)
        if controller is not None:
            key = f"{pod.namespace}/{controller['name']}"
            self._memory.wrote(key, controller["uid"], memory.PODS, patched["metadata"]["resourceVersion"])


def _namespace_terminates(error: ApiError) -> bool:
    return any(cause.reason == "NamespaceTerminating" for cause in error.causes)

"""Finds or creates the Workload and the PodGroup of a Job (KEP-5547), before any of its pods."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from builtin_controller import gang
from builtin_controller.acting import Recorder
from builtin_controller.job import Job
from multimirror.batch import Json
from multimirror.kube import Client, Informer, Resource
from multimirror.kube.errors import AlreadyExists

WORKLOADS: Final = Resource(gang.GROUP, gang.VERSION, "workloads", "Workload")
POD_GROUPS: Final = Resource(gang.GROUP, gang.VERSION, "podgroups", "PodGroup")
_TRIES: Final = 5
_PAUSE: Final = 0.01  # the cache is about to show what exists already


class Gangs:
    """The scheduling objects of Jobs."""

    def __init__(self, client: Client, workloads: Informer, pod_groups: Informer, record: Recorder) -> None:
        self._client = client
        self._workloads = workloads
        self._pod_groups = pod_groups
        self._record = record
        workloads.add_index("job", gang.job_of_workload)
        pod_groups.add_index("workload", gang.workload_of_pod_group)

    async def ensure(self, job: Job, pods: int) -> str | None:
        """The name of the PodGroup that the Job's pods belong to; None for plain scheduling."""
        if not gang.qualifies(job):
            return None
        workload = await self._settled(lambda: self._workload(job, pods))
        if workload is None:
            return None
        group = await self._settled(lambda: self._pod_group(job, workload))
        return None if group is None else str(group["metadata"]["name"])

    async def _workload(self, job: Job, pods: int) -> Json | None:
        found: Sequence[Json] = list(self._workloads.by_index("job", job.key))
        if found:
            return gang.usable_workload(job, found)
        if not gang.is_new(job, pods):
            return None
        created = await self._client.create(WORKLOADS, gang.workload_of(job))
        text = f"Created Workload {created['metadata']['name']} for Job {job.name}"
        self._record(job.raw, "Normal", "WorkloadCreated", text)
        return created

    async def _pod_group(self, job: Job, workload: Json) -> Json | None:
        key = f"{job.namespace}/{workload['metadata']['name']}"
        found: Sequence[Json] = list(self._pod_groups.by_index("workload", key))
        if found:
            return gang.usable_pod_group(job, found)
        return await self._client.create(POD_GROUPS, gang.pod_group_of(job, workload))

    async def _settled(self, attempt: Callable[[], Awaitable[Json | None]]) -> Json | None:
        """Try again when the object exists, but the cache does not show it yet."""
        for tries in range(_TRIES):
            try:
                return await attempt()
            except AlreadyExists:
                if tries == _TRIES - 1:
                    raise
                await asyncio.sleep(_PAUSE)
        return None

"""Everything that was written about Jobs, on every cluster of a stage, and what must hold of it.

Each version of each Job is recorded as its cluster tells it. Checked on the record:
    I1  no two copies of one Job live at once (unless the test says that its policy allows it)
    I2  no copy of a finished Job starts a pod
    I3  every status of an original may follow the one before it, by Kubernetes' own rules
    I5  no Job without our origin is written by us
The tests themselves look at the others: what is left on workers (I6), events (I7), hung workers, restarts.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL
from multimirror.batch import is_finished, validate_job_status
from multimirror.kube import ApiError, Client, Resource

Json = dict[str, Any]
_JOBS = Resource("batch", "v1", "jobs", "Job")
_PODS = Resource("", "v1", "pods", "Pod")
_MANAGEMENT = "management"
_US = "multimirror"


class History:
    """Records while its context is open."""

    def __init__(self, management: Client, workers: dict[str, Client], namespace: str) -> None:
        self._clients = {_MANAGEMENT: management, **workers}
        self._namespace = namespace
        self._tasks: list[asyncio.Task[None]] = []
        self.events: list[tuple[str, str, str, Json]] = []
        """Cluster, type of event, kind and object, as they were told."""
        self.two_may_live = False
        """The test's policy allows a second copy while the first cannot be reached."""

    async def __aenter__(self) -> Self:
        for cluster, client in self._clients.items():
            for resource in (_JOBS, _PODS):
                start = (await client.list(resource, self._namespace)).resource_version
                self._tasks.append(asyncio.ensure_future(self._record(cluster, client, resource, start)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _record(self, cluster: str, client: Client, resource: Resource, version: str) -> None:
        while True:
            with contextlib.suppress(ApiError):
                async with contextlib.aclosing(
                    client.watch(resource, self._namespace, resource_version=version, timeout=300)
                ) as events:
                    async for event in events:
                        version = event.object["metadata"]["resourceVersion"]
                        if event.type != "BOOKMARK":
                            self.events.append((cluster, event.type, resource.kind, event.object))
            await asyncio.sleep(0.05)

    def jobs(self, cluster: str) -> list[tuple[str, Json]]:
        """Every version of every Job of a cluster: type of event, object."""
        return [(what, obj) for where, what, kind, obj in self.events if kind == "Job" and where == cluster]

    async def check(self) -> None:
        """Raise on the first broken promise."""
        await asyncio.sleep(0.1)  # what was written last is still being told
        self._one_copy_at_a_time()
        self._statuses_follow_the_rules()
        self._finished_jobs_start_nothing()
        self._others_are_left_alone()

    def _one_copy_at_a_time(self) -> None:
        live: dict[str, set[tuple[str, str]]] = {}
        for cluster, what, kind, obj in self.events:
            uid = (obj["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL)
            if kind != "Job" or uid is None:
                continue
            copy = (cluster, obj["metadata"]["uid"])
            gone = what == "DELETED" or "deletionTimestamp" in obj["metadata"]
            copies = live.setdefault(uid, set())
            if gone or is_finished(obj.get("status") or {}) or obj["spec"].get("suspend"):
                copies.discard(copy)
            else:
                copies.add(copy)
            assert self.two_may_live or len(copies) < 2, f"I1: two copies of {uid} live at once: {copies}"

    def _statuses_follow_the_rules(self) -> None:
        last: dict[str, Json] = {}
        for what, job in self.jobs(_MANAGEMENT):
            uid = job["metadata"]["uid"]
            before = last.get(uid)
            if what == "MODIFIED" and before is not None and "managedBy" in job["spec"]:
                old, new = before.get("status") or {}, job.get("status") or {}
                errors = validate_job_status(new, old, job["spec"])
                assert not errors, f"I3: {job['metadata']['name']}: {errors}\n{old}\n{new}"
                for counter in ("succeeded", "failed"):
                    assert (new.get(counter) or 0) >= (old.get(counter) or 0), f"I3: {counter} went down"
                for kind in ("Complete", "Failed"):
                    assert _true(new, kind) or not _true(old, kind), f"I3: {kind} was taken back"
            last[uid] = job

    def _finished_jobs_start_nothing(self) -> None:
        finished: set[str] = set()
        owners: dict[str, str] = {}
        for cluster, what, kind, obj in self.events:
            if kind == "Job" and cluster == _MANAGEMENT and is_finished(obj.get("status") or {}):
                finished.add(obj["metadata"]["uid"])
            elif kind == "Job":
                owners[obj["metadata"]["uid"]] = (obj["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL, "")
            elif what == "ADDED":
                for reference in obj["metadata"].get("ownerReferences") or ():
                    original = owners.get(reference["uid"])
                    assert original not in finished, f"I2: {original} is finished, and starts {obj['metadata']['name']}"

    def _others_are_left_alone(self) -> None:
        for cluster, what, kind, obj in self.events:
            if kind != "Job" or cluster == _MANAGEMENT or what == "DELETED":
                continue
            if ORIGIN_LABEL not in (obj["metadata"].get("labels") or {}):
                managers = {entry.get("manager") for entry in obj["metadata"].get("managedFields") or ()}
                assert _US not in managers, f"I5: we wrote to {obj['metadata']['name']}, which is not ours"


def _true(status: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or ())

"""The CronJob controller: follows CronJobs and their Jobs and carries out `cron_plan.plan`.

A Job's name is derived from its scheduled minute: a start that took effect without our knowing is found again by its
name, put on the active list and not repeated. The status is written last, and only when it changed.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import orjson

from clusters.embedded.controllers import cron_plan
from clusters.embedded.controllers.client import InProcessClient, Json
from clusters.embedded.controllers.cron_plan import Note, Plan
from clusters.embedded.controllers.recorder import Recorder
from clusters.embedded.kinds import Kind
from clusters.embedded.store import Event
from multimirror.kube import ApiError, Controller, RequeueAfter
from multimirror.kube.errors import AlreadyExists, NotFound

_OWNED: Final = b'"kind":"CronJob"'


class CronJobController:
    """Starts Jobs on schedule."""

    def __init__(self, client: InProcessClient, time: Callable[[], float], recorder: Recorder) -> None:
        self._client, self._time, self._recorder = client, time, recorder
        self._cronjobs, self._jobs = client.kind("batch", "cronjobs"), client.kind("batch", "jobs")
        self._children: dict[str, set[str]] = {}
        """CronJob uid to the keys of its Jobs."""
        self.controller = Controller("cronjob", self._reconcile, concurrency=2)
        client.listen(self._changed)

    def start(self) -> None:
        """Take in what is there already; also after the clock was moved."""
        for item in list(self._jobs.table.scan()):
            if _OWNED in item.data:
                self._owner_of(item.key, item.data)
        for item in list(self._cronjobs.table.scan()):
            self.controller.queue.add(item.key)

    def _changed(self, kind: Kind, event: Event) -> None:
        if kind is self._cronjobs:
            if not event.deleted and not _only_rescheduled(event):
                self.controller.queue.add(event.after.key)
            elif not event.deleted:
                self._reschedule(event.after.key, event.after.decode())
        elif kind is self._jobs:
            for item, gone in ((event.before, True), (event.after, event.deleted)):
                if item is not None and _OWNED in item.data:
                    owner = self._owner_of(item.key, item.data, gone=gone)
                    if owner is not None:
                        self.controller.queue.add(owner)

    def _owner_of(self, key: str, data: bytes, *, gone: bool = False) -> str | None:
        """The key of the CronJob that controls this Job; the Job is filed under it, or taken out."""
        for reference in orjson.loads(data)["metadata"].get("ownerReferences", ()):
            if reference.get("controller") and reference["kind"] == "CronJob":
                children = self._children.setdefault(reference["uid"], set())
                (children.discard if gone else children.add)(key)
                if not children:
                    del self._children[reference["uid"]]
                return f"{key.partition('/')[0]}/{reference['name']}"
        return None

    def _reschedule(self, key: str, cronjob: Json) -> None:
        """A new schedule counts from its next activation on."""
        due = cron_plan.next_activation(cronjob, self._now())
        if due is None:
            self.controller.queue.add(key)
        else:
            self.controller.queue.add_after(key, due.timestamp() - self._time())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._time(), UTC)

    async def _reconcile(self, key: str) -> RequeueAfter | None:
        await asyncio.sleep(0)
        cronjob = self._client.at(self._cronjobs, key)
        if cronjob is None:
            return None
        keys = self._children.get(cronjob["metadata"]["uid"], set())
        jobs = [job for each in sorted(keys) if (job := self._client.at(self._jobs, each)) is not None]
        plan = cron_plan.plan(cronjob, jobs, self._now())
        try:
            await self._carry_out(cronjob, plan)
        finally:
            await self._write_status(cronjob, plan.status)
        if plan.look_again is None:
            return None
        return RequeueAfter(max(plan.look_again.timestamp() - self._time(), 0.0))

    async def _carry_out(self, cronjob: Json, plan: Plan) -> None:
        for note in plan.notes:
            await self._recorder.tell(cronjob, *note)
        for job in plan.history:
            await self._delete(cronjob, job)
        if plan.start is None or plan.scheduled is None:
            return
        for reference in plan.replaced:
            active = self._client.get(self._jobs, reference["namespace"], reference["name"])
            if active is not None and active["metadata"]["uid"] == reference["uid"]:
                await self._delete(cronjob, active)
            plan.status["active"] = [ref for ref in plan.status["active"] if ref["uid"] != reference["uid"]]
        started = await self._start(cronjob, plan.start)
        if started is not None:
            plan.status["active"] = [*plan.status["active"], cron_plan.reference(started)]
            plan.status["lastScheduleTime"] = plan.scheduled.strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _delete(self, cronjob: Json, job: Json) -> None:
        await self._client.delete(self._jobs, job)
        await self._recorder.tell(
            cronjob, *Note("Normal", "SuccessfulDelete", f"Deleted job {job['metadata']['name']}")
        )

    async def _start(self, cronjob: Json, job: Json) -> Json | None:
        """The started Job, or the one that an earlier try started; None when the name is somebody else's."""
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        try:
            made = await self._client.create(self._jobs, job, namespace)
        except AlreadyExists:
            found = self._client.get(self._jobs, namespace, name)
            owners = found["metadata"].get("ownerReferences", ()) if found else ()
            mine = any(ref.get("controller") and ref["uid"] == cronjob["metadata"]["uid"] for ref in owners)
            return found if mine else None
        except ApiError as error:
            if not _is_terminating(error):
                text = f"Error creating job: {error.message}"
                await self._recorder.tell(cronjob, "Warning", "FailedCreate", text)
            raise
        await self._recorder.tell(cronjob, "Normal", "SuccessfulCreate", f"Created job {name}")
        return made

    async def _write_status(self, cronjob: Json, status: Json) -> None:
        status = {key: value for key, value in status.items() if value}
        if status != cronjob.get("status", {}):
            with contextlib.suppress(NotFound):
                await self._client.replace(self._cronjobs, {**cronjob, "status": status}, "status")


def _is_terminating(error: ApiError) -> bool:
    return any(cause.reason == "NamespaceTerminating" for cause in error.causes)


def _only_rescheduled(event: Event) -> bool:
    """Whether the write changed when the CronJob runs."""
    if event.before is None:
        return False
    old, new = orjson.loads(event.before.data)["spec"], orjson.loads(event.after.data)["spec"]
    return any(old.get(field) != new.get(field) for field in ("schedule", "timeZone"))

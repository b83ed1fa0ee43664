"""TTL after finished: a Job with `ttlSecondsAfterFinished` is deleted, its pods first, that long after it ended."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from clusters.embedded.controllers.client import InProcessClient, Json
from clusters.embedded.kinds import Kind
from clusters.embedded.store import Event
from multimirror.kube import Controller, RequeueAfter

_TTL: Final = b'"ttlSecondsAfterFinished"'


def expiry(job: Json) -> float | None:
    """When the Job is due (seconds since the epoch); None if it never is as it stands."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or job["metadata"].get("deletionTimestamp"):
        return None
    for condition in job.get("status", {}).get("conditions", ()):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            ended = condition.get("lastTransitionTime")
            return datetime.fromisoformat(ended).timestamp() + float(ttl) if ended else None
    return None


class TtlController:
    """Deletes finished Jobs whose time has come."""

    def __init__(self, client: InProcessClient, time: Callable[[], float]) -> None:
        self._client, self._time = client, time
        self._jobs = client.kind("batch", "jobs")
        self.controller = Controller("ttl-after-finished", self._reconcile, concurrency=1)
        client.listen(self._changed)

    def start(self) -> None:
        """Take in what is there already; also after the clock was moved."""
        for item in list(self._jobs.table.scan()):
            if _TTL in item.data:
                self.controller.queue.add(item.key)

    def _changed(self, kind: Kind, event: Event) -> None:
        if kind is self._jobs and not event.deleted and _TTL in event.after.data:
            self.controller.queue.add(event.after.key)

    async def _reconcile(self, key: str) -> RequeueAfter | None:
        await asyncio.sleep(0)
        job = self._client.at(self._jobs, key)
        due = expiry(job) if job is not None else None
        if job is None or due is None:
            return None
        left = due - self._time()
        if left > 0:
            return RequeueAfter(left)
        await self._client.delete(self._jobs, job, "Foreground")
        return None

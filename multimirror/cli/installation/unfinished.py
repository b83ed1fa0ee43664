"""Jobs that have not finished when the controller goes: found, waited for, ended.

Only Jobs whose spec.managedBy names one of the given managers are looked at.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

from multimirror.api import CLUSTER_ANNOTATION, QUEUE_LABEL
from multimirror.batch import Json, is_finished
from multimirror.batch.times import format_time
from multimirror.cli.errors import CommandError
from multimirror.kinds import JOB
from multimirror.kube import Client, key_of
from multimirror.kube.errors import Conflict, Gone, NotFound, TimedOut, Unreachable
from multimirror.kube.resources import CRON_JOBS, JOBS

_PAGE: Final = 500
_TRIES: Final = 10
_REASON: Final = "Uninstalled"
_MESSAGE: Final = "multimirror was removed from this cluster before the Job had finished"


async def jobs(client: Client, managers: Collection[str | None]) -> list[Json]:
    """The Jobs that these managers still have to bring to an end (None: Jobs that name none)."""
    return [job for job in (await client.list(JOBS, limit=_PAGE)).items if _is_unfinished(job, managers)]


async def all_finished(client: Client, managers: Collection[str | None], tell: Callable[[int], None]) -> None:
    """Wait until no Job of these managers is unfinished; `tell` hears how many are left whenever that changes."""
    while True:
        found = await client.list(JOBS, limit=_PAGE)
        left = {key_of(job) for job in found.items if _is_unfinished(job, managers)}
        tell(len(left))
        try:
            async with aclosing(client.watch(JOBS, resource_version=found.resource_version, timeout=300)) as events:
                while left:
                    event = await anext(events)
                    if event.type == "BOOKMARK":
                        continue
                    before, key = len(left), key_of(event.object)
                    if event.type != "DELETED" and _is_unfinished(event.object, managers):
                        left.add(key)
                    else:
                        left.discard(key)
                    if len(left) != before:
                        tell(len(left))
                return
        except (StopAsyncIteration, Gone, Unreachable, TimedOut):
            await asyncio.sleep(0.5)  # look again from the beginning


async def fail(client: Client, job: Json) -> bool:
    """Fail a Job that nobody will look after; False when it has ended, or gone, by itself."""
    metadata = job["metadata"]
    for _ in range(_TRIES):
        now = format_time(datetime.now(UTC))
        status = JOB.ended_status(job, now, reason=_REASON, message=_MESSAGE)
        body = {
            "metadata": {"uid": metadata["uid"], "resourceVersion": job["metadata"]["resourceVersion"]},
            "status": {**status, "uncountedTerminatedPods": None},
        }
        try:
            await client.patch(JOBS, metadata["name"], body, metadata["namespace"], subresource="status")
        except NotFound:
            return False
        except Conflict:
            try:
                job = await client.get(JOBS, metadata["name"], metadata["namespace"])
            except NotFound:
                return False
            if job["metadata"]["uid"] != metadata["uid"] or is_finished(job.get("status") or {}):
                return False
        else:
            return True
    raise CommandError(f"Job {key_of(job)} changes all the time and could not be ended", "Run this again.")


async def cron_jobs(client: Client) -> list[str]:
    """CronJobs whose Jobs ask for a queue: without admission they will run on this cluster."""

    def asks(cron_job: Json) -> bool:
        return QUEUE_LABEL in (cron_job["spec"]["jobTemplate"].get("metadata", {}).get("labels") or {})

    return [key_of(each) for each in (await client.list(CRON_JOBS, limit=_PAGE)).items if asks(each)]


def summary(unfinished: list[Json], most: int = 5) -> str:
    """`team/train on east, team/eval (waiting), and 3 more`."""

    def one(job: Json) -> str:
        where = (job["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION)
        return f"{key_of(job)} on {where}" if where else f"{key_of(job)} (waiting)"

    shown = [one(job) for job in unfinished[:most]]
    return ", ".join(shown) + (f", and {len(unfinished) - most} more" if len(unfinished) > most else "")


def _is_unfinished(job: Json, managers: Collection[str | None]) -> bool:
    return job["spec"].get("managedBy") in managers and not is_finished(job.get("status") or {})

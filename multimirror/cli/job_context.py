"""What `why` and `explain` ask about a Job: what stands on the management cluster, and what the dispatcher knows."""

from contextlib import suppress
from typing import Any, Final

from multimirror.api import MIRROR_QUEUES, QUEUE_LABEL, WORKER_CLUSTERS
from multimirror.api.placement import cluster_of
from multimirror.batch import Json
from multimirror.cli import rows
from multimirror.cli.asking import Dispatcher
from multimirror.cli.copies import events_of
from multimirror.cli.errors import CommandError
from multimirror.kinds import JOB, is_held
from multimirror.kube import ApiError, Client, key_of
from multimirror.kube.errors import Forbidden

_ORDINALS: Final = {1: "first", 2: "second", 3: "third"}


async def job_events(client: Client, job: Json) -> list[Json]:
    """None where they may not be read."""
    try:
        return await events_of(client, job)
    except Forbidden:
        return []


async def job_context(client: Client, job: Json, events: list[Json]) -> rows.JobContext:
    found: dict[str, dict[str, Json]] = {"queues": {}, "clusters": {}}
    queue = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    for key, resource, name in (("queues", MIRROR_QUEUES, queue), ("clusters", WORKER_CLUSTERS, cluster_of(job))):
        if name is not None:
            with suppress(ApiError):
                found[key] = {name: await client.get(resource, name)}
    waiting = rows.newest(event for event in events if event.get("reason") == rows.WAITING)
    return rows.JobContext(waiting, found["queues"], found["clusters"])


async def asked_about(dispatcher: Dispatcher, job: Json) -> tuple[Json, str]:
    """What the dispatcher knows of a Job that waits; nothing of any other. And, in words, why it could not be asked."""
    if rows.state_of(job) != rows.WAITING or is_held(JOB, job):
        return {}, ""
    try:
        return await dispatcher.ask("/explain", {"job": key_of(job)}), ""
    except CommandError as error:
        return {}, f"no position and no estimate: {error.message}"


def place_text(told: dict[str, Any]) -> str:
    """Third of 31 in its queue; about 40 min (4 Jobs started in the last hour)."""
    position, pending = told["position"], told.get("pending")
    words = _ORDINALS.get(position, f"number {position}") + (f" of {pending}" if pending is not None else "")
    words += " in its queue"
    seconds, starts = told.get("estimateSeconds"), told.get("startsPerHour")
    if seconds is not None:
        words += f"; starts in {about(seconds)}"
    if seconds is not None and not starts:
        words += " (then enough of what runs must have ended, by its activeDeadlineSeconds)"
    elif starts is not None:
        words += f" ({starts} {'Job' if starts == 1 else 'Jobs'} started in the last hour)"
    return words


def about(seconds: int) -> str:
    """A time that nobody should take for exact."""
    if seconds < 90:
        return "about a minute"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"about {round(seconds / 3600)} h"
    return f"about {round(seconds / 86400)} days"

"""Jobs in whatever state, on both sides, as a dispatcher would have left them; put there while none runs."""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from bench.frame.fleets import EmbeddedFleet
from bench.frame.generator import NAMESPACE, a_job
from bench.frame.results import Recorder
from bench.frame.standin import statuses
from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    RESERVED_ANNOTATION,
    queue_of,
)
from multimirror.api.ownership import Signer
from multimirror.batch import Json
from multimirror.kinds import JOB, CopyOptions
from multimirror.kinds.reserved import reserved_for
from multimirror.kube.resources import JOBS
from multimirror.options import DispatcherOptions
from multimirror.workers import copy_key, identity_of

_CHUNK: Final = 500


class State(Enum):
    """Of a Job."""

    WAITING = auto()
    RUNNING = auto()
    """Assigned, copied, and mirrored as running; for ever."""
    FINISHED = auto()
    KEPT = auto()
    """Finished, and its copy is still there."""


async def fill(recorder: Recorder, fleet: EmbeddedFleet, size: int, state_of: Callable[[int], State]) -> None:
    """So many Jobs, each in the state that its number has."""
    key = await copy_key(fleet.management, DispatcherOptions().namespace)
    signer = Signer(key, await identity_of(fleet.management))
    identities = {name: await identity_of(client) for name, client in fleet.workers.items()}
    workers = list(fleet.workers)
    running, ended = statuses()

    async def one(number: int) -> None:
        job, name, worker = a_job(f"live-{number}"), f"live-{number}", workers[number * len(workers) // size]
        state = state_of(number)
        if state is State.WAITING:
            await fleet.management.create(JOBS, job, NAMESPACE)
            return
        job["spec"]["suspend"] = False
        job["metadata"]["annotations"] = {
            CLUSTER_ANNOTATION: worker,
            ATTEMPT_ANNOTATION: "1",
            ADMITTED_QUEUE_ANNOTATION: queue_of(job) or "",
        }
        made = await fleet.management.create(JOBS, job, NAMESPACE)
        reserved = {RESERVED_ANNOTATION: str(reserved_for(JOB, made))}  # of the template as the server keeps it
        made = await fleet.management.patch(JOBS, name, {"metadata": {"annotations": reserved}}, NAMESPACE)
        shown_by = [fleet.management]
        if state is not State.FINISHED:
            there = fleet.workers[worker]
            await there.create(JOBS, _copy_of(made, signer, identities[worker]), NAMESPACE)
            shown_by.append(there)
        for client in shown_by:
            for status in (running,) if state is State.RUNNING else (running, ended):
                await client.patch(JOBS, name, {"status": status}, NAMESPACE, subresource="status")

    for first in range(0, size, _CHUNK):
        async with asyncio.TaskGroup() as group:
            for number in range(first, min(size, first + _CHUNK)):
                group.create_task(one(number))
        if first and first % 5000 == 0:
            recorder.say(f"{first:,} of {size:,} are there")


def _copy_of(job: Json, signer: Signer, cluster: str) -> Json:
    name, namespace, uid = (job["metadata"][key] for key in ("name", "namespace", "uid"))
    signature = signer.sign(JOBS, cluster=cluster, namespace=namespace, name=name, uid=uid, attempt="1")
    options = CopyOptions(origin=signer.origin, attempt=1, name=name, namespace=namespace, signature=signature)
    return JOB.make_copy(job, options)

"""A hostile worker with one Job writes statuses as fast as it can: little of it reaches the hub's etcd (row 10)."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from multimirror.batch.times import format_time
from multimirror.kube import Change, Client, Informer
from multimirror.kube.errors import ApiError
from multimirror.kube.resources import JOBS
from tests.e2e.dispatching import condition
from tests.security.installation import DispatcherProcess, Installation, a_job
from tests.waiting import eventually

Json = dict[str, Any]
SECONDS = 6.0
ENOUGH = 30
KIB = 1024
TIME = "2026-01-01T00:00:00Z"
TYPES = {"Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"}


async def flood(worker: Client, name: str, namespace: str, conditions: Any) -> float:
    """Another status each time, for a while, and not before there were enough of them; gives how long that took."""
    loop, count = asyncio.get_running_loop(), 0
    begins = loop.time()
    while loop.time() < begins + SECONDS or count < ENOUGH:
        with contextlib.suppress(ApiError):
            await worker.patch(
                JOBS, name, {"status": {"conditions": conditions(count)}}, namespace, subresource="status"
            )
            count += 1
    return loop.time() - begins


def huge(number: int) -> list[Json]:
    """What the Job API does not know, and much of it."""
    return [
        {"type": f"attacker.example/{each}", "status": "True", "message": f"{number}" + "x" * 20_000}
        for each in range(20)
    ]


def loud(number: int) -> list[Json]:
    """What the Job API knows, and a terminal obeys."""
    message = f"\x1b]52;c;{number}\x07" + "y" * 20_000
    return [{"type": "Suspended", "status": "False", "message": message, "lastTransitionTime": TIME}]


async def test_one_worker_with_one_job_fills_nobodys_etcd(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue, tenant = await installation.queue("statuses"), await installation.tenant("statuses")
    await tenant.create(a_job("chatty", queue))
    job = await tenant.until("chatty", lambda found: (found.get("status") or {}).get("active"))
    where, _ = await installation.copy_of(job)
    worker = await installation.forger(where)
    written: list[int] = []
    seen: list[Json] = []

    def changed(change: Change) -> None:
        if change.new is not None and not change.initial:
            written.append(len(json.dumps(change.new)))
            seen.append(change.new)

    async with Informer(installation.admin, JOBS, tenant.namespace, trim=lambda obj: obj) as jobs:
        await jobs.synced()
        jobs.add_handler(changed)
        took = sum([await flood(worker, "chatty", tenant.namespace, conditions) for conditions in (huge, loud)])
        assert len(written) <= 10 + took + 4, "ten at once, and one a second"
        assert sum(written) <= (10 + took + 4) * 8 * KIB, "of what this Job can need"
        await end(worker, tenant.namespace)
        await tenant.until_complete("chatty")
    for each in seen:
        for found in each["status"].get("conditions") or ():
            assert found["type"] in TYPES
            message = found.get("message", "")
            assert len(message.encode()) <= KIB
            assert message.isprintable()
    assert dispatcher.alive


async def end(worker: Client, namespace: str) -> None:
    """The worker says that it is complete."""
    terminal = [
        {"type": kind, "status": "True", "lastProbeTime": TIME, "lastTransitionTime": TIME}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    now = format_time(datetime.now(UTC) + timedelta(seconds=1))
    ended = {"active": 0, "ready": 0, "terminating": 0, "succeeded": 1, "completionTime": now}
    status = {**ended, "uncountedTerminatedPods": None, "conditions": terminal}

    async def said() -> bool:
        found = await worker.patch(JOBS, "chatty", {"status": status}, namespace, subresource="status")
        return bool(condition(found, "Complete"))

    await eventually(said)

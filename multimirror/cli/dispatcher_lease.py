"""Does a dispatcher run? Its Lease says so: by its time, or, where clocks differ, by being renewed while we look."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from multimirror.kube import ApiError, Client, Object
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import LEASES

LEASE: Final = "multimirror-dispatcher"
_LOOK_SECONDS: Final = 6.0
"""Renewed every two seconds: whoever does not in this time is not there."""
START: Final = "Start one: `multimirror run`, or `multimirror install` to run it in the cluster."


@dataclass(frozen=True, slots=True)
class DispatcherStatus:
    """What the Lease tells. `alive`: somebody holds it and renews it."""

    alive: bool
    message: str
    has_lease: bool = True
    """A dispatcher that was started without leader election has none."""


async def dispatcher_status(client: Client, namespace: str) -> DispatcherStatus:
    try:
        lease = await client.get(LEASES, LEASE, namespace)
    except NotFound:
        message = f"there is no Lease {namespace}/{LEASE}: no dispatcher has run here"
        return DispatcherStatus(alive=False, message=message, has_lease=False)
    holder = (lease.get("spec") or {}).get("holderIdentity")
    if not holder:
        return DispatcherStatus(alive=False, message="the dispatcher has stopped: nobody holds its Lease")
    if is_fresh(lease, datetime.now(UTC)) or await _renewed(client, namespace, lease):
        return DispatcherStatus(alive=True, message=f"{holder} leads")
    renewed = lease["spec"].get("renewTime")
    return DispatcherStatus(alive=False, message=f"{holder} held the Lease, and has not renewed it since {renewed}")


def is_fresh(lease: Object, now: datetime) -> bool:
    spec = lease.get("spec") or {}
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime")))
    except ValueError:
        return False
    return abs((now - renewed).total_seconds()) <= float(spec.get("leaseDurationSeconds") or 15)


async def _renewed(client: Client, namespace: str, lease: Object) -> bool:
    """Whether it changes while we look."""
    version = lease["metadata"]["resourceVersion"]
    selector = f"metadata.name={LEASE}"
    try:
        async with (
            asyncio.timeout(_LOOK_SECONDS),
            aclosing(client.watch(LEASES, namespace, resource_version=version, field_selector=selector)) as events,
        ):
            async for event in events:
                if event.type == "MODIFIED" and (event.object.get("spec") or {}).get("holderIdentity"):
                    return True
    except (TimeoutError, ApiError):
        pass
    return False

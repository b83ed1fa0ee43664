"""When the dispatcher has done all there is to do, seen from outside: by what it asks for, and by what it counts."""

import asyncio

from bench.frame.fleets import EmbeddedFleet
from bench.frame.meters import OURS, Asked


def difference(before: dict[Asked, int], after: dict[Asked, int]) -> dict[Asked, int]:
    """What we have asked for in between."""
    grown = {key: count - before.get(key, 0) for key, count in after.items() if key.who == OURS}
    return {key: count for key, count in grown.items() if count}


def work(asked: dict[Asked, int]) -> dict[Asked, int]:
    """Without upkeep, and without a WorkerCluster's lastContact: a heartbeat for people, about once a minute."""
    contact = ("patch", "workerclusters/status")
    return {key: n for key, n in asked.items() if not key.is_upkeep and (key.verb, key.resource) != contact}


async def quiet(fleet: EmbeddedFleet) -> None:
    """Until we ask for nothing more: events, and the status of our own objects, are written behind the work."""
    before: dict[Asked, int] = {}
    while work(difference(before, after := await fleet.servers.requests())):
        before = after
        await asyncio.sleep(1.5)


async def looked_at(fleet: EmbeddedFleet, size: int) -> None:
    """Until a dispatcher that was just started has looked at so many Jobs, and none is left."""
    async with asyncio.timeout(300):
        while not await _looked_at(fleet, size):
            await asyncio.sleep(0.25)


async def _looked_at(fleet: EmbeddedFleet, size: int) -> bool:
    found = await fleet.dispatcher.metrics()
    looked = sum(value for name, value in found.items() if name.startswith("controller_runtime_reconcile_total")
                 and 'controller="management"' in name)  # fmt: skip
    return looked >= size and not found.get('workqueue_depth{name="management"}', 1.0)

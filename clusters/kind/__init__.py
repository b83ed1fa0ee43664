"""Real clusters in Docker: kind configurations and their driver.

async with open_fleet("kind", KindOptions(workers=2, images=["multimirror:dev"])) as fleet:
    fleet.workers["worker-1"].internal_kubeconfig   # for the Secret that a WorkerCluster names
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from clusters.kind.commands import CommandError, NotPossibleError
from clusters.kind.fleet import KindCluster, KindFleet, remove_fleet
from clusters.kind.node_image import choose, ensure
from clusters.kind.options import KindOptions
from clusters.kind.preflight import gather, problems, warnings
from clusters.kind.records import sweep

__all__ = [
    "CommandError",
    "KindCluster",
    "KindFleet",
    "KindOptions",
    "NotPossibleError",
    "look",
    "remove_fleet",
    "sweep",
    "unavailable",
]


def unavailable() -> str | None:
    """Why no kind cluster can be made here (the size of a fleet aside); None when it can. Pulls the node image."""
    with ThreadPoolExecutor(1) as aside:  # the caller's thread may have an event loop running
        reason, _ = aside.submit(lambda: asyncio.run(look())).result()
    return reason


async def look() -> tuple[str | None, list[str]]:
    """The same, with what is no obstacle yet and may become one."""
    try:
        facts = await gather()
        found = problems(facts, [])
        if not found:
            await ensure(choose(None, None, facts.present_images), facts.present_images)
    except (NotPossibleError, CommandError) as error:
        return str(error), []
    return "; ".join(found) or None, warnings(facts)

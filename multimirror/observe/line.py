"""Who is where in a queue, and when it may start: from the order in which the queue would be placed.

The order is the scheduler's own, gone through as if there were room for one after the other (`FleetState.line`):
priorities, the turns of namespaces, age. Of a backlog of tens of thousands that takes a while, so it is done in slices,
with pauses in between, and given up after three seconds; then there is no position, and nothing is made up.

The estimate is what those before it and it itself ask for, over what the queue started in the last hour, for the
resource for which that takes longest. (With those before it alone, the first would start at once, and it waits.) The
first starts sooner if enough of what runs must have ended before that, by its deadlines (`scheduling/deadlines.py`).
There is none where neither is known, nor for one that waits for somebody to change something.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from multimirror.observe.sharing import RecentStarts
from multimirror.observe.slices import Slices, TooLong
from multimirror.observe.snapshot import FleetState, InLine

_FOR_A_CHANGE: Final = frozenset(
    ("NeverFits", "Invalid", "QueueMissing", "Held", "Draining", "Cycle", "NoWorkers", "OwnQuotaOnly")
)
"""Reasons to wait that time does not take away, or not by the queue's going on."""
_FOR_OTHERS_TO_END: Final = frozenset(("NoWorkerFits", "QuotaExceeded", "CohortFull", "NobodyToStop", "Protected"))
_FARTHEST_SECONDS: Final = 366 * 24 * 3600
"""Nobody knows what is later than that; and what people ask for may be later than any calendar goes."""


@dataclass(frozen=True, slots=True)
class Place:
    """One that waits, and where."""

    position: int
    """From 1."""
    job: InLine
    ahead: Mapping[str, int]
    """What those before it and it itself ask for, in billionths."""


async def places(state: FleetState, queue: str) -> AsyncGenerator[Place, None]:
    """Everybody in the queue, one after the other; fewer where that takes too long."""
    ahead: dict[str, int] = {}
    position, slices = 0, Slices()
    for job in state.line(queue):
        try:
            await slices.pause()
        except TooLong:
            return
        if job is None:
            continue
        for name, amount in job.requests.items():
            ahead[name] = ahead.get(name, 0) + amount
        if not job.grows:
            position += 1
            yield Place(position, job, dict(ahead))


async def place_of(state: FleetState, queue: str, uid: str) -> Place | None:
    """None: it does not wait there, or the queue is too long."""
    async with aclosing(places(state, queue)) as found:
        async for place in found:
            if place.job.uid == uid:
                return place
    return None


def estimate(state: FleetState, queue: str, place: Place, reason: str) -> int | None:
    """In how many seconds it may start; None: nobody can say."""
    if reason in _FOR_A_CHANGE:
        return None
    found = [_by_starts(place, state.recent_starts(queue))]
    if place.position == 1 and reason in _FOR_OTHERS_TO_END:
        ends = state.starts_by_deadlines(place.job.uid)
        found.append(round(ends) if ends is not None else None)
    return min((each for each in found if each is not None and each <= _FARTHEST_SECONDS), default=None)


def _by_starts(place: Place, starts: RecentStarts | None) -> int | None:
    if starts is None:
        return None
    hours = [amount / starts.sizes[name] for name, amount in place.ahead.items() if amount and starts.sizes.get(name)]
    unknown = any(amount and not starts.sizes.get(name) for name, amount in place.job.requests.items())
    return round(3600 * max(hours)) if hours and not unknown else None

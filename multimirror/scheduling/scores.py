"""Which of the workers that would do: a score for each, the lowest is taken.

    Spread     the worker that is least full, then the one with the fewest of our Jobs
    Pack       the fullest that still has room
    Ordered    the first in the queue's order that has room
    Weighted   the worker with the fewest Jobs for its weight

Equal scores go to the heavier one, then by name, so that the same caches always give the same answer.
"""

from collections.abc import Iterable

from multimirror.api import Placement
from multimirror.scheduling.filters import WorkerInfo
from multimirror.scheduling.order import Asked


def best_first(placement: Placement, asked: Asked, workers: Iterable[WorkerInfo]) -> Iterable[WorkerInfo]:
    """Workers that come in the queue's order, in the order in which they are to be taken."""
    if placement is Placement.ORDERED:
        return workers
    scored = [(*_score(placement, asked, info), info.name, info) for info in workers]
    return (entry[-1] for entry in sorted(scored))


def _score(placement: Placement, asked: Asked, info: WorkerInfo) -> tuple[float, float, int]:
    """The lower, the better."""
    weight, jobs = info.snapshot.spec.weight, info.usage.jobs
    match placement:
        case Placement.WEIGHTED:
            return ((jobs + 1) / weight, 0, -weight)
        case Placement.PACK:
            return (-info.fullness(asked), -jobs, -weight)
        case _:
            return (info.fullness(asked), jobs, -weight)

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

_Scored = list[tuple[float, float, int, str, WorkerInfo]]


def best_first(placement: Placement, asked: Asked, workers: Iterable[WorkerInfo]) -> Iterable[WorkerInfo]:
    """Workers that come in the queue's order, in the order in which they are to be taken."""
    match placement:
        case Placement.ORDERED:
            return workers
        case Placement.WEIGHTED:
            scored: _Scored = [((w.usage.jobs + 1) / w.weight, 0, -w.weight, w.name, w) for w in workers]
        case Placement.PACK:
            scored = [(-w.fullness(asked), -w.usage.jobs, -w.weight, w.name, w) for w in workers]
        case _:
            scored = [(w.fullness(asked), w.usage.jobs, -w.weight, w.name, w) for w in workers]
    return (entry[-1] for entry in sorted(scored))

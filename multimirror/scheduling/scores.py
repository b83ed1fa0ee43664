"""Which of the workers that would do: a score for each, the lowest is taken.

    Spread     the worker that is least full, then the one with the fewest of our Jobs
    Pack       the fullest that still has room
    Ordered    the first in the queue's order that has room
    Weighted   the worker with the fewest Jobs for its weight

Equal scores go to the heavier one, then by name, so that the same caches always give the same answer.

In a pass, thousands ask for the same, and each that is placed changes one worker. So who asks for the same of the same
workers looks at one `Ranking`, in which only those are scored again that have changed since it was last looked at.
"""

import heapq
from collections.abc import Mapping, Sequence
from itertools import count

from multimirror.api import Placement
from multimirror.scheduling.filters import WorkerInfo, has_room, is_welcome
from multimirror.scheduling.waiting import Waiter

_Score = tuple[float, float, int, str]
_Entry = tuple[_Score, int, WorkerInfo]
"""With a number: no two are equal, for one worker may have the same score again."""


class Ranking:
    """The workers that have room for what one waiter asks for, and all others that ask for the same."""

    def __init__(self, placement: Placement, waiter: Waiter, names: Sequence[str]) -> None:
        """`names`: of the workers, in the queue's order."""
        self._placement, self._waiter = placement, waiter
        self._places = {name: place for place, name in enumerate(names)}
        self._seen = -1
        """How many changes were looked at; less than none: it was never looked at."""
        self._heap: list[_Entry] = []
        self._numbers = count()

    def best(self, waiter: Waiter, workers: Mapping[str, WorkerInfo], changed: Sequence[str]) -> WorkerInfo | None:
        """The one to take; None: none has room that would take it. `changed`: the names of the workers that are others
        since the pass began, one after the other."""
        self._catch_up(workers, changed)
        heap = self._heap
        while heap:
            info = heap[0][2]
            if workers[info.name] is not info:
                heapq.heappop(heap)
            elif is_welcome(waiter.candidate, info):
                return info
            else:
                return self._best_of_others(waiter, workers)
        return None

    def is_empty(self, workers: Mapping[str, WorkerInfo], changed: Sequence[str]) -> bool:
        """None has room for what is asked for, whoever asks."""
        self._catch_up(workers, changed)
        heap = self._heap
        while heap and workers[heap[0][2].name] is not heap[0][2]:
            heapq.heappop(heap)
        return not heap

    def _best_of_others(self, waiter: Waiter, workers: Mapping[str, WorkerInfo]) -> WorkerInfo | None:
        """Its own wishes do not let it go to the first."""
        ranked = (info for *_, info in sorted(self._heap) if workers[info.name] is info)
        return next((info for info in ranked if is_welcome(waiter.candidate, info)), None)

    def _catch_up(self, workers: Mapping[str, WorkerInfo], changed: Sequence[str]) -> None:
        if self._seen == len(changed):
            return
        if self._seen < 0 or len(changed) - self._seen > len(self._places) or len(self._heap) > 2 * len(self._places):
            self._score_all(workers)
        else:
            for name in set(changed[self._seen :]) & self._places.keys():
                if has_room(self._waiter, workers[name]):
                    heapq.heappush(self._heap, self._entry(workers[name]))
        self._seen = len(changed)

    def _score_all(self, workers: Mapping[str, WorkerInfo]) -> None:
        there = (workers[name] for name in self._places)
        self._heap = [self._entry(info) for info in there if has_room(self._waiter, info)]
        heapq.heapify(self._heap)

    def _entry(self, info: WorkerInfo) -> _Entry:
        return self._score(info), next(self._numbers), info

    def _score(self, info: WorkerInfo) -> _Score:
        match self._placement:
            case Placement.ORDERED:
                return self._places[info.name], 0, 0, info.name
            case Placement.WEIGHTED:
                return (info.usage.jobs + 1) / info.weight, 0, -info.weight, info.name
            case Placement.PACK:
                return -info.fullness(self._waiter.asked), -info.usage.jobs, -info.weight, info.name
            case _:
                return info.fullness(self._waiter.asked), info.usage.jobs, -info.weight, info.name

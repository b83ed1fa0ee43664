"""What this process has placed of each queue in the last hour, and how long it had waited: for estimates.

Kept in memory, a little for each queue, and forgotten by a restart: then, and after another replica has come to lead,
the hour begins anew. Starts are counted by the minute; of waits the latest are kept, which are those of the last hour
where fewer were placed. Only a first placement is a wait: one that is placed again has waited for other reasons.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final

from multimirror.api.placement import admitted_queue_of, attempt_of
from multimirror.batch import Json
from multimirror.batch.times import seconds_of
from multimirror.kinds.pod_sets import Amounts
from multimirror.kinds.reserved import reserved_of
from multimirror.observe.sharing import RecentStarts

_MINUTES: Final = 60
_WAITS: Final = 100
_MOST_QUEUES: Final = 4096


class _Minute:
    __slots__ = ("jobs", "number", "sizes")

    def __init__(self, number: int) -> None:
        self.number, self.jobs = number, 0
        self.sizes: dict[str, int] = {}


class _Queue:
    __slots__ = ("minutes", "waits")

    def __init__(self) -> None:
        self.minutes: deque[_Minute] = deque(maxlen=_MINUTES)
        self.waits: deque[tuple[float, float]] = deque(maxlen=_WAITS)
        """When it was placed, and how long it had waited."""


class StartRates:
    """By queue. `clock` gives seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: dict[str, _Queue] = {}

    def assigned(self, obj: Json) -> None:
        """An object was given to a worker, and this is what the API server has of it."""
        queue, reserved = admitted_queue_of(obj), reserved_of(obj)
        if queue is None or reserved is None:
            return
        created = seconds_of(obj["metadata"].get("creationTimestamp"), self._clock())
        self.placed(queue, reserved.requests, self._clock() - created if attempt_of(obj) == 1 else None)

    def placed(self, queue: str, sizes: Amounts, waited: float | None) -> None:
        now = self._clock()
        found = self._of(queue)
        number = int(now // 60)
        if not found.minutes or number > found.minutes[-1].number:  # a clock may go back
            found.minutes.append(_Minute(number))
        minute = found.minutes[-1]
        minute.jobs += 1
        for name, amount in sizes.items():
            minute.sizes[name] = minute.sizes.get(name, 0) + amount
        if waited is not None:
            found.waits.append((now, max(0.0, waited)))

    def recent(self, queue: str) -> RecentStarts | None:
        """None: nothing was placed in the last hour."""
        found, now = self._queues.get(queue), self._clock()
        if found is None:
            return None
        first = int(now // 60) - _MINUTES
        minutes = [minute for minute in found.minutes if minute.number > first]
        if not minutes:
            return None
        sizes: dict[str, int] = {}
        for minute in minutes:
            for name, amount in minute.sizes.items():
                sizes[name] = sizes.get(name, 0) + amount
        waits = sorted(waited for at, waited in found.waits if at > now - 60 * _MINUTES)
        return RecentStarts(
            jobs=sum(minute.jobs for minute in minutes),
            sizes=sizes,
            p50=_percentile(waits, 0.5),
            p90=_percentile(waits, 0.9),
        )

    def _of(self, name: str) -> _Queue:
        """Of queues that come and go, those are forgotten of which nothing was placed for longest."""
        found = self._queues.pop(name, None) or _Queue()
        self._queues[name] = found
        if len(self._queues) > _MOST_QUEUES:
            del self._queues[next(iter(self._queues))]
        return found


def _percentile(values: list[float], part: float) -> float | None:
    """The smallest that so many are not above; `values` are sorted."""
    return values[math.ceil(part * len(values)) - 1] if values else None

"""How many copies each worker holds, by state: counted now and then, in slices, since there may be tens of thousands.

The more there are, the more seldom they are counted: it takes about a thousandth of the time, however many there are.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

_SLICE: Final = 500
_COPIES_PER_SECOND: Final = 1000
"""So many are counted in a second, on average."""


class CopyCounter:
    """Times are the event loop's."""

    def __init__(self, *, shortest_interval: float) -> None:
        self._shortest_interval = shortest_interval
        self._counts: dict[str, Counter[str]] = {}
        self._due: dict[str, float] = {}

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """By worker and state, as counted last."""
        return self._counts

    def is_due(self, worker: str) -> bool:
        return asyncio.get_running_loop().time() >= self._due.get(worker, float("-inf"))

    async def count(self, worker: str, states: Iterable[str]) -> None:
        counts: Counter[str] = Counter()
        loop = asyncio.get_running_loop()
        self._due[worker] = loop.time() + self._shortest_interval
        for number, state in enumerate(states, start=1):
            counts[state] += 1
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self._counts[worker] = counts
        self._due[worker] = loop.time() + max(self._shortest_interval, counts.total() / _COPIES_PER_SECOND)

    def keep(self, workers: Collection[str]) -> None:
        """Forget all others."""
        for worker in self._due.keys() - workers:
            del self._due[worker]
            self._counts.pop(worker, None)

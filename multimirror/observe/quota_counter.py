"""What queues have, use, borrow and lend: counted now and then, in slices, since there may be thousands of queues.

The more there are, the more seldom they are counted: it takes about a twentieth of the time at most. What was counted
last stays until everything is counted anew.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final

from multimirror.kinds.pod_sets import Amounts, amounts_of
from multimirror.observe.quotas import Quotas
from multimirror.observe.snapshot import FleetState
from multimirror.scheduling.past_use import PastUses

_SLICE: Final = 500
_TIMES_AS_LONG: Final = 20
_MUCH_SECONDS: Final = 0.05
"""What takes less is counted whenever queues are reported on: once a second at most."""


class QuotaCounter:
    """Times are the event loop's."""

    def __init__(
        self, state: FleetState, past_uses: PastUses | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`past_uses` are told what everybody uses, whenever it was counted. `clock` gives seconds since 1970."""
        self._state, self._past_uses, self._clock = state, past_uses or PastUses(), clock
        self.counted: Quotas | None = None
        """None: nothing yet."""
        self._due = float("-inf")

    async def count(self) -> None:
        """If it is due."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._due:
            return
        queues, cohorts = self._state.queue_specs, self._state.cohort_specs
        busy, started = 0.0, time.perf_counter()
        quotas = Quotas(queues, cohorts, before=self.counted)
        waiting = await self._waiting() if any(spec.cohort is not None for spec in queues.values()) else {}
        steps = chain(quotas.count(self._usage, waiting), quotas.observe(self._past_uses, self._clock()))
        for _ in steps:
            busy += time.perf_counter() - started
            await asyncio.sleep(0)
            started = time.perf_counter()
        busy += time.perf_counter() - started
        self.counted = quotas
        self._due = loop.time() + (_TIMES_AS_LONG * busy if busy > _MUCH_SECONDS else 0.0)

    def _usage(self, queue: str) -> tuple[int, Amounts]:
        usage = self._state.queue_usage(queue)
        return usage.jobs, amounts_of(usage.resources)

    async def _waiting(self) -> Mapping[str, Amounts]:
        """What all that waits asks for, by queue."""
        found: dict[str, dict[str, int]] = {}
        for number, (queue, requests) in enumerate(self._state.waiting_requests(), 1):
            sums = found.setdefault(queue, {})
            for name, amount in requests.items():
                sums[name] = sums.get(name, 0) + amount
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        return found

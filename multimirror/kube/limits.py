"""How much may be asked of one API server at once, and per second.

More than about 16 requests in flight only queue up inside the server; a rate is for servers that are shared with
people.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Limits:
    """At most `concurrency` at once, and `qps` per second in the long run, with bursts of two seconds' worth, or of
    `burst` requests."""

    def __init__(self, concurrency: int, qps: float | None = None, burst: int | None = None) -> None:
        if concurrency < 1 or (qps is not None and qps <= 0):
            raise ValueError("concurrency must be at least 1, and qps positive (or None for no limit)")
        self._slots = asyncio.Semaphore(concurrency)
        self._interval = 1 / qps if qps else 0.0
        self._burst = 2.0 if burst is None else burst * self._interval
        self._free_at = float("-inf")

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for leave to send one request."""
        async with self._slots:
            if self._interval:
                await self._pace()
            yield

    async def _pace(self) -> None:
        """Requests reserve moments on a line, one interval apart; a line that lies in the past is a saved-up burst."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now - self._burst) + self._interval
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)

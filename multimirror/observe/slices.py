"""Answers that take a while, made on the event loop: a few milliseconds of work, as long a pause, and an end.

Whoever asks over HTTP gets an answer within four seconds or none (kube/pages.py), so three is the end.
"""

import asyncio
import time
from typing import Final

_SLICE_SECONDS: Final = 0.005
_MOST_SECONDS: Final = 3.0


class TooLong(Exception):  # noqa: N818 - no error, but an end
    """There is no time left."""


class Slices:
    """Begins when it is made."""

    def __init__(self) -> None:
        self._end = asyncio.get_running_loop().time() + _MOST_SECONDS
        self._started = time.perf_counter()

    async def pause(self) -> None:
        """Where it is due. Raises TooLong."""
        took = time.perf_counter() - self._started
        if took < _SLICE_SECONDS:
            return
        await asyncio.sleep(took)
        if asyncio.get_running_loop().time() > self._end:
            raise TooLong
        self._started = time.perf_counter()

"""Waiting in tests: for what must become so, never for a time. How long that takes is up to the machine, which may be
busy, so there is one deadline for all, far beyond what anything takes; what is asserted does not depend on it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

DEADLINE: Final = 150.0
"""Seconds. A test's own time limit (pytest-timeout) is longer than one such wait."""
_EVERY: Final = 0.05

_T = TypeVar("_T")


async def eventually(
    ask: Callable[[], Awaitable[_T]], so: Callable[[_T], object] = bool, *, within: float = DEADLINE
) -> _T:
    """The answer, as soon as it is so; without more words, as soon as it is anything but nothing."""
    answer: object = None
    try:
        async with asyncio.timeout(within):
            while not so(found := await ask()):
                answer = found
                await asyncio.sleep(_EVERY)
    except TimeoutError:
        raise AssertionError(f"it did not become so in {within:g} s; the last answer: {answer!r}") from None
    return found


def awaited(ask: Callable[[], _T], so: Callable[[_T], object] = bool) -> _T:
    """The same for tests without an event loop."""
    ends = time.monotonic() + DEADLINE
    while not so(answer := ask()):
        assert time.monotonic() < ends, f"it did not become so in {DEADLINE:g} s; the last answer: {answer!r}"
        time.sleep(_EVERY)
    return answer

"""When a request may be sent again, and after how long: our rules, tenacity's machinery.

A request that succeeds never comes here; the first failure brings it in. Reads are repeated after any passing fault,
writes only when the server certainly did not act (429, or nothing was sent). Half of each wait is certain, so that
nothing spins, and half is random, so that a thousand clients that failed together do not come back together. A server's
Retry-After is the least that is waited, and no wait may reach past the request's deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import tenacity

from .errors import ApiError, ServerError, TooManyRequests, Unauthorized, Unreachable

READS: Final = frozenset({"GET"})
_TRIES: Final = 6
_HALF_A_WAIT: Final = {"multiplier": 0.05, "max": 5.0}
_BACKOFF: Final = tenacity.wait_exponential(**_HALF_A_WAIT) + tenacity.wait_random_exponential(**_HALF_A_WAIT)

Answer = TypeVar("Answer")


def repeatable(error: ApiError, *, reads: bool) -> bool:
    """Whether the same request may be sent again after this."""
    if isinstance(error, TooManyRequests):
        return error.retry_after is not None  # without it, 429 is an eviction that a budget forbids
    if isinstance(error, Unreachable):
        return not error.outcome_unknown
    return reads and isinstance(error, ServerError) and error.status != 501


async def again(
    attempt: Callable[[], Awaitable[Answer]],
    failure: ApiError,
    *,
    reads: bool,
    ends: float,
    renew: Callable[[], bool],
) -> Answer:
    """Try again after a first failure, for as long as that is safe and there is time until `ends` (loop's clock).

    `renew` is asked once when we were not let in: whether there are other credentials to try.
    """
    made = [failure]
    renewed = False

    async def next_try() -> Answer:
        if made:
            raise made.pop()  # the first one was made before tenacity came in
        return await attempt()

    def worth_it(error: BaseException) -> bool:
        nonlocal renewed
        if isinstance(error, Unauthorized) and not renewed:
            renewed = True
            return renew()
        return isinstance(error, ApiError) and repeatable(error, reads=reads)

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, Unauthorized):
            return 0.0
        return max(_BACKOFF(state), (isinstance(error, ApiError) and error.retry_after) or 0.0)

    def enough(state: tenacity.RetryCallState) -> bool:
        late = asyncio.get_running_loop().time() + state.upcoming_sleep >= ends
        return late or state.attempt_number >= _TRIES

    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(worth_it),
        wait=wait,
        stop=enough,
        sleep=asyncio.sleep,
        reraise=True,
    )
    return await retrying(next_try)

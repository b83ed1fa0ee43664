"""A worker's account is tried before its token is stored, with the questions that the dispatcher will ask.

Roles take effect a moment after they were written, and the API server of a cluster that is busy or has just been
started may be slow to answer: both are waited for, and said. A question leaves nothing behind, so it may be repeated.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from multimirror.cli.progress import Progress
from multimirror.kube import ApiError, Client
from multimirror.kube.errors import Forbidden, ServerError, TimedOut, TooManyRequests, Unauthorized, Unreachable
from multimirror.workers.probe import Facts, check

_SETTLE_SECONDS: Final = 20.0
"""For roles to take effect, however little patience was asked for."""
_SOON, _LATER = 0.1, 1.0
"""Seconds before the next try: of a server that answers, and of one that has trouble with that."""


async def try_account(client: Client, namespaces: Sequence[str] | None, *, patience: float) -> Facts:
    """What the account behind `client` may do. Gives up after `patience` seconds, with the last fault or answer."""
    loop = asyncio.get_running_loop()
    settled = loop.time() + _SETTLE_SECONDS
    ends = max(settled, loop.time() + patience)
    progress = Progress()
    while True:
        pause = _SOON
        try:
            facts = await check(client, namespaces)
        except (Unauthorized, Forbidden):
            if loop.time() > settled:
                raise
        except (TimedOut, Unreachable, ServerError, TooManyRequests) as error:
            if loop.time() > ends:
                raise
            progress.say(_waiting(error))
            pause = _LATER
        else:
            if not facts.missing or loop.time() > settled:
                return facts
        await asyncio.sleep(pause)


def _waiting(error: ApiError) -> str:
    return f"waiting for worker {error.cluster}, which is slow to say what its account may do: {error.message}"

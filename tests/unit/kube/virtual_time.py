"""Time that passes only when nothing else can happen: leases and back-off take no time and can be asserted exactly."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

_GRACE = 0.002  # real seconds for bytes that are on their way through the loopback


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def __init__(self, grace: float) -> None:
        super().__init__()
        self._grace = grace

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(self._grace)
        if not ready:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when all is quiet. Sockets work as usual (`grace`: real seconds
    that bytes may take; 0 where there are none)."""

    def __init__(self, grace: float = _GRACE) -> None:
        self._virtual = _Selector(grace)
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run this test on virtual time. Async fixtures live on another loop: open what you need inside the test."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run

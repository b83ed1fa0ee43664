"""What a leader's writes pass: a check before each of them, and a count of those that are on their way.

Whoever gives a lease back has to know that nothing it sent can still arrive: the next leader begins at once. So the
answers of writes are waited for first (`settled`), and one that its sender gave up on before its time was over, as a
task does that is cancelled, is remembered (`gave_up_within`): it may arrive yet. One whose own deadline has passed is
not: it was taken back as far as it had not arrived, and its sender has gone on as anybody does after that.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self


class WriteGuard:
    """`check` raises where nothing may be written."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check
        self.on_their_way = 0
        self._none = asyncio.Event()
        self._gave_up_at = float("-inf")

    def sending(self) -> "Sending":
        """Around one write."""
        return Sending(self)

    async def settled(self, seconds: float) -> bool:
        """Wait so long for the answers of what is on its way; whether all have come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.on_their_way:
                    self._none.clear()
                    await self._none.wait()
        return not self.on_their_way

    def gave_up_within(self, seconds: float) -> bool:
        """Whether a write was cancelled on its way in the last so many seconds."""
        return asyncio.get_running_loop().time() - self._gave_up_at < seconds

    def left(self) -> None:
        self.on_their_way += 1

    def ended(self, *, cancelled: bool) -> None:
        self.on_their_way -= 1
        if not self.on_their_way:
            self._none.set()
        if cancelled:
            self._gave_up_at = asyncio.get_running_loop().time()


class Sending:
    """One write, from when it leaves until it is answered or given up."""

    __slots__ = ("_guard", "_left")

    def __init__(self, guard: WriteGuard) -> None:
        self._guard, self._left = guard, False

    def leave(self) -> None:
        """To be called right before it is sent. What the check raises stops it."""
        self._guard.check()
        self._guard.left()
        self._left = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._left:
            self._guard.ended(cancelled=isinstance(error, asyncio.CancelledError))

"""The work queue: keys, not events. What happened does not matter, only that something did.

Guarantees:
- a key waits at most once, however often it is added; added while it is being worked on, it comes back afterwards;
- no key is worked on by two workers at once;
- a higher priority goes first (live changes before the flood at start-up), and within one priority first come, first
  served; with `group` (a tenant's namespace, say) the groups of one priority take turns, and a thousand keys of one of
  them do not delay the first key of another;
- a key that fails comes back after a growing, jittered wait; `forget` ends the growth.

A key is anything hashable that says what to look at; text (`namespace/name`) unless said otherwise. Keys need no order.

Of what is handed out one in eight is of the lowest priority that waits: a stream of changes that never ends delays the
rest, and does not starve it. After `close`, nothing can be added any more and waits that are pending are
forgotten: whoever starts next finds the work again by reading.
"""

import asyncio
import contextlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, Generic

from . import metrics
from .backoff import ceiling
from .turns import Turns

if TYPE_CHECKING:  # defaults of type variables come with Python 3.13; checkers know them already
    from typing_extensions import TypeVar

    K = TypeVar("K", bound=Hashable, default=str)
else:
    from typing import TypeVar

    K = TypeVar("K", bound=Hashable)

LIVE: Final = 0
"""The priority of what just happened."""
BULK: Final = -100
"""The priority of what was there before: first lists, periodic checks."""
_LOWEST_EVERY: Final = 8


class QueueClosed(Exception):  # noqa: N818 - not a fault
    """There is nothing more to do, and there will not be."""


class WorkQueue(Generic[K]):
    """Keys that want attention. Made and used on one event loop."""

    def __init__(
        self,
        name: str,
        *,
        group: Callable[[K], Hashable] | None = None,
        backoff_initial: float = 0.05,
        backoff_maximum: float = 300.0,
    ) -> None:
        """`group` is asked when a key is added; without it all keys are in one line."""
        self.name = name
        self._group = group
        self._backoff = (backoff_initial, backoff_maximum)
        self._jitter = random.Random()  # noqa: S311 - not a secret
        self._lines: dict[int, Turns[K, float]] = {}  # by priority, none of them empty; each key: since
        self._waiting: dict[K, tuple[int, Hashable]] = {}  # key: (priority, group)
        self._handed_out = 0
        self._running: dict[K, float] = {}  # key: since
        self._again: dict[K, int] = {}  # added while running: priority
        self._later: list[tuple[float, int, K, int]] = []  # (when, order, key, priority); stale ones are skipped
        self._due: dict[K, float] = {}  # key: the earliest moment in _later
        self._failures: dict[K, int] = {}
        self._order = 0  # none comes twice in the heap, so that keys are never compared
        self._timer: asyncio.Handle | None = None  # set for `_alarm`
        self._alarm = 0.0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._depth = metrics.QUEUE_DEPTH.labels(name)
        self._adds = metrics.QUEUE_ADDS.labels(name)
        self._retries = metrics.QUEUE_RETRIES.labels(name)
        self._waits = metrics.QUEUE_WAIT_SECONDS.labels(name)
        self._works = metrics.QUEUE_WORK_SECONDS.labels(name)
        metrics.QUEUE_UNFINISHED.labels(name).set_function(lambda: sum(self._ages()))
        metrics.QUEUE_LONGEST.labels(name).set_function(lambda: max(self._ages(), default=0.0))

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unfinished(self) -> int:
        """Keys that wait or are being worked on; those that come back later are not counted."""
        return len(self._waiting) + len(self._running)

    def add(self, key: K, *, priority: int = LIVE) -> None:
        """This key wants attention now. If it waits already, it moves up to the higher of the two priorities."""
        if self._closed:
            return
        if key in self._running:
            self._again[key] = max(priority, self._again.get(key, priority))
            return
        waiting = self._waiting.get(key)
        if waiting is not None and waiting[0] >= priority:
            return
        if waiting is None:
            self._adds.inc()
            self._depth.inc()
            since, group = asyncio.get_running_loop().time(), self._group(key) if self._group is not None else None
        else:
            since, group = self._leave(key), waiting[1]
        self._waiting[key] = (priority, group)
        self._lines.setdefault(priority, Turns()).put(group, key, since)
        self._idle.clear()
        if waiting is None:
            self._wake()

    def add_after(self, key: K, seconds: float, *, priority: int = LIVE) -> None:
        """This key wants attention in a while. Of several such wishes the earliest counts."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key, priority=priority)
            return
        when = asyncio.get_running_loop().time() + seconds
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            self._order += 1
            heapq.heappush(self._later, (when, self._order, key, priority))
            self._set_timer()

    def retry(self, key: K, *, priority: int = LIVE) -> float:
        """This key failed: it comes back after a wait that grows with each failure. Gives the wait in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        initial, maximum = self._backoff
        seconds = ceiling(failures, initial=initial, maximum=maximum) * self._jitter.uniform(0.5, 1.0)
        self._retries.inc()
        self.add_after(key, seconds, priority=priority)
        return seconds

    def forget(self, key: K) -> None:
        """This key did not fail: its next wait starts small again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often this key has failed in a row."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key, to be worked on by the caller alone, until `done`. Raises QueueClosed when it is over."""
        while not self._waiting:
            if self._closed:
                raise QueueClosed(self.name)
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()  # pass the call on: it was meant for somebody who works
                else:
                    with contextlib.suppress(ValueError):  # skipped by a call that came in between
                        self._getters.remove(getter)
                raise
        self._handed_out += 1
        priorities = self._lines  # two or three
        priority = min(priorities) if self._handed_out % _LOWEST_EVERY == 0 else max(priorities)
        line = self._lines[priority]
        key, since = line.pop()
        if not line:
            del self._lines[priority]
        del self._waiting[key]
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._running[key] = now
        self._depth.dec()
        self._waits.observe(now - since)
        return key

    def done(self, key: K) -> None:
        """The caller of `get` has finished with this key, well or not."""
        now = asyncio.get_running_loop().time()
        self._works.observe(now - self._running.pop(key))
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, priority=again)
        if not self._waiting and not self._running:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no key waits (delayed ones aside) or is being worked on."""
        await self._idle.wait()

    def close(self, *, drain: bool = False) -> None:
        """Take nothing more. With `drain`, what waits now is still handed out; delayed keys are always forgotten."""
        self._closed = True
        self._again.clear()
        self._later.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not drain:
            self._depth.dec(len(self._waiting))
            self._waiting.clear()
            self._lines.clear()
            if not self._running:
                self._idle.set()
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()

    def _leave(self, key: K) -> float:
        """Out of the line that it is in. Since when it waits."""
        priority, group = self._waiting[key]
        line = self._lines[priority]
        since = line.get(group, key)
        assert since is not None
        line.remove(group, key)
        if not line:
            del self._lines[priority]
        return since

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _set_timer(self) -> None:
        """One timer, for the earliest of the delayed keys."""
        when = self._later[0][0]
        if self._timer is not None:
            if self._alarm <= when:
                return
            self._timer.cancel()
        # The handle is not asked when it is due: for what is due at once, uvloop's do not know.
        self._timer, self._alarm = asyncio.get_running_loop().call_at(when, self._release), when

    def _release(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._later and self._later[0][0] <= now:
            when, _, key, priority = heapq.heappop(self._later)
            if self._due.get(key) == when:
                del self._due[key]
                self.add(key, priority=priority)
        if self._later:
            self._set_timer()

    def _ages(self) -> list[float]:
        """Asked by the thread that renders metrics: of what the loop may change meanwhile, a copy made in one step."""
        running = list(self._running.values())
        if not running or self._loop is None:
            return []
        now = self._loop.time()
        return [now - since for since in running]

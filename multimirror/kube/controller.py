"""Workers on a queue: reconcile one key at a time, and let the result say what comes next.

    reconcile(key) returns None             done; the key comes back when something happens
    reconcile(key) returns RequeueAfter(s)  done for now; look again in s seconds
    reconcile(key) raises TerminalError     it will not help to repeat it; the reconciler has told the user why
    reconcile(key) raises NotYet            back-off, then again; nothing is wrong, so that nobody is told
    reconcile(key) raises anything else     back-off, then again, and a warning

A reconcile that hangs holds one worker and its own key, nothing else; `timeout` ends it. Stopping closes the intake
and lets the reconciles that run come to their end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic

import structlog

from . import metrics
from .errors import ApiError, KubeError, LeadershipLost
from .queue import K, QueueClosed, WorkQueue
from .supervise import Supervisor

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Done for now; look again in this many seconds."""

    seconds: float


class TerminalError(KubeError):
    """Repeating would not help: bad input that was told to its user."""


class NotYet(KubeError):  # noqa: N818 - not a fault
    """What this needs is on its way: come back after a while."""


Reconcile = Callable[[K], Awaitable[RequeueAfter | None]]


class Controller(Generic[K]):
    """`concurrency` workers that reconcile the keys of one queue."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile[K],
        *,
        queue: WorkQueue[K] | None = None,
        concurrency: int = 8,
        timeout: float = 300.0,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[K] = queue if queue is not None else WorkQueue(name)
        self._reconcile = reconcile
        self._concurrency = concurrency
        self._timeout = timeout
        self._active = metrics.ACTIVE_WORKERS.labels(name)
        self._seconds = metrics.RECONCILE_SECONDS.labels(name)
        self._errors = metrics.RECONCILE_ERRORS.labels(name)
        self._results = {
            result: metrics.RECONCILES.labels(name, result)
            for result in ("success", "requeue_after", "error", "terminal_error")
        }
        metrics.MAX_WORKERS.labels(name).set(concurrency)

    async def run(self) -> None:
        """Work until the queue is closed (all workers have come to their end), or until cancelled."""
        async with Supervisor() as tasks:
            names = [f"{self.name} worker {number + 1}" for number in range(self._concurrency)]
            await asyncio.wait([tasks.start(name, self._work(), may_return=True) for name in names])

    def stop(self, *, drain: bool = False) -> None:
        """Take no more keys; `run` returns when what runs (with `drain`: what waits, too) is done."""
        self.queue.close(drain=drain)

    async def _work(self) -> None:
        queue = self.queue
        loop = asyncio.get_running_loop()
        structlog.contextvars.bind_contextvars(controller=self.name)
        while True:
            try:
                key = await queue.get()
            except QueueClosed:
                return
            started = loop.time()
            self._active.inc()
            try:
                result = await self._one(key)
            finally:
                self._active.dec()
                queue.done(key)
            self._results[result].inc()
            self._seconds.observe(loop.time() - started)

    async def _one(self, key: K) -> str:
        queue = self.queue
        structlog.contextvars.bind_contextvars(key=str(key))  # a worker is a task, and has a context of its own
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._reconcile(key)
        except TerminalError as error:
            queue.forget(key)
            _log.warning("gave up on a key", error=str(error))
            return "terminal_error"
        except LeadershipLost as error:
            _log.info("stopped in the middle of a key", error=str(error))
        except NotYet as error:
            _log.debug("too early", reason=str(error), retry_in=round(queue.retry(key), 2))
        except (ApiError, TimeoutError) as error:
            self._again(key, str(error) or f"took more than {self._timeout:g} s")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._again(key, "what it waited for was cancelled", trace=True)
        except Exception as error:  # noqa: BLE001 - a fault with one key must not end the work on all the others
            self._again(key, f"{type(error).__name__}: {error}", trace=True)
        else:
            queue.forget(key)
            if result is None:
                return "success"
            queue.add_after(key, result.seconds)
            return "requeue_after"
        self._errors.inc()
        return "error"

    def _again(self, key: K, error: str, *, trace: bool = False) -> None:
        seconds = self.queue.retry(key)
        _log.warning(
            "reconcile failed",
            error=error,
            failures=self.queue.failures(key),
            retry_in=round(seconds, 2),
            exc_info=trace,
        )

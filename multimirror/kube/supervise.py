"""Tasks that somebody watches: whoever starts one owns it, and its unexpected end is never silent.

    async with Supervisor() as tasks:
        tasks.start("reporter", reporter.run())                          # has to run for as long as the body does
        lanes = tasks.start("lanes", lanes.run(), may_return=True)       # may come to its own end
        await lanes

When the body has come to its end, what still runs is cancelled and waited for. When a task ends before that, by an
error or (unless it may) by returning, the body is cancelled, and TaskEnded leaves the context, its cause being the
error. So the end of one task runs up through everybody who relies on it, and ends the process unless somebody on the
way knows better: who follows a cluster catches TaskEnded and connects anew.

- Every end is logged, with the name of the task: a regular one for debugging, an unexpected one as an error, with its
  trace, once.
- Cancelling a task that `start` gave is no fault; an error that it answers with is one, unless everything is being
  stopped. A CancelledError that nobody asked for (somebody else's future was cancelled) is a fault.
- LeadershipLost is no fault of the task that met it, and leaves as it is.
- `why_unhealthy` says which task died, also while the way up takes long: what is started or opened inside a supervisor
  belongs to it, so that the outermost one speaks for the process. It goes back to None where the end was dealt with.

A supervisor is opened and closed by one task, which is the one that is cancelled.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from .errors import LeadershipLost
from .logs import debug

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class TaskEnded(Exception):  # noqa: N818 - the field's word for it
    """A task that others rely on is gone. Not a KubeError: no handler of a server's troubles is to pass over it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} ended unexpectedly: {why}")
        self.name = name


class Supervisor:
    """Runs named tasks for as long as its context is open, and does not outlive one that died."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order: a set of tasks is ordered by addresses
        self._closing = False
        self._death: TaskEnded | LeadershipLost | None = None  # the first one
        self._parent: Supervisor | None = None
        self._children: set[Supervisor] = set()

    def start(self, name: str, coroutine: Coroutine[Any, Any, T], *, may_return: bool = False) -> asyncio.Task[T]:
        """Run it from now on. To await the task is to wait for its end; to cancel it ends it on purpose."""
        context = copy_context()
        context.run(_current.set, self)
        task = self._group.create_task(self._watch(name, coroutine, may_return=may_return), name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(lambda _: coroutine.close())  # one that was cancelled before it began was never awaited
        if self._closing:
            task.cancel()
        return task

    def why_unhealthy(self) -> str | None:
        """Which task died, here or in a supervisor that was opened inside; None while all is well."""
        if self._death is not None:
            return str(self._death)
        return next((why for child in self._children if (why := child.why_unhealthy()) is not None), None)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._parent = _current.get()
        if self._parent is not None:
            self._parent._children.add(self)
        _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup:
            if self._death is not None:
                raise self._death from self._death.__cause__
            # Only the body failed: its error goes on as it is.
        finally:
            if self._parent is not None:
                self._parent._children.discard(self)
            if _current.get() is self:
                _current.set(self._parent)

    async def _watch(self, name: str, coroutine: Coroutine[Any, Any, T], *, may_return: bool) -> T:
        task = asyncio.current_task()
        assert task is not None
        log = _log.bind(task=name)
        try:
            result = await coroutine
        except asyncio.CancelledError as error:
            if task.cancelling():
                debug(log, "task stopped")
                raise
            raise self._died(name, error) from error
        except Exception as error:
            # Not task.cancelling(): in Python 3.11 a task group that failed at its end leaves that at one for good.
            if self._closing or self._death is not None:
                log.exception("task failed while it was being stopped")
                raise asyncio.CancelledError from error
            death = self._died(name, error)
            raise death from (death.__cause__ if death is error else error)
        if may_return or task.cancelling():
            debug(log, "task ended")
            return result
        raise self._died(name, None)

    def _died(self, name: str, error: BaseException | None) -> TaskEnded | LeadershipLost:
        """Note and log the end of a task. Gives what its owner will see of it."""
        error = _only(error)
        death: TaskEnded | LeadershipLost
        log = _log.bind(task=name)
        if isinstance(error, LeadershipLost):
            death = error
            log.warning("task ended", error=str(error))
        else:
            death = TaskEnded(name, _why(error))
            told = isinstance(error, TaskEnded)  # further in, with its trace
            log.error("task ended unexpectedly", error=_why(error), exc_info=None if told else error)
        if self._death is None:
            self._death = death
        return death


_current: ContextVar[Supervisor | None] = ContextVar("supervisor", default=None)


def _only(error: BaseException | None) -> BaseException | None:
    """What a task group was all about, if that is one thing."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _why(error: BaseException | None) -> str:
    if error is None:
        return "it returned"
    return str(error) if isinstance(error, TaskEnded) else f"{type(error).__name__}: {error}".removesuffix(": ")

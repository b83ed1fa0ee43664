"""What runs beside a command for as long as it runs: its tasks, and what it has told already."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from multimirror.cli.output import echo
from multimirror.kube.supervise import Supervisor

T = TypeVar("T")


class Background:
    """Of one command."""

    def __init__(self, tasks: Supervisor) -> None:
        self._tasks = tasks
        self._told: set[str] = set()
        self._shared: dict[object, Any] = {}

    def shared(self, key: object, make: Callable[[], T]) -> T:
        """What the parts of a command have one of together."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run it until it ends, or the command does."""
        self._tasks.start(name, work, may_return=True)

    def note(self, text: str) -> None:
        """On standard error, once."""
        if text not in self._told:
            self._told.add(text)
            echo(f"note: {text}", err=True)


@asynccontextmanager
async def background() -> AsyncIterator[Background]:
    """For the whole of a command; what still runs at its end is stopped."""
    async with Supervisor() as tasks:
        here = Background(tasks)
        before = _current.set(here)
        try:
            yield here
        finally:
            _current.reset(before)


def current_background() -> Background | None:
    """None outside of a command."""
    return _current.get()


_current: ContextVar[Background | None] = ContextVar("background", default=None)

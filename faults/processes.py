"""The controllers under test: started, killed at any moment, and started again.

`Task` runs one inside this process. Killing it cuts all its links first, so that nothing gets out that a killed process
could not have sent; only then its tasks are ended. One that ends by itself is started again after a second, as a
kubelet would, and that is in the record.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from faults.proxy import Proxy
from faults.record import Life, Record


class Controller(Protocol):
    """A process under test."""

    name: str

    async def start(self) -> None:
        """Begin."""

    async def kill(self) -> None:
        """End it as SIGKILL does."""

    @property
    def running(self) -> bool:
        """It was started, and not killed."""


class Task:
    """A controller inside this process."""

    def __init__(
        self, name: str, proxies: Sequence[Proxy], body: Callable[[], Coroutine[Any, Any, None]], record: Record
    ) -> None:
        self.name = name
        self.errors: list[BaseException] = []
        """What it ended with by itself."""
        self._proxies, self._body, self._record = proxies, body, record
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """It was started, and not killed."""
        return self._task is not None

    async def start(self) -> None:
        """Begin."""
        if self._task is None:
            for proxy in self._proxies:
                proxy.mend()
            self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def kill(self) -> None:
        """End it as SIGKILL does."""
        task, self._task = self._task, None
        if task is None:
            return
        self._note("killed")
        for proxy in self._proxies:
            proxy.cut()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=60)

    async def _run(self) -> None:
        while True:
            self._note("started")
            try:
                await self._body()
            except Exception as error:  # noqa: BLE001 - whatever ends it: it is started again, and told on
                self.errors.append(error)
            self._note("ended by itself")
            await asyncio.sleep(1.0)

    def _note(self, what: str) -> None:
        self._record.lives.append(Life(asyncio.get_running_loop().time(), self.name, what))

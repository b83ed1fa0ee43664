"""The controllers under test: started, killed or frozen at any moment, and started again.

`Task` runs one inside this process, `Process` as what users run: the command, in a process of its own. Killing one cuts
all its links first, so that nothing gets out that a killed process could not have sent; only then it is ended. One that
ends by itself is started again after a second, as a kubelet would, and that is in the record.
"""

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from faults.proxy import Proxy
from faults.record import Life, Record

_RESTART_SECONDS: Final = 1.0
_LAST_LINES: Final = 8
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG: Final = 1


class Controller(Protocol):
    """A process under test."""

    name: str

    async def start(self) -> None:
        """Begin, or go on."""

    async def kill(self) -> None:
        """End it as SIGKILL does."""

    def pause(self) -> bool:
        """Freeze it as SIGSTOP does, until `resume`; False where that cannot be done."""

    def resume(self) -> None:
        """Let it go on, if it is frozen."""

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

    def pause(self) -> bool:
        """A part of this process cannot be frozen without the rest."""
        return False

    def resume(self) -> None:
        """It never stops."""

    async def _run(self) -> None:
        while True:
            self._note("started")
            try:
                await self._body()
            except Exception as error:  # noqa: BLE001 - whatever ends it: it is started again, and told on
                self.errors.append(error)
            self._note("ended by itself")
            await asyncio.sleep(_RESTART_SECONDS)

    def _note(self, what: str) -> None:
        self._record.lives.append(Life(asyncio.get_running_loop().time(), self.name, what))


class Process:
    """A controller as its users run it."""

    def __init__(
        self, name: str, proxies: Sequence[Proxy], command: Callable[[int], Sequence[str]], record: Record
    ) -> None:
        """`command` is asked for the program and its arguments before each start, with the number of its life."""
        self.name = name
        self._proxies, self._command, self._record = proxies, command, record
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._lives = 0
        self._paused = False

    @property
    def running(self) -> bool:
        """It was started, and not killed."""
        return self._task is not None

    @property
    def pid(self) -> int | None:
        """None: there is no process at the moment."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Begin, or go on."""
        if self._task is None:
            for proxy in self._proxies:
                proxy.mend()
            self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)
        else:
            self.resume()

    async def kill(self) -> None:
        """Links first: what is still in the sockets of a dead process does not count."""
        task, self._task = self._task, None
        if task is None:
            return
        self._note("killed")
        for proxy in self._proxies:
            proxy.cut()
        self._signal(signal.SIGKILL)
        task.cancel()
        await asyncio.wait([task])

    def pause(self) -> bool:
        """SIGSTOP. Its connections stay, and what it had sent arrives."""
        if self._paused or not self._signal(signal.SIGSTOP):
            return False
        self._paused = True
        self._note("paused")
        return True

    def resume(self) -> None:
        """SIGCONT."""
        if self._paused:
            self._paused = False
            self._note("resumed")
            self._signal(signal.SIGCONT)

    async def _run(self) -> None:
        while True:
            self._lives += 1
            self._note("started")
            code, last = await self._live(self._command(self._lives))
            self._note("ended by itself", [f"exit code {code}", *last])
            await asyncio.sleep(_RESTART_SECONDS)

    async def _live(self, command: Sequence[str]) -> tuple[int, Sequence[str]]:
        """One life; what it said last."""
        last: deque[str] = deque(maxlen=_LAST_LINES)
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,  # where it logs
            stderr=asyncio.subprocess.STDOUT,
            limit=2**20,
            preexec_fn=end_with_us,
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                last.append(line.decode(errors="replace").rstrip())
            return await process.wait(), last
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._process, self._paused = None, False

    def _signal(self, which: signal.Signals) -> bool:
        """Whether there is a process to send it to."""
        if self._process is None or self._process.returncode is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(which)
            return True
        return False

    def _note(self, what: str, why: Sequence[str] = ()) -> None:
        self._record.lives.append(Life(asyncio.get_running_loop().time(), self.name, what, why))


def end_with_us() -> None:
    """However the suite ends, it leaves no process behind (where there is a Linux to see to it)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

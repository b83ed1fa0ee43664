"""Child processes by way of the supervisor: start, signal, await the end.

The parent's half of `supervisor`'s protocol. One task reads the supervisor's answers; should the supervisor itself
die, every call that waits for an answer fails with SupervisorGoneError and every process counts as ended.
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from clusters.fleet import FleetError
from clusters.local import supervisor
from clusters.local.homes import Home
from clusters.local.logs import tail, telling_lines

_ANSWER_SECONDS: Final = 30.0


class SupervisorGoneError(FleetError):
    """The supervisor process ended, and with it everything that it ran."""


class Process:
    """One supervised process; `start` may follow an end, with the same arguments and the same log."""

    def __init__(self, owner: "Processes", name: str, argv: Sequence[str], log: Path) -> None:
        self._owner = owner
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.pid: int | None = None
        self.exit_code: int | None = None
        self._ended = asyncio.Event()
        self._ended.set()
        self._log_start = 0

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    async def start(self) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self.exit_code = None
        self._ended.clear()
        try:
            answer = await self._owner.ask("start", self, argv=self.argv, log=str(self.log))
        except BaseException:
            self._ended.set()
            raise
        self.pid = answer["pid"]

    async def signal(self, number: signal.Signals) -> None:
        await self._owner.ask("signal", self, signal=int(number))

    async def pause(self) -> None:
        """Alive and silent: its ports accept connections and nobody answers."""
        await self.signal(signal.SIGSTOP)

    async def resume(self) -> None:
        await self.signal(signal.SIGCONT)

    async def stop(self, grace: float = 20.0) -> None:
        """Ask it to end, wait, and insist; fine when it has ended already."""
        with contextlib.suppress(ProcessLookupError):
            await self.signal(signal.SIGCONT)
            await self.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), grace)
                return
            await self.signal(signal.SIGKILL)
        await self.wait()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            await self.signal(signal.SIGKILL)
        await self.wait()

    async def wait(self) -> int | None:
        """Its exit code, once it has ended; None when the supervisor went with it."""
        await self._ended.wait()
        return self.exit_code

    def why(self) -> list[str]:
        """What its log says about the latest start."""
        text = tail(self.log)
        since = self.log.stat().st_size - self._log_start if self.log.exists() else 0
        return telling_lines(text[-since:] if since else "")

    def ended(self, code: int | None) -> None:
        self.exit_code = code
        self._ended.set()


class Processes:
    """All processes of one home."""

    def __init__(self, home: Home, *, grace: float) -> None:
        self._home = home
        self._grace = grace
        self._processes: dict[str, Process] = {}
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_id = 0
        self._supervisor: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        arguments = ["--grace", str(self._grace), *(["--remove"] if self._home.temporary else [])]
        self._supervisor = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            supervisor.__file__,
            str(self._home.path),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[self._home.lock_fd],
            start_new_session=True,  # Ctrl-C in a terminal is for us; it hears of our end by its input
        )
        self._reader = asyncio.create_task(self._read(self._supervisor), name="supervisor answers")

    def process(self, name: str, argv: Sequence[str], log: Path) -> Process:
        """Known by that name from now on; not started."""
        self._processes[name] = Process(self, name, argv, log)
        return self._processes[name]

    @property
    def supervisor_pid(self) -> int | None:
        return self._supervisor.pid if self._supervisor else None

    async def close(self) -> None:
        """End everything; on return no process is left and a temporary home is removed."""
        if self._supervisor is None or self._reader is None:
            return
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        patience = 15 + self._grace * max(1, len(self._processes))
        try:
            async with asyncio.timeout(patience):
                await self._supervisor.wait()
        except TimeoutError:
            self._supervisor.kill()
            await self._supervisor.wait()
        await self._reader
        self._supervisor = self._reader = None

    async def ask(self, op: str, process: Process, **arguments: object) -> dict[str, Any]:
        # Its output ends a moment before anybody can know its exit code: after that nobody would answer.
        if self._supervisor is None or self._reader is None or self._reader.done():
            raise SupervisorGoneError(f"{process.name}: the supervisor is not running")
        assert self._supervisor.stdin is not None
        number = self._last_id = self._last_id + 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        request = {"id": number, "op": op, "name": process.name, **arguments}
        self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reply = await answer
        finally:
            del self._answers[number]
        if "error" in reply:
            raise (OSError if op == "start" else ProcessLookupError)(reply["error"])
        return reply

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        while line := await child.stdout.readline():
            message = json.loads(line)
            if "exit" in message:
                self._processes[message["exit"]].ended(message["code"])
            elif (answer := self._answers.get(message["id"])) is not None and not answer.done():
                answer.set_result(message)
        for process in self._processes.values():
            if process.running:
                process.ended(None)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(SupervisorGoneError("the supervisor ended"))

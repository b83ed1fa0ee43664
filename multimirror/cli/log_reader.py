"""The log of one container of a pod, through its runs to its end; taken up again where it broke off, no line twice.

A stream that ends is no proof that the container has: a kubelet that is restarted ends it too. Only the pod's status
says so; until then it is asked for again. Of a run that ended while nobody could read, the rest is asked for as
`previous`, which is as far back as the API goes.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from multimirror.batch import Json
from multimirror.cli.container_runs import has_ended, may_run_again, run_number
from multimirror.cli.log_lines import LineBuffer, LogPosition, Printer
from multimirror.cli.logs import Say
from multimirror.kube import ApiError, Client
from multimirror.kube.backoff import Backoff
from multimirror.kube.errors import NotFound, TimedOut, Unreachable
from multimirror.kube.resources import PODS

_LONGEST_WAIT: Final = 10.0


@dataclass(slots=True)
class Progress:
    """How far the log of one pod was read. It outlives connections."""

    name: str
    container: str
    tail: int | None
    """So many lines of what was there when it was first asked for; None: all."""
    latest_run: bool
    """Of what was there then, only the latest run; else the one before as well, if there was one."""
    run: int | None = None
    """The run that is being read; None: none has begun."""
    position: LogPosition = field(default_factory=LogPosition)
    asked_at: str | None = None
    complete: bool = False
    problem: str = ""
    """Why it cannot be read now."""

    def begin(self, run: int) -> None:
        """That run is the next to be read; of all but the first that is shown, all of it."""
        self.tail = self.tail if self.run is None else None
        self.run, self.position, self.asked_at = run, LogPosition(from_tail=bool(self.tail)), None

    def params(self) -> dict[str, str | int | bool | None]:
        """Of the next request; what was shown already and comes again is left out."""
        asked: dict[str, str | int | bool | None] = {"container": self.container, "follow": True, "timestamps": True}
        since = self.position.since
        if since is None and self.tail == 0:
            since = self.asked_at  # nothing came yet, and what was there before was not wanted
        if self.asked_at is None:
            self.asked_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.position.resume()
        return asked | ({"sinceTime": since} if since is not None else {"tailLines": self.tail})


class LogReader:
    """Reads one pod's log. `current` gives the pod as it is now, None when it is gone."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        progress: Progress,
        printer: Printer,
        *,
        current: Callable[[], Json | None],
        note: Say,
    ) -> None:
        self._client, self._path = client, PODS.path(namespace, progress.name, "log")
        self._progress, self._printer, self._current, self._note = progress, printer, current, note
        self._news = asyncio.Event()

    def changed(self) -> None:
        """There is news of the pod."""
        self._news.set()

    async def run(self) -> None:
        """Until everything was shown."""
        progress, backoff = self._progress, Backoff(initial=0.5, maximum=_LONGEST_WAIT)
        while not progress.complete:
            self._news.clear()
            latest = self._latest()
            if progress.run is None:
                if latest is not None:
                    progress.begin(latest if progress.latest_run else max(0, latest - 1))
                elif may_run_again(self._current(), progress.container):
                    await self._news.wait()
                else:
                    progress.complete = True  # it never began, and never will
                continue
            if latest is not None and latest > progress.run + 1:
                self._note(f"pod {progress.name}: container {progress.container} was restarted too often to show all")
                progress.begin(latest - 1)
            if await self._read(previous=latest is not None and latest > progress.run):
                backoff.reset()
                await self._next_run()
            elif not progress.complete:
                with suppress(TimeoutError):
                    async with asyncio.timeout(backoff.delay()):
                        await self._news.wait()

    async def _next_run(self) -> None:
        """The one that is being read is over."""
        progress = self._progress
        assert progress.run is not None
        while True:
            self._news.clear()
            latest = self._latest()
            if latest is not None and latest > progress.run:
                progress.begin(max(progress.run + 1, latest - 1))
                return
            if not may_run_again(self._current(), progress.container):
                progress.complete = True
                return
            await self._news.wait()

    async def _read(self, *, previous: bool) -> bool:
        """One request to its end; whether that was the end of the run, too."""
        progress, lines, problem = self._progress, LineBuffer(), ""
        assert progress.run is not None
        refused = False
        try:
            params = progress.params() | ({"previous": True} if previous else {})
            async with aclosing(self._client.stream(self._path, params)) as chunks:
                async for chunk in chunks:
                    self._show(lines.feed(chunk))
        except (Unreachable, TimedOut) as error:
            problem = error.message  # whoever follows the worker says so
        except ApiError as error:
            problem = error.message
            refused = previous or isinstance(error, NotFound)
            if problem != progress.problem:
                self._note(f"pod {progress.name}: {problem}")
        progress.problem = problem
        pod = self._current()
        over = has_ended(pod, progress.container, progress.run)
        if over and not problem:
            self._show(lines.end())
        elif pod is None:
            progress.complete = True  # and what was not read is gone with it
        return over and (not problem or refused)

    def _show(self, lines: list[bytes]) -> None:
        for line in lines:
            text = self._progress.position.take(line)
            if text is not None:
                self._printer.line(self._progress.name, text)

    def _latest(self) -> int | None:
        pod = self._current()
        return run_number(pod, self._progress.container) if pod is not None else None

"""What containers print: kept in memory by the node that runs them, bounded, gone with the pod.

A log can be followed: readers are woken when a line comes and when the container has ended.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

_LINES: Final = 10_000


class Line(NamedTuple):
    """A line, and when it was printed (seconds since the epoch)."""

    time: float
    text: str

    def stamped(self) -> str:
        """As `kubectl logs --timestamps` shows it."""
        moment = datetime.fromtimestamp(self.time, UTC)
        return f"{moment.strftime('%Y-%m-%dT%H:%M:%S')}.{moment.microsecond:06d}000Z {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which part of a log is asked for."""

    follow: bool = False
    tail: int | None = None
    since: float = 0.0
    limit_bytes: int | None = None
    timestamps: bool = False


@dataclass(slots=True)
class Log:
    """The lines of one run of one container."""

    lines: deque[Line] = field(default_factory=lambda: deque(maxlen=_LINES))
    printed: int = 0
    """How many lines there ever were; the oldest may be gone."""
    ended: bool = False
    _news: asyncio.Event | None = None

    def print(self, time: float, text: str) -> None:
        """One more line."""
        self.lines.append(Line(time, text))
        self.printed += 1
        self._wake()

    def end(self) -> None:
        """Nothing more will come."""
        self.ended = True
        self._wake()

    async def read(self, wanted: Wanted) -> AsyncIterator[bytes]:
        """The wanted lines, each with its line end, until the log or the limit ends."""
        left = float("inf") if wanted.limit_bytes is None else wanted.limit_bytes
        skip = self.printed - wanted.tail if wanted.tail is not None else 0
        seen = 0
        while True:
            first = self.printed - len(self.lines)
            for number, line in enumerate(list(self.lines), first):
                if number < max(seen, skip) or line.time < wanted.since:
                    continue
                chunk = f"{line.stamped() if wanted.timestamps else line.text}\n".encode()[: int(min(left, 1 << 30))]
                left -= len(chunk)
                yield chunk
                if left <= 0:
                    return
            seen = self.printed
            if not wanted.follow or self.ended:
                return
            if self._news is None or self._news.is_set():
                self._news = asyncio.Event()
            await self._news.wait()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()


class Logs:
    """The logs of all containers of a cluster's simulated nodes: of the current run and of the one before."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str], dict[str, list[Log]]] = {}

    def start(self, namespace: str, pod: str, container: str) -> Log:
        """A log for a new run of a container."""
        runs = self._logs.setdefault((namespace, pod), {}).setdefault(container, [])
        runs.append(Log())
        del runs[:-2]
        return runs[-1]

    def find(self, namespace: str, pod: str, container: str, *, previous: bool = False) -> Log | None:
        """The log of the current run, or of the previous one."""
        runs = self._logs.get((namespace, pod), {}).get(container, [])
        if previous:
            return runs[-2] if len(runs) > 1 else None
        return runs[-1] if runs else None

    def forget(self, namespace: str, pod: str) -> None:
        """The pod is gone: end whoever still reads."""
        for runs in self._logs.pop((namespace, pod), {}).values():
            for log in runs:
                log.end()

"""What is being done, how long it has taken, and how long it will still take; one line at a time, to stderr."""

import sys
import time
from typing import TextIO


class Progress:
    """Of a whole run. Estimates are the parts' own; what one took longer is added to what the next ones will take."""

    def __init__(self, estimates: dict[str, float], out: TextIO = sys.stderr) -> None:
        self._estimates, self._out = estimates, out
        self._order = list(estimates)
        self._part = ""
        self._started = self._part_started = time.monotonic()

    def plan(self) -> None:
        """Tell what will come."""
        total = sum(self._estimates.values())
        print(f"about {_minutes(total)} in all:", file=self._out)
        for name, seconds in self._estimates.items():
            print(f"  {name:<16} about {_minutes(seconds)}", file=self._out, flush=True)

    def begin(self, part: str) -> None:
        """Now this one."""
        self._part, self._part_started = part, time.monotonic()
        number = self._order.index(part) + 1
        left = sum(self._estimates[name] for name in self._order[number - 1 :])
        print(f"[{number}/{len(self._order)}] {part}; about {_minutes(left)} left", file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Something has been done, or found."""
        now = time.monotonic()
        print(f"  {now - self._started:6.0f} s  {self._part}: {text}", file=self._out, flush=True)

    def end(self) -> float:
        """That one is done; gives its seconds."""
        return time.monotonic() - self._part_started


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

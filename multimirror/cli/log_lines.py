"""The lines of a log on their way to the terminal: whole, each once, with the pod's name where there are several. Pure.

A log that breaks off is asked for again from a time, and times in such a request have whole seconds: the server repeats
what it sent in that second already. So lines are asked for with their timestamps, and those of the latest second are
remembered: as often as a line was shown it is left out when it comes again. They are not merely compared with the time
of the last one: what a container writes to its two outputs is not always stored in the order of its times.
"""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_LONGEST_LINE: Final = 1024 * 1024
"""Bytes; what is longer is shown in pieces, so that no worker fills our memory with a line that never ends."""
_MOST_REMEMBERED: Final = 100_000
"""Different lines of one second; of one that has more, the rest may be shown again when its log breaks off."""
_LAST_SECOND: Final = 253402300799  # of the year 9999


class LineBuffer:
    """Cuts what comes into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Those that are whole now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        return lines

    def end(self) -> list[bytes]:
        """A last line without an end is a line too."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class LogPosition:
    """How far the log of one run of a container was shown. `from_tail`: what is older than the first line that comes
    was not asked for."""

    def __init__(self, *, from_tail: bool = False) -> None:
        self._from_tail = from_tail
        self._first: tuple[int, bytes] | None = None
        self._second: int | None = None
        self._shown: Counter[int] = Counter()  # the lines of that second
        self._repeated: Counter[int] = Counter()  # of these, what is still to come once more

    @property
    def since(self) -> str | None:
        """From when on to ask again; None: from where it was asked for at first."""
        if self._second is None:
            return None
        return datetime.fromtimestamp(self._second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def resume(self) -> None:
        """It is asked for again, from `since` on."""
        self._repeated = self._shown.copy()

    def take(self, line: bytes) -> bytes | None:
        """What is to be shown of a line that came with its timestamp; None: nothing, it was, or is not asked for."""
        found = _STAMP.match(line)
        if found is None:
            return line  # not from the container: what a kubelet has to say, for example
        moment, key = _moment(found), hash(line)
        if self._repeated[key] > 0:
            self._repeated[key] -= 1
            return None
        if self._first is None:
            self._first = moment
        elif self._from_tail and self._repeated and moment <= self._first:
            return None
        if self._second is None or moment[0] > self._second:
            self._second = moment[0]
            self._shown.clear()
            self._repeated.clear()
        if moment[0] == self._second and (key in self._shown or len(self._shown) < _MOST_REMEMBERED):
            self._shown[key] += 1
        return line[found.end() :]


def _moment(found: re.Match[bytes]) -> tuple[int, bytes]:
    """Seconds since the epoch, and the digits behind the point."""
    second, fraction, zone = found.groups()
    try:
        whole = int(datetime.fromisoformat(second.decode() + zone.decode()).timestamp())
    except ValueError:  # the 32nd of a month
        whole = 0
    return min(max(whole, 0), _LAST_SECOND), (fraction or b"").ljust(9, b"0")


class Printer:
    """Lines with their pod's name, where lines of several pods are shown."""

    def __init__(self, write: Callable[[str], None], *, prefix: bool | None) -> None:
        """`prefix`: always or never; None: as soon as there are several pods."""
        self._write, self._prefix = write, prefix
        self._pods: set[str] = set()

    def expect(self, *pods: str) -> None:
        """Lines of these come, sooner or later."""
        self._pods.update(pods)

    def forget(self) -> None:
        """What comes now is of another attempt."""
        self._pods.clear()

    def line(self, pod: str, line: bytes) -> None:
        """Show it."""
        prefixed = len(self._pods) > 1 if self._prefix is None else self._prefix
        text = line.decode("utf-8", "replace")
        self._write(f"[{pod}] {text}" if prefixed else text)

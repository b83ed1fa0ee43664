"""A command in a terminal of a given size, and what its user sees there.

The terminal's size is told to the command; what it writes is drawn on a much larger sheet, so that a line that is too
long, and would be wrapped, is found beyond the edge.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pyte

from tests.waiting import DEADLINE

ENTER, LEAVE, HOME = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[H"
_SHEET = (300, 120)


class Terminal:
    """Runs one command."""

    def __init__(self, command: list[str], width: int, height: int) -> None:
        self.output = b""
        self._master, slave = pty.openpty()
        self.resize(width, height)
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
        )
        os.close(slave)

    def resize(self, width: int, height: int) -> None:
        """As a user does who pulls at the window's edge."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def read_until(self, pattern: str, seconds: float = 120.0) -> None:
        """Until that is in the output, or the command has ended."""
        end = time.monotonic() + seconds
        while not re.search(pattern.encode(), self.output):
            left = end - time.monotonic()
            assert left > 0, f"no {pattern!r} within {seconds} s:\n{self.output[-4000:].decode(errors='replace')}"
            ready, _, _ = select.select([self._master], [], [], min(left, 1.0))
            if ready:
                try:
                    data = os.read(self._master, 65536)
                except OSError:  # the other side is closed
                    return
                self.output += data

    def read_to_the_end(self) -> int:
        """Everything; gives the exit code."""
        self.read_until("(?!)")
        return self.process.wait(timeout=DEADLINE)

    def close(self) -> None:
        """Nothing is left behind."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def in_a_terminal(arguments: list[str], width: int, height: int) -> Iterator[Terminal]:
    """`multimirror ARGUMENTS` in a terminal of that size."""
    terminal = Terminal([sys.executable, "-m", "multimirror.cli", *arguments], width, height)
    try:
        yield terminal
    finally:
        terminal.close()


def frames(output: bytes) -> list[list[str]]:
    """What stood on the live screen after each of its frames."""
    live = output.partition(ENTER)[2].partition(LEAVE)[0]
    screen = pyte.Screen(*_SHEET)
    stream = pyte.ByteStream(screen)
    drawn = []
    for part in live.split(HOME)[1:]:
        stream.feed(HOME + part)
        drawn.append(_lines(screen))
    return drawn


def last_screen(output: bytes, width: int, height: int) -> list[str]:
    """What stands there when the live screen is gone, in a terminal of that size."""
    screen = pyte.Screen(width, height)
    pyte.ByteStream(screen).feed(output.partition(ENTER)[0] + output.partition(LEAVE)[2])
    return _lines(screen)


def longest(output: bytes) -> int:
    """The length of the longest line outside of the live screen."""
    screen = pyte.Screen(*_SHEET)
    pyte.ByteStream(screen).feed(output.partition(ENTER)[0] + output.partition(LEAVE)[2])
    return max(len(line) for line in _lines(screen))


def _lines(screen: pyte.Screen) -> list[str]:
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return lines

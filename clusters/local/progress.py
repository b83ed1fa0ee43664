"""Tells a person how a long step goes: in place on a terminal, a line now and then in a log."""

import sys
import time
from typing import TextIO

_LOG_SECONDS = 15.0


class Progress:
    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._last = 0.0
        self._open_line = False

    def note(self, text: str) -> None:
        """Worth keeping."""
        self._stream.write(("\r\x1b[K" if self._open_line else "") + text + "\n")
        self._stream.flush()
        self._open_line = False
        self._last = time.monotonic()

    def update(self, text: str) -> None:
        """Of interest only until the next."""
        now = time.monotonic()
        if self._terminal:
            if now - self._last > 0.1:
                self._stream.write(f"\r\x1b[K{text}")
                self._stream.flush()
                self._open_line = True
                self._last = now
        elif now - self._last > _LOG_SECONDS:
            self.note(text)

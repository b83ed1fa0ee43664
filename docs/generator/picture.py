"""The picture of the demo: runs it in a terminal and keeps one frame (`make picture`).

The frame is the demo's own output: the one that shows a lost worker and most of its Jobs elsewhere.
"""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

_WIDTH, _HEIGHT = 100, 28
_HOME: Final = b"\x1b[H"
_ENTER, _LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def main(target: Path) -> None:
    """Write the picture."""
    live = _output().partition(_ENTER)[2].partition(_LEAVE)[0]
    frames = [Text.from_ansi(part.decode().replace("\r", "")) for part in live.split(_HOME)[1:]]
    frame = max(frames, key=lambda frame: _worth(frame.plain))
    if not _worth(frame.plain):
        raise SystemExit("the demo showed no Job that moved: look at it with `multimirror demo`")
    console = Console(record=True, width=_WIDTH, height=_HEIGHT, file=io.StringIO(), force_terminal=True)
    console.print(frame, no_wrap=True, crop=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_without_fonts(console.export_svg(title="multimirror demo", theme=MONOKAI, unique_id="demo")))


def _worth(shown: str) -> int:
    """How much of the story is on a frame: the lost worker, and its Jobs elsewhere."""
    return shown.count("moved to") if "LOST " in shown else 0


def _without_fonts(svg: str) -> str:
    """A picture in a README may load nothing: it is drawn in a font that the reader has."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")


def _output() -> bytes:
    """Everything that the demo writes to a terminal."""
    ours, its = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, _WIDTH, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    for variable in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(variable, None)
    command = [sys.executable, "-m", "multimirror.cli", "demo"]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment):  # noqa: S603 - our own command
        os.close(its)
        output = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the demo has ended
                return output
            if not data:
                return output
            output += data


if __name__ == "__main__":
    main(Path(sys.argv[1]))

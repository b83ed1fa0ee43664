"""Documents, followed: their commands, typed as they are written, in a terminal.

What a block exports, and where it goes, holds for the blocks after it, as in a terminal. Two notes above a block, which
readers do not see, say how it is run:

    <!-- own terminal, until "TEXT" -->   in the background, until it has printed TEXT; it ends with the test
    <!-- not run here: REASON -->         not at all; the reason names the file that covers it, if one does
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tests.documents import ROOT, Block, blocks
from tests.waiting import DEADLINE

_CLEANING: Final = 60.0
_KEPT: Final = ("LANG", "TERM", "TMPDIR", "KUBEBUILDER_ASSETS")


SHELLS = {"sh", "console"}
_OWN = re.compile(r'own terminal, until "(?P<text>.+)"')
NOT_RUN = re.compile(r"not run here: (?P<reason>.+)")


def commands(name: str) -> list[Block]:
    return [block for block in blocks(ROOT / name) if block.language in SHELLS]


@dataclass
class Terminal:
    """A shell in a directory: what one block changes, the next one finds."""

    directory: Path
    environment: dict[str, str]
    fresh: dict[str, str] = field(init=False)
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    patience: float = DEADLINE
    """Seconds that one block may take."""

    def __post_init__(self) -> None:
        self.fresh = self.environment

    def type(self, block: Block) -> str:
        """Run it to its end; what it printed."""
        after = self.directory.parent / "after"
        script = f"set -euo pipefail\n{text_of(block)}\nenv -0 > {shlex.quote(str(after))}\n"
        done = to_its_end(["bash", "-c", script], self.patience, cwd=self.directory, env=self.environment)
        assert done.returncode == 0, f"{block}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.environment = dict(line.split("=", 1) for line in after.read_text().split("\0") if "=" in line)
        self.directory = Path(self.environment["PWD"])
        return done.stdout

    def open(self, block: Block, until: str) -> None:
        """Run it in a terminal of its own, and wait until it says so."""
        output = self.directory.parent / f"terminal-{len(self.others)}"
        with output.open("wb") as file:
            self.others.append(self._start(block, file))
        deadline = time.monotonic() + DEADLINE
        while until not in (said := output.read_text()):
            assert self.others[-1].poll() is None, f"{block}: ended\n{said}"
            assert time.monotonic() < deadline, f"{block}: did not say {until!r}\n{said}"
            time.sleep(0.05)  # the file of another process cannot be awaited

    def _start(self, block: Block, file: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            ["bash", "-c", f"set -euo pipefail\n{text_of(block)}"],
            cwd=self.directory,
            env=self.fresh,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Ctrl-C in every other terminal."""
        for process in reversed(self.others):
            interrupt(process)


def to_its_end(
    command: list[str], seconds: float | None = None, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """What it printed, and its exit code. Whoever is interrupted meanwhile, or loses patience, interrupts it in turn,
    and waits until it has cleaned up."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            interrupt(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def interrupt(process: "subprocess.Popen[Any]") -> None:
    """Ctrl-C in its terminal; it has a while to clean up."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(_CLEANING)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def text_of(block: Block) -> str:
    """The commands: in a console block, those after a prompt."""
    if block.language == "sh":
        return block.text
    return "".join(f"{line.removeprefix('$ ')}\n" for line in block.text.splitlines() if line.startswith("$ "))


def a_terminal(checkout: Path, tools: Iterable[Path] = (), more: Mapping[str, str] | None = None) -> Terminal:
    """In a checkout, with the virtual environment of this one, programs, more variables, and a home of its own."""
    home, beside = checkout.parent / "home", checkout.parent / "tools"
    for directory in (home, beside):
        directory.mkdir()
    (checkout / ".venv").symlink_to(sys.prefix)
    for tool in tools:
        (beside / tool.name).symlink_to(tool)
    path = f"{Path(sys.prefix) / 'bin'}:{beside}:{os.environ['PATH']}"
    kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
    return Terminal(checkout, {"PATH": path, "HOME": str(home), "PWD": str(checkout), **kept, **(more or {})})


def follow(terminal: Terminal, name: str) -> dict[str, str]:
    """The whole document; what each block printed, by its first line."""
    printed = {}
    for block in commands(name):
        if NOT_RUN.match(block.note):
            continue
        own = _OWN.match(block.note)
        if own:
            terminal.open(block, own["text"])
        else:
            printed[block.text.splitlines()[0]] = terminal.type(block)
    return printed

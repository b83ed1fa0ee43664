"""Every command in the README and in the quickstarts, run as it is written there.

Each document is run from top to bottom in a fresh directory that looks like a checkout, in a home of its own. What a
block exports, and where it goes, holds for the blocks after it, as in a terminal. Two notes above a block, which
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
import yaml

from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions
from clusters.local import BinariesMissingError, find_kubectl
from tests.documents import ROOT, Block, blocks
from tests.waiting import DEADLINE

SHELLS = {"sh", "console"}
_OWN = re.compile(r'own terminal, until "(?P<text>.+)"')
_NOT = re.compile(r"not run here: (?P<reason>.+)")


def commands(name: str) -> list[Block]:
    return [block for block in blocks(ROOT / name) if block.language in SHELLS]


@dataclass
class Terminal:
    """A shell in a directory: what one block changes, the next one finds."""

    directory: Path
    environment: dict[str, str]
    fresh: dict[str, str] = field(init=False)
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fresh = self.environment

    def type(self, block: Block) -> str:
        """Run it to its end; what it printed."""
        after = self.directory.parent / "after"
        script = f"set -euo pipefail\n{text_of(block)}\nenv -0 > {shlex.quote(str(after))}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
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
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def text_of(block: Block) -> str:
    """The commands: in a console block, those after a prompt."""
    if block.language == "sh":
        return block.text
    return "".join(f"{line.removeprefix('$ ')}\n" for line in block.text.splitlines() if line.startswith("$ "))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A checkout, with the virtual environment of this one."""
    try:
        kubectl = find_kubectl()
    except BinariesMissingError as error:
        pytest.skip(str(error))
    checkout, home, tools = tmp_path / "multimirror", tmp_path / "home", tmp_path / "tools"
    for directory in (checkout, home, tools):
        directory.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and not entry.name.endswith(".egg-info"):
            (checkout / entry.name).symlink_to(entry)
    (checkout / ".venv").symlink_to(sys.prefix)
    (tools / "kubectl").symlink_to(kubectl)
    path = f"{Path(sys.prefix) / 'bin'}:{tools}:{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if key in {"LANG", "TERM", "TMPDIR", "KUBEBUILDER_ASSETS"}}
    shell = Terminal(checkout, {"PATH": path, "HOME": str(home), "PWD": str(checkout), **kept})
    try:
        yield shell
    finally:
        shell.close()


def follow(terminal: Terminal, name: str) -> dict[str, str]:
    """The whole document; what each block printed, by its first line."""
    printed = {}
    for block in commands(name):
        if _NOT.match(block.note):
            continue
        own = _OWN.match(block.note)
        if own:
            terminal.open(block, own["text"])
        else:
            printed[block.text.splitlines()[0]] = terminal.type(block)
    return printed


@pytest.mark.cluster_kind("embedded")
def test_the_quickstart_on_this_machine_works_as_it_is_written(terminal: Terminal) -> None:
    printed = follow(terminal, "docs/quickstart.md")
    assert "Complete on worker-" in printed["multimirror explain job/hello"]
    assert printed["kubectl get pods"] == ""
    assert "this is the second" in printed["kubectl wait --for=condition=complete job/first job/second --timeout=60s"]


@pytest.mark.cluster_kind("local")
def test_the_quickstart_with_existing_clusters_works_as_it_is_written(terminal: Terminal) -> None:
    with BackgroundFleet("local", FleetOptions(workers=1)) as fleet:
        for name, cluster in (("management", fleet.management), ("east", fleet.workers["worker-1"])):
            (terminal.directory / f"{name}.kubeconfig").write_text(yaml.safe_dump(cluster.kubeconfig))
        follow(terminal, "docs/quickstart-existing.md")


@pytest.mark.cluster_kind("kind")
@pytest.mark.timeout(1800)
def test_the_quickstart_with_kind_works_as_it_is_written(terminal: Terminal) -> None:
    follow(terminal, "docs/quickstart-kind.md")


def test_the_commands_in_the_readme_work_as_they_are_written(terminal: Terminal) -> None:
    follow(terminal, "README.md")


def test_every_document_with_commands_to_follow_is_followed() -> None:
    found = {str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *ROOT.glob("docs/quickstart*.md")]}
    assert found == {"README.md", "docs/quickstart.md", "docs/quickstart-existing.md", "docs/quickstart-kind.md"}
    for block in (block for name in found for block in blocks(ROOT / name)):
        assert block.language in SHELLS | {"yaml", "text", "mermaid", "python"}, f"{block}: say what language it is in"


@pytest.mark.parametrize(
    ("target", "runs"),
    [("demo", ".venv/bin/multimirror demo"), ("test", ".venv/bin/pytest -n auto --dist loadgroup")],
)
def test_make_does_what_the_tests_run(target: str, runs: str) -> None:
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}  # we may be run by make
    said = subprocess.run(
        ["make", "-n", target], cwd=ROOT, env=outside, capture_output=True, text=True, check=True, timeout=DEADLINE
    )
    assert said.stdout.splitlines()[-1].startswith(runs)


def test_what_is_not_run_is_covered_elsewhere() -> None:
    for name in ("README.md", "docs/quickstart.md", "docs/quickstart-existing.md", "docs/quickstart-kind.md"):
        for block in commands(name):
            if reason := _NOT.match(block.note):
                named = re.findall(r"[\w/.-]+\.py|Makefile", reason["reason"])
                assert named, f"{block}: name what covers it"
                assert [each for each in named if not (ROOT / each).exists()] == []

"""The demo, as a newcomer runs it: in a terminal, and into a file."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from clusters.demonstration.view import UNICODE
from clusters.local.binaries import BinariesMissingError, find_kubectl
from tests.e2e.terminals import frames, in_a_terminal, last_screen, longest
from tests.waiting import DEADLINE


def fits(drawn: list[str], width: int, height: int) -> bool:
    return len(drawn) <= height and all(len(line) <= width for line in drawn)


def assert_nothing_lost_nothing_twice(shown: str) -> None:
    assert re.search(r"^ *lost +0$", shown, re.MULTILINE), shown
    assert re.search(r"^ *twice +0$", shown, re.MULTILINE), shown


@pytest.mark.cluster_kind("embedded")
def test_in_a_small_terminal_no_line_wraps_and_the_lines_to_try_work_as_printed() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="demo-") as directory,  # its name is short, and fits on a line
        in_a_terminal(["demo", "--keep", "--directory", directory], 80, 24) as terminal,
    ):
        terminal.read_until("explain job/", 150)
        drawn = frames(terminal.output)
        assert drawn
        assert all(fits(each, 80, 24) for each in drawn), next(each for each in drawn if not fits(each, 80, 24))
        whole = ["\n".join(each) for each in drawn]
        assert any("LOST" in each for each in whole)
        assert any(UNICODE.suspended in each for each in whole), "a Job is seen to be suspended"
        last = "\n".join(last_screen(terminal.output, 80, 24))
        assert longest(terminal.output) <= 80
        assert_nothing_lost_nothing_twice(last)
        assert re.search(r"stale +[1-9][0-9]* copies removed", last), last

        lines = [line.strip() for line in last.splitlines() if line.strip().startswith(("export ", "kubectl "))]
        done = shell([*lines, "kubectl wait --for=condition=complete --timeout=60s job/hello"])
        assert done.returncode == 0, done.stdout + done.stderr
        assert "second-time-lucky" in done.stdout
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(timeout=DEADLINE) == 0
        assert list(Path(directory).glob("*.kubeconfig")) == []


def shell(lines: list[str]) -> "subprocess.CompletedProcess[str]":
    try:
        program = find_kubectl()
    except BinariesMissingError as error:
        pytest.skip(str(error))
    path = f"{program.parent}:{os.environ['PATH']}"
    command = ["bash", "-ec", "\n".join(lines)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, check=False, env={**os.environ, "PATH": path}
    )


@pytest.mark.cluster_kind("embedded")
def test_in_a_large_terminal_that_is_made_smaller_every_frame_fits_and_none_flickers() -> None:
    with in_a_terminal(["demo"], 120, 40) as terminal:
        terminal.read_until("is cut off", 120)
        large = len(frames(terminal.output))
        terminal.resize(80, 24)
        assert terminal.read_to_the_end() == 0, terminal.output[-2000:].decode()
    drawn = frames(terminal.output)
    assert all(fits(each, 120, 40) for each in drawn)
    assert max(len(line) for each in drawn[:large] for line in each) > 110, "it uses the width that it has"
    assert fits(drawn[-1], 80, 24), drawn[-1]
    assert terminal.output.count(b"\x1b[2J") <= 1, "the screen is wiped only when its size changes"
    assert_nothing_lost_nothing_twice("\n".join(last_screen(terminal.output, 80, 24)))


@pytest.mark.parametrize("kind", ["local"])
def test_into_a_file_the_demo_prints_plain_lines_and_real_clusters_do_the_same(kind: str) -> None:
    command = [sys.executable, "-m", "multimirror.cli", "demo", "--fleet", kind]

    done = subprocess.run(command, capture_output=True, text=True, timeout=230, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "-- worker-2 is cut off" in done.stdout
    assert re.search(r"moved +[1-9][0-9]* Jobs, when worker-2 was cut off", done.stdout), done.stdout
    assert_nothing_lost_nothing_twice(done.stdout)
    assert "\x1b" not in done.stdout
    assert done.stderr == ""

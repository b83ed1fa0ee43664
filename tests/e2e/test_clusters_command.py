"""`python -m clusters`: a fleet from the command line, as its user sees it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

Start = Callable[..., "subprocess.Popen[str]"]
pytestmark = pytest.mark.cluster_kind("embedded")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "clusters", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Start]:
    """Starts `up` in a directory of this test; whatever still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        line = command("up", "--directory", str(tmp_path / "fleet"), *arguments)
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def announced(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What `up -o yaml` printed when everything was up: its first document, which ends with the last cluster's line."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "worker-1.kubeconfig" in line:
            break
    state: dict[str, Any] = yaml.safe_load("".join(lines))
    return state


def test_a_fleet_is_brought_up_asked_and_stopped(up: Start, tmp_path: Path) -> None:
    process = up("--workers", "1", "-o", "yaml")
    state = announced(process)
    assert [cluster["name"] for cluster in state["clusters"]] == ["management", "worker-1"]
    for cluster in state["clusters"]:
        path = Path(cluster["kubeconfig"])
        assert path.stat().st_mode & 0o777 == 0o600
        assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"] == cluster["server"]

    directory = ("--directory", str(tmp_path / "fleet"))
    asked = run("status", *directory, "-o", "json")
    assert asked.returncode == 0, asked.stderr
    answers = json.loads(asked.stdout)["clusters"]
    assert [(cluster["ready"], cluster["nodes"]) for cluster in answers] == [(True, 1), (True, 1)]
    assert all(cluster["version"].startswith("v1.") for cluster in answers)
    table = run("status", *directory).stdout.splitlines()
    assert table[0].split() == ["NAME", "SERVER", "KUBECONFIG", "READY", "VERSION", "NODES"]

    again = run("up", *directory)
    assert again.returncode == 1
    assert again.stderr.startswith(f"error: a fleet is already up in {tmp_path / 'fleet'}: stop it with `python -m")

    down = run("down", *directory)
    assert (down.returncode, down.stdout) == (0, "2 embedded clusters stopped\n"), down.stderr
    assert process.wait(timeout=30) == 0
    assert list((tmp_path / "fleet").glob("*.kubeconfig")) == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{state['clusters'][0]['server']}/version", timeout=5)


def test_the_exact_lines_to_try_are_printed_and_ctrl_c_stops_it(up: Start, tmp_path: Path) -> None:
    process = up("--workers", "0")
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if line.startswith("Ctrl-C"):
            break
    assert f"kubectl --kubeconfig {tmp_path / 'fleet' / 'management.kubeconfig'} get nodes" in shown
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0


def test_a_fleet_that_was_killed_is_not_taken_for_one_that_is_up(up: Start, tmp_path: Path) -> None:
    process = up("--workers", "1", "-o", "yaml")
    announced(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    directory = ("--directory", str(tmp_path / "fleet"))
    for asked in ("status", "down"):
        answer = run(asked, *directory)
        assert answer.returncode == 1
        assert answer.stderr == (
            f"error: no fleet is up in {tmp_path / 'fleet'}: start one with `python -m clusters up`"
            " (the last one was killed)\n"
        )
    announced(up("--workers", "1", "-o", "yaml"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["status"], 1, "error: no fleet is up in ", id="nothing is up"),
        pytest.param(["up", "--workers", "-1"], 2, "argument --workers: must not be negative", id="a negative number"),
        pytest.param(["up", "--kind", "cloud"], 2, "argument --kind: invalid choice: 'cloud'", id="an unknown kind"),
        pytest.param([], 2, "the following arguments are required: up|status|down", id="no command"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    place = ["--directory", str(tmp_path / "none")] if arguments else []
    answer = run(*arguments, *place)
    assert answer.returncode == code
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def test_help_fits_on_a_screen_and_has_examples() -> None:
    shown = run("--help").stdout
    assert len(shown.splitlines()) <= 24
    assert "python -m clusters up --kind local" in shown


def test_a_data_directory_that_is_in_use_is_refused(up: Start, tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    announced(up("--workers", "1", "-o", "yaml", *data))
    answer = run("up", "--directory", str(tmp_path / "other"), *data)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"error: {tmp_path / 'data' / 'management'} is in use by another server: stop")


@pytest.mark.parametrize("kind", [pytest.param("local", id="no binaries"), pytest.param("kind", id="no Docker")])
def test_a_kind_that_cannot_run_here_says_what_is_missing(tmp_path: Path, kind: str) -> None:
    nothing = {"PATH": str(tmp_path), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    line = command("up", "--directory", str(tmp_path / "fleet"), "--kind", kind)
    answer = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, env=nothing)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")
    assert len(answer.stderr.splitlines()) == 1

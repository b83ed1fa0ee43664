"""`make test-kind` where there is no Docker: one line with the remedy, and nothing that looks like a pass."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def said(tmp_path: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": str(tmp_path)}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_it_says_in_one_line_what_is_missing_and_where_to_get_it(tmp_path: Path) -> None:
    done = said(tmp_path, "-m", "clusters.kind", "check")
    assert (done.returncode, done.stderr) == (1, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("`docker` is not in PATH: install Docker (https://")
    assert "`kind` is not in PATH: install kind (https://" in line


def test_its_tests_are_not_left_out_one_by_one_but_end_with_a_code_of_their_own(tmp_path: Path) -> None:
    done = said(tmp_path, "-m", "pytest", "tests/kind", "-p", "no:cacheprovider")
    assert done.returncode == 69
    assert done.stderr.startswith("Exit: `docker` is not in PATH: install Docker (https://"), done.stdout
    assert "passed" not in done.stdout


def test_make_asks_first_then_gets_its_tools_then_runs_them() -> None:
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}  # we may be run by make
    shown = subprocess.run(
        ["make", "-n", "test-kind", "TESTS=demo"], cwd=ROOT, env=outside, capture_output=True, text=True, check=True
    )
    check, tools, tests = shown.stdout.splitlines()[-3:]
    assert check.endswith("-m clusters.kind check")
    assert tools.endswith("-m clusters.local helm")
    assert "pytest tests/kind" in tests
    assert tests.endswith("-k 'demo'")

"""The demo, as a newcomer runs it."""

import re
import subprocess
import sys

import pytest


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["embedded", "local"])
def test_the_demo_moves_jobs_from_the_lost_worker_loses_none_and_runs_none_twice(kind: str) -> None:
    command = [sys.executable, "-m", "multimirror.cli", "demo", "--fleet", kind]

    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "-- worker-2 is cut off" in done.stdout
    assert re.search(r"34 of 34 Jobs ended, [1-9][0-9]* of them after they had moved", done.stdout), done.stdout
    assert "Lost: 0. Running twice: 0." in done.stdout
    assert done.stderr == ""

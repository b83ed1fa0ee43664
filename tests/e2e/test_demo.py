"""The demo, as a newcomer runs it."""

import subprocess
import sys

import pytest


@pytest.mark.cluster_kind("embedded")
def test_the_demo_loses_no_job_and_runs_none_twice() -> None:
    command = [sys.executable, "-m", "multimirror.cli", "demo"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "-- worker-2 is cut off" in done.stdout
    assert "34 of 34 Jobs ended" in done.stdout
    assert "Lost: 0. Running twice: 0." in done.stdout
    assert done.stderr == ""

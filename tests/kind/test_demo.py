"""The demo on kind clusters of its own, as a newcomer runs it."""

import re
import subprocess
import sys

from tests.following import to_its_end

_CONTAINERS = ("ps", "-aq", "--filter", "name=^mm-")
"""Of fleets that have names of their own, as the demo's has; others may come and go on this machine meanwhile."""


def docker(*arguments: str) -> set[str]:
    return set(subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout.split())


def test_the_demo_on_kind_loses_nothing_runs_nothing_twice_and_leaves_nothing_behind() -> None:
    containers, networks = docker(*_CONTAINERS), docker("network", "ls", "-q")
    command = [sys.executable, "-m", "multimirror.cli", "demo", "--fleet", "kind", "--workers", "2"]

    done = to_its_end(command)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ *lost +0$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^ *twice +0$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"moved +[1-9][0-9]* Jobs, when worker-2 was cut off", done.stdout), done.stdout
    assert done.stderr == ""
    assert not docker(*_CONTAINERS) - containers
    assert not docker("network", "ls", "-q") - networks

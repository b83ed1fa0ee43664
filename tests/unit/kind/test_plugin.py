"""Kind fleets in another project's tests, by the pytest plugin; `docker` and `kind` are stand-ins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.kind.stand_ins import Machine

PROJECT = {
    "conftest.py": """
import pytest
from clusters.kind import KindOptions

@pytest.fixture(scope="session")
def kind_fleet_options():
    return KindOptions(workers=1, images=["mine:1"])
""",
    "test_it.py": """
import pytest

def test_one(kind_fleet):
    assert [cluster.name for cluster in kind_fleet.clusters()] == ["management", "worker-1"]
    assert kind_fleet.workers["worker-1"].internal_kubeconfig

@pytest.mark.fleet(kind="kind", workers=0, prefix="own", kubernetes_version="1.35")
def test_another(fleet, kind_fleet):
    assert fleet.fleet.prefix == "own" != kind_fleet.fleet.prefix
""",
}


def run(machine: Machine, directory: Path, *arguments: str) -> str:
    for name, text in PROJECT.items():
        (directory / name).write_text(text)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    path = f"{machine.directory}{os.pathsep}/usr/bin{os.pathsep}/bin"
    done = subprocess.run(
        line,
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def image_of(machine: Machine, part: str) -> set[str]:
    created = [call for call in machine.calls("kind", "create") if part in call[call.index("--name") + 1]]
    return {call[call.index("--image") + 1] for call in created}


@pytest.mark.timeout(600)  # it runs pytest twice
def test_fleets_come_and_go_with_their_tests_and_can_be_kept_for_the_next_run(machine: Machine, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    assert "2 passed" in run(machine, project, "--node-image", "told:1", "--keep-fleet")
    kept = machine.clusters
    assert [name.rpartition("-kind-")[2] for name in sorted(kept)] == ["management", "worker-1"]
    assert image_of(machine, "-kind-") == {"told:1"}
    assert image_of(machine, "own-") == {"kindest/node:v1.35.4"}, "its own wish goes before the command line"
    assert len(machine.calls("kind", "load")) == 2, "into every cluster"
    made = len(machine.calls("kind", "create"))
    assert "1 passed" in run(machine, project, "-k", "one", "--keep-fleet")
    assert len(machine.calls("kind", "create")) == made, "those that are there are used"
    assert machine.clusters == kept

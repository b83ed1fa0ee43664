"""The pytest plugin, as another project uses it: the example in its documentation is run as written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import DEADLINE

DOCUMENT = Path(__file__).parents[2] / "docs" / "pytest-fleet.md"
pytestmark = pytest.mark.cluster_kind("embedded")


def run(directory: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A test run of its own, in a project of its own."""
    (directory / "test_example.py").write_text(code)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(line, cwd=directory, capture_output=True, text=True, timeout=DEADLINE, check=False)


def test_the_documented_example_works_as_written(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    done = run(tmp_path, code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_wish_that_no_fleet_understands_is_refused_by_name(tmp_path: Path) -> None:
    done = run(tmp_path, "import pytest\n\n@pytest.mark.fleet(wokers=3)\ndef test_it(fleet):\n    pass\n")
    assert done.returncode == 1
    assert "unexpected keyword argument 'wokers'" in done.stdout


def test_the_shared_fleet_is_made_once(tmp_path: Path) -> None:
    code = """
        def test_one(shared_fleet):
            test_one.server = shared_fleet.management.kubeconfig["clusters"][0]["cluster"]["server"]

        async def work(fleet):
            return [cluster.name for cluster in fleet.clusters()]

        def test_two(shared_fleet):
            assert shared_fleet.management.kubeconfig["clusters"][0]["cluster"]["server"] == test_one.server
            assert shared_fleet.run(work(shared_fleet.fleet)) == ["management", "worker-1", "worker-2"]
    """
    done = run(tmp_path, "\n".join(line[8:] for line in code.splitlines()))
    assert done.returncode == 0, done.stdout + done.stderr

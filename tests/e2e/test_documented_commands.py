"""Every command in the README and in the quickstarts, run as it is written there.

Each document is run from top to bottom in a fresh directory that looks like a checkout, in a home of its own
(tests/following.py). The quickstart with kind is run by tests/kind/test_quickstart.py.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions
from clusters.local import BinariesMissingError, find_kubectl
from tests.documents import ROOT, blocks
from tests.following import NOT_RUN, SHELLS, Terminal, a_terminal, commands, follow
from tests.waiting import DEADLINE


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A checkout, as far as links go."""
    try:
        kubectl = find_kubectl()
    except BinariesMissingError as error:
        pytest.skip(str(error))
    checkout = tmp_path / "multimirror"
    checkout.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and not entry.name.endswith(".egg-info"):
            (checkout / entry.name).symlink_to(entry)
    shell = a_terminal(checkout, [kubectl])
    try:
        yield shell
    finally:
        shell.close()


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


def test_the_commands_in_the_readme_work_as_they_are_written(terminal: Terminal) -> None:
    follow(terminal, "README.md")


def test_every_document_with_commands_to_follow_is_followed() -> None:
    found = {str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *ROOT.glob("docs/quickstart*.md")]}
    assert found == {"README.md", "docs/quickstart.md", "docs/quickstart-existing.md", "docs/quickstart-kind.md"}
    for block in (block for name in found for block in blocks(ROOT / name)):
        assert block.language in SHELLS | {"yaml", "text", "mermaid", "python"}, f"{block}: say what language it is in"


@pytest.mark.parametrize(
    ("target", "runs"),
    [("demo", ".venv/bin/multimirror demo"), ("test", ".venv/bin/pytest -n 7 --dist loadgroup")],
)
def test_make_does_what_the_tests_run(target: str, runs: str) -> None:
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}  # we may be run by make
    said = subprocess.run(
        ["make", "-n", target, "WORKERS=7"],
        cwd=ROOT,
        env=outside,
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    assert said.stdout.splitlines()[-1].startswith(runs)


def test_what_is_not_run_is_covered_elsewhere() -> None:
    for name in ("README.md", "docs/quickstart.md", "docs/quickstart-existing.md", "docs/quickstart-kind.md"):
        for block in commands(name):
            if reason := NOT_RUN.match(block.note):
                named = re.findall(r"[\w/.-]+\.py|Makefile", reason["reason"])
                assert named, f"{block}: name what covers it"
                assert [each for each in named if not (ROOT / each).exists()] == []

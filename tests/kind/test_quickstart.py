"""The quickstart with kind, as it is written, from top to bottom: with clusters and an image of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.following import Terminal, a_terminal, follow

CLUSTERS = ["multimirror-management", "multimirror-worker-1", "multimirror-worker-2"]
_GIVEN = ("DOCKER_HOST", "MULTIMIRROR_", "PIP_")
"""What the machine needs that it runs on: variables, so that the text need not be changed."""


def clusters() -> set[str]:
    return set(subprocess.run(["kind", "get", "clusters"], capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A checkout that can be built from; its clusters are gone afterwards, however far it came."""
    there = sorted(clusters() & set(CLUSTERS))
    assert not there, f"somebody's kind clusters are in the way: {', '.join(there)}"
    checkout = tmp_path / "multimirror"
    not_copied = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist")
    shutil.copytree(ROOT, checkout, ignore=not_copied)
    shutil.copy(ROOT / ".dockerignore", checkout)
    given = {key: value for key, value in os.environ.items() if key.startswith(_GIVEN)}
    shell = a_terminal(checkout, more=given)
    shell.patience = 1200.0  # it builds an image
    try:
        yield shell
    finally:
        shell.close()
        for name in clusters() & set(CLUSTERS):
            subprocess.run(["kind", "delete", "cluster", "--name", name], capture_output=True, check=True)


def test_the_quickstart_with_kind_works_as_it_is_written(terminal: Terminal) -> None:
    printed = follow(terminal, "docs/quickstart-kind.md")
    told = "\n".join(printed.values())
    assert "Complete on worker-" in told
    assert "hello from a worker" in told
    assert not clusters() & set(CLUSTERS), "its last step takes them down"

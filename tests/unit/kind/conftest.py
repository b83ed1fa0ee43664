"""A machine on which docker and kind are stand-ins."""

from pathlib import Path

import pytest

from tests.unit.kind.stand_ins import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MULTIMIRROR_NODE_IMAGE", raising=False)
    return Machine(tmp_path / "bin")

"""A test run says which kinds of cluster it covered, and why not the others."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import pytest

@pytest.mark.cluster_kind("embedded")
def test_on_embedded():
    pass

@pytest.mark.cluster_kind("local")
def test_on_local():
    pass

@pytest.mark.parametrize("cluster", ["embedded", "kind"])
def test_on_several(cluster):
    pass

def test_of_none():
    pass
"""


@pytest.fixture
def machine(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Without binaries, Docker and kind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    monkeypatch.setenv("PATH", str(pytester.path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(TESTS)
    return pytester


@pytest.mark.parametrize("arguments", [["-p", "no:xdist"], ["-n", "1"]], ids=["one process", "workers"])
def test_kinds_that_are_not_to_be_had_are_left_out_and_named(machine: pytest.Pytester, arguments: list[str]) -> None:
    result = machine.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=3, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*= kinds of cluster =*",
            "embedded  covered by 2 tests",
            "local     NOT covered, 1 test left out: no kube-apiserver*make binaries*",
            "kind      NOT covered, 1 test left out: `docker` is not in PATH*",
        ]
    )


def test_a_run_without_clusters_does_not_speak_of_them(machine: pytest.Pytester) -> None:
    result = machine.runpytest_subprocess("-p", "no:xdist", "-k", "test_of_none")
    result.stdout.no_fnmatch_line("*kinds of cluster*")

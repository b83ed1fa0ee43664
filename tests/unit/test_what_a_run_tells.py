"""A test run says which kinds of cluster it covered, and why not the others; and what it left out."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"
KINDS = """
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

CONTRACT = """
import pytest

@pytest.mark.parametrize("cluster", ["embedded"])
@pytest.mark.parametrize("number", range(9))
def test_case(cluster, number):
    pass
"""
SCENARIOS = """
import pytest

@pytest.fixture(params=["embedded", "local"])
def kind(request):
    return request.param

@pytest.fixture
def dispatching_fleet(kind):
    pass

def test_about_us(dispatching_fleet):
    pass

@pytest.mark.real_server
def test_about_the_server(dispatching_fleet):
    pass
"""


@pytest.fixture
def machine(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Without binaries, Docker and kind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    monkeypatch.setenv("PATH", str(pytester.path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makeconftest(CONFTEST.read_text())
    return pytester


@pytest.mark.parametrize("arguments", [["-p", "no:xdist"], ["-n", "1"]], ids=["one process", "workers"])
def test_kinds_that_are_not_to_be_had_are_left_out_and_named(machine: pytest.Pytester, arguments: list[str]) -> None:
    machine.makepyfile(KINDS)
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
    machine.makepyfile(KINDS)
    result = machine.runpytest_subprocess("-p", "no:xdist", "-k", "test_of_none")
    result.stdout.no_fnmatch_line("*kinds of cluster*")


@pytest.fixture
def suite(machine: pytest.Pytester) -> pytest.Pytester:
    for folder, text in (("contract", CONTRACT), ("e2e", SCENARIOS)):
        machine.mkdir(folder).joinpath(f"test_{folder}.py").write_text(text)
    return machine


@pytest.mark.parametrize("arguments", [["-p", "no:xdist"], ["-n", "2"]], ids=["one process", "workers"])
def test_one_of_four_cases_of_the_contract_is_kept_and_the_others_are_told(
    suite: pytest.Pytester, arguments: list[str]
) -> None:
    result = suite.runpytest_subprocess(*arguments, "contract", "--leave-out", "contract")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*left out; `make test-all` runs everything*", "6 cases of the API contract*"])


def test_without_real_control_planes_a_scenario_is_run_on_embedded_ones(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-p", "no:xdist", "e2e", "--leave-out", "twins", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_about_us?embedded? PASSED*", "*test_about_the_server?embedded? PASSED*"])
    result.stdout.fnmatch_lines(["2 scenarios of the dispatcher*"])


def test_nothing_is_left_out_unless_it_is_asked_for(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-p", "no:xdist", "contract")
    result.assert_outcomes(passed=9)
    result.stdout.no_fnmatch_line("*left out*")

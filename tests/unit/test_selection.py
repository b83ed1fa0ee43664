"""What a test run may leave out, and that it says so."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"
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
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """On a machine without binaries of real control planes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    monkeypatch.setenv("PATH", str(pytester.path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makeconftest(CONFTEST.read_text())
    for folder, text in (("contract", CONTRACT), ("e2e", SCENARIOS)):
        pytester.mkdir(folder).joinpath(f"test_{folder}.py").write_text(text)
    return pytester


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

"""What every test may use: cluster kinds that are skipped where they cannot be, and a report of which were covered.

A test belongs to a kind of cluster by the mark `cluster_kind("local")`, or by a parameter `cluster` or
`kind` that names one.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

from clusters.fleet import unavailable
from tests import selection

# No deadlines: the machine may be busy. The same examples every time: a failure must be one that others see too.
# `pytest --hypothesis-profile=search` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("repeatable")

KINDS = ("embedded", "local", "kind")
_PROPERTY = "cluster kind"
_HERE = Path(__file__).parent
_ON_CLUSTERS = ("contract", "e2e", "faults", "security")
_SECONDS = 600.0  # for tests on clusters: only what hangs takes so long, however busy the machine is


def pytest_addoption(parser: pytest.Parser) -> None:
    selection.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cluster_kind(name): runs on clusters of that kind; skipped where there are none"
    )
    config.addinivalue_line(
        "markers",
        "search: looks for long, at random; not in `make test` (tests/selection.py)",
    )
    config.addinivalue_line(
        "markers",
        "real_server: it is about what real control planes do; `make test` runs it there (tests/selection.py)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection.select(config, items, _HERE)
    for item in items:
        if kind := _kind_of(item):
            item.user_properties.append((_PROPERTY, kind))
        if item.path.relative_to(_HERE).parts[0] in _ON_CLUSTERS and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS))


def pytest_runtest_setup(item: pytest.Item) -> None:
    kind = _kind_of(item)
    if kind and (reason := _unavailable(kind, item.config)):
        pytest.skip(reason)


def pytest_sessionfinish(session: pytest.Session) -> None:
    selection.hand_over(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker process of pytest-xdist has ended."""
    selection.take_over(node.config, getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which kinds of cluster this run covered, and why not the others."""
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    reasons: dict[str, str] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, kind in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    outcomes[kind][outcome] += 1
                    if outcome == "skipped" and isinstance(report.longrepr, tuple):
                        reasons.setdefault(kind, report.longrepr[2].removeprefix("Skipped: "))
    selection.tell(terminalreporter.config, terminalreporter)
    if not any(outcomes.values()):
        return
    terminalreporter.section("kinds of cluster")
    for kind, counted in outcomes.items():
        terminalreporter.write_line(f"{kind:9} {_covered(counted, reasons.get(kind))}")


def _covered(counted: Counter[str], reason: str | None) -> str:
    ran = counted["passed"] + counted["failed"] + counted["error"]
    if ran:
        left_out = f", {_tests(counted['skipped'])} left out: {reason}" if counted["skipped"] else ""
        return f"covered by {_tests(ran)}{left_out}"
    if counted["skipped"]:
        return f"NOT covered, {_tests(counted['skipped'])} left out: {reason}"
    return "no test asked for it"


def _tests(count: int) -> str:
    return f"{count} test{'' if count == 1 else 's'}"


def _kind_of(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("cluster_kind")
    if mark is not None:
        return str(mark.args[0])
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    named = [parameters.get(name) for name in ("cluster", "kind")]
    return next((kind for kind in named if isinstance(kind, str) and kind in KINDS), None)


_KNOWN = pytest.StashKey[dict[str, str | None]]()


def _unavailable(kind: str, config: pytest.Config) -> str | None:
    known = config.stash.setdefault(_KNOWN, {})
    if kind not in known:
        known[kind] = unavailable(kind)
    return known[kind]


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """Commands that are called here set up logging, as they would for their own process."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()

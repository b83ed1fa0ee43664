"""What `make test` leaves out, because it says the same thing twice; `make test-all` runs everything.

    --leave-out contract    three of four cases of the API contract, in each file, on both kinds of server. They test
                            the embedded server, so they are all run when that has changed
    --leave-out twins       each scenario of the dispatcher once instead of on both kinds of cluster: on real control
                            planes where it is about what these do (the mark `real_server`), else on embedded ones

    --leave-out search      long random searches for bugs that were put back; the short stories of them are always run

By default nothing is left out: who asks for a test by its name gets it. What was left out is told at the end of a run.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from clusters.fleet import unavailable

OPTION: Final = "--leave-out"
_CONTRACT: Final = "contract"
_TWINS: Final = "twins"
_SEARCH: Final = "search"
_TEXTS: Final = {
    _CONTRACT: "{count} cases of the API contract (three of four), because the embedded server has not changed",
    _SEARCH: "{count} random searches for bugs that were put back",
    _TWINS: "{count} scenarios of the dispatcher on the kind of cluster that says less about them",
}
_ONE_OF: Final = 4
_ON_FLEETS: Final = frozenset(("dispatching_fleet", "play"))
"""The fixtures of scenarios on either kind of cluster (tests/e2e/conftest.py, tests/faults/test_real_processes.py)."""
_LEFT_OUT: Final = pytest.StashKey[dict[str, int]]()


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="append", default=[], choices=tuple(_TEXTS), help="see tests/selection.py")


def select(config: pytest.Config, items: list[pytest.Item], root: Path) -> None:
    """Take out what is not to be run this time. `root`: where the tests are."""
    chosen = config.getoption(OPTION)
    left_out = config.stash[_LEFT_OUT] = {}
    if not chosen:
        return
    for part in chosen:
        dropped = _parts(part, items, root)
        left_out[part] = len(dropped)
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


def _parts(part: str, items: list[pytest.Item], root: Path) -> set[pytest.Item]:
    if part == _SEARCH:
        return {item for item in items if item.get_closest_marker("search")}
    return _twins(items) if part == _TWINS else _beyond_the_sample(items, root / "contract")


def _beyond_the_sample(items: list[pytest.Item], folder: Path) -> set[pytest.Item]:
    """All but one of four cases of each file, the first of them first; of a case, both kinds of server or none."""
    files: dict[Path, dict[str, int]] = {}
    dropped = set()
    for item in items:
        if item.path.parent == folder:
            cases = files.setdefault(item.path, {})
            if cases.setdefault(_without_kind(item), len(cases)) % _ONE_OF:
                dropped.add(item)
    return dropped


def _twins(items: list[pytest.Item]) -> set[pytest.Item]:
    """Scenarios that are run on the other kind of cluster as well, which says more about them."""
    real = unavailable("local") is None
    kinds: dict[tuple[Path, str], dict[str, pytest.Item]] = {}
    for item in items:
        if _ON_FLEETS & set(getattr(item, "fixturenames", ())):
            kinds.setdefault((item.path, _without_kind(item)), {})[_kind_of(item)] = item
    dropped = set()
    for twins in kinds.values():
        better = (
            "local" if real and any(item.get_closest_marker("real_server") for item in twins.values()) else "embedded"
        )
        if better in twins:
            dropped |= {item for kind, item in twins.items() if kind != better}
    return dropped


def _kind_of(item: pytest.Item) -> str:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return str(params.get("cluster") or params.get("kind") or "")


def _without_kind(item: pytest.Item) -> str:
    return item.name.replace(_kind_of(item), "", 1) if _kind_of(item) else item.name


def hand_over(config: pytest.Config) -> None:
    """In a worker process of pytest-xdist: what it left out, for the one that tells."""
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["left_out"] = config.stash.get(_LEFT_OUT, {})


def take_over(config: pytest.Config, output: dict[str, Any]) -> None:
    """All of them left out the same."""
    config.stash[_LEFT_OUT] = output.get("left_out") or {}


def tell(config: pytest.Config, terminalreporter: Any) -> None:
    left_out = config.stash.get(_LEFT_OUT, {})
    if left_out:
        terminalreporter.section("left out; `make test-all` runs everything")
        for part, count in sorted(left_out.items()):
            terminalreporter.write_line(_TEXTS[part].format(count=count))

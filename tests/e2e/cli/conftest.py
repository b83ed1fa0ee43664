"""A fleet of each kind under an operator's hands; the tests of a kind stay together, so that it is started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.fleet import unavailable
from tests.e2e.cli.operating import Operator, operated


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        call = getattr(item, "callspec", None)
        if item.path.parent == Path(__file__).parent and call is not None and "kind" in call.params:
            item.add_marker(pytest.mark.xdist_group(f"cli-{call.params['kind']}"))


@pytest.fixture(scope="session", params=["embedded", "local"])
def kind(request: pytest.FixtureRequest) -> str:
    """What the clusters are made of."""
    return str(request.param)


@pytest.fixture(scope="session")
def operator(kind: str) -> Iterator[Operator]:
    """A fleet of two workers, and the dispatcher at work."""
    reason = unavailable(kind)
    if reason:
        pytest.skip(reason)
    with operated(kind) as operator:
        yield operator

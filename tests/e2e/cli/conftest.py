"""A fleet of each kind under an operator's hands; the tests of a kind stay together, so that it is started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli.operating import KINDS, Operator, operated


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _is_wanted(item)]
    for item in items:
        kind = _kind_of(item)
        if kind is not None:
            item.add_marker(pytest.mark.xdist_group(f"cli-{kind}"))


def _is_wanted(item: pytest.Item) -> bool:
    only = KINDS.get(item.function) if isinstance(item, pytest.Function) else None
    return only is None or _kind_of(item) in {None, only}


def _kind_of(item: pytest.Item) -> str | None:
    """For the tests of this directory."""
    call = getattr(item, "callspec", None)
    if item.path.parent != Path(__file__).parent or call is None:
        return None
    kind: str | None = call.params.get("kind")
    return kind


@pytest.fixture(scope="session")
def operator(kind: str) -> Iterator[Operator]:
    """A fleet of two workers, and the dispatcher at work."""
    with operated(kind) as operator:
        yield operator

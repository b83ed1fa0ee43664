"""Fleets for the tests of the dispatcher: one of each kind for the whole run, a stage on it for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from tests.e2e.dispatching import Stage, a_stage, running_fleet


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of one kind stay together, so that no fleet is started twice (`--dist loadgroup`)."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and "kind" in call.params and "dispatching_fleet" in getattr(item, "fixturenames", ()):
            if item.path.parent == Path(__file__).parent:
                item.add_marker(pytest.mark.xdist_group(f"dispatcher-{call.params['kind']}"))


@pytest.fixture(scope="session", params=["embedded", "local"])
def kind(request: pytest.FixtureRequest) -> str:
    """What the clusters are made of. Where there are none of a kind, its tests are skipped (tests/conftest.py)."""
    return str(request.param)


@pytest.fixture(scope="session")
def dispatching_fleet(kind: str) -> Iterator[BackgroundFleet]:
    with running_fleet(kind) as fleet:
        yield fleet


@pytest_asyncio.fixture
async def stage(kind: str, dispatching_fleet: BackgroundFleet) -> AsyncIterator[Stage]:
    """One test's namespace, queue and workers; whatever a test is about, all promises must have been kept."""
    async with a_stage(kind, dispatching_fleet) as stage:
        yield stage
        await stage.check()

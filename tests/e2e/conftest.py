"""Fleets for the tests of the dispatcher: one of each kind for the whole run, a stage on it for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from tests.e2e.dispatching import Stage, a_stage, running_fleet
from tests.e2e.sharing import Cohort


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of one kind stay together, so that no fleet is started twice (`--dist loadgroup`). Except that those of
    queues that share, which are many, have embedded fleets of their own: these cost little, and two run at once."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and "kind" in call.params and "dispatching_fleet" in getattr(item, "fixturenames", ()):
            if item.path.parent == Path(__file__).parent:
                kind = call.params["kind"]
                shares = kind == "embedded" and "cohort" in getattr(item, "fixturenames", ())
                item.add_marker(pytest.mark.xdist_group(f"{'sharing' if shares else 'dispatcher'}-{kind}"))


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


@pytest.fixture
def cohort(stage: Stage) -> Cohort:
    """Two queues that share. The second one stays until the history has been checked: it says how long copies are
    kept."""
    return Cohort(stage)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for five seconds before others are stopped for him: test_sharing.py has scenarios that do."""
    monkeypatch.setattr("multimirror.scheduling.preempting.WAIT_SECONDS", 0.0)

"""One installation for all attacks: real control planes, the shipped rights, tenants with little more than nothing.

The management cluster has what `multimirror install` puts there (admission by policies, which need nothing to run), its
two workers came by `multimirror join`. A dispatcher is a process of its own for each test that asks for one, with the
account and the rights of the installation. Attackers are ServiceAccounts: see `Installation.tenant`.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from clusters.fleet import unavailable
from clusters.local import LocalOptions
from tests.security.installation import DispatcherProcess, Installation, installation_on


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One fleet, so one process for all of them."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.cluster_kind("local"))
            item.add_marker(pytest.mark.xdist_group("security"))
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def fleet() -> Iterator[BackgroundFleet]:
    reason = unavailable("local")
    if reason:
        pytest.skip(reason)
    with BackgroundFleet("local", LocalOptions(workers=2)) as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installation(fleet: BackgroundFleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    """Installed, and its workers joined; no dispatcher runs."""
    async with installation_on(fleet, tmp_path_factory.mktemp("installation")) as installation:
        yield installation


@pytest_asyncio.fixture(loop_scope="session")
async def dispatcher(installation: Installation) -> AsyncIterator[DispatcherProcess]:
    """It works, and both workers are ready."""
    async with installation.dispatcher() as process:
        yield process

"""One real control plane for all tests of the installation, with RBAC on and every request in its audit log.

Its own Job controller is off: it is the builtin controller's place. Workers are embedded clusters, which cost little.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions, unavailable
from clusters.local import LocalCluster, LocalOptions
from multimirror.kube import Client, Connection
from tests.e2e.installation.processes import Pods

GATES = {"GenericWorkload": True}
APIS = {"scheduling.k8s.io/v1alpha2": True}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One control plane, so one process for all of them."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("installation"))
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def fleet() -> Iterator[BackgroundFleet]:
    reason = unavailable("local")
    if reason:
        pytest.skip(reason)
    options = LocalOptions(
        workers=0,
        audit_log=True,
        controllers=("*", "-job-controller"),
        feature_gates=GATES,
        runtime_config=APIS,
        extra_args={"kube-apiserver": ["--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]},
    )
    with BackgroundFleet("local", options) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def workers() -> Iterator[BackgroundFleet]:
    with BackgroundFleet("embedded", FleetOptions(workers=2, job_controller=True)) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def kubeconfig(fleet: BackgroundFleet) -> Path:
    """The administrator's."""
    return fleet.kubeconfig_file()


@pytest_asyncio.fixture(loop_scope="session")
async def admin(fleet: BackgroundFleet) -> AsyncIterator[Client]:
    async with Client(Connection.from_kubeconfig(fleet.management.kubeconfig), user_agent="admin") as client:
        yield client


@pytest.fixture
def pods(fleet: BackgroundFleet, tmp_path: Path) -> Pods:
    assert isinstance(fleet.management, LocalCluster)
    return Pods(fleet.management, tmp_path)

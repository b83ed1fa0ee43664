"""The Job controller on clusters that have none: embedded ones, and real control planes with theirs switched off.

One cluster of each kind for the whole run, with simulated nodes, in a thread of its own; a namespace and a controller
that serves only this namespace for each test.
"""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions
from clusters.local import LocalOptions
from multimirror.kube import Client, Connection
from tests.e2e.job_controller.world import World

KINDS = ("embedded", "local")
_GATES = {"GenericWorkload": True}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests share an event loop: the last words of a TLS connection may come after the test that used it."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(
    scope="session",
    # The tests of one kind go to one worker (`--dist loadgroup`), so that no control plane is started twice.
    params=[pytest.param(kind, marks=pytest.mark.xdist_group(f"jobs-{kind}")) for kind in KINDS],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[BackgroundFleet]:
    """A cluster whose Jobs nobody runs."""
    kind: str = request.param
    options = FleetOptions(workers=0)
    if kind == "local":
        options = LocalOptions(
            workers=0,
            controllers=("*", "-job-controller"),
            feature_gates=_GATES,
            runtime_config={"scheduling.k8s.io/v1alpha2": True},
            disable_admission_plugins=("ServiceAccount",),
        )
    with BackgroundFleet(kind, options) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def kubeconfig(cluster: BackgroundFleet) -> dict[str, Any]:
    return cluster.management.kubeconfig


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(kubeconfig: dict[str, Any]) -> AsyncIterator[Client]:
    """One pool of connections for all tests of a kind."""
    async with Client(Connection.from_kubeconfig(kubeconfig), user_agent="test") as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def world(client: Client) -> AsyncIterator[World]:
    """A namespace, and eyes on it."""
    async with World(client, f"jobs-{secrets.token_hex(4)}") as world:
        yield world

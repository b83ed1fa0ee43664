"""One suite, every kind of API server: what a test here says holds on a real kube-apiserver and on ours.

The servers live as long as the test session, one of each kind, in a thread with an event loop of their own: a test may
block (kubectl, the synchronous official client) or use a loop of its own without stopping an embedded server. Each test
gets a namespace nobody else uses. The namespaces are not deleted one by one: the servers are thrown away whole, and the
deletion of a namespace costs a real control plane more than most tests do.
"""

import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions
from tests.contract import objects
from tests.contract.wire import Api, Object, Wire

KINDS = ("embedded", "local")


@dataclass(frozen=True)
class Server:
    """An API server under test."""

    kind: str
    kubeconfig: dict[str, Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests share an event loop: the last words of a TLS connection may come after the test that used it."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(
    scope="session",
    # The tests of one kind go to one worker (`--dist loadgroup`), so that no control plane is started twice.
    params=[pytest.param(kind, marks=pytest.mark.xdist_group(f"contract-{kind}")) for kind in KINDS],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Server]:
    kind: str = request.param
    with BackgroundFleet(kind, FleetOptions(workers=0, nodes=False)) as fleet:
        yield Server(kind, fleet.management.kubeconfig)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def wire(cluster: Server) -> AsyncIterator[Wire]:
    """One pool of connections for all tests of a kind."""
    async with Wire(cluster.kubeconfig) as wire:
        yield wire


@pytest_asyncio.fixture(loop_scope="session")
async def api(wire: Wire) -> Api:
    """The server, and a fresh namespace in which a pod may be created at once."""
    api = Api(wire, f"contract-{secrets.token_hex(4)}")
    (await api.post("/api/v1/namespaces", {"metadata": {"name": api.namespace}})).ok(201)
    # Admission refuses pods until the controllers have made this; whoever makes it first is right.
    made = await api.post(api.at("serviceaccounts"), {"metadata": {"name": "default"}})
    assert made.status in (201, 409), made.text
    return api


@pytest_asyncio.fixture(loop_scope="session")
async def widget_crd(api: Api) -> None:
    """The custom resource `widgets` is served; made by the first test that needs it."""
    await establish(api, objects.widget_crd())


async def establish(api: Api, definition: Object) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await api.post(path, definition)).status in (201, 409)

    def established(_: str, crd: Object) -> bool:
        conditions = crd.get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    await api.watched(path, established, fieldSelector=f"metadata.name={definition['metadata']['name']}")
    # Established is true a moment before every path of a real server knows of it.
    spec = definition["spec"]
    served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    while (await api.get(served)).status == 404:
        pass

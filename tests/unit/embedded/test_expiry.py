"""When the history of a server has moved on: what clients that were too slow are told.

A real server forgets by compaction, which no client can bring about; so this is not part of the contract suite.
"""

from collections.abc import AsyncIterator

import pytest

from clusters.embedded import EmbeddedFleet, EmbeddedOptions
from tests.contract.objects import configmap
from tests.contract.wire import Api, Wire


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A server that remembers ten writes of each resource."""
    fleet = EmbeddedFleet(EmbeddedOptions(workers=0, nodes=False, tls=False, history=10))
    async with fleet, Wire(fleet.management.kubeconfig) as wire:
        yield Api(wire, "default")


async def write(api: Api, count: int) -> None:
    for number in range(count):
        (await api.patch(api.at("configmaps", "m0"), {"data": {"count": str(number)}})).ok()


async def test_a_watch_from_a_version_that_is_forgotten_ends_with_gone(api: Api) -> None:
    made = await api.made("configmaps", configmap("m0"))
    version = made["metadata"]["resourceVersion"]
    await write(api, 30)
    async with api.watch(api.at("configmaps"), resourceVersion=version) as stream:
        kind, status = await stream.event()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert status["message"].startswith(f"too old resource version: {version} (")
        assert await stream.rest() == []


async def test_a_token_that_is_forgotten_expires_and_comes_with_one_that_goes_on(api: Api) -> None:
    for number in range(3):
        await api.made("configmaps", configmap(f"m{number}", labels={"set": "x"}))
    params: dict[str, str | int] = {"limit": 1, "labelSelector": "set=x"}
    first = (await api.get(api.at("configmaps"), accept=None, **params)).ok()
    await write(api, 30)
    token = {"continue": first["metadata"]["continue"]}
    status = (await api.get(api.at("configmaps"), accept=None, **params, **token)).refused(410, "Expired")
    assert status["message"].startswith("The provided continue parameter is too old to display a consistent list")
    later = {"continue": status["metadata"]["continue"]}
    rest = (await api.get(api.at("configmaps"), accept=None, **params, **later)).ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["m1"]


async def test_a_list_at_a_version_that_is_forgotten_is_gone(api: Api) -> None:
    made = await api.made("configmaps", configmap("m0"))
    await write(api, 30)
    version = made["metadata"]["resourceVersion"]
    answer = await api.get(api.at("configmaps"), resourceVersion=version, resourceVersionMatch="Exact")
    answer.refused(410, "Expired")

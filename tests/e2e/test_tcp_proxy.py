"""A proxy before a cluster: the same cluster while it is open, nothing while it is shut."""

import asyncio
import contextlib

import pytest

from clusters.embedded import EmbeddedCluster
from clusters.fleet import FleetError
from clusters.tcp_proxy import TcpProxy
from multimirror.kube import Client, Connection
from multimirror.kube.errors import Unreachable
from multimirror.kube.resources import NAMESPACES

pytestmark = pytest.mark.cluster_kind("embedded")


async def test_a_shut_door_breaks_what_is_open_and_refuses_what_is_new_until_it_is_opened() -> None:
    async with (
        EmbeddedCluster("one") as cluster,
        TcpProxy(cluster.kubeconfig) as proxy,
        Client(Connection.from_kubeconfig(proxy.kubeconfig), timeout=5) as client,
        Client(Connection.from_kubeconfig(cluster.kubeconfig)) as straight,
    ):
        seen = (await client.list(NAMESPACES)).resource_version
        watching = asyncio.create_task(_watch(client, seen))
        await client.get(NAMESPACES, "default")
        proxy.cut()
        with contextlib.suppress(Unreachable):
            await asyncio.wait_for(watching, 30)
        with pytest.raises(Unreachable):
            await client.get(NAMESPACES, "default")
        await straight.get(NAMESPACES, "default")
        proxy.restore()
        assert (await client.get(NAMESPACES, "default"))["metadata"]["name"] == "default"


async def _watch(client: Client, version: str) -> None:
    async with contextlib.aclosing(client.watch(NAMESPACES, resource_version=version, timeout=60)) as events:
        async for _ in events:
            pass


def test_a_cluster_whose_certificate_is_for_another_host_gets_no_door() -> None:
    kubeconfig = {"clusters": [{"cluster": {"server": "https://api.example.com:6443"}}]}
    with pytest.raises(FleetError, match=r"certificate is for api\.example\.com"):
        TcpProxy(kubeconfig)

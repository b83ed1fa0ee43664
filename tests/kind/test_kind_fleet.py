"""A kind fleet for real; only where there is a Docker engine and kind."""

import pytest

from clusters.fleet import open_fleet
from clusters.kind import KindFleet, KindOptions
from multimirror.kube import Client, Connection
from multimirror.kube.resources import NODES

pytestmark = [pytest.mark.cluster_kind("kind"), pytest.mark.timeout(1800)]


async def test_every_cluster_of_a_kind_fleet_answers() -> None:
    async with open_fleet("kind", KindOptions(workers=2, prefix="multimirror-e2e")) as fleet:
        assert isinstance(fleet, KindFleet)
        for cluster in fleet.clusters():
            async with Client(Connection.from_kubeconfig(cluster.kubeconfig)) as client:
                assert len((await client.list(NODES)).items) == 1

"""The account of a worker whose API server is slow is tried for as long as the command may take."""

import asyncio

import pytest

from multimirror.cli.account_trial import try_account
from multimirror.kube import Client
from multimirror.kube.errors import TimedOut
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.fake_cluster import a_cluster

NAMESPACES = ["team-a", "team-b"]


@pytest.mark.parametrize("starved", [25.0, 40.0])
def test_a_starved_api_server_is_waited_for_and_that_is_said_once(
    starved: float, capsys: pytest.CaptureFixture[str]
) -> None:
    @virtual_time
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with a_cluster("c") as cluster, Client(cluster.server.connection(), timeout=15.0) as client:
            cluster.delays["POST"] = 30.0
            loop.call_later(starved, cluster.delays.clear)
            facts = await try_account(client, NAMESPACES, patience=60.0)
            assert facts.missing == ()
            assert loop.time() < 60.0

    story()
    assert capsys.readouterr().out.splitlines() == [
        "waiting for worker worker-1, which is slow to say what its account may do: no answer to POST "
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews in 15 s"
    ]


@virtual_time
async def test_one_that_stays_silent_is_given_up_when_the_commands_time_is_over() -> None:
    async with a_cluster("c") as cluster, Client(cluster.server.connection(), timeout=15.0) as client:
        await cluster.cut_off()
        with pytest.raises(TimedOut):
            await try_account(client, None, patience=60.0)
        assert 60.0 <= asyncio.get_running_loop().time() < 80.0


@virtual_time
async def test_roles_take_effect_a_moment_after_they_were_written() -> None:
    async with a_cluster("c") as cluster, Client(cluster.server.connection(), timeout=15.0) as client:
        await cluster.deny("create", namespace="team-b")
        asyncio.get_running_loop().call_later(5.0, cluster.denied.clear)
        assert (await try_account(client, NAMESPACES, patience=0.0)).missing == ()
        await cluster.deny("create", namespace="team-b")
        assert (await try_account(client, NAMESPACES, patience=0.0)).missing

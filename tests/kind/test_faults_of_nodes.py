"""What clusters.kind.faults says that it does to clusters."""

import contextlib

import pytest

from clusters.kind import CommandError, KindCluster
from clusters.kind.commands import run
from clusters.kind.faults import heal, partition, restart
from tests.kind.installation import Installation


async def reaches(one: KindCluster, other: KindCluster) -> bool:
    """Whether the node of one can connect to the API server of the other."""
    try:
        connect = f"</dev/tcp/{other.node}/6443"
        await run("docker", "exec", one.node, "timeout", "5", "bash", "-c", connect, seconds=60)
    except CommandError:
        return False
    return True


class WentWrongError(Exception):
    """In the middle of a partition."""


async def test_a_partition_cuts_both_ways_and_is_healed_whatever_happened(installation: Installation) -> None:
    one, other, third = (installation.cluster(name) for name in ("management", *installation.workers[:2]))
    with contextlib.suppress(WentWrongError):
        async with partition(one, other):
            assert not await reaches(one, other)
            assert not await reaches(other, one)
            assert await reaches(one, third)
            assert await reaches(other, third)
            raise WentWrongError
    assert await reaches(one, other)
    assert await reaches(other, one)
    await heal(one, other)  # of what is whole: nothing to do
    assert await reaches(one, other)


async def test_a_component_that_is_not_there_cannot_be_restarted(installation: Installation) -> None:
    with pytest.raises(CommandError, match="has no kube-nothing that runs"):
        await restart(installation.cluster(), "kube-nothing")

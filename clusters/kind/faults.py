"""What can be done to kind clusters, so that tests see how their clients take it.

async with partition(fleet.management, fleet.workers["worker-1"]):
    ...     # not a packet passes between the two; both answer to this host
async with paused(fleet.workers["worker-1"]):
    ...     # everything in it stands still, and goes on afterwards as if nothing had happened
async with stopped(fleet.workers["worker-1"]):
    ...     # its node is switched off; afterwards it starts again, with the state that it had
await restart(fleet.management, "kube-apiserver")   # or etcd, kube-controller-manager, ...: killed, and started again

What is done in a context is undone at its end, whatever happened inside; should this process be killed meanwhile,
`heal`, `KindCluster.resume` and `docker start` are for whoever comes after it. Any event loop will do.

A partition is made of rules in the first cluster's node, for every address that the other's node has, where nothing has
been routed or translated yet, or everything has: so it holds for pods as for the node itself, and for connections that
are open. They break in silence, as in a real network: nobody is refused, nobody is told.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from clusters.kind.commands import CommandError, run
from clusters.kind.fleet import KindCluster

_SECONDS: Final = 120.0
_LOOK: Final = 0.1
_ADDRESSES: Final = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}} {{end}}"
_CHAINS: Final = (("raw", "PREROUTING", "-s"), ("mangle", "POSTROUTING", "-d"))
"""Where packets are dropped: table, chain, and by which address."""


@contextlib.asynccontextmanager
async def partition(one: KindCluster, other: KindCluster) -> AsyncIterator[None]:
    """Nothing passes between the two clusters, either way, until the end of the context."""
    addresses = (await run("docker", "inspect", "--format", _ADDRESSES, other.node)).split()
    rules = [
        f"{_tables(address)} -w -t {table} -I {chain} {by} {address} -m comment --comment {_mark(other)} -j DROP"
        for address in addresses
        for table, chain, by in _CHAINS
    ]
    try:
        await _on_node(one, " && ".join(rules))
        yield
    finally:
        await heal(one, other)


async def heal(one: KindCluster, other: KindCluster) -> None:
    """The end of every `partition` of the two, also of one that a process left behind."""
    for tables in ("iptables", "ip6tables"):
        for table, chain, _ in _CHAINS:
            found = await _on_node(one, f"{tables} -w -t {table} -S {chain}")
            for rule in found.splitlines():
                if _mark(other) in rule.split():
                    await _on_node(one, f"{tables} -w -t {table} -D {rule.removeprefix('-A ')}")


@contextlib.asynccontextmanager
async def paused(cluster: KindCluster) -> AsyncIterator[None]:
    """Everything in it stands still, pods included; connections stay open, and nobody answers."""
    await cluster.pause()
    try:
        yield
    finally:
        await cluster.resume()


@contextlib.asynccontextmanager
async def stopped(cluster: KindCluster) -> AsyncIterator[None]:
    """Its node has no power, and is started at the end; when it answers again is for you to see."""
    try:
        await run("docker", "kill", cluster.node, seconds=_SECONDS)
        yield
    finally:
        await run("docker", "start", cluster.node, seconds=_SECONDS)


async def restart(cluster: KindCluster, component: str) -> None:
    """Kill a component of the control plane; on return its kubelet has started another.

    When that one answers is for you to see. One that is killed again within ten minutes is started after a wait that
    grows: ten seconds, twenty, forty.
    """
    before = await _containers(cluster, component)
    if not before:
        raise CommandError(f"{cluster.name} has no {component} that runs")
    await _on_node(cluster, f"crictl stop --timeout 0 {' '.join(before)}")
    async with asyncio.timeout(_SECONDS):
        while True:
            if set(await _containers(cluster, component)) - set(before):
                return
            await asyncio.sleep(_LOOK)


async def _containers(cluster: KindCluster, component: str) -> list[str]:
    """The ids of those that run."""
    return (await _on_node(cluster, f"crictl ps --quiet --state Running --name '^{component}$'")).split()


async def _on_node(cluster: KindCluster, script: str) -> str:
    return await run("docker", "exec", cluster.node, "sh", "-c", script, seconds=_SECONDS)


def _tables(address: str) -> str:
    return "ip6tables" if ":" in address else "iptables"


def _mark(other: KindCluster) -> str:
    return f"partition-{other.kind_name}"

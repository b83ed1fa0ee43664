"""The clusters that a run takes place on, and what can be done to them as a whole.

Embedded ones live in this process, on the simulation's time, and belong to one run. Local ones are real control
planes, started once for many runs; every run has a namespace of its own there.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from clusters.embedded.admission import Hooks
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.controllers import Controllers
from clusters.embedded.kinds import Kinds
from clusters.embedded.server import ServerOptions
from clusters.fleet import FleetOptions
from clusters.local import LocalFleet
from clusters.nodes import NodeOptions, SimulatedNodes
from multimirror.kube import Connection

Json = dict[str, Any]
MANAGEMENT: Final = "management"


class ClusterBackend(Protocol):
    """Clusters, by name; `management` is one of them."""

    @property
    def names(self) -> Sequence[str]:
        """Management first."""

    @property
    def needs_job_controllers(self) -> bool:
        """Nobody runs Jobs there yet."""

    def kubeconfig(self, name: str) -> Json:
        """An administrator's."""

    async def wipe(self, name: str) -> bool:
        """Replace it by an empty cluster; False where that cannot be done."""

    async def restart(self, name: str, how: str) -> bool:
        """Kill its API server (or etcd) and start it again; False where that cannot be done."""


class EmbeddedBackend:
    """Embedded clusters without TLS, on the loop that runs. An async context manager."""

    needs_job_controllers = True

    def __init__(self, workers: int, *, hooks: Callable[[Kinds], Hooks] | None = None) -> None:
        """`hooks`: asked by the management cluster before it keeps a write."""
        self.names = (MANAGEMENT, *(f"worker-{number}" for number in range(1, workers + 1)))
        self._hooks = hooks
        self._clusters: dict[str, EmbeddedCluster] = {}
        self._stacks: dict[str, contextlib.AsyncExitStack] = {}

    async def __aenter__(self) -> Self:
        for name in self.names:
            await self._start(name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stack in reversed(self._stacks.values()):
            await stack.aclose()

    async def _start(self, name: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            options = ServerOptions(hooks=self._hooks if name == MANAGEMENT else None)
            cluster = await stack.enter_async_context(EmbeddedCluster(name, tls=False, options=options))
            assert cluster.server is not None
            await stack.enter_async_context(Controllers(cluster.server))
            connection = Connection.from_kubeconfig(cluster.kubeconfig, name=name)
            if name != MANAGEMENT:
                await stack.enter_async_context(SimulatedNodes(connection, NodeOptions()))
            self._clusters[name], self._stacks[name] = cluster, stack.pop_all()

    def kubeconfig(self, name: str) -> Json:
        """An administrator's."""
        return self._clusters[name].kubeconfig

    async def wipe(self, name: str) -> bool:
        """Another cluster comes in its place."""
        await self._stacks[name].aclose()
        await self._start(name)
        return True

    async def restart(self, name: str, how: str) -> bool:
        """An embedded cluster without a data directory cannot be restarted."""
        return False


class LocalBackend:
    """Real control planes. An async context manager."""

    needs_job_controllers = False

    def __init__(self, workers: int) -> None:
        self.names = (MANAGEMENT, *(f"worker-{number}" for number in range(1, workers + 1)))
        self._fleet = LocalFleet(FleetOptions(workers=workers))
        self._restarts = {name: asyncio.Lock() for name in self.names}

    async def __aenter__(self) -> Self:
        await self._fleet.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._fleet.__aexit__(kind, error, trace)

    def kubeconfig(self, name: str) -> Json:
        """An administrator's."""
        return next(cluster for cluster in self._fleet.clusters() if cluster.name == name).kubeconfig

    async def wipe(self, name: str) -> bool:
        """A real control plane is not thrown away for one run."""
        return False

    async def restart(self, name: str, how: str) -> bool:
        """Killed, and started again on the same data; one that is still being started is killed when it is up."""
        cluster = self._fleet.management if name == MANAGEMENT else self._fleet.workers[name]
        component = "etcd" if how == "etcd" else "kube-apiserver"
        async with self._restarts[name]:
            await cluster.processes[component].kill()
            await asyncio.sleep(0.2)
            await cluster.start_again(component)
        return True

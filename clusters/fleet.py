"""A fleet: one management cluster and N worker clusters, the same to its user whatever the clusters are made of.

    async with open_fleet("embedded", FleetOptions(workers=3)) as fleet:
        fleet.management.kubeconfig, fleet.workers["worker-1"].kubeconfig

Entering the context returns when every API server answers; leaving it stops and removes everything that was made. The
kinds are imported only when asked for, so that one kind's needs (binaries, Docker) never get in another's way.
"""

import abc
import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

if TYPE_CHECKING:
    from clusters.nodes import NodeOptions, SimulatedNodes

Kubeconfig = dict[str, Any]


class FleetError(Exception):
    """Why a fleet cannot come up, in words for its user, with the remedy. Every kind's own errors are of this one."""


class Cluster(Protocol):
    """One running cluster, as its users see it."""

    @property
    def name(self) -> str:
        """`management`, or `worker-1`, `worker-2`, ..."""

    @property
    def kubeconfig(self) -> Kubeconfig:
        """An administrator's kubeconfig: self-contained (certificates inline), usable from this host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """What every kind of fleet understands."""

    workers: int = 2
    nodes: bool = True
    """Simulated nodes take the pods of every cluster through their life (where no kubelets do)."""
    node_options: "NodeOptions | None" = None
    """What the simulated nodes are like."""
    job_controller: bool = False
    """Our own Job controller runs the Jobs of every cluster that has no other (embedded ones)."""
    data_dir: Path | None = None
    """Where state is kept and found again; without it nothing outlives the fleet."""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)


class Fleet(abc.ABC):
    """One management cluster and N workers. An async context manager: up inside, gone outside."""

    management: Cluster
    workers: dict[str, Cluster]
    has_kubelets: ClassVar[bool] = False
    """Pods run by themselves: nothing is simulated."""
    has_job_controller: ClassVar[bool] = True
    """Kubernetes' own runs in every cluster."""

    def __init__(self, options: FleetOptions) -> None:
        self.options = options
        self.nodes: dict[str, SimulatedNodes] = {}
        """The simulated nodes, by cluster."""
        self.tell: Callable[[str], None] = lambda _: None
        """Is told how far a start has come, where that takes long."""
        self._helpers = contextlib.AsyncExitStack()

    @abc.abstractmethod
    async def start(self) -> None:
        """Bring everything up; on return every API server answers."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Stop and remove everything that `start` made, however far it came."""

    async def host_address(self) -> str:
        """Where the API servers of this fleet reach this host: a webhook listens there."""
        return "127.0.0.1"

    def clusters(self) -> list[Cluster]:
        """All of them, management first."""
        return [self.management, *self.workers.values()]

    async def __aenter__(self) -> Self:
        try:
            await self.start()
            await self._start_nodes()
            await self._start_job_controllers()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    def node_options(self) -> "NodeOptions":
        """What the simulated nodes of every cluster are like."""
        from clusters.nodes import NodeOptions  # noqa: PLC0415 - a fleet without nodes does not need it

        return self.options.node_options or NodeOptions()

    async def _start_nodes(self) -> None:
        if not self.options.nodes or self.has_kubelets:
            return
        from clusters.nodes import SimulatedNodes  # noqa: PLC0415 - a fleet without nodes does not need it
        from multimirror.kube import Connection  # noqa: PLC0415 - nor this

        options = self.node_options()
        for cluster in self.clusters():
            nodes = SimulatedNodes(Connection.from_kubeconfig(cluster.kubeconfig, name=cluster.name), options)
            self.nodes[cluster.name] = await self._helpers.enter_async_context(nodes)

    async def _start_job_controllers(self) -> None:
        if not self.options.job_controller or self.has_job_controller:
            return
        from builtin_controller import JobController  # noqa: PLC0415 - most fleets do not need it
        from multimirror.kube import Client, Connection  # noqa: PLC0415 - nor this

        for cluster in self.clusters():
            connection = Connection.from_kubeconfig(cluster.kubeconfig, name=cluster.name)
            client = await self._helpers.enter_async_context(Client(connection, user_agent="job-controller"))
            await self._helpers.enter_async_context(JobController(client))

    async def _leave(self) -> None:
        try:
            await self._helpers.aclose()
        finally:
            self.nodes.clear()
            await self.stop()


_KINDS: Final = {
    "embedded": ("clusters.embedded", "EmbeddedFleet", None),
    "local": ("clusters.local", "LocalFleet", "LocalOptions"),
    "kind": ("clusters.kind", "KindFleet", "KindOptions"),
}


KINDS: Final = tuple(_KINDS)


def open_fleet(kind: str = "embedded", options: FleetOptions | None = None) -> Fleet:
    """A fleet of that kind, not yet started: use it as `async with`."""
    module, name, _ = _known(kind)
    fleet: Fleet = getattr(importlib.import_module(module), name)(options or FleetOptions())
    return fleet


def fleet_options(kind: str, **keywords: Any) -> FleetOptions:
    """Options for a fleet of that kind, its own (LocalOptions, KindOptions) among them. TypeError for others."""
    module, _, name = _known(kind)
    options: type[FleetOptions] = getattr(importlib.import_module(module), name) if name else FleetOptions
    return options(**keywords)


def _known(kind: str) -> tuple[str, str, str | None]:
    try:
        return _KINDS[kind]
    except KeyError:
        raise ValueError(f"unknown kind of fleet {kind!r}: choose one of {', '.join(_KINDS)}") from None


def unavailable(kind: str) -> str | None:
    """Why no fleet of that kind can be opened on this machine, and what would help; None when it can."""
    module = importlib.import_module(_KINDS[kind][0])
    check: Callable[[], str | None] = getattr(module, "unavailable", lambda: None)
    return check()

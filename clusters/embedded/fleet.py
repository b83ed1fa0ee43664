"""A fleet of embedded clusters: all in this process and on its event loop, up in a fraction of a second.

Each cluster is an API server with the rest of a control plane beside it (garbage collector, TTL, CronJobs,
namespaces) but no Job controller. With a data directory each cluster keeps its state in a directory of its own, and
its address and credentials stay the same from start to start.
"""

import contextlib
import dataclasses
from dataclasses import dataclass, field

from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.context import Clock
from clusters.embedded.controllers import Controllers
from clusters.embedded.server import ServerOptions
from clusters.fleet import Fleet, FleetOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions(FleetOptions):
    """What an embedded fleet understands beyond what every fleet does."""

    tls: bool = True
    history: int = 10_000
    """How many writes of each resource can be watched again; older versions are answered with 410."""
    sync: bool = False
    """With a data directory: wait for the disk at each write, for power failures."""
    clock: Clock = field(default_factory=Clock)
    """The servers' and controllers' time."""


class EmbeddedFleet(Fleet):
    """Clusters in this process."""

    management: EmbeddedCluster
    workers: dict[str, EmbeddedCluster]  # type: ignore[assignment]  # a dict is invariant; nobody puts other kinds in
    has_job_controller = False

    def __init__(self, options: FleetOptions | None = None) -> None:
        options = options or EmbeddedOptions()
        if not isinstance(options, EmbeddedOptions):
            common = {field.name: getattr(options, field.name) for field in dataclasses.fields(FleetOptions)}
            options = EmbeddedOptions(**common)
        super().__init__(options)
        self._options = options
        self._stack = contextlib.AsyncExitStack()
        self.controllers: dict[str, Controllers] = {}
        """The control planes' controllers, by cluster."""

    async def start(self) -> None:
        self.management = await self._cluster("management")
        self.workers = {}
        for number in range(1, self._options.workers + 1):
            self.workers[f"worker-{number}"] = await self._cluster(f"worker-{number}")

    async def stop(self) -> None:
        self.controllers.clear()
        await self._stack.aclose()

    def clock_moved(self) -> None:
        """The clock that was given in the options has jumped: look again at everything that waits for a time."""
        for controllers in self.controllers.values():
            controllers.clock_moved()

    async def _cluster(self, name: str) -> EmbeddedCluster:
        options = self._options
        cluster = EmbeddedCluster(
            name,
            tls=options.tls,
            data_dir=options.data_dir / name if options.data_dir else None,
            options=ServerOptions(history=options.history, sync=options.sync, clock=options.clock),
        )
        await self._stack.enter_async_context(cluster)
        assert cluster.server is not None, "it was just started"
        self.controllers[name] = await self._stack.enter_async_context(Controllers(cluster.server))
        return cluster

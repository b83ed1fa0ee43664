"""A fleet of real control planes as processes on this machine; simulated nodes in this process run their pods."""

import asyncio
import dataclasses

from clusters.fleet import Fleet, FleetOptions
from clusters.local import homes
from clusters.local.binaries import NEEDED, find_binaries
from clusters.local.cluster import CONTROLLER_MANAGER, SCHEDULER, LocalCluster, StartError
from clusters.local.homes import Home
from clusters.local.options import LocalOptions
from clusters.local.processes import Processes
from clusters.nodes import NodeOptions

_GRACE_SECONDS = 10.0


class LocalFleet(Fleet):
    """One control plane for each cluster. What an earlier run left behind is swept first."""

    management: LocalCluster
    workers: dict[str, LocalCluster]  # type: ignore[assignment]  # a dict is invariant; nobody puts other kinds in here

    def __init__(self, options: FleetOptions | None = None) -> None:
        options = options or FleetOptions()
        if not isinstance(options, LocalOptions):
            common = {field.name: getattr(options, field.name) for field in dataclasses.fields(FleetOptions)}
            options = LocalOptions(**common)
        if options.sync_writes is None:
            options = dataclasses.replace(options, sync_writes=options.data_dir is not None)
        super().__init__(options)
        self._options = options
        self._home: Home | None = None
        self._processes: Processes | None = None

    def node_options(self) -> NodeOptions:
        """Where kube-scheduler runs, the simulated nodes leave the placing of pods to it."""
        options = super().node_options()
        return dataclasses.replace(options, bind=False) if self._options.scheduler else options

    async def start(self) -> None:
        binaries = await asyncio.to_thread(find_binaries, self._options.version, _programs(self._options))
        await asyncio.to_thread(homes.sweep)
        data_dir = self._options.data_dir
        self._home = await asyncio.to_thread(lambda: homes.given_home(data_dir) if data_dir else homes.temporary_home())
        # State that nobody will read again needs no orderly end.
        self._processes = Processes(self._home, grace=0.0 if self._home.temporary else _GRACE_SECONDS)
        await self._processes.open()
        self._home.release()
        names = ["management", *(f"worker-{number}" for number in range(1, self._options.workers + 1))]
        clusters = {
            name: LocalCluster(name, self._home.path / name, binaries, self._options, self._processes) for name in names
        }
        self.management = clusters["management"]
        self.workers = {name: cluster for name, cluster in clusters.items() if name != "management"}
        try:
            async with asyncio.TaskGroup() as starting:
                for cluster in clusters.values():
                    starting.create_task(cluster.start(), name=f"start {cluster.name}")
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]  # it tells why; the rest were cancelled or say the same
            if isinstance(first, StartError) and self._home.temporary:
                kept = await asyncio.to_thread(homes.keep_logs, self._home.path)
                raise StartError(str(first).replace(str(self._home.path), str(kept))) from None
            raise first from None

    async def stop(self) -> None:
        if self._processes is not None:
            await self._processes.close()
            self._processes = None
        if self._home is not None:
            self._home.release()
            self._home = None


def _programs(options: LocalOptions) -> list[str]:
    """Only what will run: envtest's assets, which have no controller manager, do for a bare API server."""
    controllers = options.controllers or any(options.controllers_of.values())
    return [
        *(program for program in NEEDED if controllers or program != CONTROLLER_MANAGER),
        *([SCHEDULER] if options.scheduler else []),
    ]

"""A fleet of kind clusters: real Kubernetes, kubelets included, in Docker containers on this host.

Nothing is created before `preflight` finds nothing in the way. What was begun is deleted at the end, however far it
came, unless it is to be kept. The user's own kubeconfig is never touched. All kind clusters share one Docker
network, so a worker can be reached from inside the management cluster by its container's name: `internal_kubeconfig`.
"""

import asyncio
import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from clusters.fleet import Fleet, FleetOptions, Kubeconfig
from clusters.kind.commands import NotPossibleError, run
from clusters.kind.config import config_for
from clusters.kind.node_image import choose, ensure
from clusters.kind.options import KindOptions
from clusters.kind.preflight import gather, problems

_CREATE_SECONDS: Final = 900.0


class KindCluster:
    def __init__(self, name: str, kind_name: str) -> None:
        self.name = name
        self.kind_name = kind_name
        self._kubeconfig: Kubeconfig | None = None
        self._internal: Kubeconfig | None = None

    @property
    def kubeconfig(self) -> Kubeconfig:
        if self._kubeconfig is None:
            raise RuntimeError(f"cluster {self.name} is not started")
        return self._kubeconfig

    @property
    def internal_kubeconfig(self) -> Kubeconfig:
        """The same administrator, for a pod in the management cluster: the address inside Docker's network."""
        if self._internal is None:
            raise RuntimeError(f"cluster {self.name} is not started")
        return self._internal

    async def create(self, options: KindOptions, node_image: str, scratch: Path) -> None:
        await run(
            *("kind", "create", "cluster", "--name", self.kind_name, "--config", "-", "--image", node_image),
            *("--wait", f"{options.wait_seconds}s", "--kubeconfig", str(scratch / self.kind_name)),
            given=config_for(self.name, options),
            seconds=_CREATE_SECONDS,
        )

    async def read_kubeconfigs(self) -> None:
        command = ("kind", "get", "kubeconfig", "--name", self.kind_name)
        outside, inside = await run(*command), await run(*command, "--internal")
        self._kubeconfig = renamed(yaml.safe_load(outside), self.name)
        self._internal = renamed(yaml.safe_load(inside), self.name)

    async def load(self, image: str) -> None:
        await run("kind", "load", "docker-image", image, "--name", self.kind_name, seconds=_CREATE_SECONDS)

    async def pause(self) -> None:
        """Everything in it stands still, as in a power failure, until `resume`."""
        await run("docker", "pause", self.node)

    async def resume(self) -> None:
        """After `pause`."""
        await run("docker", "unpause", self.node)

    @property
    def node(self) -> str:
        """The container that is its only node."""
        return f"{self.kind_name}-control-plane"

    async def delete(self) -> None:
        await run("kind", "delete", "cluster", "--name", self.kind_name, seconds=_CREATE_SECONDS)


class KindFleet(Fleet):
    management: KindCluster
    workers: dict[str, KindCluster]  # type: ignore[assignment]  # a dict is invariant; nobody puts other kinds in here
    has_kubelets = True

    def __init__(self, options: FleetOptions | None = None) -> None:
        options = options or FleetOptions()
        if not isinstance(options, KindOptions):
            options = KindOptions(**{f.name: getattr(options, f.name) for f in dataclasses.fields(FleetOptions)})
        super().__init__(options)
        self._options = options
        names = ["management", *(f"worker-{number}" for number in range(1, options.workers + 1))]
        clusters = {name: KindCluster(name, f"{options.prefix}-{name}") for name in names}
        self.management = clusters["management"]
        self.workers = {name: cluster for name, cluster in clusters.items() if name != "management"}
        self.node_image = ""
        """What its nodes are made of, once it is up."""
        self._begun: list[KindCluster] = []
        self._complete = False

    async def start(self) -> None:
        options = self._options
        if options.data_dir is not None:
            raise NotPossibleError("kind keeps its state in Docker, not in a data directory: use `keep` instead")
        clusters = [self.management, *self.workers.values()]
        facts = await gather(options.images)
        in_the_way = problems(facts, [cluster.kind_name for cluster in clusters], keep=options.keep)
        if in_the_way:
            raise NotPossibleError("no kind fleet can be made:\n" + "\n".join(f"- {text}" for text in in_the_way))
        self.node_image = choose(options.node_image, options.kubernetes_version, facts.present_images)
        await ensure(self.node_image, facts.present_images)
        with tempfile.TemporaryDirectory(prefix="multimirror-kind-") as scratch:
            # One after the other: kind's containers fight for the disk while they unpack, and time out together.
            for cluster in clusters:
                if cluster.kind_name not in facts.existing:
                    self._begun.append(cluster)
                    await cluster.create(options, self.node_image, Path(scratch))
        await asyncio.gather(*(cluster.read_kubeconfigs() for cluster in clusters))
        for image in options.images:
            await self.management.load(image)
        self._complete = True

    async def stop(self) -> None:
        """Only a complete fleet is kept. What a failed creation left is deleted, too."""
        if not (self._options.keep and self._complete):
            await asyncio.gather(*(cluster.delete() for cluster in self._begun))
        self._begun = []

    async def host_address(self) -> str:
        """The host's end of the network that kind's containers are in."""
        form = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
        found = (await run("docker", "network", "inspect", "kind", "--format", form)).split()
        addresses = [address for address in found if ":" not in address]
        if not addresses:
            raise NotPossibleError(
                "Docker's network `kind` has no IPv4 gateway by which clusters could reach this host"
            )
        return addresses[0]

    async def remove(self) -> None:
        """Delete all clusters of that prefix and size, whoever made them: the end of a fleet that was kept."""
        for cluster in (self.management, *self.workers.values()):
            await cluster.delete()


def renamed(kubeconfig: dict[str, Any], name: str) -> Kubeconfig:
    """Pure: one cluster, user and context, all called as the fleet calls the cluster (kind says kind-<name>)."""
    return {
        **kubeconfig,
        "clusters": [{**kubeconfig["clusters"][0], "name": name}],
        "users": [{**kubeconfig["users"][0], "name": name}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }

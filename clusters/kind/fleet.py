"""A fleet of kind clusters: real Kubernetes, kubelets included, in Docker containers on this host.

Nothing is created before `preflight` finds nothing in the way. What was begun is deleted at the end, however far it
came and however the run ends (records.py), unless it is to be kept. The user's own kubeconfig is never touched. All
kind clusters share one Docker network, so a worker can be reached from inside the management cluster by its container's
name: `internal_kubeconfig`.
"""

import asyncio
import dataclasses
import re
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from clusters.fleet import Fleet, FleetOptions, Kubeconfig
from clusters.kind import records
from clusters.kind.commands import CommandError, NotPossibleError, run
from clusters.kind.config import config_for
from clusters.kind.node_image import choose, ensure
from clusters.kind.options import KindOptions
from clusters.kind.preflight import gather, problems, warnings
from clusters.kind.records import Record, delete_cluster

_CREATE_SECONDS: Final = 900.0
_KEPT_PREFIX: Final = "multimirror"
_NOT_FROZEN: Final = "unable to freeze"
"""What the container runtime says when processes start faster than it can stop them, as on a busy machine."""
_FREEZES: Final = 20
_FREEZE_SECONDS: Final = 0.5


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

    async def create(self, options: KindOptions, node_image: str, record: Record) -> None:
        record.add(self.kind_name)
        await run(
            *("kind", "create", "cluster", "--name", self.kind_name, "--config", "-", "--image", node_image),
            *("--wait", f"{options.wait_seconds}s", "--kubeconfig", str(record.path / self.kind_name)),
            given=config_for(self.name, options),
            seconds=_CREATE_SECONDS,
            scratch=record.path,
            descriptors=record.descriptors,  # should we be killed, nobody deletes while this still creates
            alone=True,  # a container that Docker is asked for comes, also when nobody waits for it any more
        )

    async def read_kubeconfigs(self) -> None:
        command = ("kind", "get", "kubeconfig", "--name", self.kind_name)
        outside, inside = await run(*command), await run(*command, "--internal")
        self._kubeconfig = renamed(yaml.safe_load(outside), self.name)
        self._internal = renamed(yaml.safe_load(inside), self.name)

    async def load(self, *images: str, scratch: Path | None = None) -> None:
        """Images of this host's Docker."""
        command = ("kind", "load", "docker-image", *images, "--name", self.kind_name)
        await run(*command, seconds=_CREATE_SECONDS, scratch=scratch)

    async def pause(self) -> None:
        """Everything in it stands still, as in a power failure, until `resume`."""
        for left in reversed(range(_FREEZES)):
            try:
                await run("docker", "pause", self.node)
            except CommandError as error:
                if _NOT_FROZEN not in str(error) or not left:
                    raise
                await asyncio.sleep(_FREEZE_SECONDS)
            else:
                return

    async def resume(self) -> None:
        """After `pause`."""
        await run("docker", "unpause", self.node)

    @property
    def node(self) -> str:
        """The container that is its only node."""
        return f"{self.kind_name}-control-plane"


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
        self.prefix = options.prefix or (_KEPT_PREFIX if options.keep else f"mm-{secrets.token_hex(3)}")
        names = ["management", *(f"worker-{number}" for number in range(1, options.workers + 1))]
        clusters = {name: KindCluster(name, f"{self.prefix}-{name}") for name in names}
        self.management = clusters["management"]
        self.workers = {name: cluster for name, cluster in clusters.items() if name != "management"}
        self.node_image = ""
        """What its nodes are made of, once it is up."""
        self._record: Record | None = None

    async def start(self) -> None:
        options = self._options
        if options.data_dir is not None:
            raise NotPossibleError(
                "kind clusters have no data directory, Docker keeps their state: for clusters that stay, use "
                "`python -m clusters.kind create` (in Python, keep=True)"
            )
        await records.sweep()
        clusters = [self.management, *self.workers.values()]
        facts = await gather(options.images)
        in_the_way = problems(facts, [cluster.kind_name for cluster in clusters], keep=options.keep)
        if in_the_way:
            raise NotPossibleError("no kind fleet can be made:\n" + "\n".join(f"- {text}" for text in in_the_way))
        for warning in warnings(facts):
            self.tell(warning)
        self.node_image = choose(options.node_image, options.kubernetes_version, facts.present_images)
        if self.node_image not in facts.present_images:
            self.tell(f"looking for the node image {self.node_image}")
        await ensure(self.node_image, facts.present_images)
        self._record = records.begin(self.prefix)
        self._record.watch()
        if not facts.has_network:
            records.network_is_made()
        await self._create([each for each in clusters if each.kind_name not in facts.existing], self._record)
        await asyncio.gather(*(cluster.read_kubeconfigs() for cluster in clusters))
        if options.images:
            self.tell(f"loading {', '.join(options.images)}")
            for cluster in clusters:
                await cluster.load(*options.images, scratch=self._record.path)
        if options.keep:
            await self._record.remove()
            self._record = None

    async def _create(self, clusters: list[KindCluster], record: Record) -> None:
        """Some side by side. The first that fails ends the others."""
        waiting, began, up = iter(clusters), time.monotonic(), 0

        async def create() -> None:
            nonlocal up
            for cluster in waiting:
                await cluster.create(self._options, self.node_image, record)
                up += 1
                self.tell(f"{cluster.name} is up ({up} of {len(clusters)}, {time.monotonic() - began:.0f} s)")

        try:
            async with asyncio.TaskGroup() as creating:
                for _ in range(self._options.at_once):
                    creating.create_task(create(), name=f"create clusters of {self.prefix}")
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def stop(self) -> None:
        """Delete what was begun; a fleet that is up and to be kept has no record any more."""
        record, self._record = self._record, None
        if record is None:
            return
        try:
            cut_off = not record.is_settled()
            await _delete(record.clusters, record.path)
            if cut_off:
                await record.settled()
                await _delete(record.clusters, record.path)
        except BaseException:
            await record.release()
            raise
        await record.remove()
        await records.tidy_network()

    async def host_address(self) -> str:
        """The host's end of the network that kind's containers are in."""
        form = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
        found = (await run("docker", "network", "inspect", records.NETWORK, "--format", form)).split()
        addresses = [address for address in found if ":" not in address]
        if not addresses:
            raise NotPossibleError(
                "Docker's network `kind` has no IPv4 gateway by which clusters could reach this host"
            )
        return addresses[0]


async def remove_fleet(prefix: str = _KEPT_PREFIX) -> list[str]:
    """Delete all clusters of that prefix, whoever made them and however many: the end of a fleet that was kept."""
    existing = (await run("kind", "get", "clusters", seconds=60)).split()
    names = fleets(existing).get(prefix, [])
    await _delete(names, records.root())
    await records.tidy_network()
    return names


def fleets(clusters: Iterable[str]) -> dict[str, list[str]]:
    """Pure: kind's clusters that are called as a fleet's are, by the fleet's prefix."""
    found: dict[str, list[str]] = {}
    for name in sorted(clusters):
        if matched := re.fullmatch(r"(.+)-(?:management|worker-\d+)", name):
            found.setdefault(matched[1], []).append(name)
    return found


async def _delete(names: Iterable[str], scratch: Path) -> None:
    """All of them, also when one cannot be deleted."""
    results = await asyncio.gather(*(delete_cluster(name, scratch) for name in names), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def renamed(kubeconfig: dict[str, Any], name: str) -> Kubeconfig:
    """Pure: one cluster, user and context, all called as the fleet calls the cluster (kind says kind-<name>)."""
    return {
        **kubeconfig,
        "clusters": [{**kubeconfig["clusters"][0], "name": name}],
        "users": [{**kubeconfig["users"][0], "name": name}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }

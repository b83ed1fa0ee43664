"""All worker clusters: one connection for each WorkerCluster, made, retargeted and ended as the objects say.

Credentials come from Secrets in our own namespace, or from files in the one directory that the operator allows (links
that lead out of it are refused). A broken WorkerCluster costs itself alone.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import structlog

from multimirror.api import CONNECTED, SecretKey, SpecError, WorkerClusterSpec
from multimirror.batch import find_condition
from multimirror.kube import Change, Informer, Object
from multimirror.workers.cluster import Listener, Pulse, Target, Worker
from multimirror.workers.session import Needs

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How workers are reached."""

    origin: str
    """The identity of the management cluster: whose copies are ours."""
    secret_namespace: str
    directory: Path | None = None
    """Where kubeconfigs in files may be; None: nowhere."""
    concurrency: int = 16
    """Calls in flight to each worker."""
    pulse: Pulse = field(default_factory=Pulse)
    guard: Callable[[], None] | None = None
    """Asked before each write."""


class Workers:
    """Follows the WorkerClusters of the management cluster. `run` it as a task."""

    def __init__(self, clusters: Informer, secrets: Informer, listener: Listener, access: Access) -> None:
        self.specs: dict[str, WorkerClusterSpec] = {}
        """Those that can be read."""
        self._clusters, self._secrets = clusters, secrets
        self._listener, self._access = listener, access
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._dirty: set[str] = set()
        self._news = asyncio.Event()
        self._listed = asyncio.Event()
        clusters.add_handler(self._cluster_changed)
        secrets.add_handler(self._secret_changed)

    def __iter__(self) -> Iterator[Worker]:
        return iter(tuple(self._workers.values()))

    def get(self, name: str) -> Worker | None:
        """The worker of that name."""
        return self._workers.get(name)

    async def settled(self) -> None:
        """Wait until every worker either is connected, or is known not to be."""
        await self._listed.wait()
        for worker in self:
            await worker.settled()

    async def run(self) -> None:
        """Until cancelled."""
        await self._clusters.synced()
        await self._secrets.synced()
        async with asyncio.TaskGroup() as group:
            while True:
                dirty, self._dirty = self._dirty, set()
                for name in sorted(dirty):
                    self._refresh(name, group)
                self._listed.set()
                await self._news.wait()
                self._news.clear()

    def _refresh(self, name: str, group: asyncio.TaskGroup) -> None:
        cluster = self._clusters.get(name)
        if cluster is None:
            self.specs.pop(name, None)
            if self._workers.pop(name, None) is not None:
                self._tasks.pop(name).cancel()
                self._listener.state_changed(name, reconnected=False)
            return
        target = self._target(name, cluster)
        worker = self._workers.get(name)
        if worker is not None:
            worker.retarget(target)
            self._listener.state_changed(name, reconnected=False)
            return
        worker = Worker(
            name,
            target,
            self._listener,
            guard=self._access.guard,
            pulse=self._access.pulse,
            lost_since=disconnected_at(cluster),
        )
        self._workers[name] = worker
        self._tasks[name] = group.create_task(worker.run(), name=f"worker {name}")

    def _target(self, name: str, cluster: Object) -> Target:
        try:
            spec = WorkerClusterSpec.read(cluster)
        except SpecError as error:
            self.specs.pop(name, None)
            needs = Needs(origin=self._access.origin, namespaces=None, follow_nodes=False)
            return Target(kubeconfig=None, reason="InvalidSpec", problem=str(error), needs=needs)
        self.specs[name] = spec
        needs = Needs(
            origin=self._access.origin,
            namespaces=None if spec.namespaces is None else tuple(sorted(spec.namespaces.values())),
            follow_nodes=spec.capacity is None,
            concurrency=self._access.concurrency,
        )
        try:
            found = self._from_file(spec.path) if spec.path is not None else self._from_secret(spec.secret)
        except ValueError as error:
            return Target(kubeconfig=None, reason="KubeconfigMissing", problem=str(error), needs=needs)
        return Target(kubeconfig=found, needs=needs)

    def _from_secret(self, reference: SecretKey | None) -> bytes:
        assert reference is not None, "one of both is set"
        where = f"Secret {self._access.secret_namespace}/{reference.name}"
        secret = self._secrets.get(f"{self._access.secret_namespace}/{reference.name}")
        if secret is None:
            raise ValueError(f"there is no {where}")
        value = (secret.get("data") or {}).get(reference.key)
        if value is None:
            raise ValueError(f"{where} has no key {reference.key!r}")
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{where}: key {reference.key!r} is not base64") from error

    def _from_file(self, path: str) -> bytes:
        directory = self._access.directory
        if directory is None:
            raise ValueError("kubeconfigs in files are not allowed; start with --kubeconfig-directory, or use a Secret")
        found = (directory / path).resolve()
        if not found.is_relative_to(directory.resolve()):
            raise ValueError(f"{path!r} leads out of the directory that is allowed")
        try:
            return found.read_bytes()
        except OSError as error:
            raise ValueError(f"{path!r} cannot be read: {error.strerror}") from error

    def _cluster_changed(self, change: Change) -> None:
        if change.old is not None and change.new is not None and change.old.get("spec") == change.new.get("spec"):
            return  # our own status
        self._mark(change.object["metadata"]["name"])

    def _secret_changed(self, change: Change) -> None:
        if change.old is not None and change.new is not None and change.old.get("data") == change.new.get("data"):
            return
        for name, spec in self.specs.items():
            if spec.secret is not None and spec.secret.name == change.object["metadata"]["name"]:
                self._mark(name)

    def _mark(self, name: str) -> None:
        self._dirty.add(name)
        self._news.set()


def disconnected_at(cluster: Object) -> float | None:
    """Since when a WorkerCluster's status says that it is not: a restart does not set the clock of a lost one back."""
    condition = find_condition((cluster.get("status") or {}).get("conditions") or (), CONNECTED)
    if condition is None or condition.get("status") != "False":
        return None
    try:
        return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    except (KeyError, ValueError):
        return None

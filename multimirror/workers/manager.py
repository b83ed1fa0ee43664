"""All worker clusters: one connection for each WorkerCluster, made, retargeted and ended as the objects say.

A broken WorkerCluster costs itself alone: whatever is wrong in it, in its kubeconfig or in its connection is said by
its own condition. What ends a worker's task all the same ends `run`, and is never silent.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from multimirror.api import SpecError, WorkerClusterSpec
from multimirror.kinds import JOB
from multimirror.kube import Change, Informer, Object, Resource
from multimirror.kube.resources import JOBS
from multimirror.kube.supervise import Supervisor
from multimirror.workers.cluster import Target, Worker, WorkerHandlers
from multimirror.workers.followed import copies_of
from multimirror.workers.identities import Identities
from multimirror.workers.kubeconfigs import KubeconfigMissing, Kubeconfigs
from multimirror.workers.losses import Losses
from multimirror.workers.metrics import forget_worker
from multimirror.workers.misbehaviour import Misbehaviour
from multimirror.workers.options import WorkerOptions
from multimirror.workers.session import Scope, SessionOptions
from multimirror.workers.state import (
    Contact,
    disconnected_at,
    recorded_as_connected,
    recorded_identities,
    recorded_identity,
)

_log = structlog.get_logger(__name__)

_FILES_EVERY: Final = 5.0
"""Seconds between two looks at kubeconfigs in files."""


class _Subscribers:
    """Hands on to everybody who subscribed; a fault of one is not the others'."""

    def __init__(self) -> None:
        self._all: list[WorkerHandlers] = []

    def add(self, handlers: WorkerHandlers) -> None:
        self._all.append(handlers)

    def copy_changed(self, worker: str, resource: Resource, change: Change) -> None:
        for handlers in self._all:
            try:
                handlers.copy_changed(worker, resource, change)
            except Exception:  # noqa: BLE001
                _log.exception("a handler failed", cluster=worker, key=change.key)

    def state_changed(self, worker: str, *, reconnected: bool) -> None:
        for handlers in self._all:
            try:
                handlers.state_changed(worker, reconnected=reconnected)
            except Exception:  # noqa: BLE001
                _log.exception("a handler failed", cluster=worker)

    def capacity_changed(self, worker: str) -> None:
        for handlers in self._all:
            try:
                handlers.capacity_changed(worker)
            except Exception:  # noqa: BLE001
                _log.exception("a handler failed", cluster=worker)


class Workers:
    """Follows the WorkerClusters of the management cluster. `run` it as a task."""

    def __init__(
        self, clusters: Informer, secrets: Informer, options: WorkerOptions, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.specs: dict[str, WorkerClusterSpec] = {}
        """Those that can be read."""
        self._clusters, self._options, self._clock = clusters, options, clock
        self._secrets = secrets
        self._kubeconfigs = Kubeconfigs(secrets, options.secret_namespace, options.directory)
        self._followed = (copies_of(JOBS, options.origin, trim=JOB.read_copy), *options.also_followed)
        self._handlers = _Subscribers()
        self._losses: Losses[Scope] = Losses(clock)
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, set[Scope]] = {}  # of workers that are not there yet
        self._identities = Identities(self._recorded_identities, self._rank)
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

    def subscribe(self, handlers: WorkerHandlers) -> None:
        """Tell them of every change; what is here already is told at once."""
        self._handlers.add(handlers)
        for worker in self:
            handlers.state_changed(worker.name, reconnected=True)

    # --- contact

    def contact(self, worker: str, namespace: str | None = None, resource: Resource = JOBS) -> Contact:
        """Whether a worker can be talked to; with a namespace, whether the copies there are known, too."""
        recorded = recorded_as_connected(self._clusters.get(worker))
        known = self._workers.get(worker)
        if known is not None:
            return known.contact(namespace, resource, recorded=recorded)
        if self._clusters.get(worker) is not None:
            return Contact(connected=False, why="not tried yet", recorded=recorded)
        self._losses.lost(worker)
        return Contact(False, self._losses.since(worker), "there is no such WorkerCluster", recorded=False)

    def begin(self) -> None:
        """From now on it is us who work. What others reached until now, and we did not, was not lost."""
        for cluster in self._clusters.list():
            self._losses.begin(cluster["metadata"]["name"], disconnected_at(cluster))

    def follow(self, worker: str, namespace: str, resource: Resource = JOBS) -> None:
        """There are copies in that namespace, whatever the WorkerCluster allows now: keep track of them.

        Cheap when it is known already.
        """
        known = self._workers.get(worker)
        if known is not None:
            known.follow(namespace, resource)
        else:
            self._asked.setdefault(worker, set()).add((resource, namespace))

    # --- life

    async def settled(self) -> None:
        """Wait until every worker either is connected, or is known not to be."""
        await self._listed.wait()
        for worker in self:
            await worker.settled()

    async def run(self) -> None:
        """Until cancelled."""
        await self._clusters.synced()
        await self._secrets.synced()
        loop = asyncio.get_running_loop()
        async with Supervisor() as tasks:
            look_at_files = loop.time() + _FILES_EVERY
            while True:
                dirty, self._dirty = self._dirty, set()
                for name in sorted(dirty):
                    self._refresh(name, tasks)
                self._listed.set()
                try:
                    async with asyncio.timeout_at(look_at_files):
                        await self._news.wait()
                except TimeoutError:
                    self._dirty |= self._kubeconfigs.changed(self.specs)
                    look_at_files = loop.time() + _FILES_EVERY
                self._news.clear()

    def _refresh(self, name: str, tasks: Supervisor) -> None:
        cluster = self._clusters.get(name)
        if cluster is None:
            self._remove(name)
            return
        target = self._target(name, cluster)
        worker = self._workers.get(name)
        if worker is not None:
            worker.retarget(target)
            self._handlers.state_changed(name, reconnected=False)
            return
        self._losses.lost(name, since=disconnected_at(cluster))
        self._workers[name] = worker = Worker(
            name,
            target,
            self._options,
            self._handlers,
            asked=self._asked.pop(name, ()),
            losses=self._losses,
            claim=self._claim,
            clock=self._clock,
            misbehaviour=Misbehaviour.read(cluster),
            identities=recorded_identities(cluster),
        )
        self._tasks[name] = tasks.start(f"worker {name}", worker.run())

    def _remove(self, name: str) -> None:
        self.specs.pop(name, None)
        self._identities.forget(name)
        worker = self._workers.pop(name, None)
        if worker is not None:
            self._asked[name] = worker.scopes()  # for one of the same name: it may be the same cluster
            self._tasks.pop(name).cancel()
            self._losses.forget(name)
            forget_worker(name)
            self._handlers.state_changed(name, reconnected=False)

    def _target(self, name: str, cluster: Object) -> Target:
        made_by_us = self._options.made_by_us
        nothing = SessionOptions(followed=self._followed, namespaces=None, follow_nodes=False, made_by_us=made_by_us)
        self.specs.pop(name, None)
        try:
            spec = WorkerClusterSpec.read(cluster)
            self.specs[name] = spec
            session = SessionOptions(
                followed=self._followed,
                namespaces=None if spec.namespaces is None else tuple(sorted(spec.namespaces.values())),
                follow_nodes=spec.capacity is None,
                free=spec.free,
                made_by_us=made_by_us,
                concurrency=self._options.concurrency,
            )
            kubeconfig = self._kubeconfigs.read(spec)
            return Target(kubeconfig=kubeconfig, session=session, joined_by=self._kubeconfigs.joined_by(spec))
        except SpecError as error:
            return Target(kubeconfig=None, reason="InvalidSpec", problem=str(error), session=nothing)
        except KubeconfigMissing as error:
            return Target(kubeconfig=None, reason="KubeconfigMissing", problem=str(error), session=nothing)
        except Exception as error:  # noqa: BLE001 - whatever nobody thought of costs this WorkerCluster alone
            _log.exception("a WorkerCluster cannot be handled", cluster=name)
            problem = f"{type(error).__name__}; the log of the dispatcher says more"
            return Target(kubeconfig=None, reason="InternalError", problem=problem, session=nothing)

    def _claim(self, worker: str, identity: str) -> str:
        """Whose identity it is instead; empty: it is granted."""
        claim = self._identities.claim(worker, identity)
        self._recheck(claim.displaced)
        return claim.holder

    def _recheck(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._workers:
                self._workers[name].recheck()

    def _recorded_identities(self) -> dict[str, str]:
        return {cluster["metadata"]["name"]: recorded_identity(cluster) for cluster in self._clusters.list()}

    def _rank(self, name: str) -> tuple[str, str]:
        """The older one comes first."""
        metadata = (self._clusters.get(name) or {}).get("metadata") or {}
        return str(metadata.get("creationTimestamp", "")), name

    # --- the management cluster

    def _cluster_changed(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        self._status_changed(name, change)
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            self._mark(name)
        elif recorded_as_connected(change.new) and not recorded_as_connected(change.old):
            self._handlers.state_changed(name, reconnected=False)  # renewals of fences wait for this

    def _status_changed(self, name: str, change: Change) -> None:
        """What another process of ours, or a person, wrote about a worker that we have."""
        worker = self._workers.get(name)
        if worker is None or change.new is None:
            return
        misbehaviour = Misbehaviour.read(change.new)
        if misbehaviour != Misbehaviour.read(change.old):
            worker.recorded_misbehaviour(misbehaviour)
        identity = recorded_identity(change.new)
        if identity and identity != recorded_identity(change.old):
            self._recheck(self._identities.usurpers(name, identity))

    def _secret_changed(self, change: Change) -> None:
        if change.old is not None and change.new is not None and change.old.get("data") == change.new.get("data"):
            return
        for name, spec in self.specs.items():
            if spec.secret is not None and spec.secret.name == change.object["metadata"]["name"]:
                self._mark(name)

    def _mark(self, name: str) -> None:
        self._dirty.add(name)
        self._news.set()

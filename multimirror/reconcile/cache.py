"""What is known: the caches of all clusters, and the questions that are answered from them.

Nothing here is asked of an API server, and nothing is written. Objects from the caches are shared: do not change them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS, MirrorQueueSpec
from multimirror.api.placement import Copy, attempt_of, cluster_of
from multimirror.batch import Json
from multimirror.kube import Client, Informer
from multimirror.kube.resources import NAMESPACES, SECRETS
from multimirror.options import DispatcherOptions
from multimirror.reconcile.decide import Reach, Situation
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.originals import Originals
from multimirror.scheduling.candidates import Candidate, WorkerView, candidate, policy_of
from multimirror.workers import Worker, Workers, trim_namespace


class Knowledge:
    """Our Jobs, their queues, the workers, and what those hold."""

    def __init__(self, client: Client, options: DispatcherOptions, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.memory = Memory()
        self.namespaces = Informer(client, NAMESPACES, trim=trim_namespace)
        self.queues = Informer(client, MIRROR_QUEUES)
        self.clusters = Informer(client, WORKER_CLUSTERS)
        self.secrets = Informer(client, SECRETS, options.namespace)
        self.originals = Originals(client, options.managed_by, self.namespaces)
        self.specs: dict[str, MirrorQueueSpec] = {}
        """The queues that can be read, by name."""
        self.workers: Workers | None = None
        """Their connections, while they are followed."""
        self._holders: dict[str, set[str]] = {}  # uid: the workers that have shown a copy of it

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The caches of the management cluster."""
        return (self.namespaces, self.queues, self.clusters, self.secrets, self.originals.informer)

    def begin(self) -> None:
        """From now on it is us who work. What others reached until now, and we did not, was not lost."""
        if self.workers is not None:
            self.workers.begin()

    def worker(self, name: str) -> Worker | None:
        """A worker's connection and state."""
        return self.workers.get(name) if self.workers is not None else None

    def copy_seen(self, worker: str, uid: str) -> None:
        """A worker's cache has shown a copy of this Job: it is one of those that are asked for its copies."""
        self._holders.setdefault(uid, set()).add(worker)

    def situation(self, uid: str, job: Json | None) -> Situation:
        """Everything around one Job."""
        copies = self._copies(uid)
        now = self.clock()
        if job is None:
            return Situation(None, copies, workers=self._reach(copies), now=now)
        notes = self.memory.find(uid)
        words = notes.last_words if notes is not None else None
        current = cluster_of(job)
        return Situation(
            job,
            copies,
            policy=policy_of(self.specs.get(self.originals.queue_of(job))),
            workers=self._reach(copies, current),
            refusals=self.memory.refusals(uid, now),
            last_words=words[2] if words is not None and words[1] == attempt_of(job) else None,
            now=now,
        )

    def candidate(self, job: Json, avoid: Mapping[str, str]) -> Candidate:
        """A Job, as something to place."""
        queue = self.originals.queue_of(job)
        found = candidate(job, queue, avoid)
        spec = self.specs.get(queue)
        namespace = self.namespaces.get(job["metadata"]["namespace"])
        if spec is not None and not spec.admits((namespace or {}).get("metadata", {}).get("labels")):
            return replace(found, problem=f"queue {queue} may not be used from namespace {found.namespace}")
        return found

    def views(self) -> Mapping[str, WorkerView]:
        """The workers, as places for Jobs."""
        if self.workers is None:
            return {}
        specs = self.workers.specs
        return {
            worker.name: WorkerView(
                name=worker.name,
                spec=specs[worker.name],
                state=worker.state,
                recorded=self.workers.contact(worker.name).recorded,
            )
            for worker in self.workers
            if worker.name in specs
        }

    def _copies(self, uid: str) -> list[Copy]:
        """Only those are asked that have shown one: with fifty workers, asking all is most of a decision's cost."""
        holders = self._holders.get(uid)
        if holders is None:
            return []
        copies: list[Copy] = []
        for name in sorted(holders):
            worker = self.worker(name)
            found = worker.copies(uid) if worker is not None else []
            copies += [Copy(name, copy) for copy in found]
            if not found and (worker is None or worker.session is not None):
                holders.discard(name)  # it is gone; one that comes back is shown again
        if not holders:
            del self._holders[uid]
        return copies

    def _reach(self, copies: list[Copy], current: str | None = None) -> Mapping[str, Reach]:
        names = {copy.worker for copy in copies} | ({current} if current is not None else set())
        return {name: self._reach_of(name) for name in names}

    def _reach_of(self, name: str) -> Reach:
        assert self.workers is not None, "the caches are followed"
        contact = self.workers.contact(name)
        return Reach(
            contact.connected, contact.lost_since, contact.why, recorded=contact.recorded, ahead=contact.clock_ahead
        )

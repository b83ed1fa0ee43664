"""What is known around one object, put together from the caches of all clusters. Writes nothing but a note or two.

Here is decided which objects on workers are an object's copies. The caches hold only what we have signed for that very
place (workers/reading.py). Of each attempt's, one counts: the one that our create was answered with, as our memory
says, or, of the latest attempt, the original; only where neither knows (whoever made it ended before it was written
down, or it is long ago) is a valid signature enough. Anything else was put in the place of a copy of ours that is gone,
and is nobody's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from multimirror.api.limits import MAX_JOB_BYTES, too_large
from multimirror.api.placement import (
    Copy,
    admitted_queue_of,
    attempt_of,
    cluster_namespace_of,
    cluster_of,
    copy_uid_of,
    origin_uid,
)
from multimirror.batch import Json
from multimirror.kinds import Kind, Ref
from multimirror.kinds.pod_sets import total
from multimirror.kinds.pod_shapes import gang_of
from multimirror.kinds.reserved import Reserved, reserved_of
from multimirror.reconcile.cache import ManagementCache
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.starts import Starts
from multimirror.reconcile.state import ObservedState, policy_of
from multimirror.scheduling.candidates import Candidate, Growth, WorkerSnapshot, candidate
from multimirror.workers import Contact, Workers


class Observer:
    """Answers what is known around an object, and what workers look like to the scheduler."""

    def __init__(
        self,
        management: ManagementCache,
        workers: Workers,
        memory: Memory,
        clock: Callable[[], float],
        starts: Starts,
        *,
        max_job_bytes: int = MAX_JOB_BYTES,
    ) -> None:
        self._max_job_bytes, self._starts = max_job_bytes, starts
        self._management, self._workers, self._memory, self._clock = management, workers, memory, clock
        self._holders: dict[Ref, set[str]] = {}  # the workers that have shown a copy of it

    def copy_seen(self, worker: str, ref: Ref) -> None:
        """A worker's cache has shown a copy of this object: it is one of those that are asked for its copies."""
        self._holders.setdefault(ref, set()).add(worker)

    def copy_gone(self, ref: Ref) -> None:
        """A copy of this object has left a worker's cache: forget who has none any more."""
        self._copies(ref)

    def refs_on(self, worker: str) -> Iterator[Ref]:
        """The objects of which a worker shows copies, whether they are there or not."""
        connection = self._workers.get(worker)
        session = connection.session if connection is not None else None
        if session is None:
            return
        for kind in self._management.originals.kinds:
            uids = (origin_uid(copy) for copy in session.all_copies(kind.resource))
            yield from (Ref(kind.resource.name, uid) for uid in uids if uid)

    def observe(self, ref: Ref, *, waits: bool = False) -> ObservedState:
        """`waits`: as the scheduler says."""
        originals, now = self._management.originals, self._clock()
        kind, obj, copies = originals.kind(ref), originals.get(ref), self._copies(ref)
        if obj is None:
            return ObservedState(kind, None, copies, contacts=self._contacts(kind, copies), now=now)
        copies = [copy for copy in copies if not self._is_impostor(ref, obj, copy)]
        notes = self._memory.find(ref)
        if notes is not None and notes.asked is not None and any(copy.attempt == notes.asked for copy in copies):
            notes.asked = None
        last_seen = notes.last_seen if notes is not None else None
        return ObservedState(
            kind,
            obj,
            copies,
            policy=policy_of(self._management.queue_specs.get(originals.queue_of(obj))),
            contact=self._contact(kind, obj),
            contacts=self._contacts(kind, copies),
            namespace=self.namespace_there(obj),
            refusals=self._memory.refusals(ref, now),
            last_seen_status=last_seen.status
            if last_seen is not None and last_seen.attempt == attempt_of(obj)
            else None,
            rejected_patch=notes.rejected_patch if notes is not None else None,
            pods_said=notes.pods_said[1]
            if notes is not None and notes.pods_said is not None and notes.pods_said[0] == attempt_of(obj)
            else None,
            asked=notes is not None and notes.asked == attempt_of(obj),
            stopping=notes.stopping if notes is not None else None,
            blocked_since=self._blocked_since(ref, obj, copies, now),
            waits=waits,
            now=now,
        )

    def is_impostor(self, ref: Ref, obj: Json, copy: Copy) -> bool:
        """It claims to be some attempt's copy, and another one is."""
        notes = self._memory.find(ref)
        known = notes.made.get(copy.attempt) if notes is not None else None
        if known is None and copy.attempt == attempt_of(obj):
            known = copy_uid_of(obj)
        return known is not None and known != copy.uid

    def _is_impostor(self, ref: Ref, obj: Json, copy: Copy) -> bool:
        found = self.is_impostor(ref, obj, copy)
        worker = self._workers.get(copy.worker)
        if found and worker is not None:
            worker.note_impostor(f"{copy.namespace}/{copy.name}", there=True)
        return found

    def _blocked_since(self, ref: Ref, obj: Json, copies: Iterable[Copy], now: float) -> float | None:
        """See ObservedState. Noted by our own clock: what a worker says of times is nothing to wait by."""
        attempt = attempt_of(obj) if cluster_of(obj) is not None else None
        attempts = {copy.attempt for copy in copies}
        if attempts - {attempt} and attempt not in attempts:
            notes = self._memory.of(ref)
            notes.blocked_since = now if notes.blocked_since is None else notes.blocked_since
            return notes.blocked_since
        known = self._memory.find(ref)
        if known is not None and attempt in attempts:
            known.blocked_since = None  # not before: an earlier copy that comes and goes gains no time
        return None

    def tenant(self, ref: Ref) -> str:
        """Whose turn it is when this object's is: its namespace, or that of what it has left behind."""
        obj = self._management.originals.get(ref)
        if obj is not None:
            return str(obj["metadata"]["namespace"])
        return next((copy.namespace for copy in self._copies(ref)), "")

    def namespace_there(self, obj: Json) -> str | None:
        """Where on its worker the copy of an assigned object belongs; see ObservedState.namespace."""
        cluster = cluster_of(obj)
        spec = self._workers.specs.get(cluster) if cluster is not None else None
        recorded = cluster_namespace_of(obj)
        if spec is None:
            return recorded  # unreadable or gone: it takes nothing anyway
        mapped = spec.namespace_for(obj["metadata"]["namespace"])
        return mapped if recorded is None or recorded == mapped else None

    def candidate(self, ref: Ref, avoid: Mapping[str, str], queue: str | None = None) -> Candidate | None:
        """An object, as something to place; None where it is gone. `queue`: as if it were in that one."""
        originals = self._management.originals
        obj = originals.get(ref)
        if obj is None:
            return None
        queue = queue if queue is not None else originals.queue_of(obj)
        kind = originals.kind(ref)
        requests = total(kind.pod_sets(obj))
        gang, runs = gang_of(kind, obj), kind.run_seconds(obj)
        found = candidate(ref, obj, queue=queue, requests=requests, gang=gang, avoid=avoid, run_seconds=runs)
        problem = kind.problem_of(obj) or too_large(kind.resource.kind, kind.size_of(obj), self._max_job_bytes)
        if problem:
            return replace(found, problem=problem)
        spec = self._management.queue_specs.get(queue)
        namespace = self._management.namespaces.get(obj["metadata"]["namespace"])
        if spec is not None and not spec.admits((namespace or {}).get("metadata", {}).get("labels")):
            return replace(found, problem=f"queue {queue} may not be used from namespace {found.namespace}")
        if spec is not None and spec.fence is not None and not kind.can_be_fenced:
            name = kind.resource.kind
            return replace(found, problem=f"queue {queue} has a fence, and a {name} that is cut off cannot end itself")
        return found

    def growth(self, ref: Ref, to: Reserved) -> Candidate | None:
        """An object that has a worker, as one that wants more of it; None where it is gone, or has none any more."""
        originals = self._management.originals
        obj = originals.get(ref)
        worker, before = (cluster_of(obj), reserved_of(obj)) if obj is not None else (None, None)
        if obj is None or worker is None or before is None:
            return None
        growth = Growth.of(worker, before, to)
        queue = admitted_queue_of(obj) or originals.queue_of(obj)
        kind, counts = originals.kind(ref), before.counts
        more = gang_of(kind, obj, {name: count - counts.get(name, 0) for name, count in to.counts.items()})
        return candidate(ref, obj, queue=queue, requests=growth.requests, gang=more, growth=growth)

    def worker_snapshots(self) -> Mapping[str, WorkerSnapshot]:
        """The workers, as the scheduler sees them, with what is known of their nodes."""
        found = {}
        for worker in self._workers:
            snapshot = self.worker_snapshot(worker.name)
            nodes = worker.session.nodes() if worker.session is not None else None
            if snapshot is not None:
                found[worker.name] = replace(snapshot, nodes=nodes) if nodes is not None else snapshot
        return found

    def worker_snapshot(self, name: str) -> WorkerSnapshot | None:
        """None for one that is gone, or cannot be read."""
        worker, spec = self._workers.get(name), self._workers.specs.get(name)
        if worker is None or spec is None:
            return None
        recorded = self._workers.contact(name).recorded
        suspicion = self._starts.suspicion(name)
        most = self._starts.settled(name) + 1 if suspicion else None
        return WorkerSnapshot(
            name=name, spec=spec, state=worker.state, recorded=recorded, suspicion=suspicion, most_jobs=most
        )

    def _copies(self, ref: Ref) -> list[Copy]:
        """Only those are asked that have shown one: with fifty workers, asking all is most of a decision's cost."""
        holders = self._holders.get(ref)
        if holders is None:
            return []
        resource = self._management.originals.kind(ref).resource
        copies: list[Copy] = []
        for name in sorted(holders):
            worker = self._workers.get(name)
            session = worker.session if worker is not None else None
            found = session.copies(ref.uid, resource) if session is not None else []
            copies += [Copy(name, copy) for copy in found]
            if not found and (worker is None or session is not None):
                holders.discard(name)  # it is gone; one that comes back is shown again
        if not holders:
            del self._holders[ref]
        return copies

    def _contact(self, kind: Kind, obj: Json) -> Contact:
        cluster = cluster_of(obj)
        if cluster is None:
            return Contact(connected=False)
        return self._workers.contact(cluster, cluster_namespace_of(obj) or self.namespace_there(obj), kind.resource)

    def _contacts(self, kind: Kind, copies: Iterable[Copy]) -> Mapping[tuple[str, str], Contact]:
        places = {(copy.worker, copy.namespace) for copy in copies}
        return {place: self._workers.contact(*place, kind.resource) for place in places}

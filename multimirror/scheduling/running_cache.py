"""What runs, who of it is being stopped, and for whom: read off the originals as the cache shows them.

A Job that carries the mark `preempted` is leaving: it is charged until its pods are gone, and nobody stops it twice.
The mark says for whom (`preempted-by`), and that stays on it, while it waits again, until it is assigned: so the one
that it made room for is known after a restart, too, and when all of its victims are gone.

When a Job was placed is what its status says (startTime), but never later than it was first seen here: a worker whose
clock is ahead protects nobody. Before it has started it counts as placed when it was first seen. One that was stopped
as often as any may be is placed on own quota only, and is not stopped again.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from multimirror.api import SpecError, is_preemptible, priority_of
from multimirror.api.placement import cluster_of, preempted_at_of, preempted_by_of, preempted_of, preemptions_of
from multimirror.batch import Json
from multimirror.batch.times import seconds_of
from multimirror.kinds import Kind, Ref
from multimirror.kinds.pod_sets import nanos
from multimirror.kinds.reserved import reserved_of
from multimirror.kube import key_of
from multimirror.scheduling.preemption import MOST_STOPS
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.usage import Reservation


class Mark(NamedTuple):
    """On one that was stopped for another."""

    since: float
    worker: str | None
    """Where it is being stopped; None: it is gone from there."""
    name: str
    """Namespace and name, for people."""


class RunningCache:
    """Kept up to date one by one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.jobs = RunningJobs()
        self.leaving: dict[str, RunningJob] = {}
        """By uid: those that are being stopped, and are still charged."""
        self._refs: dict[str, Ref] = {}
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}
        """By uid: on which worker it was first seen, and when."""
        self._marks: dict[str, dict[Ref, Mark]] = {}
        """By the uid of the one that they are stopped for."""
        self._marked: dict[Ref, str] = {}

    def observe(self, ref: Ref, kind: Kind, obj: Json | None, reservation: Reservation | None) -> bool:
        """The cache shows this object now, which counts for that. Whether somebody's victims are others since."""
        uid = ref.uid
        job = self._running(ref, kind, obj, reservation) if obj is not None and reservation is not None else None
        leaves = obj is not None and preempted_of(obj) is not None
        if job is None:
            self._seen.pop(uid, None)
            self._refs.pop(uid, None)
        else:
            self._refs[uid] = ref
        running = job if job is not None and not leaves else None
        if running is None:
            self.jobs.remove(uid)
        elif self.jobs.get(uid) != running:
            self.jobs.put(running)
        if job is not None and leaves:
            self.leaving[uid] = job
        else:
            self.leaving.pop(uid, None)
        return self._mark(ref, obj)

    def ref(self, uid: str) -> Ref | None:
        """Of one that runs, or is being stopped."""
        return self._refs.get(uid)

    def marks(self) -> Iterator[tuple[str, Mapping[Ref, Mark]]]:
        """By the uid of the one that they are stopped for."""
        return iter(tuple(self._marks.items()))

    def marks_for(self, uid: str) -> Mapping[Ref, Mark]:
        """On those that are, or were, stopped for one."""
        return self._marks.get(uid, {})

    def _mark(self, ref: Ref, obj: Json | None) -> bool:
        by = preempted_by_of(obj) if obj is not None else None
        before = self._marked.get(ref)
        if before is not None and before != by:
            del self._marked[ref]
            del self._marks[before][ref]
            if not self._marks[before]:
                del self._marks[before]
        if obj is None or by is None:
            return before is not None
        mark = Mark(preempted_at_of(obj) or 0.0, cluster_of(obj), key_of(obj))
        known = self._marks.setdefault(by, {})
        changed = known.get(ref) != mark
        self._marked[ref], known[ref] = by, mark
        return changed

    def _running(self, ref: Ref, kind: Kind, obj: Json, reservation: Reservation) -> RunningJob:
        worker, seen = self._seen.get(ref.uid, ("", 0.0))
        if worker != reservation.worker:
            seen = self._clock()
            self._seen[ref.uid] = reservation.worker, seen
        status = obj.get("status")
        started = status.get("startTime") if isinstance(status, dict) else None
        reserved = reserved_of(obj)
        preemptible = reserved.preemptible if reserved is not None else is_preemptible(obj)
        preemptible = preemptible and preemptions_of(obj) < MOST_STOPS  # it was placed on own quota
        placed, runs = min(seen, seconds_of(started, seen)), kind.run_seconds(obj)
        return RunningJob(
            uid=ref.uid,
            queue=reservation.queue,
            requests=reservation.requests,
            priority=_priority(obj),
            placed=placed,
            worker=reservation.worker,
            pods=max(1, reservation.requests.get("pods", 0) // nanos(1)),
            preemptible=preemptible and not kind.outcome(obj).ending,
            ends=placed + runs if runs is not None else None,
            name=key_of(obj),
            stopping=kind.pods_there(obj) if preempted_of(obj) is not None else None,
        )


def _priority(obj: Json) -> int:
    try:
        return priority_of(obj)
    except SpecError:
        return 0

"""One assignment, from the decision until the cache shows it; and with it what every assigned object has reserved.

    decided     reserved at once, so that two decisions in a row never count on the same capacity
    written     the API server has it; the cache may show older states of the object for a while, which do not count
    observed    the cache shows it: from here on the object itself says what it has reserved

An assignment is written with the resourceVersion that it was decided on: whoever changed the object in between wins.
Then, or when the cache shows a newer object before it is written, it is dropped, what it reserved is given back, and
the object is looked at again. A write whose fate is unknown stays until the cache tells which of the two it was.
After a restart everything is rebuilt from the cache: nothing here is a record.

What an object has reserved is what was written down with its assignment (kinds/reserved.py), in the queue that admitted
it: whatever it says of itself, or of its queue, since. Growth goes the same way as an assignment: decided, written,
observed. It counts from the decision on; the object may change in other ways meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    CLUSTER_NAMESPACE_ANNOTATION,
    COPY_UID_ANNOTATION,
    FENCE_ANNOTATION,
    HOLD_ANNOTATION,
    PREEMPTED_ANNOTATION,
    PREEMPTED_AT_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    RESERVED_ANNOTATION,
    STARTING_ANNOTATION,
)
from multimirror.api.names import (
    CLAIM_ANNOTATION,
    ESTIMATED_START_ANNOTATION,
    POSITION_ANNOTATION,
    RESUMED_ANNOTATION,
)
from multimirror.api.placement import admitted_queue_of, attempt_of, cluster_of
from multimirror.batch import Json
from multimirror.kinds import Kinds, Ref
from multimirror.kinds.pod_sets import total
from multimirror.kinds.pod_shapes import added, gang_of
from multimirror.kinds.reserved import Reserved, reserved_of
from multimirror.kube.informer import is_older
from multimirror.scheduling.candidates import Candidate, Growth
from multimirror.scheduling.decisions import PlacementDecision
from multimirror.scheduling.running_cache import RunningCache
from multimirror.scheduling.usage import Reservation, UsageCache

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What was decided about one object, and is not observed yet."""

    candidate: Candidate
    decision: PlacementDecision
    worker: str
    namespace: str
    """Of the copy, there."""
    attempt: int
    fence: int | None
    starting: bool = False
    """Its queue says how soon its pods have to be ready."""

    @property
    def reservation(self) -> Reservation:
        candidate = self.candidate
        return Reservation(candidate.queue, candidate.namespace, self.worker, candidate.requests, candidate.gang)

    def patch(self, suspension: Json, reserved: Reserved) -> Json:
        """The merge patch that writes it down, for exactly the object that was decided on."""
        annotations = {
            CLUSTER_ANNOTATION: self.worker,
            CLUSTER_NAMESPACE_ANNOTATION: self.namespace,
            ATTEMPT_ANNOTATION: str(self.attempt),
            ADMITTED_QUEUE_ANNOTATION: self.candidate.queue,
            COPY_UID_ANNOTATION: None,
            FENCE_ANNOTATION: str(self.fence) if self.fence is not None else None,
            RESERVED_ANNOTATION: str(reserved),
            HOLD_ANNOTATION: None,
            STARTING_ANNOTATION: "true" if self.starting else None,
            PREEMPTED_ANNOTATION: None,
            PREEMPTED_BY_ANNOTATION: None,
            PREEMPTED_AT_ANNOTATION: None,
            RESUMED_ANNOTATION: None,
            CLAIM_ANNOTATION: None,
            POSITION_ANNOTATION: None,
            ESTIMATED_START_ANNOTATION: None,
        }
        metadata = {
            "uid": self.candidate.ref.uid,
            "resourceVersion": self.candidate.version,
            "annotations": annotations,
        }
        return {"metadata": metadata, **suspension}


@dataclass(slots=True)
class _Growing:
    """Growth that was decided, and is not observed yet."""

    candidate: Candidate
    growth: Growth
    attempt: int
    written: str | None = None
    """The resourceVersion that the object has since."""

    def is_pending(self, obj: Json) -> bool:
        """Whether an object that the cache shows does not have it yet, and may still get it."""
        if cluster_of(obj) != self.growth.worker or attempt_of(obj) != self.attempt:
            return False
        return reserved_of(obj) == self.growth.before and (
            self.written is None or is_older(obj["metadata"]["resourceVersion"], self.written)
        )


class Assignments:
    """Those that are on their way, and the usage that they and all observed ones make up."""

    def __init__(
        self,
        kinds: Kinds,
        queue_of: Callable[[Json], str],
        again: Callable[[Ref], None],
        *,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`again` is told of an object whose assignment was dropped."""
        self.usage: Final = UsageCache()
        self.running: Final = RunningCache(clock)
        self.kinds: Final = kinds
        self._queue_of, self._again = queue_of, again
        self._pending: dict[Ref, Assignment] = {}
        self._written: dict[Ref, str] = {}  # the resourceVersion that it has since
        self._growing: dict[Ref, _Growing] = {}

    def get(self, ref: Ref) -> Assignment | None:
        """The one that is on its way."""
        return self._pending.get(ref)

    def decide(self, assignment: Assignment) -> None:
        """Reserve what it needs."""
        candidate = assignment.candidate
        self._pending[candidate.ref] = assignment
        self._written.pop(candidate.ref, None)
        self.usage.put(candidate.ref, assignment.reservation)

    def written(self, ref: Ref, version: str) -> None:
        """The API server has it, from this resourceVersion on: older states of the object do not count any more."""
        if ref in self._pending:
            self._written[ref] = version

    def drop(self, ref: Ref, obj: Json | None) -> None:
        """It was not written, and will not be: give back what it reserved, and look at the object again."""
        if self._forget(ref):
            self.usage.put(ref, self._reservation(ref, obj))
            self._again(ref)

    def is_settled(self, ref: Ref) -> bool:
        """Nothing about it is on its way."""
        return ref not in self._pending and ref not in self._growing

    # --- growth

    def growing(self, ref: Ref) -> Candidate | None:
        """The one whose growth is on its way."""
        growing = self._growing.get(ref)
        return growing.candidate if growing is not None else None

    def grow(self, candidate: Candidate, obj: Json) -> bool:
        """Reserve what it will have. Whether the object still is what it was decided on."""
        growth, ref = candidate.growth, candidate.ref
        before = self.usage.get(ref)
        if growth is None or before is None:
            return False
        growing = _Growing(candidate, growth, attempt_of(obj))
        if not growing.is_pending(obj):
            return False
        self._growing[ref] = growing
        self.usage.put(ref, replace(before, requests=growth.total, gang=added(before.gang, candidate.gang)))
        return True

    def grown(self, ref: Ref, version: str) -> None:
        """The API server has it, from this resourceVersion on."""
        growing = self._growing.get(ref)
        if growing is not None:
            growing.written = version

    def drop_growth(self, ref: Ref, obj: Json | None) -> None:
        """It was not written, and will not be."""
        if self._growing.pop(ref, None) is not None:
            self.usage.put(ref, self._reservation(ref, obj))
            self._again(ref)

    # --- what the cache shows

    def observe(self, ref: Ref, obj: Json | None) -> bool:
        """The cache shows this object now; None: it is gone. Whether the usage, or who waits for whom, is another one
        since."""
        growing = self._growing.get(ref)
        if growing is not None:
            if obj is not None and growing.is_pending(obj) and not self.kinds.of(ref).outcome(obj).finished:
                return False
            del self._growing[ref]
        pending = self._pending.get(ref)
        if pending is not None and obj is not None and attempt_of(obj) < pending.attempt:
            version, written = obj["metadata"]["resourceVersion"], self._written.get(ref)
            if version == pending.candidate.version or (written is not None and is_older(version, written)):
                return False  # what we decided on, or older than what we wrote
            _log.debug("an object was changed before its assignment was written", ref=str(ref))
            self.drop(ref, obj)
            return True
        self._forget(ref)
        reservation = self._reservation(ref, obj)
        waits = self.running.observe(ref, self.kinds.of(ref), obj, reservation)
        return self.usage.put(ref, reservation) or waits

    def _forget(self, ref: Ref) -> bool:
        self._written.pop(ref, None)
        return self._pending.pop(ref, None) is not None

    def _reservation(self, ref: Ref, obj: Json | None) -> Reservation | None:
        kind = self.kinds.of(ref)
        if obj is None or kind.outcome(obj).finished:
            return None
        cluster = cluster_of(obj)
        if cluster is None:
            return None
        reserved, queue = reserved_of(obj), admitted_queue_of(obj)
        # Nothing that can be read: what it asks for itself, until what its copy has is written down (counting.py).
        requests = reserved.requests if reserved is not None else total(kind.pod_sets(obj))
        gang = gang_of(kind, obj, reserved.counts if reserved is not None else None)
        return Reservation(queue or self._queue_of(obj), obj["metadata"]["namespace"], cluster, requests, gang)

"""One assignment, from the decision until the cache shows it; and with it what every assigned object has reserved.

    decided     reserved at once, so that two decisions in a row never count on the same capacity
    written     the API server has it; the cache may show older states of the object for a while, which do not count
    observed    the cache shows it: from here on the object itself says what it has reserved

An assignment is written with the resourceVersion that it was decided on: whoever changed the object in between wins.
Then, or when the cache shows a newer object before it is written, it is dropped, what it reserved is given back, and
the object is looked at again. A write whose fate is unknown stays until the cache tells which of the two it was.
After a restart everything is rebuilt from the cache: nothing here is a record.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
)
from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json
from multimirror.kinds import Kinds, Ref
from multimirror.kinds.pod_sets import total
from multimirror.kube.informer import is_older
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.plan import PlacementDecision
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

    @property
    def reservation(self) -> Reservation:
        return Reservation(self.candidate.queue, self.candidate.namespace, self.worker, self.candidate.requests)

    def patch(self, suspension: Json) -> Json:
        """The merge patch that writes it down, for exactly the object that was decided on."""
        annotations = {
            CLUSTER_ANNOTATION: self.worker,
            CLUSTER_NAMESPACE_ANNOTATION: self.namespace,
            ATTEMPT_ANNOTATION: str(self.attempt),
            ADMITTED_QUEUE_ANNOTATION: self.candidate.queue,
            COPY_UID_ANNOTATION: None,
            FENCE_ANNOTATION: str(self.fence) if self.fence is not None else None,
            HOLD_ANNOTATION: None,
        }
        metadata = {
            "uid": self.candidate.ref.uid,
            "resourceVersion": self.candidate.version,
            "annotations": annotations,
        }
        return {"metadata": metadata, **suspension}


class Assignments:
    """Those that are on their way, and the usage that they and all observed ones make up."""

    def __init__(self, kinds: Kinds, queue_of: Callable[[Json], str], again: Callable[[Ref], None]) -> None:
        """`again` is told of an object whose assignment was dropped."""
        self.usage: Final = UsageCache()
        self._kinds, self._queue_of, self._again = kinds, queue_of, again
        self._pending: dict[Ref, Assignment] = {}
        self._written: dict[Ref, str] = {}  # the resourceVersion that it has since

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

    def observe(self, ref: Ref, obj: Json | None) -> bool:
        """The cache shows this object now; None: it is gone. Whether the usage is another one since."""
        pending = self._pending.get(ref)
        if pending is not None and obj is not None and attempt_of(obj) < pending.attempt:
            version, written = obj["metadata"]["resourceVersion"], self._written.get(ref)
            if version == pending.candidate.version or (written is not None and is_older(version, written)):
                return False  # what we decided on, or older than what we wrote
            _log.debug("an object was changed before its assignment was written", ref=str(ref))
            self.drop(ref, obj)
            return True
        self._forget(ref)
        return self.usage.put(ref, self._reservation(ref, obj))

    def _forget(self, ref: Ref) -> bool:
        self._written.pop(ref, None)
        return self._pending.pop(ref, None) is not None

    def _reservation(self, ref: Ref, obj: Json | None) -> Reservation | None:
        kind = self._kinds.of(ref)
        if obj is None or kind.outcome(obj).finished:
            return None
        cluster = cluster_of(obj)
        if cluster is None:
            return None
        requests = total(kind.pod_sets(obj))
        return Reservation(self._queue_of(obj), obj["metadata"]["namespace"], cluster, requests)

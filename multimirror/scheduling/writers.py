"""What a pass decided is written down: assignments, growth, and marks on those who make room.

Side by side, each for exactly the version of the object that was decided on (see `assignments`); namespaces take turns.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from multimirror.api import RESERVED_ANNOTATION
from multimirror.api.placement import cluster_of
from multimirror.batch import Json
from multimirror.batch.times import seconds_of
from multimirror.kinds import Kind, Ref
from multimirror.kinds.preempted import preemption_patch
from multimirror.kinds.reserved import reserved_by_assignment
from multimirror.kube import ApiError, Client, Controller, WorkQueue, key_of
from multimirror.kube.controller import NotYet
from multimirror.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from multimirror.kube.own_writes import OwnWrites
from multimirror.scheduling import metrics
from multimirror.scheduling.announcements import Announcements
from multimirror.scheduling.assignments import Assignment, Assignments
from multimirror.scheduling.claim_writes import ClaimWrites
from multimirror.scheduling.growth import is_wanted
from multimirror.scheduling.marks import Marks
from multimirror.scheduling.waiting import Waiting

_log = structlog.get_logger(__name__)
_IN_FLIGHT: Final = 4
"""Assignments that are decided and not written yet, for each that can be written at once."""
_REFUSALS_UNTOLD: Final = 2
"""So often an assignment may be refused before its user hears of it: an API server that starts refuses everything."""


class Objects(Protocol):
    """The objects of the management cluster, as the cache has them."""

    def kind(self, ref: Ref) -> Kind: ...
    def get(self, ref: Ref) -> Json | None: ...
    def writes(self, ref: Ref) -> OwnWrites: ...


class Writers:
    """No more is decided than can be written soon: `is_enough`, until `room`."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        assignments: Assignments,
        announcements: Announcements,
        *,
        marks: Marks,
        claims: ClaimWrites,
        waiting: Waiting,
        clock: Callable[[], float],
        keep: Callable[[Kind, Json], None],
        wake: Callable[[], None],
        concurrency: int,
    ) -> None:
        """`keep` is given every assigned object, whole, as the API server answered; `wake` is called when something
        that was decided comes to nothing: what it had reserved may be what another one waits for."""
        self._client, self._objects, self._assignments, self._announcements = (
            client,
            objects,
            assignments,
            announcements,
        )
        self._marks, self._claims, self._waiting = marks, claims, waiting
        self._clock, self._keep, self._wake = clock, keep, wake
        queue = WorkQueue[Ref]("assign", group=self._namespace)
        self._controller = Controller[Ref]("assign", self._assign, queue=queue, concurrency=concurrency, timeout=60.0)
        self._most_in_flight = _IN_FLIGHT * concurrency
        self._in_flight: dict[Ref, str] = {}
        """What is being written, or is about to be, and its namespace. Not what has to be tried again later: that may
        be in vain for ever."""
        self._room = asyncio.Event()
        """Set while no more than half of that is in flight."""
        self._room.set()

    async def run(self) -> None:
        await self._controller.run()

    def stop(self) -> None:
        """Write nothing more."""
        self._controller.stop()

    def write(self, ref: Ref, namespace: str) -> None:
        """What was decided about it; it counts for this namespace's turn."""
        self._in_flight[ref] = namespace
        self._controller.queue.add(ref)

    @property
    def in_flight(self) -> Counter[str]:
        """By namespace."""
        return Counter(self._in_flight.values())

    def is_enough(self) -> bool:
        """As much is in flight as may be: then nothing more is to be decided before `room`."""
        if len(self._in_flight) < self._most_in_flight:
            return False
        self._room.clear()
        return True

    async def room(self) -> None:
        """Wait until half of what may be in flight is written."""
        await self._room.wait()

    async def _assign(self, ref: Ref) -> None:
        self._in_flight.setdefault(ref, self._namespace(ref))  # it may be tried again
        try:
            await self._assign_now(ref)
        finally:
            self._in_flight.pop(ref, None)
            if len(self._in_flight) <= self._most_in_flight // 2:
                self._room.set()

    async def _assign_now(self, ref: Ref) -> None:
        assignment, obj = self._assignments.get(ref), self._objects.get(ref)
        if self._marks.get(ref) is not None:
            await self._write_mark(ref, obj)
            return
        if assignment is None and self._claims.get(ref) is not None:
            await self._write_claim(ref, obj)
            return
        if assignment is None:
            await self._write_growth(ref, obj)
            return
        if obj is None or cluster_of(obj) is not None or _version(obj) != assignment.candidate.version:
            self._assignments.drop(ref, obj)
            self._wake()  # what it had reserved may be what another one waits for
            return
        try:
            await self._write(ref, obj, assignment)
        except (Conflict, NotFound) as error:
            # Somebody changed it, or our own write had taken effect after all: the cache will tell which. Until then
            # the write is tried ever more seldom, for a watch may be silent for long.
            raise NotYet(f"the cache does not show yet what became of {key_of(obj)}") from error
        except (Forbidden, Invalid, BadRequest) as error:
            if self._controller.queue.failures(ref) >= _REFUSALS_UNTOLD:
                message = f"the API server refuses the assignment: {error.message}"
                self._announcements.tell_once(self._objects.kind(ref), obj, "AssignmentRefused", message)
            raise
        except ApiError as error:
            if error.outcome_unknown:
                _log.warning("an assignment may or may not have been written", ref=str(ref), error=str(error))
            raise

    async def _write(self, ref: Ref, obj: Json, assignment: Assignment) -> None:
        kind, metadata = self._objects.kind(ref), obj["metadata"]
        body = assignment.patch(kind.suspension(suspend=False), reserved_by_assignment(kind, obj))
        answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        self._keep(kind, answer)
        self._assignments.written(ref, _version(answer))
        self._objects.writes(ref).wrote(answer)
        queue, worker = assignment.candidate.queue, assignment.worker
        metrics.ASSIGNED.labels(queue, worker).inc()
        if assignment.attempt == 1:
            now = self._clock()
            created = seconds_of(metadata.get("creationTimestamp"), now)
            metrics.WAIT_SECONDS.labels(queue).observe(max(0.0, now - created))
        message = f"runs on worker {worker} ({assignment.decision})"
        self._announcements.tell(kind, obj, "Assigned", message, "Normal")
        _log.info("assigned", ref=str(ref), object=key_of(obj), cluster=worker, attempt=assignment.attempt)

    async def _write_growth(self, ref: Ref, obj: Json | None) -> None:
        """For the object as it is now, if it still asks for the same: its status changes all the time."""
        candidate = self._assignments.growing(ref)
        growth = candidate.growth if candidate is not None else None
        if candidate is None or growth is None:
            return
        kind = self._objects.kind(ref)
        if obj is None or not is_wanted(growth, kind.pod_counts(obj)):
            self._assignments.drop_growth(ref, obj)
            self._wake()
            return
        metadata = obj["metadata"]
        exactly = {"uid": metadata["uid"], "resourceVersion": _version(obj)}
        body = {"metadata": {**exactly, "annotations": {RESERVED_ANNOTATION: str(growth.after)}}}
        try:
            answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        except (Conflict, NotFound) as error:
            raise NotYet(f"the cache does not show yet what became of {key_of(obj)}") from error
        self._assignments.grown(ref, _version(answer))
        self._objects.writes(ref).wrote(answer)
        before, after = (sum(each.granted.values()) for each in (growth.before, growth.after))
        message = f"may have {after} pods at once on worker {growth.worker}, instead of {before}"
        self._announcements.tell_once(kind, obj, "Grown", message, "Normal")
        _log.info("grown", ref=str(ref), object=key_of(obj), cluster=growth.worker, pods=after)

    async def _write_mark(self, ref: Ref, obj: Json | None) -> None:
        """For the victim as it is now, if it is still the one that was decided on, and is still to make room."""
        mark, kind = self._marks.get(ref), self._objects.kind(ref)
        if mark is None:
            return
        if obj is None or not mark.is_wanted(kind, obj) or self._waiting.get(mark.by.ref) is None:
            self._marks.drop(ref)
            self._wake()
            return
        metadata, uid = obj["metadata"], mark.by.ref.uid
        body = preemption_patch(kind, obj, mark.why, now=self._clock(), by=uid)
        try:
            answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        except (Conflict, NotFound) as error:
            raise NotYet(f"the cache does not show yet what became of {key_of(obj)}") from error
        self._marks.written(ref, _version(answer))
        self._objects.writes(ref).wrote(answer)
        self._announcements.tell(kind, obj, "Preempted", str(mark.words), "Normal")
        _log.info("preempted", ref=str(ref), object=key_of(obj), cluster=mark.job.worker, why=mark.why, by=uid)

    async def _write_claim(self, ref: Ref, obj: Json | None) -> None:
        """For the object as it is now, if it still waits."""
        pending, kind = self._claims.get(ref), self._objects.kind(ref)
        if pending is None:
            return
        if obj is None or cluster_of(obj) is not None or self._waiting.get(ref) is None:
            self._claims.drop(ref)
            return
        metadata, claim, body = obj["metadata"], pending.claim, pending.patch(obj)
        try:
            answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        except (Conflict, NotFound) as error:
            raise NotYet(f"the cache does not show yet what became of {key_of(obj)}") from error
        self._claims.written(ref, _version(answer))
        self._objects.writes(ref).wrote(answer)
        message = f"it has waited for long: what becomes free on worker {claim.worker} is kept for it"
        self._announcements.tell(kind, obj, "RoomKept", message, "Normal")
        _log.info("room is kept", ref=str(ref), object=key_of(obj), cluster=claim.worker)

    def _namespace(self, ref: Ref) -> str:
        """Of an object that is on its way."""
        mark = self._marks.get(ref)
        if mark is not None:
            return mark.by.namespace
        claim = self._claims.get(ref)
        if claim is not None:
            return claim.candidate.namespace
        assignment, growing = self._assignments.get(ref), self._assignments.growing(ref)
        candidate = assignment.candidate if assignment is not None else growing
        return candidate.namespace if candidate is not None else ""


def _version(obj: Json) -> str:
    return str(obj["metadata"]["resourceVersion"])

"""The pass over what waits, whenever something changed, and the writing down of what it decided.

One pass at a time, in slices of a few milliseconds: after each slice there is a pause four times as long, so that
thousands of waiting objects never cost more than a fifth of the time, and nobody waits for the event loop. What was
decided on older news than there are at that time is not written: it is decided again in the next pass. Assignments are
written side by side, each for exactly the version of the object that was decided on (see `assignments`).

No more is decided than can be written soon. A pass that has as many assignments on their way as `_IN_FLIGHT` allows
ends there, and when half of them are written the next one begins, in the order of that moment: whoever comes while a
thousand others are being assigned is considered then, and namespaces take turns in being written and in being told.
Nor does anybody wait for a pass over thousands that do not fit: when there are news it is broken off, and the next one
takes it up again where it was, after those who come first.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

import structlog

from multimirror.api import RESERVED_ANNOTATION, CohortSpec, MirrorQueueSpec
from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json
from multimirror.batch.times import seconds_of
from multimirror.kinds import Kind, Ref
from multimirror.kinds.preempted import preemption_patch
from multimirror.kinds.reserved import reserved_by_assignment
from multimirror.kube import ApiError, Client, Controller, WorkQueue, key_of
from multimirror.kube.controller import NotYet
from multimirror.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from multimirror.kube.own_writes import OwnWrites
from multimirror.kube.supervise import Supervisor
from multimirror.kube.turns import Turns
from multimirror.scheduling import metrics
from multimirror.scheduling.announcements import Announcements
from multimirror.scheduling.assignments import Assignment, Assignments
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.growth import is_wanted
from multimirror.scheduling.marks import Marks
from multimirror.scheduling.order import FRONT, Line, Position, Waiting, WaitingSnapshot, position_of
from multimirror.scheduling.plan import Placed, PlacementDecision, Preempts, Step, Waits, plan
from multimirror.scheduling.quota import QuotaTree
from multimirror.scheduling.shared_quota import quota_tree

_log = structlog.get_logger(__name__)
_SLICE_SECONDS: Final = 0.005
_SHORTEST_PAUSE_SECONDS: Final = 0.005
_IN_FLIGHT: Final = 4
"""Assignments that are decided and not written yet, for each that can be written at once."""
_TAIL: Final = 500
"""So many are looked at, of namespaces that had their share in a pass, before it may be broken off."""
_TOLD_PER_PASS: Final = 100
_SHORTEST_LOOK_SECONDS: Final = 0.5
_TELL_ON_SECONDS: Final = 2.0
"""Until those hear why they wait who could not be told in the last pass: events go out 50 a second."""
VISIBLE_SECONDS: Final = 2.0
"""So long after its creation an object that waits says so on its status: most have gone by then."""
_REFUSALS_UNTOLD: Final = 2
"""So often an assignment may be refused before its user hears of it: an API server that starts refuses everything."""


class Objects(Protocol):
    """The objects of the management cluster, as the cache has them."""

    def kind(self, ref: Ref) -> Kind: ...
    def get(self, ref: Ref) -> Json | None: ...
    def writes(self, ref: Ref) -> OwnWrites: ...


class Scheduler:
    """Objects that wait, until they are assigned."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        assignments: Assignments,
        announcements: Announcements,
        *,
        queues: Callable[[], Mapping[str, MirrorQueueSpec]],
        workers: Callable[[], Mapping[str, WorkerSnapshot]],
        worker: Callable[[str], WorkerSnapshot | None],
        clock: Callable[[], float],
        cohorts: Callable[[], Mapping[str, CohortSpec]] = dict,
        keep: Callable[[Kind, Json], None] = lambda kind, obj: None,
        unshown: Callable[[Ref, float], None] = lambda ref, seconds: None,
        concurrency: int = 16,
    ) -> None:
        """`keep` is given every assigned object, whole, as the API server answered; `unshown` every one that waits and
        whose status does not say so, and in how many seconds it will have waited visibly long."""
        self._client, self._objects = client, objects
        self._assignments, self._announcements, self._keep = assignments, announcements, keep
        self._unshown = unshown
        self._queues, self._workers, self._worker, self._clock = queues, workers, worker, clock
        self._trees = _Trees(cohorts)
        self._waiting = Waiting()
        self.marks = Marks(assignments.running, assignments.kinds, self._waiting)
        self._again: float | None = None
        """When to look again, by the clock, if nothing happens before."""
        self._news = asyncio.Event()
        self._resume: dict[Line, Position] = {}
        """How far the passes came that were broken off."""
        self._untold = False
        """Some do not know yet why they wait."""
        self.decisions: dict[Ref, PlacementDecision] = {}
        """The latest decision about each object that waits."""
        self.heads: dict[str, Waits | Preempts] = {}
        """The first object of each queue that waits."""
        queue = WorkQueue[Ref]("assign", group=self._namespace)
        self._writers = Controller[Ref]("assign", self._assign, queue=queue, concurrency=concurrency, timeout=60.0)
        self._most_in_flight = _IN_FLIGHT * concurrency
        self._in_flight: dict[Ref, str] = {}
        """What is being written, or is about to be, and its namespace. Not what has to be tried again later: that may
        be in vain for ever."""
        self._written = asyncio.Event()
        """Set while no more than half of that is in flight."""
        self._written.set()

    def offer(self, candidate: Candidate) -> None:
        """This object wants a worker."""
        if self._assignments.is_settled(candidate.ref) and self._waiting.put(candidate):
            self._news.set()

    def withdraw(self, ref: Ref) -> None:
        """It does not, any more."""
        if self._drop(ref):
            self._news.set()

    def wake(self) -> None:
        """There may be more capacity now."""
        if self._waiting:
            self._news.set()

    def waiting(self) -> list[Candidate]:
        return list(self._waiting)

    def snapshot(self) -> WaitingSnapshot:
        """What waits now, in line."""
        return self._waiting.snapshot()

    def rehearse(self, waiting: WaitingSnapshot) -> Iterator[Step | None]:
        """A pass over these, as things are now, that nobody carries out."""
        queues, usage = dict(self._queues()), self._assignments.usage.snapshot()
        state = self.marks.state(self._clock())
        return plan(waiting, queues, dict(self._workers()), usage, tree=self._trees.of(queues), state=state)

    def pending(self, queue: str) -> int:
        """How many wait in a queue."""
        return self._waiting.count(queue)

    async def run(self) -> None:
        """Until stopped, or cancelled."""
        async with Supervisor() as tasks:
            tasks.start("passes over the queues", self._passes())
            await asyncio.wait([tasks.start("assign", self._writers.run(), may_return=True)])

    def stop(self) -> None:
        """Assign nothing more."""
        self._writers.stop()

    # --- passes

    async def _passes(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._news.wait()
            await self._written.wait()
            self._news.clear()
            await self._pass()

    def _pause(self) -> float | None:
        """After which a pass begins though there are no news."""
        seconds = [_TELL_ON_SECONDS] if self._untold else []
        if self._again is not None:
            seconds.append(max(_SHORTEST_LOOK_SECONDS, self._again - self._clock()))
        return min(seconds, default=None)

    async def _pass(self) -> None:
        """One plan, with pauses, to its end; or until as much is decided as can be written soon."""
        queues, workers = dict(self._queues()), dict(self._workers())
        heads: dict[str, Waits | Preempts] = {}
        untold: Turns[Ref, Waits | Preempts] = Turns()  # by namespace
        self._untold, self._again = False, None
        busy, flying = 0.0, Counter(self._in_flight.values())
        snapshot, usage = self._waiting.snapshot(), self._assignments.usage.snapshot()
        tree = self._trees.of(queues)
        state, resume = self.marks.state(self._clock()), dict(self._resume)
        steps = plan(snapshot, queues, workers, usage, in_flight=flying, resume=resume, tree=tree, state=state)
        reached, done = _Reached(), False
        while not done:
            started = time.perf_counter()
            done = True
            for step in steps:
                if isinstance(step, Placed):
                    self._place(step, queues)
                elif step is not None:
                    if isinstance(step, Preempts):
                        self._stop_others(step, queues)
                    self._keep_waiting(step, heads, untold)
                    reached.refused(step.candidate)
                if len(self._in_flight) >= self._most_in_flight:
                    self._written.clear()
                    self._break_off(reached, snapshot)
                    break
                if time.perf_counter() - started > _SLICE_SECONDS:
                    done = False
                    break
            else:
                if self._resume:  # all of the rest was looked at; now everybody again, in one pass
                    self._resume = {}
                    self._news.set()
            took = time.perf_counter() - started
            busy += took
            await asyncio.sleep(max(_SHORTEST_PAUSE_SECONDS, 4 * took))
            if not done and self._news.is_set() and reached.tail >= _TAIL:
                self._break_off(reached, snapshot)
                done = True
        metrics.PASSES.observe(busy)
        self._show_heads(heads)
        self._tell(untold)

    def _break_off(self, reached: "_Reached", snapshot: WaitingSnapshot) -> None:
        """The next pass takes it up again; a line that was looked at to its end begins anew."""
        positions = reached.positions
        for line in {*self._resume, *positions}:
            known = [each[line] for each in (self._resume, positions) if line in each]
            end = snapshot.end_of(line)
            if end is None or max(known) >= end:
                self._resume.pop(line, None)
            else:
                self._resume[line] = max(known)
        self._news.set()

    def _show_heads(self, heads: dict[str, Waits | Preempts]) -> None:
        """Of queues that the pass did not come to, the first is still the one that it was, if it waits."""
        for queue, head in self.heads.items():
            if queue not in heads and self._current(head.candidate) is not None:
                heads[queue] = head
        self.heads = heads

    def _place(self, step: Placed, queues: Mapping[str, MirrorQueueSpec]) -> None:
        """Unless what it was decided on has changed during the pass: then the next one decides."""
        candidate, worker = self._current(step.candidate), step.decision.chosen
        assert worker is not None
        if candidate is None:
            return
        queue, there = self._queues().get(candidate.queue), self._worker(worker)
        if queue is None or queue is not queues[candidate.queue] or there is None or not there.is_open:
            self._news.set()
            return
        if queue.cohort is not None and self._trees.have_changed(self._queues()):
            self._news.set()
            return
        if candidate.growth is not None:
            self._grow(candidate)
            return
        obj, namespace = self._objects.get(candidate.ref), there.spec.namespace_for(candidate.namespace)
        if obj is None or namespace is None:
            return
        self._drop(candidate.ref)
        fence = int(queue.fence.timeout) if queue.fence is not None else None
        attempt, starting = attempt_of(obj) + 1, queue.start is not None
        assignment = Assignment(candidate, step.decision, worker, namespace, attempt, fence, starting)
        self._assignments.decide(assignment)
        self._in_flight[candidate.ref] = candidate.namespace
        self._writers.queue.add(candidate.ref)

    def _stop_others(self, step: Preempts, queues: Mapping[str, MirrorQueueSpec]) -> None:
        """Unless what it was decided on has changed during the pass."""
        candidate = self._current(step.candidate)
        there = self._worker(step.worker) if step.worker is not None else None
        if candidate is None or there is None or not there.is_open or self._trees.have_changed(self._queues()):
            self._news.set()
            return
        refs = self.marks.decide(step, candidate, self._clock())
        for ref in refs:
            self._in_flight[ref] = candidate.namespace
            self._writers.queue.add(ref)
        obj = self._objects.get(candidate.ref)
        if obj is not None and refs:
            message = str(step.decision.why)
            self._announcements.tell(self._objects.kind(candidate.ref), obj, "Preempting", message, "Normal")

    def _grow(self, candidate: Candidate) -> None:
        obj = self._objects.get(candidate.ref)
        self._drop(candidate.ref)
        if obj is not None and self._assignments.grow(candidate, obj):
            self._in_flight[candidate.ref] = candidate.namespace
            self._writers.queue.add(candidate.ref)

    def _keep_waiting(
        self, step: Waits | Preempts, heads: dict[str, Waits | Preempts], untold: Turns[Ref, Waits | Preempts]
    ) -> None:
        """Note why, and whether its user has to be told."""
        ref, namespace = step.candidate.ref, step.candidate.namespace
        if self._current(step.candidate) is None:
            return
        looked_at = ref in self.decisions
        self.decisions[ref] = step.decision
        if step.decision.again is not None:
            self._again = min(self._again or step.decision.again, step.decision.again)
        if step.candidate.growth is None:
            heads.setdefault(step.candidate.queue, step)
            if not looked_at:
                self._show(step.candidate)
        if self._announcements.knows_why_it_waits(ref, step.decision.reason):
            return
        if untold.count(namespace) < _TOLD_PER_PASS:
            untold.put(namespace, ref, step)
        else:
            self._untold = True

    def _show(self, candidate: Candidate) -> None:
        """It was looked at, and waits: it is to say so when it has waited visibly long, if it does not yet."""
        ref, now = candidate.ref, self._clock()
        obj = self._objects.get(ref)
        if obj is not None and not self._objects.kind(ref).shows_that_it_waits(obj):
            waited = max(0.0, now - seconds_of(candidate.created, now))
            self._unshown(ref, max(0.0, VISIBLE_SECONDS - waited))

    def _tell(self, untold: Turns[Ref, Waits | Preempts]) -> None:
        """Those who do not know yet why they wait: namespaces take turns, and the others are told after a while."""
        left = _TOLD_PER_PASS
        while untold and left:
            ref, step = untold.pop()
            obj = self._objects.get(ref)
            if obj is None or self._current(step.candidate) is None:
                continue
            if self._announcements.room(step.candidate.namespace) <= 0:
                self._untold = True
                continue
            self._announcements.tell_why_it_waits(self._objects.kind(ref), obj, step.decision)
            left -= 1
        self._untold |= bool(untold)

    # --- assignments

    async def _assign(self, ref: Ref) -> None:
        self._in_flight.setdefault(ref, self._namespace(ref))  # it may be tried again
        try:
            await self._assign_now(ref)
        finally:
            self._in_flight.pop(ref, None)
            if len(self._in_flight) <= self._most_in_flight // 2:
                self._written.set()

    async def _assign_now(self, ref: Ref) -> None:
        assignment, obj = self._assignments.get(ref), self._objects.get(ref)
        if self.marks.get(ref) is not None:
            await self._write_mark(ref, obj)
            return
        if assignment is None:
            await self._write_growth(ref, obj)
            return
        if obj is None or cluster_of(obj) is not None or _version(obj) != assignment.candidate.version:
            self._assignments.drop(ref, obj)
            self.wake()  # what it had reserved may be what another one waits for
            return
        try:
            await self._write(ref, obj, assignment)
        except (Conflict, NotFound) as error:
            # Somebody changed it, or our own write had taken effect after all: the cache will tell which. Until then
            # the write is tried ever more seldom, for a watch may be silent for long.
            raise NotYet(f"the cache does not show yet what became of {key_of(obj)}") from error
        except (Forbidden, Invalid, BadRequest) as error:
            if self._writers.queue.failures(ref) >= _REFUSALS_UNTOLD:
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
            self.wake()
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
        mark, kind = self.marks.get(ref), self._objects.kind(ref)
        if mark is None:
            return
        if obj is None or not mark.is_wanted(kind, obj) or self._waiting.get(mark.by.ref) is None:
            self.marks.drop(ref)
            self.wake()
            return
        metadata, uid = obj["metadata"], mark.by.ref.uid
        body = preemption_patch(kind, obj, mark.why, now=self._clock(), by=uid)
        try:
            answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        except (Conflict, NotFound) as error:
            raise NotYet(f"the cache does not show yet what became of {key_of(obj)}") from error
        self.marks.written(ref, _version(answer))
        self._objects.writes(ref).wrote(answer)
        self._announcements.tell(kind, obj, "Preempted", str(mark.words), "Normal")
        _log.info("preempted", ref=str(ref), object=key_of(obj), cluster=mark.job.worker, why=mark.why, by=uid)

    def _namespace(self, ref: Ref) -> str:
        """Of an object that is on its way."""
        mark = self.marks.get(ref)
        if mark is not None:
            return mark.by.namespace
        assignment, growing = self._assignments.get(ref), self._assignments.growing(ref)
        candidate = assignment.candidate if assignment is not None else growing
        return candidate.namespace if candidate is not None else ""

    def _current(self, candidate: Candidate) -> Candidate | None:
        """It as it waits now, which may be another version of what was decided on; None where it is another one in any
        other way (that was news: the next pass looks at it), or does not wait."""
        current = self._waiting.get(candidate.ref)
        if current is None or current is candidate:
            return current
        return current if replace(candidate, version=current.version) == current else None

    def _drop(self, ref: Ref) -> bool:
        self.decisions.pop(ref, None)
        return self._waiting.remove(ref) is not None


class _Trees:
    """The quota of queues that share, made anew when a queue or a cohort has changed."""

    def __init__(self, cohorts: Callable[[], Mapping[str, CohortSpec]]) -> None:
        self._cohorts = cohorts
        self._of: tuple[dict[str, MirrorQueueSpec], dict[str, CohortSpec]] = {}, {}
        self._tree = quota_tree({})

    def of(self, queues: Mapping[str, MirrorQueueSpec]) -> QuotaTree:
        if self.have_changed(queues):
            self._of = dict(queues), dict(self._cohorts())
            self._tree = quota_tree(*self._of)
        return self._tree

    def have_changed(self, queues: Mapping[str, MirrorQueueSpec]) -> bool:
        """Since they were last asked for. (Specs that are the same are the same objects, so this is quick.)"""
        return self._of != (queues, self._cohorts())


class _Reached:
    """How far a pass came in each line, and how many it looked at beyond the share of their namespaces."""

    def __init__(self) -> None:
        self.tail = 0
        self._latest: dict[Line, Candidate] = {}
        self._refused: Counter[str] = Counter()

    def refused(self, candidate: Candidate) -> None:
        namespace = candidate.namespace
        self._refused[namespace] += 1
        if self._refused[namespace] > FRONT:
            self.tail += 1
        self._latest[candidate.queue, namespace] = candidate

    @property
    def positions(self) -> dict[Line, Position]:
        """Of namespaces that were not looked at as a whole with their share alone."""
        return {
            line: position_of(candidate)
            for line, candidate in self._latest.items()
            if self._refused[candidate.namespace] > FRONT
        }


def _version(obj: Json) -> str:
    return str(obj["metadata"]["resourceVersion"])

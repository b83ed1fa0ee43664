"""The pass over what waits, whenever something changed, and the writing down of what it decided.

One pass at a time. Passes take turns with everything else: after each one there is a pause four times as long, so that
thousands of waiting Jobs never cost more than a fifth of the time. Assignments are written side by side, each with the
resourceVersion that it was decided on: whoever changed the Job in between wins, and it is decided again as soon as the
cache shows what was changed. Until then the write is tried ever more seldom: a watch may be silent for long.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from multimirror.api import (
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    HOLD_ANNOTATION,
    LEASE_ANNOTATION,
    WAITS_FOR_ANNOTATION,
    MirrorQueueSpec,
)
from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json
from multimirror.batch.times import seconds_of
from multimirror.kube import ApiError, Client, Controller, EventRecorder, key_of
from multimirror.kube.controller import NotYet
from multimirror.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from multimirror.kube.resources import JOBS
from multimirror.observe import metrics
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.originals import Originals, job_ref
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.order import Waiting
from multimirror.scheduling.plan import Placed, PlacementDecision, Step, Waits, plan

_log = structlog.get_logger(__name__)
_SHORTEST_PAUSE: Final = 0.005
_SLICE: Final = 0.005
"""Seconds of planning at a stretch."""
_TOLD_PER_PASS: Final = 100
_TELL_ON: Final = 2.0
"""Seconds until those hear why they wait who could not be told in the last pass: events go out 50 a second."""
_PATIENCE: Final = 2
"""So often an assignment may be refused before its user hears of it: an API server that starts refuses everything."""


class Scheduler:
    """Jobs that wait, until they are assigned."""

    def __init__(
        self,
        client: Client,
        originals: Originals,
        memory: Memory,
        events: EventRecorder,
        *,
        queues: Callable[[], Mapping[str, MirrorQueueSpec]],
        workers: Callable[[], Mapping[str, WorkerSnapshot]],
        again: Callable[[str], None],
        concurrency: int = 16,
    ) -> None:
        """`again` is told the uid of a Job that has to be looked at anew."""
        self._client, self._originals, self._memory, self._events = client, originals, memory, events
        self._queues, self._workers, self._again = queues, workers, again
        self._waiting = Waiting()
        self._decided: dict[str, PlacementDecision] = {}
        self._outdated: dict[str, str] = {}
        """The resourceVersion of each decided Job that the API server no longer has."""
        self._news = asyncio.Event()
        self._left_to_tell = 0
        self._untold = False
        """Some do not know yet why they wait."""
        self.decisions: dict[str, PlacementDecision] = {}
        """The latest about each Job that waits, by uid."""
        self.heads: dict[str, Waits] = {}
        """The first Job of each queue that waits."""
        self._writers = Controller("assign", self._assign, concurrency=concurrency, timeout=60.0)

    def offer(self, job: Candidate) -> None:
        """This Job wants a worker."""
        if job.ref.uid not in self._decided and self._waiting.put(job):
            self._news.set()

    def withdraw(self, uid: str) -> None:
        """It does not, any more."""
        if self._drop(uid):
            self._news.set()

    def wake(self) -> None:
        """There may be more room now."""
        if self._waiting:
            self._news.set()

    def waiting(self) -> list[Candidate]:
        """Everything that waits."""
        return list(self._waiting)

    def pending(self, queue: str) -> int:
        """How many wait in a queue."""
        return self._waiting.count(queue)

    async def run(self) -> None:
        """Until stopped, or cancelled."""
        async with asyncio.TaskGroup() as group:
            writers = group.create_task(self._writers.run(), name="assign")
            passes = group.create_task(self._passes(), name="passes over the queues")
            await asyncio.wait([writers])
            passes.cancel()

    def stop(self) -> None:
        """Assign nothing more."""
        self._writers.stop()

    async def _passes(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TELL_ON if self._untold else None):
                    await self._news.wait()
            self._news.clear()
            took = await self._pass()
            metrics.PASSES.observe(took)
            await asyncio.sleep(max(_SHORTEST_PAUSE, 4 * took))

    async def _pass(self) -> float:
        """In slices, for others wait too. Gives how long we worked, the pauses aside."""
        heads: dict[str, Waits] = {}
        self._left_to_tell, self._untold = min(_TOLD_PER_PASS, self._events.room), False
        took, started = 0.0, time.perf_counter()
        usage = self._originals.usage.snapshot()
        for step in plan(self._waiting.snapshot(), self._queues(), self._workers(), usage):
            if step is not None:
                self._carry_out(step, heads)
            if time.perf_counter() > started + _SLICE:
                took += time.perf_counter() - started
                await asyncio.sleep(0)
                started = time.perf_counter()
        self.heads = heads
        return took + time.perf_counter() - started

    def _carry_out(self, step: Step, heads: dict[str, Waits]) -> None:
        candidate, decision = step.candidate, step.decision
        uid = candidate.ref.uid
        if self._waiting.get(candidate.ref) is not candidate:
            self._news.set()  # it changed since the pass began
            return
        if isinstance(step, Placed):
            self._drop(uid)
            self._decided[uid] = decision
            self._writers.queue.add(uid)
            job = self._originals.get(uid)
            self._originals.assume(uid, attempt_of(job) + 1 if job is not None else 1, step.reservation)
            return
        self.decisions[uid] = decision
        heads.setdefault(candidate.queue, step)
        if self._memory.of(uid).told != decision.reason:
            if self._left_to_tell > 0:
                self._left_to_tell -= self._tell(uid, decision)
            else:
                self._untold = True

    def _tell(self, uid: str, decision: PlacementDecision) -> bool:
        """Say why it waits: when the reason is a new one, for numbers change all the time."""
        job = self._originals.get(uid)
        if job is None:
            return False
        self._memory.of(uid).told = decision.reason
        kind = "Warning" if decision.reason in {"NeverFits", "Invalid", "QueueMissing"} else "Normal"
        about = {WAITS_FOR_ANNOTATION: decision.reason}
        self._events.event(job, "Waiting", str(decision), type=kind, annotations=about)  # type: ignore[arg-type] # one of the two
        return True

    def _tell_refusal(self, job: Json, words: str) -> None:
        notes, message = self._memory.of(job["metadata"]["uid"]), f"the API server refuses the assignment: {words}"
        if notes.told != message:
            notes.told = message
            self._events.event(job, "AssignmentRefused", message, type="Warning")

    async def _assign(self, uid: str) -> None:
        decision = self._decided.get(uid)
        if decision is None or decision.chosen is None:
            return
        job = self._originals.get(uid)
        if job is not None and await self._originals.writes.seen(key_of(job)):
            job = self._originals.get(uid)
        version = job["metadata"]["resourceVersion"] if job is not None else ""
        if job is None or cluster_of(job) is not None or self._outdated.get(uid, version) != version:
            self._undo(uid)
            return
        try:
            await self._write(uid, job, decision.chosen)
        except (Conflict, NotFound) as error:
            self._outdated[uid] = version
            raise NotYet(f"the cache does not show yet what became of Job {key_of(job)}") from error
        except (Forbidden, Invalid, BadRequest) as error:
            if self._writers.queue.failures(uid) >= _PATIENCE:
                self._tell_refusal(job, error.message)
            raise
        except ApiError as error:
            if error.outcome_unknown:
                _log.warning("an assignment may or may not have been written", uid=uid, error=str(error))
            raise
        self._events.event(job, "Assigned", f"runs on worker {decision.chosen} ({decision})")

    async def _write(self, uid: str, job: Json, worker: str) -> None:
        metadata, attempt = job["metadata"], attempt_of(job) + 1
        queue = self._originals.queue_of(job)
        spec = self._queues().get(queue)
        body = {
            "metadata": {
                "uid": uid,
                "resourceVersion": metadata["resourceVersion"],
                "annotations": {
                    CLUSTER_ANNOTATION: worker,
                    ATTEMPT_ANNOTATION: str(attempt),
                    LEASE_ANNOTATION: str(int(spec.fence.lease)) if spec is not None and spec.fence else None,
                    HOLD_ANNOTATION: None,
                },
            },
            "spec": {"suspend": False},
        }
        answer = await self._client.patch(JOBS, metadata["name"], body, metadata["namespace"])
        self._originals.writes.wrote(answer)
        self._decided.pop(uid, None)
        self._outdated.pop(uid, None)
        metrics.ASSIGNED.labels(queue, worker).inc()
        if attempt == 1:
            now = time.time()
            created = seconds_of(metadata.get("creationTimestamp"), now)
            metrics.WAIT_SECONDS.labels(queue).observe(max(0.0, now - created))
        _log.info("assigned", uid=uid, job=key_of(job), cluster=worker, attempt=attempt)

    def _undo(self, uid: str) -> None:
        """It was changed meanwhile: give the room back, and look at it again."""
        self._decided.pop(uid, None)
        self._outdated.pop(uid, None)
        self._originals.unassume(uid)
        self._again(uid)

    def _drop(self, uid: str) -> bool:
        self.decisions.pop(uid, None)
        return self._waiting.remove(job_ref(uid)) is not None

"""The passes over what waits, whenever something changed.

One pass at a time, in slices of a few milliseconds: after each slice there is a pause four times as long, so that
thousands of waiting objects never cost more than a fifth of the time, and nobody waits for the event loop. What was
decided on older news than there are at that time is not written: it is decided again in the next pass. (`writers` write
it down.)

No more is decided than can be written soon. A pass that has as many assignments on their way as the writers allow
ends there, and when half of them are written the next one begins, in the order of that moment: whoever comes while a
thousand others are being assigned is considered then, and namespaces take turns in being written and in being told.
Nor does anybody wait for a pass over thousands that do not fit: when there are news it is broken off, and the next one
takes it up again where it was, after those who come first.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Final

import structlog

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.api.placement import admitted_queue_of, attempt_of, cluster_of
from multimirror.batch import Json
from multimirror.batch.times import seconds_of
from multimirror.kinds import Kind, Ref
from multimirror.kube import Client
from multimirror.kube.supervise import Supervisor
from multimirror.kube.turns import Turns
from multimirror.scheduling import metrics
from multimirror.scheduling.announcements import Announcements
from multimirror.scheduling.assignments import Assignment, Assignments
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.claim_writes import ClaimWrites
from multimirror.scheduling.deadlines import starts_by_deadlines
from multimirror.scheduling.decisions import Placed, PlacementDecision, Preempts, Step, Waits
from multimirror.scheduling.free_room import FreeRooms
from multimirror.scheduling.marks import Marks
from multimirror.scheduling.order import FRONT
from multimirror.scheduling.parking import Parking
from multimirror.scheduling.past_use import PastUses
from multimirror.scheduling.plan import plan
from multimirror.scheduling.quota import QuotaTree
from multimirror.scheduling.shared_quota import quota_tree
from multimirror.scheduling.waiting import Line, Position, Waiting, WaitingSnapshot, position_of
from multimirror.scheduling.writers import Objects, Writers

_log = structlog.get_logger(__name__)
_SLICE_SECONDS: Final = 0.005
_SHORTEST_PAUSE_SECONDS: Final = 0.005
_TAIL: Final = 500
"""So many are looked at, of namespaces that had their share in a pass, before it may be broken off."""
_TOLD_PER_PASS: Final = 100
_SHORTEST_LOOK_SECONDS: Final = 0.5
_TELL_ON_SECONDS: Final = 2.0
"""Until those hear why they wait who could not be told in the last pass: events go out 50 a second."""
VISIBLE_SECONDS: Final = 2.0
"""So long after its creation an object that waits says so on its status: most have gone by then."""


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
        held_since: Callable[[], Mapping[str, float]] = dict,
        past_uses: PastUses | None = None,
        keep: Callable[[Kind, Json], None] = lambda kind, obj: None,
        unshown: Callable[[Ref, float], None] = lambda ref, seconds: None,
        concurrency: int = 16,
    ) -> None:
        """`keep` is given every assigned object, whole, as the API server answered; `unshown` every one that waits and
        whose status does not say so, and in how many seconds it will have waited visibly long."""
        self._objects, self._assignments, self._announcements = objects, assignments, announcements
        self._unshown = unshown
        self._queues, self._workers, self._worker, self._clock = queues, workers, worker, clock
        self._trees, self._rooms, self._held_since = _Trees(cohorts), FreeRooms(), held_since
        self._past_uses = past_uses or PastUses()
        self._waiting, self._parking, self._claims = Waiting(), Parking(), ClaimWrites()
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
        self._writers = Writers(
            client,
            objects,
            assignments,
            announcements,
            marks=self.marks,
            claims=self._claims,
            waiting=self._waiting,
            clock=clock,
            keep=keep,
            wake=self.wake,
            concurrency=concurrency,
        )

    def offer(self, candidate: Candidate) -> None:
        """This object wants a worker."""
        self._claims.observe(candidate)
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

    def kept_for(self, obj: Json) -> str | None:
        """Whose claim waits for what this object uses: its worker, or the quota of its queue. None: nobody's."""
        worker, queue, specs = cluster_of(obj), admitted_queue_of(obj), self._queues()
        for candidate, claim in (*self._waiting.claims, *self._claims.pending):
            spec = specs.get(candidate.queue)
            if spec is not None and spec.head_wait is not None and (claim.worker == worker or candidate.queue == queue):
                return f"{candidate.namespace}/{candidate.name}"
        return None

    def waiting(self) -> list[Candidate]:
        return list(self._waiting)

    def snapshot(self) -> WaitingSnapshot:
        """What waits now, in line."""
        return self._waiting.snapshot()

    def rehearse(self, waiting: WaitingSnapshot) -> Iterator[Step | None]:
        """A pass over these, as things are when what is left on nodes has been counted, that nobody carries out."""
        places = yield from self._places_in_steps()
        queues, usage = dict(self._queues()), self._assignments.usage.snapshot()
        state = self.marks.state(self._clock())
        tree, held_since = self._trees.of(queues), self._held_since()
        past = self._past_uses.at(tree, self._clock())
        yield from plan(waiting, queues, places, usage, tree=tree, state=state, held_since=held_since, past=past)

    def starts_by_deadlines(self, ref: Ref) -> float | None:
        """In how many seconds enough of what runs must have ended for one that waits; None: nobody knows."""
        candidate = self._waiting.get(ref)
        waiter = self._waiting.snapshot().find(candidate) if candidate is not None else None
        if waiter is None:
            return None
        queues, usage = dict(self._queues()), self._assignments.usage.snapshot()
        state, tree = self.marks.state(self._clock()), self._trees.of(queues)
        starts = starts_by_deadlines(waiter, queues, self._places(), usage, tree=tree, state=state)
        return starts - state.now if starts is not None else None

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
            await self._writers.room()
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
        workers = await self._places_in_slices()
        queues = dict(self._queues())
        heads: dict[str, Waits | Preempts] = {}
        untold: Turns[Ref, Waits | Preempts] = Turns()  # by namespace
        self._untold = False
        busy, flying = 0.0, self._writers.in_flight
        snapshot, usage = self._waiting.snapshot(), self._assignments.usage.snapshot()
        tree = self._trees.of(queues)
        state, resume = self.marks.state(self._clock()), dict(self._resume)
        awake = self._parking.awake(snapshot, queues, workers, usage, tree=tree, state=state)
        self._again = self._parking.until
        steps = plan(
            awake,
            queues,
            workers,
            usage,
            in_flight=flying,
            resume=resume,
            tree=tree,
            state=state,
            held_since=dict(self._held_since()),
            past=self._past_uses.at(tree, self._clock()),
        )
        reached, done = _Reached(), False
        while not done:
            started = time.perf_counter()
            done = True
            for step in steps:
                if isinstance(step, Placed):
                    self._carry_out(step, queues)
                elif step is not None:
                    if isinstance(step, Preempts):
                        self._stop_others(step, queues)
                        self._parking.clear()
                    self._keep_waiting(step, heads, untold)
                    reached.refused(step.candidate)
                if self._writers.is_enough():
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
        await self._tell(untold)

    def _places(self) -> dict[str, WorkerSnapshot]:
        """The workers, with what is left on their nodes where those are known."""
        steps = self._places_in_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: dict[str, WorkerSnapshot] = end.value
                return found

    async def _places_in_slices(self) -> dict[str, WorkerSnapshot]:
        """The same, with pauses. What somebody gave back meanwhile is news: the next pass knows it."""
        steps, started = self._places_in_steps(), time.perf_counter()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: dict[str, WorkerSnapshot] = end.value
                return found
            took = time.perf_counter() - started
            if took > _SLICE_SECONDS:
                await asyncio.sleep(max(_SHORTEST_PAUSE_SECONDS, 4 * took))
                started = time.perf_counter()

    def _places_in_steps(self) -> Generator[None, None, dict[str, WorkerSnapshot]]:
        """The same, one that is not there yet at a time."""
        found, usage = dict(self._workers()), self._assignments.usage
        for name, each in found.items():
            if each.nodes is not None:
                yield from self._rooms.steps(name, each.nodes, usage)
                found[name] = replace(each, free=self._rooms.latest(name))
                yield
        self._rooms.forget_all_but(found)
        return found

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

    def _carry_out(self, step: Placed, queues: Mapping[str, MirrorQueueSpec]) -> None:
        before = self._waiting.version(step.candidate.queue)
        self._place(step, queues)
        after = self._waiting.version(step.candidate.queue)
        if after != before:
            self._parking.placed(step.candidate, before, after)
        else:
            self._parking.clear()

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
        self._writers.write(candidate.ref, candidate.namespace)

    def _stop_others(self, step: Preempts, queues: Mapping[str, MirrorQueueSpec]) -> None:
        """Unless what it was decided on has changed during the pass."""
        candidate = self._current(step.candidate)
        there = self._worker(step.worker) if step.worker is not None else None
        if candidate is None or there is None or not there.is_open or self._trees.have_changed(self._queues()):
            self._news.set()
            return
        refs = self.marks.decide(step, candidate, self._clock())
        for ref in refs:
            self._writers.write(ref, candidate.namespace)
        obj = self._objects.get(candidate.ref)
        if obj is not None and refs:
            message = str(step.decision.why)
            self._announcements.tell(self._objects.kind(candidate.ref), obj, "Preempting", message, "Normal")

    def _grow(self, candidate: Candidate) -> None:
        obj = self._objects.get(candidate.ref)
        self._drop(candidate.ref)
        if obj is not None and self._assignments.grow(candidate, obj):
            self._writers.write(candidate.ref, candidate.namespace)
        else:
            self._parking.clear()

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
        if step.decision.claim is not None and self._claims.decide(step.candidate, step.decision.claim):
            self._writers.write(ref, namespace)
        if step.candidate.growth is None:
            heads.setdefault(step.candidate.queue, step)
            if not looked_at:
                self._show(step.candidate)
        if self._announcements.knows_why_it_waits(ref, step.decision.reason):
            self._parking.refused(step.candidate, step.decision)
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

    async def _tell(self, untold: Turns[Ref, Waits | Preempts]) -> None:
        """Those who do not know yet why they wait: namespaces take turns, and the others are told after a while. In
        slices: words about workers whose nodes are known cost a look at all of them."""
        left, started = _TOLD_PER_PASS, time.perf_counter()
        while untold and left:
            took = time.perf_counter() - started
            if took > _SLICE_SECONDS:
                await asyncio.sleep(max(_SHORTEST_PAUSE_SECONDS, took))
                started = time.perf_counter()
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

    def _current(self, candidate: Candidate) -> Candidate | None:
        """It as it waits now, which may be another version of what was decided on; None where it is another one in any
        other way (that was news: the next pass looks at it), or does not wait."""
        current = self._waiting.get(candidate.ref)
        if current is None or current is candidate:
            return current
        return current if replace(candidate, version=current.version) == current else None

    def _drop(self, ref: Ref) -> bool:
        self.decisions.pop(ref, None)
        self._claims.drop(ref)
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

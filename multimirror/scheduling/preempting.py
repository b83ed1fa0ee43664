"""Room that is made by stopping others, in one pass: who may ask for it, where it is looked for, and who waits for it.

`RunningState` is what runs at the beginning of a pass, who of it is leaving, and for whom (`Awaited`). What those free
is kept for the one that they are stopped for: in the books of quota (`sharing`), and on the worker where it will go:
there everybody else sees as much less as its victims do not hold any more. It is tried first, against what is there in
truth. It waits for them as long as it will fit when all are gone who are leaving, and not longer than ten minutes; then
it is one of those that wait, and may ask again.

Gates: a queue asks for one Job at a time; the Job has waited for a few seconds, for room may be on its way; a pass
stops for no more than `MOST_PREEMPTORS`, no more than `MOST_VICTIMS`, and looks no more than `MOST_SEARCHES` times.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from multimirror.api import MirrorQueueSpec
from multimirror.batch.times import seconds_of
from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_sets import Amounts
from multimirror.kinds.pod_shapes import Gang
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.filters import WorkerInfo
from multimirror.scheduling.free_room import FreeRoom, Places
from multimirror.scheduling.running import RunningJob, RunningJobs, RunningSnapshot
from multimirror.scheduling.trial import Way
from multimirror.scheduling.usage import NOTHING, Usage
from multimirror.scheduling.victims import NoPreemption, Preemption, Surroundings
from multimirror.scheduling.waiting import Asked, Waiter

WAIT_SECONDS: Final = 5.0
GIVE_UP_SECONDS: Final = 600.0
MOST_PREEMPTORS: Final = 20
MOST_VICTIMS: Final = 200
MOST_SEARCHES: Final = 64


@dataclass(frozen=True, slots=True)
class Awaited:
    """A Job that waits, and others are, or were, stopped for it."""

    candidate: Candidate
    worker: str | None
    """Where it is to go; None: nobody knows any more."""
    since: float
    leaving: tuple[RunningJob, ...] = ()
    """Of its victims, those that are still charged."""
    gone: tuple[str, ...] = ()
    """The names of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningState:
    """What runs when a pass begins."""

    running: RunningSnapshot = field(default_factory=lambda: RunningJobs().snapshot())
    leaving: tuple[RunningJob, ...] = ()
    """Those that are being stopped, for whatever reason."""
    awaited: Mapping[Ref, Awaited] = field(default_factory=dict)
    now: float = 0.0


class _Room:
    """A worker as it will be when those are gone who are leaving."""

    __slots__ = ("_asked", "_info", "_left", "_places", "full")

    def __init__(self, info: WorkerInfo, left: Amounts, asked: Asked, places: Places | None, *, full: bool) -> None:
        """`places`: on its nodes, where those are known."""
        self._info, self._left, self._asked, self._places, self.full = info, left, asked, places, full

    @property
    def worker(self) -> str:
        return self._info.name

    @property
    def score(self) -> float:
        """The fuller, the larger."""
        return self._info.fullness(self._asked)

    @property
    def has_room(self) -> bool:
        """When nobody else is gone. What it lacks, if not, costs a look at all nodes, and is not asked for."""
        return not self.full and not self._short(()) and (self._places is None or self._places.suffice(frozenset()))

    def _short(self, here: Sequence[RunningJob]) -> list[str]:
        left = self._left
        return [
            name
            for name, amount in self._asked
            if name in left and left[name] + sum(job.requests.get(name, 0) for job in here) < amount
        ]

    def lacking(self, gone: Sequence[RunningJob]) -> list[str]:
        here = [job for job in gone if job.worker == self.worker]
        lacking = self._short(here)
        if self._places is not None and not self._places.suffice(self._uids(here)):
            lacking += [name for name in self._places.lacking if name not in lacking]
        return lacking

    def ways(self) -> Iterator[Way]:
        """Where nodes are known: first those whose going makes a place by itself; then those on a few nodes that would
        have enough places without them; then everybody."""
        places = self._places
        if places is not None:
            yield lambda job, gone: places.helps(job.uid, self._uids(gone))
            for uids in places.neighbours():
                yield lambda job, _, uids=uids: job.uid in uids  # type: ignore[misc]
        yield None

    def _uids(self, gone: Sequence[RunningJob]) -> set[str]:
        return {job.uid for job in gone if job.worker == self.worker}

    @property
    def shortage(self) -> float:
        """How much is missing, of what it lacks most of."""
        missing = [(amount - self._left[name]) / amount for name, amount in self._asked if name in self._left]
        return max([*missing, self._places.shortage if self._places is not None else 0.0], default=0.0)


class Preempting:
    """Changed as the pass goes on."""

    def __init__(self, state: RunningState, specs: Mapping[str, MirrorQueueSpec], unready: Iterable[str]) -> None:
        self.now, self._state, self._specs = state.now, state, specs
        self._unready = frozenset(unready)
        self.awaited = dict(state.awaited)
        self._busy = {each.candidate.queue for each in self.awaited.values()}
        self._leaving: dict[str, RunningJob] = {}
        self._leaving_from: dict[str, dict[str, RunningJob]] = {}
        """The same, by worker: a queue that is drained has thousands, and each worker is asked for each that waits."""
        self._leave(state.leaving)
        self._on: dict[str, dict[Ref, Awaited]] = {}
        """By worker: those that are to go there."""
        for ref, each in self.awaited.items():
            if each.worker is not None:
                self._on.setdefault(each.worker, {})[ref] = each
        self._kept_in: dict[str, tuple[FreeRoom, list[Awaited], FreeRoom]] = {}
        """By worker: what is left beside those that are to go there, and of what."""
        self._preemptors, self._victims, self._searches = MOST_PREEMPTORS, MOST_VICTIMS, MOST_SEARCHES
        self._min_runtime: dict[str, float] | None = None

    # --- what is kept

    def kept_on(self, worker: str) -> Usage:
        """What nobody else gets there: what those ask for who wait for it, less what their victims still hold."""
        kept = NOTHING
        for each in self._on.get(worker, {}).values():
            held = [job for job in each.leaving if job.worker == worker]
            missing = {
                name: amount - sum(job.requests.get(name, 0) for job in held)
                for name, amount in each.candidate.requests.items()
            }
            kept = kept.plus({name: amount for name, amount in missing.items() if amount > 0}, jobs=int(not held))
        return kept

    def kept_in(self, worker: str, free: FreeRoom | None) -> FreeRoom | None:
        """What everybody else sees of the room on its nodes: without the places where those will be who wait for it."""
        awaited = self._on.get(worker)
        if free is None or not awaited:
            return free
        kept, known = list(awaited.values()), self._kept_in.get(worker)
        if known is not None and known[0] is free and known[1] == kept:
            return known[2]  # the same one, so that nobody has to look at it again
        left = free
        for each in kept:
            left = left.keep(each.candidate.gang, [job.uid for job in each.leaving if job.worker == worker])
        self._kept_in[worker] = free, kept, left
        return left

    def release(self, ref: Ref) -> Awaited | None:
        """Keep nothing for it any more. Gives what was known of it."""
        found = self.awaited.pop(ref, None)
        if found is not None and found.worker is not None:
            self._on[found.worker].pop(ref, None)
        return found

    def keep(self, ref: Ref, awaited: Awaited) -> None:
        self.awaited[ref] = awaited
        if awaited.worker is not None:
            self._on.setdefault(awaited.worker, {})[ref] = awaited

    def is_given_up(self, awaited: Awaited) -> bool:
        return self.now - awaited.since >= GIVE_UP_SECONDS

    def not_busy(self, queue: str) -> None:
        """The Job of a queue that others were stopped for waits for them no longer."""
        self._busy.discard(queue)

    # --- what is to come

    def room(self, info: WorkerInfo, waiter: Waiter) -> _Room:
        """A worker when all are gone who are leaving it, and those have come that wait for them."""
        jobs, left = info.usage.jobs, info.left
        if self._leaving_from.get(info.name) or self._on.get(info.name):
            jobs, left = self._when_gone(info)
        limit = info.snapshot.spec.max_jobs
        full, places = limit is not None and jobs >= limit, self._places(info, waiter.candidate.gang)
        return _Room(info, left, waiter.asked, places, full=full)

    def _when_gone(self, info: WorkerInfo) -> tuple[int, Amounts]:
        """How many will be on a worker, and what will be left there."""
        left, jobs, changes = dict(info.left), info.usage.jobs, list[tuple[Amounts, int]]()
        for job in self._leaving_from.get(info.name, {}).values():
            changes.append((job.requests, 1))
            jobs -= 1
        for each in self._on.get(info.name, {}).values():
            held = [job.requests for job in each.leaving if job.worker == info.name]
            jobs += bool(held)
            still = {
                name: min(amount, sum(requests.get(name, 0) for requests in held))
                for name, amount in each.candidate.requests.items()
            }
            changes.append((still, -1))
        for amounts, sign in changes:
            for name, amount in amounts.items():
                if name in left:
                    left[name] += sign * amount
        return jobs, left

    def _places(self, info: WorkerInfo, gang: Gang) -> Places | None:
        if info.whole is None:
            return None
        leaving = self._leaving_from.get(info.name, ())
        coming = [each.candidate.gang for each in self._on.get(info.name, {}).values()]
        return Places(info.whole, gang, leaving, coming)

    def has_room(self, infos: Iterable[WorkerInfo], waiter: Waiter) -> bool:
        """There will be room on one of them."""
        return any(self.room(info, waiter).has_room for info in infos)

    @property
    def running(self) -> RunningSnapshot:
        return self._state.running

    @property
    def is_anybody_leaving(self) -> bool:
        return bool(self._leaving)

    # --- searching

    def opens(self, candidate: Candidate) -> float | None:
        """When it may ask, by the clock; None: not in this pass."""
        if candidate.queue in self._busy or not (self._preemptors and self._victims and self._searches):
            return None
        waits_since = max(seconds_of(candidate.created, self.now), candidate.stopped or 0.0)
        return max(self.now, waits_since + WAIT_SECONDS)

    def search(
        self,
        waiter: Waiter,
        infos: Iterable[WorkerInfo],
        find: Callable[[Surroundings, Sequence[_Room]], Preemption | NoPreemption],
    ) -> Preemption | NoPreemption:
        """`infos`: the workers that it could go to."""
        self._searches -= 1
        rooms = [room for room in (self.room(info, waiter) for info in infos) if not room.full]
        rooms.sort(key=lambda room: room.shortage)
        found = find(self._surroundings(), rooms)
        if not isinstance(found, Preemption):
            return found
        self._preemptors -= 1
        self._victims = max(0, self._victims - len(found.victims))
        self._busy.add(waiter.candidate.queue)
        jobs = tuple(each.job for each in found.victims)
        self._leave(jobs)
        self.keep(waiter.candidate.ref, Awaited(waiter.candidate, found.worker, self.now, jobs))
        return found

    def _leave(self, jobs: Iterable[RunningJob]) -> None:
        for job in jobs:
            self._leaving[job.uid] = self._leaving_from.setdefault(job.worker, {})[job.uid] = job

    def _surroundings(self) -> Surroundings:
        if self._min_runtime is None:
            self._min_runtime = {name: spec.min_runtime for name, spec in self._specs.items() if spec.min_runtime}
        return Surroundings(
            running=self._state.running,
            leaving=self._leaving,
            now=self.now,
            min_runtime=self._min_runtime,
            unready=self._unready,
        )

"""Who does not have to be looked at again: trees in which everybody waits, and nothing has changed that could help.

A tree of queues that share, or a queue that shares with nobody, rests when a pass has refused all who wait in it. What
it was refused on is noted with it, as versions: who waits there, what each of its queues uses, what each worker has. A
pass leaves a tree out that rests as long as

- nobody came, went or was changed in one of its queues, but for those whom a pass has placed;
- none of its queues uses less than then. (More is no help: then even less fits.) If others could be stopped for one of
  its Jobs, anything that changes in it wakes it (`Rest.WITH_TREE`);
- no worker that has changed has room for a shape that was refused for want of room. If a search for whom to stop has
  failed, any change on any worker wakes it (`Rest.WITH_ALL`);
- the time has not come that a decision named (`again`: one has run long enough to be stopped, one may be stopped for),
  and half a minute has not passed: whatever else may be overlooked costs no more than that, also that the order in a
  tree with a half-life changes by itself (`past_use`), and with it who keeps what from whom;
- queues, cohorts, the workers' own state, and those who are being stopped are the same.

While somebody waits for others who are being stopped, or room is kept for one that has waited long, everybody is
looked at: what is kept is found anew in each pass, in its order, and may end there.

A tree that is left out has no influence on a pass: its Jobs would be refused again, and those who are refused change
nothing in other trees. (Among queues that share with nobody, their namespaces would come later: `order.QUANTUM`.) Every
Job keeps the decision that was made when it was looked at, which is true for what it was made on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from multimirror.api import MirrorQueueSpec, QueueingStrategy
from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_shapes import Gang
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.decisions import PlacementDecision, Rest
from multimirror.scheduling.filters import WorkerInfo, has_room
from multimirror.scheduling.free_room import FreeRoom
from multimirror.scheduling.preempting import RunningState
from multimirror.scheduling.quota import QuotaTree
from multimirror.scheduling.usage import Usage, UsageSums
from multimirror.scheduling.waiting import Asked, Waiter, WaitingSnapshot

LONGEST_SECONDS: Final = 30.0
"""So long nobody is left out: a change that nobody thought of would else be missed for ever."""

_Unit = int | str
"""A tree, by the index of its root; or a queue that shares with nobody, by its name."""

_Room = tuple[Asked, Gang]
"""What there has to be room for."""


@dataclass(slots=True)
class _Resting:
    """A unit, since nothing has changed that could help anybody in it."""

    lines: dict[str, int]
    """The version of each of its queues' lines; 0: nobody waits there."""
    usage: dict[str, Usage]
    running: Mapping[str, object]
    until: float
    """When it is looked at again, by the clock, if nothing happens before."""
    rest: Rest = Rest.WITH_LESS
    refused: set[Ref] = field(default_factory=set)
    rooms: dict[_Room, Waiter] = field(default_factory=dict)
    """One of each shape for which there was no room."""
    complete: bool = False
    """All who wait in it were refused."""


class Parking:
    """Of one scheduler. Before a pass: `awake`; for each step: `refused`, `placed` or `disturbed`."""

    def __init__(self) -> None:
        self._resting: dict[_Unit, _Resting] = {}
        self._queues: dict[str, MirrorQueueSpec] = {}
        self._tree: QuotaTree | None = None
        self._units: dict[_Unit, tuple[str, ...]] = {}
        self._unit_of: dict[str, _Unit] = {}
        self._workers: dict[str, WorkerSnapshot] = {}
        self._used: dict[str, tuple[Usage, FreeRoom | None]] = {}
        """By worker."""
        self._leaving: frozenset[str] = frozenset()
        self._parks = False

    def awake(
        self,
        waiting: WaitingSnapshot,
        queues: Mapping[str, MirrorQueueSpec],
        workers: Mapping[str, WorkerSnapshot],
        usage: UsageSums,
        *,
        tree: QuotaTree,
        state: RunningState,
    ) -> WaitingSnapshot:
        """Those who are to be looked at in the pass that begins."""
        claims = waiting.claimed or any(spec.head_wait is not None for spec in queues.values())
        self._parks = not state.awaited and not claims
        leaving = frozenset(job.uid for job in state.leaving)
        if not self._parks or self._is_another(queues, workers, tree) or leaving != self._leaving:
            self._resting.clear()
        self._leaving = leaving
        self._wake_by_workers(workers, usage)
        left_out: set[str] = set()
        there = waiting.queues
        for unit, names in self._units.items():
            lines = {name: there[name].version if name in there else 0 for name in names}
            if not any(lines.values()):
                self._resting.pop(unit, None)
                continue
            resting = self._resting.get(unit)
            if resting is not None and self._is_disturbed(resting, lines, usage, state):
                del self._resting[unit]
                resting = None
            if resting is None and self._parks:
                used = {name: usage.queue(name) for name in names}
                running = {name: state.running.lines.get((name, None)) for name in names}
                self._resting[unit] = _Resting(lines, used, running, state.now + LONGEST_SECONDS)
            elif resting is not None:
                if not resting.complete:
                    total = sum(there[name].count for name in names if name in there)
                    resting.complete = len(resting.refused) >= total
                if resting.complete:
                    left_out.update(names)
                    resting.refused.clear()
        if not left_out:
            return waiting
        return replace(waiting, queues={name: lines for name, lines in waiting.queues.items() if name not in left_out})

    def refused(self, candidate: Candidate, decision: PlacementDecision) -> None:
        """It waits, and knows why."""
        resting = self._of(candidate.queue)
        if resting is None:
            return
        if decision.rest is Rest.NEVER:
            self.disturbed(candidate.queue)
            return
        resting.rest = max(resting.rest, decision.rest)
        if self._queues[candidate.queue].queueing_strategy is QueueingStrategy.STRICT_FIFO:
            resting.rest = Rest.WITH_ALL
        if decision.again is not None:
            resting.until = min(resting.until, decision.again)
        if decision.compared is not None:
            waiter = decision.compared.waiter
            resting.rooms.setdefault((waiter.asked, waiter.candidate.gang), waiter)
        resting.refused.add(candidate.ref)

    def placed(self, candidate: Candidate, before: int, after: int) -> None:
        """A pass took it out of the line of its queue, whose version was that before, and is this after."""
        queue = candidate.queue
        resting = self._of(queue)
        if resting is None:
            return
        if resting.lines.get(queue) != before:
            self.disturbed(queue)
            return
        resting.lines[queue] = after
        resting.usage[queue] = resting.usage[queue].plus(candidate.requests, jobs=int(candidate.growth is None))

    def clear(self) -> None:
        """What a pass has decided was not done: all who were refused for that have to be looked at again."""
        self._resting.clear()

    @property
    def until(self) -> float | None:
        """When the first of those that rest is to be looked at again."""
        return min((each.until for each in self._resting.values()), default=None)

    def disturbed(self, queue: str) -> None:
        """Its tree has to be looked at in the next pass."""
        unit = self._unit_of.get(queue)
        if unit is not None:
            self._resting.pop(unit, None)

    def _of(self, queue: str) -> _Resting | None:
        unit = self._unit_of.get(queue)
        return self._resting.get(unit) if unit is not None else None

    def _is_another(
        self, queues: Mapping[str, MirrorQueueSpec], workers: Mapping[str, WorkerSnapshot], tree: QuotaTree
    ) -> bool:
        """What passes are about has changed."""
        changed = False
        if tree is not self._tree or queues != self._queues:
            self._tree, self._queues, changed = tree, dict(queues), True
            units: dict[_Unit, list[str]] = {}
            for name in queues:
                node = tree.queues.get(name)
                units.setdefault(node.root.index if node is not None else name, []).append(name)
            self._units = {unit: tuple(names) for unit, names in units.items()}
            self._unit_of = {name: unit for unit, names in units.items() for name in names}
        if workers != self._workers:
            self._workers, changed = dict(workers), True
        return changed

    def _is_disturbed(self, resting: _Resting, lines: Mapping[str, int], usage: UsageSums, state: RunningState) -> bool:
        """Something has changed in a unit that may help somebody in it."""
        if state.now >= resting.until:
            return True
        if lines != resting.lines:
            return True
        used = {name: usage.queue(name) for name in resting.usage}
        if used != resting.usage:  # that costs little, for most are the same objects as before
            for name, before in resting.usage.items():
                if _is_less(used[name], before) or (resting.rest is not Rest.WITH_LESS and used[name] != before):
                    return True
            resting.usage = used
        return resting.rest is not Rest.WITH_LESS and any(
            state.running.lines.get((name, None)) is not line for name, line in resting.running.items()
        )

    def _wake_by_workers(self, workers: Mapping[str, WorkerSnapshot], usage: UsageSums) -> None:
        """Those who may have room on a worker that has changed."""
        used = {name: (usage.worker(name), each.free) for name, each in workers.items()}
        before, self._used = self._used, used
        changed = [name for name, each in used.items() if name not in before or not _are_the_same(each, before[name])]
        if not changed or not self._resting:
            return
        infos = [WorkerInfo.of(workers[name], workers[name].capacity, *used[name], used[name][1]) for name in changed]
        known: dict[_Room, bool] = {}
        for unit, resting in tuple(self._resting.items()):
            if resting.rest is Rest.WITH_ALL or any(_has_room(each, infos, known) for each in resting.rooms.values()):
                del self._resting[unit]


def _has_room(waiter: Waiter, infos: Iterable[WorkerInfo], known: dict[_Room, bool]) -> bool:
    key = waiter.asked, waiter.candidate.gang
    if key not in known:
        known[key] = any(has_room(waiter, info) for info in infos)
    return known[key]


def _are_the_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(each is another for each, another in zip(one, other, strict=True))


def _is_less(after: Usage, before: Usage) -> bool:
    """Of anything."""
    return after.jobs < before.jobs or any(after.of(name) < amount for name, amount in before.resources.items())

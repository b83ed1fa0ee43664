"""When one that waits could start, by the deadlines of what runs. For people: nothing is decided on it.

Who waits for others to end waits no longer than until enough of them must have ended (activeDeadlineSeconds from their
start on): for room on one worker, and for quota, in its whole tree. Those without a deadline are taken to run for ever.
That somebody else may take what becomes free is not seen here, so this is "about".

Nothing is said where something is charged that is not seen to run yet, nor of one for which there is quota and room by
now: it waits for something else. Nor where more than `MOST_ENDING` would have to end: that is looked for no further.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final

from multimirror.api import Hold, MirrorQueueSpec
from multimirror.kinds.pod_sets import amounts_of
from multimirror.scheduling.candidates import WorkerSnapshot
from multimirror.scheduling.claims import MOST_ROOMS, Ends, Room, starts_on, starts_when
from multimirror.scheduling.filters import QueueLimits, WorkerInfo, could_take, is_open, is_welcome
from multimirror.scheduling.preempting import Preempting, RunningState
from multimirror.scheduling.preemption import MOST_STOPS
from multimirror.scheduling.quota import Node, QuotaTree, QuotaUsage
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.usage import UsageSums
from multimirror.scheduling.waiting import Waiter

MOST_ENDING: Final = 256


def starts_by_deadlines(
    waiter: Waiter,
    queues: Mapping[str, MirrorQueueSpec],
    workers: Mapping[str, WorkerSnapshot],
    usage: UsageSums,
    *,
    tree: QuotaTree,
    state: RunningState,
) -> float | None:
    """By the clock of `state`; None: nobody knows, or it does not wait for that."""
    spec = queues.get(waiter.candidate.queue)
    if spec is None or spec.hold is not Hold.NONE or waiter.candidate.growth is not None:
        return None
    ends = Ends(state, usage)
    infos = _places(waiter, spec, workers, usage)
    preempting = Preempting(state, queues, (each.name for each in workers.values() if not each.state.ready))
    rooms = [preempting.room(info, waiter) for info in infos]
    found = [_room(rooms, ends, state.now), _quota(waiter, spec, usage, tree=tree, ends=ends, now=state.now)]
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) and max(known) > state.now else None


def _quota(
    waiter: Waiter, spec: MirrorQueueSpec, usage: UsageSums, *, tree: QuotaTree, ends: Ends, now: float
) -> float | None:
    candidate = waiter.candidate
    name, node = candidate.queue, tree.queues.get(candidate.queue)
    limits = QueueLimits(name, spec.quota.jobs, amounts_of(spec.quota.resources) if node is None else {})
    used = usage.queue(name)

    def within_limits(gone: Sequence[RunningJob]) -> bool:
        left = used
        for job in gone:
            left = left.plus(job.requests, -1)
        return limits.exceeded(candidate.requests, left) is None

    own = starts_when(within_limits, _first(ends.of(name)), now)
    if node is None or own is None:
        return own
    if node.cycle is not None:
        return None
    sums = QuotaUsage(tree, {each.name: usage.queue(each.name).resources for each in node.root.queues()})
    own_only = not candidate.preemptible or candidate.preemptions >= MOST_STOPS

    def fits(gone: Sequence[RunningJob]) -> bool:
        left = sums.fork()
        for job in gone:
            left.remove(job.queue, job.requests)
        if own_only and left.above_own(name, candidate.requests):
            return False
        return left.fits(name, candidate.requests)

    shared = starts_when(fits, _in_tree(node, ends), now)
    return max(own, shared) if shared is not None else None


def _in_tree(node: Node, ends: Ends) -> tuple[RunningJob, ...] | None:
    """Those that end first of all queues that share with it."""
    found = [ends.of(each.name) for each in node.root.queues()]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    return tuple(nsmallest(MOST_ENDING, (job for line in known for job in line[:MOST_ENDING]), key=_end))


def _room(rooms: Sequence[Room], ends: Ends, now: float) -> float | None:
    """On the worker where it could start soonest."""
    nearest = sorted(rooms, key=lambda room: (room.shortage, room.worker))[:MOST_ROOMS]
    found = (starts_on(room, _first(ends.on(room.worker)), now) for room in nearest)
    return min((each for each in found if each is not None), default=None)


def _places(
    waiter: Waiter, spec: MirrorQueueSpec, workers: Mapping[str, WorkerSnapshot], usage: UsageSums
) -> Iterator[WorkerInfo]:
    """The workers that would take it if less ran there."""
    for name, each in workers.items():
        if spec.workers.include(name, each.spec.labels):
            info = WorkerInfo.of(each, each.capacity, usage.worker(name), each.free, each.free)
            welcome = is_open(info, fenced=spec.fence is not None) and is_welcome(waiter.candidate, info)
            if welcome and could_take(waiter, info):
                yield info


def _first(ending: tuple[RunningJob, ...] | None) -> tuple[RunningJob, ...] | None:
    return ending[:MOST_ENDING] if ending is not None else None


def _end(job: RunningJob) -> float:
    return job.ends or 0.0

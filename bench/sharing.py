"""What sharing costs: passes over 1,000 queues in 50 trees of cohorts, with 100 workers.

No fleet: a pass is a pure function, and is given what a dispatcher would have in its caches. Every queue may reclaim,
as is the default with a cohort; half of the queues have all that is their own, and the others borrow the rest.

    nothing fits       a whole pass over everything that waits; no quota is left, or no room on any worker, or none of
                       its nodes has a place
    a placement        a pass in which everything is placed
    one Job ends       the pass after that, when all others were refused before and nothing else has changed
    a search           whom to stop for a Job, of a tree full of borrowers
    memory             what is kept of a Job that waits

Targets are times, and machines differ. So each is held against the same piece of plain Python (`_reference`), measured
in turn with it: a figure is the part of what is allowed on a machine on which that piece takes `_REFERENCE` seconds.
CPU time of this thread is counted, and of several rounds the best: whatever disturbs only adds to it.
"""

import gc
import heapq
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from bench._passes import QUEUES, WORKERS, candidate, cpu_seconds, fill_up, fleet, longest_step
from bench.frame.parts import Part
from bench.frame.results import Recorder
from multimirror.api import CohortSpec, MirrorQueueSpec, Preempts, Quota
from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_sets import nanos
from multimirror.kinds.pod_shapes import PodShape
from multimirror.kube.process import relax_garbage_collector
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.decisions import Placed, Step
from multimirror.scheduling.decisions import Preempts as PreemptsStep
from multimirror.scheduling.free_room import FreeRoom
from multimirror.scheduling.parking import Parking
from multimirror.scheduling.plan import plan
from multimirror.scheduling.preempting import RunningState
from multimirror.scheduling.quota import QuotaTree
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.shared_quota import quota_tree
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting
from multimirror.workers.node_table import Node, NodeTable

_TREES: Final = 50
_NAMESPACES: Final = 200
_NODES: Final = 100
"""Of a worker, where they are known."""
_ROUNDS: Final = 3
_NOW: Final = 1_800_000_000.0
_REFERENCE: Final = 0.010
"""Seconds that the reference takes on the machine for which the targets are."""
_PASS, _PLACEMENT, _STEADY, _SEARCH, _BLOCK = 0.150, 0.000_150, 0.005, 0.020, 0.050
"""Seconds that are allowed."""
_FEW: Final = 200


@dataclass(slots=True)
class _Scene:
    """What passes are given."""

    waiting: Waiting
    queues: dict[str, MirrorQueueSpec]
    workers: dict[str, WorkerSnapshot]
    usage: UsageCache
    tree: QuotaTree
    running: RunningJobs = field(default_factory=RunningJobs)

    def steps(self) -> Iterator[Step | None]:
        state = RunningState(running=self.running.snapshot(), now=_NOW)
        return plan(
            self.waiting.snapshot(), self.queues, self.workers, self.usage.snapshot(), tree=self.tree, state=state
        )

    def run(self, queue: int, number: int, worker: str, cpu: int) -> None:
        """A Job runs there."""
        ref = Ref("jobs.batch", f"running-{queue}-{number}")
        requests = {"cpu": nanos(cpu), "memory": nanos(2**30), "pods": nanos(1)}
        name = f"queue-{queue}"
        self.usage.put(ref, Reservation(name, _team(queue), worker, requests))
        self.running.put(
            RunningJob(uid=ref.uid, queue=name, requests=requests, placed=_NOW - 3600 - number, worker=worker)
        )


def _team(queue: int) -> str:
    """Each has five queues, in five trees."""
    return f"team-{queue // 5 % _NAMESPACES}"


@dataclass(slots=True)
class _Best:
    """The least that something took, and the longest step of the round in which that was least."""

    seconds: float = float("inf")
    step: float = float("inf")

    def of(self, steps: Callable[[], Iterable[object]]) -> None:
        gc.collect()
        self.seconds = min(self.seconds, cpu_seconds(steps()))

    def longest(self, steps: Callable[[], Iterable[object]]) -> None:
        """In a round of its own: looking at the clock takes time, too."""
        gc.collect()
        self.step = min(self.step, longest_step(steps()))


def _reference() -> Iterator[None]:
    """What planning is made of: tables, tuples, heaps and whole numbers."""
    heap: list[tuple[int, str]] = []
    table: dict[str, int] = {}
    for number in range(10_000):
        name = f"name-{number % 1000}"
        table[name] = table.get(name, 0) + number
        heapq.heappush(heap, (-(number * 7919 % 10_007), name))
    while heap:
        rank, name = heapq.heappop(heap)
        table[name] -= rank
    yield


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    with _as_a_dispatcher():
        for size in sorted(sizes):
            machine = _Best()
            _passes(recorder, size, machine)
            _ends(recorder, size, machine)
            _placements(recorder, size, machine)
            _searches(recorder, size, machine)
            _memory(recorder, size)
            recorder.figure("the reference", size, machine.seconds * 1000, "ms")


@contextmanager
def _as_a_dispatcher() -> Iterator[None]:
    """Its garbage collector does not walk through all that is cached in the middle of a step; nor does ours."""
    before = gc.get_threshold()
    relax_garbage_collector()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def _allowed(target: float, machine: _Best) -> float:
    return target * machine.seconds / _REFERENCE


def _passes(recorder: Recorder, size: int, machine: _Best) -> None:
    scenes = {
        "no quota": _full(size),
        "no quota, 50 shapes": _full(size, shapes=50),
        "no quota, 500 shapes": _full(size, shapes=500),
        "no quota, 10 workers": _full(size, workers=10),
        "no quota, 1 worker": _full(size, workers=1),
        "no room": _crowded(size),
        "no room, 50 shapes": _crowded(size, shapes=50),
        "no room, 500 shapes": _crowded(size, shapes=500),
        "no places": _scattered(size),
    }
    best = {name: _Best() for name in scenes}
    for _ in range(_ROUNDS):
        machine.of(_reference)
        for name, scene in scenes.items():
            best[name].of(scene.steps)
    for name, found in best.items():
        found.longest(scenes[name].steps)
        recorder.figure(f"nothing fits, {name}", size, found.seconds * 1000, "ms")
        recorder.ratio(f"nothing fits, {name} : allowed", size, found.seconds / _allowed(_PASS, machine))
    longest = max(found.step for found in best.values())
    recorder.figure("longest step, nothing fits", size, longest * 1000, "ms")
    recorder.ratio("longest step, nothing fits : allowed", size, longest / _BLOCK)


def _ends(recorder: Recorder, size: int, machine: _Best) -> None:
    """All rest; then one Job after the other ends, each time in another tree, and one of its queue is placed."""
    for name, scene in (("", _full(size)), (", 50 shapes", _full(size, shapes=50))):
        parking, costs = Parking(), []
        for _ in range(2):
            _parked_pass(scene, parking)
        for number in range(2 * _TREES):
            queue = number % _TREES + _TREES * (number // _TREES * 2)
            scene.usage.put(Ref("jobs.batch", f"running-{queue}-0"), None)
            scene.running.remove(f"running-{queue}-0")
            if number % 10 == 0:
                machine.of(_reference)
            started = time.thread_time()
            placed, looked_at = _parked_pass(scene, parking)
            costs.append(time.thread_time() - started)
            if placed != 1 or looked_at > 2 * size / _TREES:
                raise AssertionError(f"{placed} were placed, and {looked_at} looked at, after one Job had ended")
        median = sorted(costs)[len(costs) // 2]
        recorder.figure(f"one Job ends{name}: the pass after it", size, median * 1000, "ms")
        recorder.ratio(f"one Job ends{name}: the pass after it : allowed", size, median / _allowed(_STEADY, machine))


def _parked_pass(scene: _Scene, parking: Parking) -> tuple[int, int]:
    """A pass that is carried out, as a scheduler does it: how many were placed, and looked at."""
    snapshot, usage = scene.waiting.snapshot(), scene.usage.snapshot()
    state = RunningState(running=scene.running.snapshot(), now=_NOW)
    awake = parking.awake(snapshot, scene.queues, scene.workers, usage, tree=scene.tree, state=state)
    placed = looked_at = 0
    for step in plan(awake, scene.queues, scene.workers, usage, tree=scene.tree, state=state):
        if isinstance(step, Placed):
            candidate = step.candidate
            before = scene.waiting.version(candidate.queue)
            scene.waiting.remove(candidate.ref)
            parking.placed(candidate, before, scene.waiting.version(candidate.queue))
            scene.usage.put(candidate.ref, step.reservation)
            placed += 1
        elif step is not None:
            parking.refused(step.candidate, step.decision)
        looked_at += step is not None
    return placed, looked_at


def _placements(recorder: Recorder, size: int, machine: _Best) -> None:
    scenes = {
        "": _free(size),
        ", 50 shapes": _free(size, shapes=50),
        ", 500 shapes": _free(size, shapes=500),
        ", 10 workers": _free(size, workers=10),
        ", 1 worker": _free(size, workers=1),
    }
    few, few_best = _free(_FEW), _Best()
    best = {name: _Best() for name in scenes}
    for _ in range(_ROUNDS):
        machine.of(_reference)
        for _ in range(4):
            few_best.of(few.steps)
        for name, scene in scenes.items():
            best[name].of(scene.steps)
    for name, found in best.items():
        placed = sum(isinstance(step, Placed) for step in scenes[name].steps())
        if placed != size:
            raise AssertionError(f"{placed} of {size} were placed")
        each = found.seconds / placed
        recorder.figure(f"a placement{name}", size, each * 1e6, "µs")
        recorder.ratio(f"a placement{name} : allowed", size, each / _allowed(_PLACEMENT, machine))
    recorder.figure("a placement with 200 that wait", size, few_best.seconds / _FEW * 1e6, "µs")
    ratio = best[""].seconds / size / (few_best.seconds / _FEW)
    recorder.ratio("a placement : that with 200 that wait", size, ratio)
    best[""].longest(scenes[""].steps)
    recorder.figure("longest step, all are placed", size, best[""].step * 1000, "ms")
    recorder.ratio("longest step, all are placed : allowed", size, best[""].step / _BLOCK)


def _searches(recorder: Recorder, size: int, machine: _Best) -> None:
    """Beside everything that waits, one Job of a queue that has nothing yet, in each of twenty trees."""
    scene = _full(size, nothing=20)
    for number in range(20):
        scene.waiting.put(_candidate(size + number, number, cpu=8, priority=1))
    least: dict[str, float] = {}
    for _ in range(_ROUNDS):
        machine.of(_reference)
        before = time.thread_time()
        for step in scene.steps():
            now = time.thread_time()
            if isinstance(step, PreemptsStep):
                name = step.candidate.queue
                least[name] = min(least.get(name, now - before), now - before)
            before = time.thread_time()
    if len(least) != 20:
        raise AssertionError(f"{len(least)} searches of 20 found somebody to stop")
    worst = max(least.values())
    recorder.figure("a search for whom to stop, mean", size, sum(least.values()) / len(least) * 1000, "ms")
    recorder.figure("a search for whom to stop, longest", size, worst * 1000, "ms")
    recorder.ratio("a search for whom to stop, longest : allowed", size, worst / _allowed(_SEARCH, machine))


def _memory(recorder: Recorder, size: int) -> None:
    """What `Waiting` keeps beside the candidates' own texts, which the cache of objects has anyway."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    waiting = Waiting(_candidate(number, number % QUEUES, cpu=2) for number in range(size))
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / len(waiting)
    tracemalloc.stop()
    recorder.figure("memory of a Job that waits", size, each, "bytes")
    recorder.ratio("memory of a Job that waits : 1 KiB", size, each / 1024)


# --- scenes


def _scene(workers: int, cpu: int, *, borrow: bool = True) -> _Scene:
    """Fifty trees: in each two cohorts of ten queues, and a pool at the root."""
    queues, cohorts = {}, {}
    for number in range(_TREES):
        cohorts[f"tree-{number}"] = CohortSpec(quota=Quota(resources={"cpu": Decimal(100)}))
        for half in ("a", "b"):
            cohorts[f"tree-{number}-{half}"] = CohortSpec(parent=f"tree-{number}")
    for number in range(QUEUES):
        tree, half = number % _TREES, "ab"[number // _TREES % 2]
        queues[f"queue-{number}"] = MirrorQueueSpec(
            cohort=f"tree-{tree}-{half}",
            quota=Quota(resources={"cpu": Decimal(10 if borrow else 100_000)}),
            preempts=frozenset({Preempts.RECLAIM}),
        )
    there = fleet(workers, cpu, namespaces=_NAMESPACES)
    return _Scene(Waiting(), queues, there, UsageCache(), quota_tree(queues, cohorts))


def _full(jobs: int, *, shapes: int = 5, workers: int = WORKERS, nothing: int = 0) -> _Scene:
    """No quota is left: half of the queues have their own, the others that and the pool, in Jobs of 2. Of the first
    `nothing` trees one queue has nothing, and others have its quota."""
    scene = _scene(workers, cpu=1_000_000)
    for queue in range(QUEUES):
        tree, place = queue % _TREES, queue // _TREES
        count = 5 + 5 * (place % 2)
        if tree < nothing:
            count = 0 if place == 0 else count + 5 * (place == 1)
        for number in range(count):
            scene.run(queue, number, f"worker-{(queue + number) % workers}", cpu=2)
    _fill(scene, jobs, shapes)
    return scene


def _crowded(jobs: int, *, shapes: int = 5) -> _Scene:
    """There is quota, and no room: one half of the workers lacks cpu, the other memory."""
    scene = _scene(WORKERS, cpu=1000, borrow=False)
    fill_up(scene.usage, scene.workers)
    _fill(scene, jobs, shapes)
    return scene


def _scattered(jobs: int) -> _Scene:
    """There is quota, and room in all, but not on any of 10,000 nodes: every other one lacks cpu, the others memory."""
    scene = _scene(WORKERS, cpu=1_000_000, borrow=False)
    for name, worker in scene.workers.items():
        nodes = (_node(number) for number in range(_NODES))
        scene.workers[name] = replace(worker, free=FreeRoom(NodeTable.of(nodes)))
    _fill(scene, jobs, 5, gangs=True)
    return scene


def _node(number: int) -> Node:
    allocatable = {"cpu": nanos(64), "memory": nanos(2**38), "pods": nanos(110)}
    free = {"cpu": nanos(1)} if number % 2 else {"memory": nanos(2**20)}
    return Node(f"node-{number}", {}, (), allocatable, allocatable | free)


def _free(jobs: int, *, shapes: int = 5, workers: int = WORKERS) -> _Scene:
    """There is quota and room for all."""
    scene = _scene(workers, cpu=10_000_000, borrow=False)
    _fill(scene, jobs, shapes)
    return scene


def _fill(scene: _Scene, jobs: int, shapes: int, *, gangs: bool = False) -> None:
    """Every queue has Jobs of as many shapes as there are, or as it has Jobs. `gangs`: it is known which pods they
    have."""
    for number in range(jobs):
        job = _candidate(number, number % QUEUES, cpu=2, shape=(number // QUEUES + number) % shapes)
        pods = ((PodShape(tuple(sorted(job.requests.items()))), 1),)
        scene.waiting.put(replace(job, gang=pods) if gangs else job)


def _candidate(number: int, queue: int, *, cpu: int, shape: int = 0, priority: int = 0) -> Candidate:
    requests = {"cpu": nanos(cpu) - shape * 1_000_000, "memory": nanos(2**30), "pods": nanos(1)}
    return candidate(number, _team(queue), f"queue-{queue}", requests, priority=priority)


PART: Final = Part(
    name="sharing",
    about="passes over 1,000 queues that share in 50 trees, with 100 workers; beside a fixed piece of Python",
    unit="waiting Jobs",
    sizes=(20_000,),
    fleet="embedded",
    seconds=lambda sizes: 20 + sum(0.005 * size for size in sizes),
    measure=measure,
)

"""Passes over workers whose nodes are known: a Job goes where its pods have places, and nobody gets another's."""

from dataclasses import replace
from decimal import Decimal
from typing import Any
from unittest import mock

from multimirror.api import MirrorQueueSpec
from multimirror.kinds.pod_sets import nanos
from multimirror.kinds.pod_shapes import Gang
from multimirror.scheduling import slots
from multimirror.scheduling.candidates import Candidate, Growth, WorkerSnapshot
from multimirror.scheduling.decisions import Preempts, Step
from multimirror.scheduling.filters import WorkerInfo
from multimirror.scheduling.free_room import FreeRoom, FreeRooms
from multimirror.scheduling.plan import plan
from multimirror.scheduling.preempting import Awaited, Preempting, RunningState
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting
from multimirror.workers import WorkerState
from multimirror.workers.node_table import Held, NodesView, NodeTable
from tests.unit.scheduling.builders import a_candidate, placed, queue, ref, worker
from tests.unit.scheduling.test_slots import GPU, a_node, a_shape

NOW = 1_798_761_700.0


def gang(gpu: int, pods: int = 1, **spec: Any) -> Gang:
    return ((a_shape(gpu=gpu, **spec), pods),)


def member(own: int) -> MirrorQueueSpec:
    """A queue that shares, with so many gpu of its own."""
    return queue(quota={"resources": {GPU: str(own)}}, cohort="research")


def requests(gpu: int, pods: int = 1) -> dict[str, int]:
    return {GPU: nanos(gpu * pods), "pods": nanos(pods)}


class Worker:
    """Its nodes with eight gpu each, and the pods on them."""

    def __init__(self, name: str = "w1", nodes: int = 2) -> None:
        self.name, self.number = name, nodes
        self.pods: list[tuple[str, int, int]] = []
        """Whose, on which node, and how many gpu. Whose: the uid of an original; of others, nothing."""

    def has(self, whose: str, node: int, gpu: int) -> None:
        self.pods.append((whose, node, gpu))

    def snapshot(self, usage: UsageCache, **spec: Any) -> WorkerSnapshot:
        used = [sum(gpu for _, node, gpu in self.pods if node == number) for number in range(self.number)]
        nodes = [
            a_node(f"n{number}", gpu=8, pods=99)._replace(free={GPU: nanos(8 - used[number]), "pods": nanos(99)})
            for number in range(self.number)
        ]
        seen: dict[str, Held] = {}
        for whose, node, gpu in self.pods:
            if whose:
                seen[whose] = (*seen.get(whose, ()), (node, requests(gpu)))
        capacity = {GPU: Decimal(8 * self.number), "pods": Decimal(99 * self.number)}
        view = NodesView(NodeTable.of(nodes), seen)
        state = WorkerState(connected=True, capacity=capacity)
        return replace(worker(self.name, state, **spec), nodes=view, free=made(FreeRooms(), view, usage, self.name))


class Scene:
    def __init__(self, *workers: Worker, **queues: Any) -> None:
        self.workers = workers
        self.queues = {name: member(own) if isinstance(own, int) else own for name, own in queues.items()}
        self.usage = UsageCache()
        self.waiting: list[Candidate] = []
        self.running: list[RunningJob] = []
        self.leaving: list[RunningJob] = []
        self.awaited: dict[Any, Awaited] = {}

    def waits(self, name: str, gpu: int, pods: int = 1, queue: str = "q", **spec: Any) -> Candidate:
        found = a_candidate(name, queue=queue, requests=requests(gpu, pods), gang=gang(gpu, pods, **spec))
        self.waiting.append(found)
        return found

    def runs(self, name: str, gpu: int, *nodes: int, queue: str = "q", on: int = 0, **more: Any) -> RunningJob:
        """With a pod on each of these nodes."""
        there, pods = self.workers[on], max(1, len(nodes))
        for node in nodes:
            there.has(name, node, gpu)
        asked = requests(gpu, pods)
        self.usage.put(ref(name), Reservation(queue, "team", there.name, asked, gang(gpu, pods)))
        job = RunningJob(
            uid=name, queue=queue, requests=asked, worker=there.name, name=f"team/{name}", placed=NOW - 3600, **more
        )
        self.running.append(job)
        return job

    def stopped_for(self, candidate: Candidate, *jobs: RunningJob) -> None:
        self.leaving += jobs
        self.running = [job for job in self.running if job not in jobs]
        self.awaited[candidate.ref] = Awaited(candidate, jobs[0].worker, NOW - 10, jobs)

    def steps(self) -> list[Step]:
        workers = {each.name: each.snapshot(self.usage) for each in self.workers}
        state = RunningState(
            running=RunningJobs(self.running).snapshot(), leaving=tuple(self.leaving), awaited=self.awaited, now=NOW
        )
        found = plan(Waiting(self.waiting).snapshot(), self.queues, workers, self.usage.snapshot(), state=state)
        return [step for step in found if step is not None]

    def words(self, name: str) -> tuple[str, str]:
        (step,) = [step for step in self.steps() if step.candidate.name == name]
        return step.decision.reason, str(step.decision)

    def stops(self) -> dict[str, tuple[str | None, list[str]]]:
        return {
            step.candidate.name: (step.worker, sorted(victim.job.uid for victim in step.preemption.victims))
            for step in self.steps()
            if isinstance(step, Preempts)
        }


def test_a_job_whose_pods_fit_in_sum_and_on_no_node_waits_and_says_so() -> None:
    scene = Scene(Worker(), q=queue())
    for node in (0, 1):
        scene.workers[0].has("", node, 5)
    scene.waits("x", 4)
    assert scene.words("x") == (
        "NoWorkerFits",
        f"no worker cluster has 1 free place for pods of 4 {GPU} (w1: has 0 free places for pods of 4 {GPU}, the Job "
        f"needs 1 (2 nodes with 3 {GPU} left each))",
    )


def test_pods_that_no_empty_node_could_take_never_fit() -> None:
    scene = Scene(Worker(), q=queue())
    scene.waits("x", 9)
    assert scene.words("x")[0] == "NeverFits"
    scene = Scene(Worker(), q=queue())
    scene.waits("x", 5, 3)
    assert scene.words("x")[0] == "NeverFits", "15 of 16, and each node takes one"


def test_a_job_goes_to_the_worker_that_has_places_for_all_of_its_pods() -> None:
    scene = Scene(Worker("w1"), Worker("w2"), q=queue(placement="Ordered"))
    scene.workers[0].has("", 0, 8)
    scene.waits("x", 4, 3)
    (step,) = scene.steps()
    assert step.decision.chosen == "w2"


def test_in_one_pass_nobody_counts_on_the_places_of_another() -> None:
    scene = Scene(Worker(), q=queue())
    scene.workers[0].has("", 0, 3)
    for name in ("a", "bb", "ccc"):
        scene.waits(name, 4)  # one place on one node, two on the other
    scene.waits("dddd", 4)
    assert placed(scene.steps()) == ["a", "bb", "ccc"]


def test_in_two_passes_neither_and_pods_that_are_seen_are_not_counted_twice() -> None:
    scene = Scene(Worker(), q=queue())
    scene.runs("there", 4)  # no pod of it is seen yet
    for name in ("a", "bb", "ccc", "dddd"):
        scene.waits(name, 4)
    assert placed(scene.steps()) == ["a", "bb", "ccc"]
    scene.workers[0].has("there", 1, 4)
    assert placed(scene.steps()) == ["a", "bb", "ccc"]


def test_a_job_grows_where_there_is_a_place_for_more() -> None:
    def grown(left: int) -> list[str]:
        scene = Scene(Worker(nodes=2), q=queue())
        scene.workers[0].has("", 0, 8 - left)
        scene.workers[0].has("", 1, 8 - left)
        growth = Growth("w1", None, None, requests(4, 2))  # type: ignore[arg-type]
        more = a_candidate("x", queue="q", requests=requests(4), gang=gang(4), growth=growth)
        scene.waiting.append(more)
        return placed(scene.steps())

    assert grown(4) == ["x"]
    assert grown(3) == [], "six are left, three on each node"


# --- preemption


def test_who_is_stopped_frees_a_node_and_not_only_a_sum() -> None:
    scene = Scene(Worker(), a=8, b=8)
    scene.runs("b1", 4, 0, queue="b")
    scene.runs("b2", 4, 1, queue="b")
    scene.runs("b3", 4, 0, queue="b")
    scene.waits("x", 8, queue="a")
    assert scene.stops() == {"x": ("w1", ["b2"])}, "four are left beside it"


def test_of_several_that_free_a_place_each_the_one_that_was_placed_last_is_stopped() -> None:
    scene = Scene(Worker(), a=8, b=8)
    scene.runs("b1", 8, 0, queue="b")
    latest = scene.runs("b2", 8, 1, queue="b")
    scene.running[-1] = replace(latest, placed=NOW - 60)
    scene.waits("x", 8, queue="a")
    assert scene.stops() == {"x": ("w1", ["b2"])}


def test_where_one_alone_frees_no_place_all_of_a_node_are_stopped() -> None:
    scene = Scene(Worker(), a=8, b=8)
    for number, node in enumerate((0, 1, 0, 1)):
        scene.runs(f"b{number}", 4, node, queue="b")
    scene.waits("x", 8, queue="a")
    ((_, victims),) = scene.stops().values()
    assert victims in (["b0", "b2"], ["b1", "b3"])


def test_the_worker_with_the_fewest_victims_is_chosen() -> None:
    scene = Scene(Worker("w1"), Worker("w2"), a=8, b=24)
    for number in range(4):
        scene.runs(f"b{number}", 4, number % 2, queue="b")
    for node in (0, 1):
        scene.runs(f"c{node}", 8, node, queue="b", on=1)
    scene.waits("x", 8, queue="a")
    ((chosen, victims),) = scene.stops().values()
    assert (chosen, len(victims)) == ("w2", 1)


def test_nobody_is_stopped_where_the_pods_of_others_are_in_the_way() -> None:
    scene = Scene(Worker(), a=8, b=4)
    for node in (0, 1):
        scene.workers[0].has("", node, 1)
        scene.runs(f"b{node}", 4, node, queue="b")
    scene.waits("x", 8, queue="a")
    assert scene.stops() == {}


def test_what_is_freed_for_one_is_not_for_others_and_it_comes_when_there_is_a_place() -> None:
    scene = Scene(Worker(), a=8, b=8)
    victim = scene.runs("b1", 4, 0, queue="b")
    scene.workers[0].has("", 1, 8)
    x = scene.waits("x", 8, queue="a")
    scene.stopped_for(x, victim)
    scene.waits("small", 2, queue="b")  # four are left on that node, and will be needed
    steps = scene.steps()
    assert placed(steps) == []
    assert next(step for step in steps if step.candidate.name == "x").decision.reason == "WaitsForVictims"
    scene.workers[0].pods = [pod for pod in scene.workers[0].pods if pod[0] != "b1"]
    assert placed(scene.steps()) == [], "its pod is gone, and it is charged still"
    scene.leaving.clear()
    scene.usage.put(ref("b1"), None)
    scene.awaited[x.ref] = Awaited(x, "w1", NOW - 10, (), ("team/b1",))
    assert placed(scene.steps()) == ["x"]


def made(rooms: FreeRooms, view: NodesView, usage: UsageCache, worker: str = "w1") -> FreeRoom:
    for _ in rooms.steps(worker, view, usage):
        pass
    return rooms.latest(worker)


def test_room_is_made_anew_only_when_something_is_another() -> None:
    rooms, usage = FreeRooms(), UsageCache()
    view = NodesView(NodeTable.of([a_node("n", gpu=8)]))
    first = made(rooms, view, usage)
    assert made(rooms, view, usage) is first
    usage.put(ref("x"), Reservation("q", "team", "w1", requests(4), gang(4)))
    second = made(rooms, view, usage)
    assert isinstance(second, FreeRoom)
    assert second is not first
    assert not second.fits(gang(4, 2))


def test_the_room_of_a_worker_that_shows_no_pods_is_made_in_as_many_steps_as_it_has_jobs() -> None:
    rooms, usage = FreeRooms(), UsageCache()
    for number in range(100):
        usage.put(ref(f"x{number}"), Reservation("q", "team", "w1", requests(1), gang(1)))
    view = NodesView(NodeTable.of([a_node(f"n{number}", gpu=8) for number in range(50)]))
    assert len(list(rooms.steps("w1", view, usage))) == 100
    assert rooms.latest("w1").unseen == made(FreeRooms(), view, usage).unseen
    assert list(rooms.steps("w1", view, usage)) == [], "it is known"


def test_whether_room_is_on_its_way_is_found_without_what_is_lacking_on_each_node() -> None:
    """That costs a look at all nodes, for everybody who waits while somebody is being stopped."""
    scene = Scene(Worker(), q=queue())
    victim = scene.runs("v", 4, 0)
    scene.runs("there", 5, 1)
    there = scene.workers[0].snapshot(scene.usage)
    info = WorkerInfo.of(there, there.capacity, scene.usage.snapshot().worker("w1"), there.free, there.free)
    preempting = Preempting(RunningState(leaving=(victim,), now=NOW), scene.queues, ())
    with mock.patch.object(slots, "binding", side_effect=AssertionError("nobody asks for it")):
        for gpu, pods, fits in ((8, 1, True), (5, 2, False), (3, 3, True)):
            found = Waiting([scene.waits("x", gpu, pods)]).snapshot()
            (waiter,) = found.queues["q"].lines["team"].waiters
            assert preempting.has_room([info], waiter) == fits


def test_nodes_are_looked_at_in_small_steps_for_pods_that_nobody_asked_about_before() -> None:
    scene = Scene(*(Worker(f"w{number}") for number in range(40)), q=queue())
    scene.waits("one", 4)
    scene.waits("three", 4)
    scene.waits("another", 5)
    workers = {each.name: each.snapshot(scene.usage) for each in scene.workers}
    steps = list(plan(Waiting(scene.waiting).snapshot(), scene.queues, workers, scene.usage.snapshot()))
    before: dict[str, int] = {}
    pauses = 0
    for step in steps:
        pauses += step is None
        if step is not None:
            before[step.candidate.name], pauses = pauses, 0
    assert list(before) == ["one", "three", "another"]
    assert before["one"] >= 5
    assert before["three"] < 5, "of its pods everything is known"
    assert before["another"] >= 5

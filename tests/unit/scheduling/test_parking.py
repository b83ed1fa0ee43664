"""Trees that rest are left out of a pass, and nobody gets another answer for that."""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multimirror.api import CohortSpec, MirrorQueueSpec, Preempts, QueueingStrategy, Quota, WorkerClusterSpec
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.decisions import Placed
from multimirror.scheduling.decisions import Preempts as PreemptsStep
from multimirror.scheduling.parking import LONGEST_SECONDS, Parking
from multimirror.scheduling.plan import plan
from multimirror.scheduling.preempting import Awaited, RunningState
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.shared_quota import quota_tree
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting

QUEUES = ("a", "b", "c", "d", "alone")
COHORTS = {"left": CohortSpec(parent="all"), "right": CohortSpec(parent="all"), "all": CohortSpec()}


def _spec(cohort: str | None, cpu: int, **more: Any) -> MirrorQueueSpec:
    return MirrorQueueSpec(cohort=cohort, quota=Quota(resources={"cpu": Decimal(cpu)}), **more)


def _worker(name: str, cpu: int) -> WorkerSnapshot:
    return WorkerSnapshot(name=name, spec=WorkerClusterSpec(capacity={"cpu": Decimal(cpu)}))


@dataclass
class Fleet:
    """What a scheduler has in its caches, and who rests."""

    queues: dict[str, MirrorQueueSpec]
    workers: dict[str, WorkerSnapshot]
    waiting: Waiting = field(default_factory=Waiting)
    usage: UsageCache = field(default_factory=UsageCache)
    running: RunningJobs = field(default_factory=RunningJobs)
    jobs: dict[Ref, Candidate] = field(default_factory=dict)
    leaving: dict[str, RunningJob] = field(default_factory=dict)
    waits_for: dict[Ref, Awaited] = field(default_factory=dict)
    parking: Parking = field(default_factory=Parking)
    now: float = 1_800_000_000.0
    number: int = 0
    looked_at: int = 0

    def __post_init__(self) -> None:
        self.tree = quota_tree(self.queues, COHORTS)

    def state(self) -> RunningState:
        return RunningState(
            running=self.running.snapshot(),
            leaving=tuple(self.leaving.values()),
            awaited=dict(self.waits_for),
            now=self.now,
        )

    def create(self, queue: str, cpu: int, priority: int = 0, namespace: str = "x") -> Candidate:
        self.number += 1
        candidate = Candidate(
            ref=Ref("jobs.batch", f"{self.number:04}"),
            namespace=namespace,
            name=f"job-{self.number}",
            queue=queue,
            priority=priority,
            created=format_time(utc_datetime(self.now)),
            requests={"cpu": nanos(cpu)},
        )
        self.waiting.put(candidate)
        return candidate

    def end(self, ref: Ref) -> None:
        """A Job that runs, or is being stopped, is gone."""
        self.jobs.pop(ref, None)
        self.running.remove(ref.uid)
        self.leaving.pop(ref.uid, None)
        self.usage.put(ref, None)
        for by, each in tuple(self.waits_for.items()):
            left = tuple(job for job in each.leaving if job.uid != ref.uid)
            self.waits_for[by] = replace(each, leaving=left)

    def withdraw(self, ref: Ref) -> None:
        self.waiting.remove(ref)
        self.waits_for.pop(ref, None)

    def step(self) -> None:
        """A pass over all, which nobody carries out, and one over those that are awake: they do the same."""
        snapshot, usage, state = self.waiting.snapshot(), self.usage.snapshot(), self.state()
        everybody = list(plan(snapshot, self.queues, self.workers, usage, tree=self.tree, state=state))
        awake = self.parking.awake(snapshot, self.queues, self.workers, usage, tree=self.tree, state=state)
        found = [
            step
            for step in plan(awake, self.queues, self.workers, usage, tree=self.tree, state=state)
            if step is not None
        ]
        assert [_done(step) for step in found if _done(step)] == [_done(step) for step in everybody if _done(step)]
        self.looked_at = len(found)
        for step in found:
            if isinstance(step, Placed):
                self._place(step)
            elif isinstance(step, PreemptsStep):
                self.parking.clear()
                jobs = tuple(victim.job for victim in step.preemption.victims)
                self.waits_for[step.candidate.ref] = Awaited(step.candidate, step.worker, self.now, jobs)
                for job in jobs:
                    self.running.remove(job.uid)
                    self.leaving[job.uid] = job
            else:
                self.parking.refused(step.candidate, step.decision)

    def _place(self, step: Placed) -> None:
        candidate, worker = step.candidate, step.decision.chosen or ""
        before = self.waiting.version(candidate.queue)
        self.waiting.remove(candidate.ref)
        self.parking.placed(candidate, before, self.waiting.version(candidate.queue))
        self.waits_for.pop(candidate.ref, None)
        self.jobs[candidate.ref] = candidate
        self.usage.put(candidate.ref, Reservation(candidate.queue, candidate.namespace, worker, candidate.requests))
        self.running.put(
            RunningJob(
                uid=candidate.ref.uid,
                queue=candidate.queue,
                requests=candidate.requests,
                priority=candidate.priority,
                placed=self.now,
                worker=worker,
            )
        )


def _done(step: object) -> tuple[object, ...] | None:
    if isinstance(step, Placed):
        return step.candidate.ref, step.decision.chosen
    if isinstance(step, PreemptsStep):
        return step.candidate.ref, step.worker, frozenset(victim.job.uid for victim in step.preemption.victims)
    return None


_preempts = st.frozensets(st.sampled_from(list(Preempts)))


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    cohorts = {"a": "left", "b": "left", "c": "right", "d": "other"}
    queues = {}
    for name in QUEUES:
        cohort = cohorts.get(name)
        preempts = draw(_preempts) if cohort is not None else draw(st.sampled_from([frozenset(), {Preempts.PRIORITY}]))
        queues[name] = _spec(
            cohort,
            draw(st.integers(0, 6)),
            preempts=frozenset(preempts),
            min_runtime=draw(st.sampled_from([0.0, 20.0])),
            max_priority=draw(st.sampled_from([None, 9])),
            queueing_strategy=draw(
                st.sampled_from([QueueingStrategy.BEST_EFFORT_FIFO] * 3 + [QueueingStrategy.STRICT_FIFO])
            ),
        )
    workers = {name: _worker(name, draw(st.integers(1, 8))) for name in ("w0", "w1")}
    return Fleet(queues, workers)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(fleets(), st.data())
def test_whoever_would_be_placed_or_would_stop_others_is_not_left_out(fleet: Fleet, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(5, 25))):
        what = data.draw(st.sampled_from(["create", "create", "end", "withdraw", "wait", "pass", "worker", "quota"]))
        if what == "create":
            queue, cpu = data.draw(st.sampled_from(QUEUES)), data.draw(st.integers(1, 4))
            fleet.create(queue, cpu, data.draw(st.integers(0, 2)), data.draw(st.sampled_from("xy")))
        elif what == "end" and (fleet.jobs or fleet.leaving):
            gone = data.draw(st.sampled_from(sorted({*fleet.jobs, *(Ref("jobs.batch", uid) for uid in fleet.leaving)})))
            fleet.end(gone)
        elif what == "withdraw" and len(fleet.waiting):
            fleet.withdraw(data.draw(st.sampled_from(sorted(each.ref for each in fleet.waiting))))
        elif what == "wait":
            fleet.now += data.draw(st.sampled_from([1.0, 6.0, 11.0, 30.0, 700.0]))
        elif what == "worker":
            fleet.workers = {**fleet.workers, "w0": _worker("w0", data.draw(st.integers(1, 8)))}
        elif what == "quota":
            name = data.draw(st.sampled_from(QUEUES))
            quota = Quota(resources={"cpu": Decimal(data.draw(st.integers(0, 6)))})
            fleet.queues = {**fleet.queues, name: replace(fleet.queues[name], quota=quota)}
            fleet.tree = quota_tree(fleet.queues, COHORTS)
        fleet.step()


def _full() -> Fleet:
    """Two trees, both full, and somebody waits in each."""
    fleet = Fleet(
        {"a": _spec("left", 2), "b": _spec("left", 2), "d": _spec("other", 2)},
        {"w0": _worker("w0", 6)},
    )
    for queue in ("a", "b", "d"):
        fleet.create(queue, 2)
    fleet.step()
    for queue in ("a", "a", "b", "d"):
        fleet.create(queue, 2)
    fleet.step()
    fleet.step()
    return fleet


def test_nobody_is_looked_at_again_where_nothing_has_changed() -> None:
    fleet = _full()
    assert fleet.looked_at == 0


def test_an_end_wakes_its_own_tree_alone() -> None:
    fleet = _full()
    fleet.end(next(ref for ref, job in fleet.jobs.items() if job.queue == "d"))
    fleet.step()
    assert fleet.looked_at == 1
    fleet.step()
    assert fleet.looked_at == 0
    fleet.end(next(ref for ref, job in fleet.jobs.items() if job.queue == "a"))
    fleet.step()
    assert fleet.looked_at == 3


def test_what_ends_while_another_is_placed_wakes_too() -> None:
    """What a queue uses is the same as before; but the one that was placed was counted when others were refused."""
    fleet = _full()
    first, *_ = (ref for ref, job in fleet.jobs.items() if job.queue == "a")
    fleet.end(first)
    fleet.step()
    second, *_ = (ref for ref, job in fleet.jobs.items() if job.queue == "a")
    fleet.end(second)
    fleet.step()
    assert fleet.looked_at == 2


def test_one_that_waits_for_room_is_woken_by_a_worker_that_has_room_for_it() -> None:
    fleet = Fleet({"alone": _spec(None, 100), "c": _spec(None, 100)}, {"w0": _worker("w0", 4)})
    small, large = fleet.create("c", 1), fleet.create("c", 3)
    fleet.step()
    waits = fleet.create("alone", 2)
    fleet.step()
    fleet.end(small.ref)
    fleet.step()
    assert fleet.looked_at == 0
    fleet.end(large.ref)
    fleet.step()
    assert fleet.looked_at == 1
    assert set(fleet.jobs) == {waits.ref}


def test_a_time_that_was_named_wakes() -> None:
    fleet = Fleet(
        {
            "a": _spec("left", 4, preempts=frozenset({Preempts.RECLAIM})),
            "b": _spec("left", 0, min_runtime=60.0),
            "d": _spec("other", 0),
        },
        {"w0": _worker("w0", 4)},
    )
    fleet.create("b", 4)
    fleet.step()
    fleet.create("a", 4)
    fleet.create("d", 1)
    fleet.step()
    fleet.step()
    assert fleet.looked_at == 0
    assert fleet.parking.until is not None
    fleet.now = fleet.parking.until
    fleet.step()
    assert fleet.looked_at == 1
    assert fleet.parking.until is not None
    fleet.now = fleet.parking.until
    fleet.step()
    assert fleet.waits_for


def test_nobody_is_left_out_for_longer_than_half_a_minute() -> None:
    fleet = _full()
    fleet.step()
    fleet.step()
    assert fleet.looked_at == 0
    fleet.now += LONGEST_SECONDS
    fleet.step()
    assert fleet.looked_at > 0


def test_where_nobody_was_found_who_could_be_stopped_any_change_on_a_worker_wakes() -> None:
    """Also one that makes no room by itself: less would have to be made by stopping others."""
    fleet = Fleet(
        {
            "a": _spec("left", 6, preempts=frozenset({Preempts.RECLAIM})),
            "b": _spec("left", 0),
            "alone": _spec(None, 100),
        },
        {"w0": _worker("w0", 6)},
    )
    others = [fleet.create("alone", cpu) for cpu in (3, 1)]
    fleet.create("b", 2)
    fleet.step()
    assert len(fleet.jobs) == 3
    fleet.create("a", 6)
    fleet.now += 10
    fleet.step()
    fleet.step()
    assert fleet.looked_at == 0
    fleet.end(others[1].ref)
    fleet.step()
    assert fleet.looked_at == 1

"""Claims: who keeps what becomes free, where, from whom, and for how long somebody may wait at most."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import MirrorQueueSpec
from multimirror.api.placement import Claim, claim_of
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.claim_words import HasClaim
from multimirror.scheduling.claims import due
from multimirror.scheduling.decisions import Placed, PlacementDecision, Step
from multimirror.scheduling.plan import plan
from multimirror.scheduling.preempting import RunningState
from multimirror.scheduling.quota import QuotaTree, QuotaUsage
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting
from tests.unit.scheduling.builders import a_candidate, placed, queue, ref, worker
from tests.unit.scheduling.test_cohorts import member, reason
from tests.unit.scheduling.test_growth import growing
from tests.unit.scheduling.test_preempting import NOW, Scene, stops

LONG = NOW - 3600
"""When those were created that have waited for long."""
Q, R = "q", "r"


def old(name: str, cpu: int, **more: Any) -> Candidate:
    fields = {"created": format_time(utc_datetime(LONG)), "queue": Q} | more
    return a_candidate(name, cpu=cpu, **fields)


def scene(*workers: Any, **queues: MirrorQueueSpec) -> Scene:
    return Scene(queues or {Q: queue(headWait="10m"), R: queue(headWait="10m")}, *workers)


def crowded(**spec: Any) -> Scene:
    """On w1 8 of 10 cpu are in use; a large Job has waited for an hour, and a small one has just come."""
    made = scene(worker("w1", capacity=10), **{Q: queue(**({"headWait": "10m"} | spec)), R: queue()})
    made.runs("there", Q, 8)
    made.waiting += [old("big", 4), a_candidate("small", cpu=1)]
    return made


def decision(steps: list[Step], name: str) -> PlacementDecision:
    return next(step.decision for step in steps if step.candidate.name == name)


def claim(steps: list[Step], name: str = "big") -> Claim | None:
    return decision(steps, name).claim


# --- what is kept


def test_what_is_free_is_kept_for_one_that_has_waited_long() -> None:
    steps = crowded().steps()
    assert placed(steps) == []
    assert claim(steps) == Claim("w1", NOW)
    assert reason(steps, "small") == (
        "Claimed",
        "2 cpu are free on worker w1, but kept for team/big, which has waited 60 min; this Job does not say when it "
        "ends (activeDeadlineSeconds), so it could delay it",
    )


def test_it_says_itself_that_room_is_kept_for_it() -> None:
    found = crowded()
    found.running = [replace(found.running[0], ends=NOW + 600)]
    kind, why = reason(found.steps(), "big")
    assert kind == "NoWorkerFits"
    since = format_time(utc_datetime(NOW))
    assert f"Room on worker w1 is kept for it since {since}: it can start in 10 min at the latest" in why


def test_without_head_wait_small_ones_pass() -> None:
    found = crowded()
    found.queues[Q] = queue()
    assert placed(found.steps()) == ["small"]


def test_before_it_has_waited_long_enough_small_ones_pass_and_it_is_looked_at_again_then() -> None:
    found = crowded(headWait="2h")
    steps = found.steps()
    assert placed(steps) == ["small"]
    assert decision(steps, "big").again == LONG + 7200


def test_one_that_was_stopped_for_another_waits_from_then_on() -> None:
    found = crowded()
    found.waiting[0] = replace(found.waiting[0], stopped=NOW - 60)
    assert placed(found.steps()) == ["small"]


def test_a_claim_keeps_one_worker_and_small_ones_go_to_the_others() -> None:
    found = scene(worker("w1", capacity=10), worker("w2", capacity=10))
    found.runs("a", Q, 8, worker="w1")
    found.runs("b", Q, 9, worker="w2")
    found.waiting += [old("big", 4), a_candidate("small", cpu=1), a_candidate("small2", cpu=1)]
    steps = found.steps()
    assert claim(steps) == Claim("w1", NOW)  # less is missing there
    assert {step.candidate.name: step.decision.chosen for step in steps if isinstance(step, Placed)} == {"small": "w2"}


@pytest.mark.parametrize("problem", [{"problem": "broken"}, {"cpu": 11}, {"clusters": frozenset({"nowhere"})}])
def test_one_that_could_not_run_on_an_empty_fleet_keeps_nothing(problem: dict[str, Any]) -> None:
    found = crowded()
    found.waiting[0] = old("big", **({"cpu": 4} | problem))
    assert placed(found.steps()) == ["small"]


def test_a_held_queue_keeps_nothing() -> None:
    found = crowded(hold="Hold")
    found.waiting[0] = replace(found.waiting[0], claim=Claim("w1", LONG + 600))
    found.waiting[1] = a_candidate("small", queue=R, cpu=1)
    assert placed(found.steps()) == ["small"]


def test_a_queue_has_one_claim_at_a_time() -> None:
    found = scene(worker("w1", capacity=10), worker("w2", capacity=10))
    found.runs("a", R, 8, worker="w1")
    found.runs("b", R, 8, worker="w2")
    found.waiting += [old("big", 4), old("bigger", 5)]
    steps = found.steps()
    assert (claim(steps) is None) != (claim(steps, "bigger") is None)


def test_one_with_a_claim_gets_what_is_kept_though_an_equal_one_is_before_it_and_was_told_to_wait() -> None:
    """An older one came back, or had a claim of its own while another of the queue was placed: both are written."""
    found = scene(worker("w1", capacity=10), **{Q: queue(headWait="10m", quota={"resources": {"cpu": "2"}})})
    first, second = Claim("w1", NOW - 60), Claim("w1", LONG + 600)
    found.waiting += [old("a-came-back", 2, claim=first), old("b-claims", 2, claim=second), old("c-behind", 2)]
    steps = found.steps()
    assert placed(steps) == ["b-claims"]
    assert reason(steps, "a-came-back")[0] == "Claimed"
    found.waiting.pop(1)
    assert placed(found.steps()) == ["a-came-back"]


def test_what_is_kept_is_kept_from_other_queues_too() -> None:
    found = crowded()
    found.waiting[1] = a_candidate("small", queue=R, cpu=1)
    assert reason(found.steps(), "small")[0] == "Claimed"


def test_it_is_placed_wherever_it_fits_first_and_then_nothing_is_kept() -> None:
    found = crowded()
    found.workers["w2"] = worker("w2", capacity=4)
    found.waiting[0] = replace(found.waiting[0], claim=Claim("w1", NOW - 60))
    found.waiting.append(a_candidate("another", queue=R, cpu=4))
    steps = found.steps()
    assert placed(steps) == ["big", "small"]
    assert decision(steps, "big").chosen == "w2"


def test_a_job_that_runs_does_not_grow_into_what_is_kept() -> None:
    found = crowded()
    found.waiting[0] = replace(found.waiting[0], claim=Claim("w1", NOW - 60))
    found.waiting[1] = growing("there", 8, 9)
    steps = found.steps()
    assert placed(steps) == []
    kind, why = reason(steps, "there")
    assert kind == "GrowthWaits"
    assert "waits to grow to 9: 2 cpu are free on worker w1, but kept for team/big" in why


# --- who may pass


@pytest.mark.parametrize(("seconds", "passes"), [(580.0, True), (595.0, False), (None, False)])
def test_those_pass_that_are_surely_gone_when_it_can_start(seconds: float | None, passes: bool) -> None:
    found = crowded()
    found.running = [replace(found.running[0], ends=NOW + 600)]
    found.waiting[1] = replace(found.waiting[1], run_seconds=seconds)
    assert placed(found.steps()) == (["small"] if passes else [])


def test_nobody_passes_where_nobody_knows_when_it_can_start() -> None:
    found = crowded()
    found.waiting[1] = replace(found.waiting[1], run_seconds=1.0)
    assert reason(found.steps(), "small")[1].endswith(
        "Jobs run there that do not say when they end, so nobody knows whether this one would delay it"
    )


def test_of_one_shape_the_short_ones_pass_and_the_long_ones_do_not() -> None:
    found = crowded()
    found.running = [replace(found.running[0], ends=NOW + 600)]
    found.waiting[1:] = [
        a_candidate("long", cpu=1, run_seconds=5000.0),
        a_candidate("short", cpu=1, run_seconds=60.0),
        a_candidate("endless", cpu=1),
    ]
    assert placed(found.steps()) == ["short"]


def test_what_was_placed_and_is_not_seen_to_run_yet_may_end_at_any_time() -> None:
    """Or a later end would be expected than the one that was promised."""
    found = crowded()
    found.running = [replace(found.running[0], ends=NOW + 600, requests={"cpu": nanos(4)})]
    usage = UsageCache()
    usage.put(ref("there"), Reservation(Q, "team", "w1", {"cpu": nanos(4)}))
    usage.put(ref("new"), Reservation(Q, "team", "w1", {"cpu": nanos(4)}))
    found.waiting = [old("big", 4), a_candidate("small", cpu=1, run_seconds=60.0)]
    state = RunningState(running=RunningJobs(found.running).snapshot(), now=NOW)
    steps = plan(Waiting(found.waiting).snapshot(), found.queues, found.workers, usage.snapshot(), state=state)
    assert placed([step for step in steps if step is not None]) == []


def test_a_higher_priority_that_counts_passes() -> None:
    found = crowded(maxPriority=10)
    found.waiting[1] = replace(found.waiting[1], priority=5)
    assert placed(found.steps()) == ["small"]


def test_a_priority_that_does_not_count_does_not_pass() -> None:
    found = crowded()
    found.waiting[0] = replace(found.waiting[0], namespace="other", claim=Claim("w1", NOW - 60))
    found.waiting[1] = replace(found.waiting[1], priority=5)
    assert placed(found.steps()) == []


def test_one_of_higher_priority_takes_the_claim_over() -> None:
    found = crowded(maxPriority=10)
    found.waiting[0] = replace(found.waiting[0], claim=Claim("w1", NOW - 60))
    found.waiting[1] = old("urgent", 5, priority=5)
    steps = found.steps()
    assert (claim(steps, "urgent"), claim(steps)) == (Claim("w1", NOW), None)


def test_one_that_others_are_stopped_for_passes() -> None:
    found = Scene({"a": member(4), "b": member(2), Q: queue(headWait="10m")}, worker("w1", capacity=10))
    victim = found.runs("victim", "b", 2)
    found.runs("b2", "b", 4)
    found.runs("rest", Q, 4)
    found.waiting += [old("big", 4)]
    owner = found.waits("owner", "a", 2)
    found.stopped_for(owner, victim)
    found.leaving.clear()  # it is gone
    found.awaited[owner.ref] = replace(found.awaited[owner.ref], leaving=(), gone=("team/victim",))
    assert placed(found.steps()) == ["owner"]


# --- quota


def test_quota_is_kept_within_the_own_queue() -> None:
    found = crowded(quota={"resources": {"cpu": "10"}})
    found.workers["w1"] = worker("w1", capacity=100)
    steps = found.steps()
    assert (placed(steps), reason(steps, "small")[0]) == ([], "Claimed")
    assert "there is room in the quota of queue q, but kept for team/big" in reason(steps, "small")[1]


def test_those_pass_in_the_quota_that_are_gone_before_it_is_free() -> None:
    found = crowded(quota={"resources": {"cpu": "10"}})
    found.workers["w1"] = worker("w1", capacity=100)
    found.running = [replace(found.running[0], ends=NOW + 600)]
    found.waiting[1] = replace(found.waiting[1], run_seconds=60.0)
    assert placed(found.steps()) == ["small"]


def no_reclaim(own: int, **more: Any) -> MirrorQueueSpec:
    return member(own, preempts=[], **more)


def cohort(a: MirrorQueueSpec, b: MirrorQueueSpec, *used: tuple[str, int]) -> Scene:
    found = Scene({"a": a, "b": b}, worker("w1", capacity=1000))
    for number, (name, cpu) in enumerate(used):
        found.runs(f"r{number}", name, cpu)
    return found


def test_own_quota_that_others_have_borrowed_is_kept_as_it_comes_back() -> None:
    found = cohort(no_reclaim(4, headWait="10m"), no_reclaim(4), ("b", 6))
    found.waiting += [old("big", 4, queue="a"), a_candidate("small", queue="b", cpu=1)]
    steps = found.steps()
    assert (placed(steps), reason(steps, "small")[0]) == ([], "Claimed")


def test_what_is_due_of_the_surplus_is_kept_from_those_who_borrow_too() -> None:
    found = cohort(no_reclaim(1, headWait="10m"), no_reclaim(1), ("b", 4))
    found.queues["c"] = no_reclaim(6)  # asks for nothing
    found.waiting += [old("big", 4, queue="a", claim=Claim("w1", NOW - 60)), a_candidate("small", queue="b", cpu=1)]
    found.runs("a1", "a", 2)
    steps = found.steps()
    assert (placed(steps), reason(steps, "small")[0]) == ([], "Claimed")


def test_whoever_does_not_borrow_passes_one_that_does() -> None:
    found = cohort(no_reclaim(1, headWait="10m"), no_reclaim(1), ("b", 3))
    found.queues["c"] = no_reclaim(6)
    found.runs("a1", "a", 2)
    found.waiting += [old("big", 4, queue="a", claim=Claim("w1", NOW - 60)), a_candidate("own", queue="c", cpu=1)]
    assert placed(found.steps()) == ["own"]


def test_more_than_is_due_is_not_kept() -> None:
    found = cohort(no_reclaim(2, headWait="10m"), no_reclaim(6), ("b", 6))
    found.waiting += [old("big", 8, queue="a"), a_candidate("own", queue="b", cpu=1)]
    steps = found.steps()
    assert claim(steps) is None


def test_what_is_due_is_dealt_by_weight_among_those_who_want_something() -> None:
    specs = {"a": no_reclaim(0, weight=2), "b": no_reclaim(0), "c": no_reclaim(9), "d": no_reclaim(0, weight=9)}
    tree = QuotaTree(specs)
    usage = QuotaUsage(tree, {"c": {"cpu": nanos(3)}})
    wanting = frozenset(tree.queues[name].index for name in "ab")
    assert [due(usage, tree.queues[name], "cpu", wanting) for name in "ab"] == [nanos(4), nanos(2)]
    wanting = frozenset(tree.queues[name].index for name in "abc")
    assert due(usage, tree.queues["a"], "cpu", wanting) == 0


def test_no_running_job_is_stopped_for_what_only_waits_in_its_queue() -> None:
    """b is within its own quota; its claim is not."""
    found = Scene({"a": member(4), "b": no_reclaim(4, headWait="10m"), "c": no_reclaim(4)}, worker("w1", capacity=12))
    found.runs("b1", "b", 4)
    found.runs("c1", "c", 8)
    found.waiting += [old("big", 2, queue="b", claim=Claim("w1", NOW - 60)), old("mine", 2, queue="a")]
    assert stops(found.steps()) == {"mine": ["c1"]}


# --- strict queues


def strict(**more: Any) -> dict[str, Any]:
    return {"queueingStrategy": "StrictFIFO", "headWait": "10m"} | more


def test_a_strict_queue_keeps_its_own_quota_and_not_the_surplus_of_others() -> None:
    found = cohort(no_reclaim(1, **strict()), no_reclaim(1), ("b", 3))
    found.queues["c"] = no_reclaim(6)
    found.waiting += [old("big", 7, queue="a"), a_candidate("behind", queue="a", cpu=1)]
    found.waiting.append(a_candidate("small", queue="b", cpu=1))
    steps = found.steps()
    assert placed(steps) == ["small"]
    assert reason(steps, "behind")[0] == "BlockedByQueue"


def test_after_head_wait_a_strict_queue_keeps_a_worker() -> None:
    found = crowded(**strict())
    found.waiting[1] = a_candidate("small", queue=R, cpu=1)
    assert reason(found.steps(), "small")[0] == "Claimed"


def test_the_claim_of_a_strict_queue_goes_to_whoever_is_first_of_it() -> None:
    found = crowded(**strict())
    found.waiting[1] = old("older", 5, created=format_time(utc_datetime(LONG - 60)))
    found.waiting[0] = replace(found.waiting[0], claim=Claim("w1", NOW - 60))
    steps = found.steps()
    assert (claim(steps, "older"), reason(steps, "big")[0]) == (Claim("w1", NOW), "BlockedByQueue")


# --- half of it


def test_no_more_than_half_is_kept_but_one_claim_there_may_be() -> None:
    found = scene(worker("w1", capacity=10))
    found.runs("there", Q, 8)
    found.waiting += [old("big", 6, claim=Claim("w1", NOW - 60)), old("other", 3, queue=R)]
    steps = found.steps()
    assert (claim(steps), claim(steps, "other")) == (Claim("w1", NOW - 60), None)
    found.waiting = [old("big", 3, claim=Claim("w1", NOW - 60)), old("other", 3, queue=R)]
    assert claim(found.steps(), "other") is None
    found.workers["w2"] = worker("w2", capacity=10)
    found.runs("there-too", Q, 9, worker="w2")
    assert claim(found.steps(), "other") is not None


@pytest.mark.parametrize(("cpu", "claims"), [(5, 1), (2, 2)])
def test_no_more_than_half_of_the_quota_of_a_tree_is_kept(cpu: int, claims: int) -> None:
    """c has borrowed all that is a's and b's."""
    found = cohort(no_reclaim(5, headWait="10m"), no_reclaim(5, headWait="10m"), ("c", 10))
    found.queues["c"] = no_reclaim(0)
    found.waiting += [old("big", cpu, queue="a"), old("other", cpu, queue="b")]
    steps = found.steps()
    assert sum(claim(steps, name) is not None for name in ("big", "other")) == claims


# --- where it is, and when it moves


def test_it_is_where_the_job_can_start_soonest() -> None:
    found = scene(worker("w1", capacity=10), worker("w2", capacity=10), worker("w3", capacity=10))
    found.runs("a", Q, 8, worker="w1")
    found.runs("b", Q, 10, worker="w2", ends=NOW + 900)
    found.runs("c", Q, 10, worker="w3", ends=NOW + 600)
    found.waiting += [old("big", 4)]
    assert claim(found.steps()) == Claim("w3", NOW)


def moving(since: float) -> Scene:
    """A claim on w1, and it would be sooner on w2."""
    found = scene(worker("w1", capacity=10), worker("w2", capacity=10))
    found.runs("a", Q, 10, worker="w1", ends=NOW + 900)
    found.runs("b", Q, 10, worker="w2", ends=NOW + 600)
    found.waiting += [old("big", 4, claim=Claim("w1", since))]
    return found


def test_it_moves_to_where_it_is_sooner_but_not_before_head_wait() -> None:
    assert claim(moving(NOW - 599).steps()) == Claim("w1", NOW - 599)
    assert claim(moving(NOW - 600).steps()) == Claim("w2", NOW)


def test_it_does_not_move_to_where_less_is_missing_for_nobody_knows_how_long() -> None:
    found = moving(NOW - 3000)
    found.running = [
        replace(job, ends=None, requests={"cpu": nanos(9 if job.worker == "w1" else 8)}) for job in found.running
    ]
    assert claim(found.steps()) == Claim("w1", NOW - 3000)


def test_a_worker_that_takes_nothing_is_left_after_head_wait_and_nothing_is_kept_there_before() -> None:
    found = moving(NOW - 300)
    found.workers["w1"] = worker("w1", capacity=10, cordoned=True)
    steps = found.steps()
    assert claim(steps) == Claim("w1", NOW - 300)
    assert "Room was to be kept for it on worker w1, which takes nothing now" in reason(steps, "big")[1]
    assert decision(steps, "big").again == NOW + 600
    found.waiting = [replace(found.waiting[0], claim=Claim("w1", NOW - 600))]
    assert claim(found.steps()) == Claim("w2", NOW)


def test_a_claim_of_an_earlier_wait_does_not_count() -> None:
    found = moving(LONG - 60)
    assert claim(found.steps()) == Claim("w2", NOW)


def test_it_is_written_as_text_and_read_again() -> None:
    made = Claim("west", NOW)
    obj = {"metadata": {"annotations": {"multimirror.dev/claim": str(made)}}}
    assert claim_of(obj) == made
    for broken in ("", "west", "west yesterday", " 2027-01-01T00:00:00Z"):
        obj["metadata"]["annotations"]["multimirror.dev/claim"] = broken
        assert claim_of(obj) is None


# --- nobody waits for ever (P9)


@dataclass
class Flood:
    """Small Jobs without end, and a large one; all take effect at once, and everything is decided anew each second."""

    workers: list[int]
    head_wait: int
    limit: int | None
    now: float = NOW
    running: dict[str, RunningJob] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, Candidate] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    promised: float | None = None
    numbers: int = 0

    def submit(self, cpu: int, runs: int, *, says: bool, queue: str = Q) -> str:
        self.numbers += 1
        name = f"job-{self.numbers:05}"
        created = format_time(utc_datetime(self.now))
        made = a_candidate(name, queue=queue, cpu=cpu, created=created, run_seconds=float(runs) if says else None)
        self.waiting[name] = made
        self.ends[name] = float(runs)
        return name

    def tick(self, seconds: int, big: str) -> None:
        self.now += seconds
        self.running = {name: job for name, job in self.running.items() if self.ends[name] > self.now}
        limit = {"quota": {"resources": {"cpu": str(self.limit)}}} if self.limit else {}
        specs = {Q: queue(headWait=f"{self.head_wait}s", **limit), R: queue()}
        usage = UsageCache()
        for job in self.running.values():
            usage.put(ref(job.uid), Reservation(job.queue, "team", job.worker, job.requests))
        infos = {f"w{number}": worker(f"w{number}", capacity=cpu) for number, cpu in enumerate(self.workers)}
        state = RunningState(running=RunningJobs(self.running.values()).snapshot(), now=self.now)
        snapshot = Waiting(self.waiting.values()).snapshot()
        for step in plan(snapshot, specs, infos, usage.snapshot(), state=state):
            if isinstance(step, Placed):
                self._place(step)
            elif step is not None:
                self._note(step, big)

    def _place(self, step: Placed) -> None:
        name, candidate = step.candidate.name, self.waiting.pop(step.candidate.name)
        runs = self.ends[name]
        self.ends[name] = self.now + runs
        says = candidate.run_seconds is not None
        assert step.decision.chosen is not None
        self.running[name] = RunningJob(
            uid=name,
            queue=candidate.queue,
            requests=candidate.requests,
            placed=self.now,
            worker=step.decision.chosen,
            ends=self.now + runs if says else None,
        )

    def _note(self, step: Step, big: str) -> None:
        found, name = step.decision.claim, step.candidate.name
        if found is None:
            return
        if self.waiting[name].claim != found:
            self.waiting[name] = replace(self.waiting[name], claim=found)
            if name == big:
                self.claims.append(found)
        if name == big and isinstance(step.decision.why, HasClaim):
            starts = step.decision.why.held.starts
            if starts is not None:
                assert self.promised is None or starts <= self.promised, "it was delayed"
                self.promised = starts


_small = st.tuples(st.integers(1, 3), st.integers(5, 60), st.booleans(), st.sampled_from([Q, R]))


@settings(deadline=None, max_examples=60)
@given(
    workers=st.lists(st.integers(6, 10), min_size=1, max_size=3),
    jobs=st.lists(_small, min_size=12, max_size=40),
    head_wait=st.integers(10, 60),
    limit=st.sampled_from([None, 6, 9]),
)
def test_a_large_job_gets_in_past_a_flood_of_small_ones(
    workers: list[int], jobs: list[tuple[int, int, bool, str]], head_wait: int, limit: int | None
) -> None:
    flood = Flood(workers, head_wait, limit)
    stream = 0

    def pour() -> None:
        nonlocal stream
        while sum(job.queue == Q for job in flood.waiting.values()) < 5 or len(flood.waiting) < 10:
            cpu, runs, says, into = jobs[stream % len(jobs)]
            flood.submit(cpu, runs, says=says, queue=into if stream % 3 else Q)
            stream += 1

    pour()
    flood.tick(0, "")
    big = flood.submit(6, 60, says=True)
    opens, step = flood.now + head_wait, 5
    while big in flood.waiting:
        if any(name < big and job.queue == Q for name, job in flood.waiting.items()):
            opens = max(opens, flood.now + step)  # another one is first
        assert flood.now <= opens + 60 + step, "it starves"
        pour()
        flood.tick(step, big)
    for before, after in zip(flood.claims, flood.claims[1:], strict=False):
        assert after.since - before.since >= head_wait
    if flood.promised is not None:
        assert flood.now <= flood.promised + step

"""What holds of every pass, whatever waits and wherever it may go."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multimirror.api import MirrorQueueSpec
from multimirror.kinds.pod_sets import amounts_of, quantities_of
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.order import Waiting
from multimirror.scheduling.plan import Placed, Step, Waits, plan
from multimirror.scheduling.usage import Reservation, UsageCache, UsageSums
from multimirror.workers import WorkerState
from tests.unit.scheduling.builders import a_candidate, queue, ref, worker

QUEUES, WORKERS, NAMESPACES = ("p", "q", "r"), ("w1", "w2", "w3"), ("x", "y")
AMOUNTS = st.dictionaries(st.sampled_from(("cpu", "gpu")), st.integers(0, 6), max_size=2)
"""In billionths: the smallest difference matters."""
QUANTITIES = AMOUNTS.map(lambda given: {name: f"{amount}n" for name, amount in given.items()})


@dataclass(frozen=True)
class Scene:
    """All that a pass is given."""

    candidates: list[Candidate]
    queues: Mapping[str, MirrorQueueSpec]
    workers: Mapping[str, WorkerSnapshot]
    usage: UsageCache

    def steps(self) -> list[Step]:
        return [step for step in self.iterate() if step is not None]

    def iterate(self) -> Iterator[Step | None]:
        return plan(Waiting(self.candidates).snapshot(), self.queues, self.workers, self.usage.snapshot())


def seldom(strategy: st.SearchStrategy[Any], default: Any = None) -> st.SearchStrategy[Any]:
    return st.sampled_from((True, True, True, False)).flatmap(lambda usual: st.just(default) if usual else strategy)


STATES = st.builds(
    WorkerState,
    connected=seldom(st.just(False), default=True),
    namespaces=seldom(st.sets(st.sampled_from(NAMESPACES)).map(frozenset)),
)
WORKER_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "capacity": AMOUNTS.map(quantities_of),
        "max_jobs": st.integers(1, 4),
        "cordoned": seldom(st.just(True), default=False),
        "weight": st.integers(1, 3),
        "namespaces": seldom(st.dictionaries(st.sampled_from(NAMESPACES), st.sampled_from(NAMESPACES))),
    },
)
QUEUE_SPECS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "quota": st.fixed_dictionaries({}, optional={"jobs": st.integers(0, 4), "resources": QUANTITIES}),
        "queueingStrategy": st.sampled_from(("BestEffortFIFO", "StrictFIFO")),
        "placement": st.sampled_from(("Spread", "Pack", "Ordered", "Weighted")),
        "workers": st.lists(st.sampled_from((*WORKERS, "w9")), min_size=1, unique=True).map(
            lambda each: {"names": each}
        ),
        "fence": st.just({"timeout": "60s"}),
    },
)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    workers = {
        name: replace(worker(name, draw(STATES), **draw(WORKER_SPECS)), recorded=draw(seldom(st.just(False), True)))
        for name in draw(seldom(st.lists(st.sampled_from(WORKERS), unique=True), WORKERS))
    }
    queues = {name: queue(**draw(QUEUE_SPECS)) for name in draw(seldom(st.just(QUEUES[:2]), QUEUES))}
    usage = UsageCache()
    reservations = st.builds(
        Reservation,
        st.sampled_from(QUEUES),
        st.sampled_from(NAMESPACES),
        st.sampled_from(WORKERS),
        AMOUNTS,
    )
    for number, reservation in enumerate(draw(st.lists(reservations, max_size=4))):
        usage.put(ref(f"there-{number}"), reservation)
    candidates = [
        a_candidate(
            f"job-{number}",
            queue=draw(st.sampled_from(QUEUES)),
            namespace=draw(st.sampled_from(NAMESPACES)),
            priority=draw(st.integers(0, 2)),
            created=draw(st.sampled_from(("1", "2", "3"))),
            requests=draw(AMOUNTS),
            clusters=draw(seldom(st.sets(st.sampled_from(WORKERS)).map(frozenset))),
            avoid=draw(seldom(st.dictionaries(st.sampled_from(WORKERS), st.just("it refused")), {})),
            problem=draw(seldom(st.just("cannot be read"), "")),
        )
        for number in range(draw(st.integers(0, 12)))
    ]
    return Scene(candidates, queues, workers, usage)


some_scenes = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def shown(sums: UsageSums) -> object:
    by_queue = [
        (sums.queue(name), dict(sums.by_namespace(name)), dict(sums.by_worker(name)), dict(sums.turns(name)))
        for name in QUEUES
    ]
    return copy.deepcopy((by_queue, [sums.worker(name) for name in WORKERS]))


def told(steps: list[Step]) -> list[object]:
    return [(type(step), step.candidate, step.decision, str(step.decision), step.decision.results) for step in steps]


@some_scenes
@given(scenes())
def test_everybody_is_decided_about_once_and_hears_why(scene: Scene) -> None:
    steps = scene.steps()
    assert sorted(step.candidate.name for step in steps) == sorted(each.name for each in scene.candidates)
    for step in steps:
        assert isinstance(step, Placed) == (step.decision.chosen is not None) == (step.decision.reason == "")
        assert str(step.decision)


@some_scenes
@given(scenes())
def test_a_pass_changes_nothing_that_it_is_given(scene: Scene) -> None:
    waiting, sums = Waiting(scene.candidates).snapshot(), scene.usage.snapshot()
    lines = {
        name: {key: list(line.waiters) for key, line in each.lines.items()} for name, each in waiting.queues.items()
    }
    before = copy.deepcopy((lines, scene.queues, scene.workers)), shown(sums), shown(scene.usage.sums)
    for _ in plan(waiting, scene.queues, scene.workers, sums):
        pass
    lines = {
        name: {key: list(line.waiters) for key, line in each.lines.items()} for name, each in waiting.queues.items()
    }
    assert ((lines, scene.queues, scene.workers), shown(sums), shown(scene.usage.sums)) == before


@some_scenes
@given(scenes(), st.integers(0, 20))
def test_what_changes_during_a_pass_is_for_the_next_one(scene: Scene, when: int) -> None:
    waiting, queues, workers = Waiting(scene.candidates), dict(scene.queues), dict(scene.workers)
    usage, expected = scene.usage, told(scene.steps())
    steps = []
    for number, step in enumerate(plan(waiting.snapshot(), queues, workers, usage.snapshot())):
        if step is not None:
            steps.append(step)
        if number == when:
            for name in QUEUES:
                usage.put(ref(f"new-{name}"), Reservation(name, "x", "w1", {"cpu": 5}))
            usage.put(ref("there-0"), None)
            for each in scene.candidates[::2]:
                waiting.remove(each.ref)
            for each in scene.candidates[1::2]:
                waiting.put(replace(each, priority=9))
            queues.clear()
            workers.clear()
    assert told(steps) == expected


@some_scenes
@given(scenes())
def test_no_quota_and_no_worker_gets_more_than_it_has(scene: Scene) -> None:
    sums = scene.usage.snapshot()
    before = sums.fork()
    for step in scene.steps():
        if isinstance(step, Placed):
            sums.add(step.reservation)
    for name, spec in scene.queues.items():
        after, was = sums.queue(name), before.queue(name)
        assert spec.quota.jobs is None or after.jobs <= max(spec.quota.jobs, was.jobs)
        for resource, limit in amounts_of(spec.quota.resources).items():
            assert after.of(resource) <= max(limit, was.of(resource))
    for name, snapshot in scene.workers.items():
        after, was = sums.worker(name), before.worker(name)
        assert snapshot.spec.max_jobs is None or after.jobs <= max(snapshot.spec.max_jobs, was.jobs)
        for resource, limit in snapshot.capacity.items():
            assert after.of(resource) <= max(limit, was.of(resource))


@some_scenes
@given(scenes(), st.randoms())
def test_the_same_is_decided_in_whatever_order_things_came(scene: Scene, random: Any) -> None:
    def shuffled(table: Mapping[str, Any]) -> dict[str, Any]:
        return dict(random.sample(list(table.items()), len(table)))

    candidates = random.sample(scene.candidates, len(scene.candidates))
    again = Scene(candidates, shuffled(scene.queues), shuffled(scene.workers), scene.usage)
    assert told(again.steps()) == told(scene.steps())


@some_scenes
@given(scenes())
def test_the_words_are_those_of_the_moment_of_the_decision_and_agree_with_it(scene: Scene) -> None:
    at_once = []
    steps = []
    for step in scene.iterate():
        if step is not None:
            at_once += told([step])
            steps.append(step)
    assert told(steps) == at_once
    for step in steps:
        results = {each.worker: each for each in step.decision.results}
        if isinstance(step, Placed):
            assert results[step.decision.chosen or ""].fits
        else:
            assert not any(each.fits for each in results.values())
            if results:
                never = all(each.never for each in results.values())
                assert step.decision.reason == ("NeverFits" if never else "NoWorkerFits")


@some_scenes
@given(scenes())
def test_nobody_waits_while_a_later_one_of_its_queue_goes_that_needs_no_less(scene: Scene) -> None:
    steps = scene.steps()
    for number, first in enumerate(steps):
        for later in steps[number + 1 :]:
            if isinstance(first, Waits) and isinstance(later, Placed) and not first.candidate.problem:
                assert not _could_stand_for(later.candidate, first.candidate)


@some_scenes
@given(scenes())
def test_in_a_queue_a_higher_priority_is_decided_about_first(scene: Scene) -> None:
    for name in QUEUES:
        priorities = [step.candidate.priority for step in scene.steps() if step.candidate.queue == name]
        assert priorities == sorted(priorities, reverse=True)


@some_scenes
@given(scenes())
def test_queues_of_one_namespace_each_are_served_by_priority_and_age_alone(scene: Scene) -> None:
    candidates = [replace(each, namespace="x") for each in scene.candidates]
    order = [_by_priority_and_age(step.candidate) for step in replace(scene, candidates=candidates).steps()]
    assert order == sorted(order)


def _could_stand_for(later: Candidate, first: Candidate) -> bool:
    """They may go to the same places, and the later one asks for no less."""
    same = ("queue", "namespace", "clusters", "avoid")
    no_less = all(later.requests.get(name, 0) >= asked for name, asked in first.requests.items())
    return no_less and all(getattr(later, each) == getattr(first, each) for each in same)


def _by_priority_and_age(candidate: Candidate) -> tuple[int, str, str]:
    return -candidate.priority, candidate.created, candidate.name

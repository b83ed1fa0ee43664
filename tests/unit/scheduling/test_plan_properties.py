"""What holds of every pass, whatever waits and wherever it may go."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import MirrorQueueSpec
from multimirror.kinds.pod_sets import amounts_of
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.decisions import Placed, Step, Waits
from multimirror.scheduling.plan import plan
from multimirror.scheduling.usage import Reservation, UsageCache, UsageSums
from multimirror.scheduling.waiting import Waiting
from multimirror.workers import WorkerState
from tests.unit.scheduling.builders import a_candidate, queue, ref, worker

QUEUES, WORKERS, NAMESPACES = ("p", "q", "r"), ("w1", "w2", "w3"), ("x", "y")


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


def amounts(random: Random) -> dict[str, int]:
    """In billionths: the smallest difference matters."""
    return {name: random.randint(0, 6) for name in random.sample(("cpu", "gpu"), random.randint(0, 2))}


def a_worker(random: Random, name: str) -> WorkerSnapshot:
    def seldom(value: Any, usual: Any) -> Any:
        return value if random.random() < 0.15 else usual

    state = WorkerState(connected=seldom(False, True), namespaces=seldom(frozenset({"x"}), None))
    found = worker(
        name,
        state,
        capacity=seldom(None, {each: Decimal(amount).scaleb(-9) for each, amount in amounts(random).items()}),
        max_jobs=random.choice((None, 1, 2, 4)),
        cordoned=seldom(True, False),
        weight=random.randint(1, 3),
        namespaces=seldom({"x": "x", "y": "x"}, None),
    )
    return replace(found, recorded=seldom(False, True))


def a_queue(random: Random) -> MirrorQueueSpec:
    spec: dict[str, Any] = {
        "quota": {"resources": {name: f"{amount}n" for name, amount in amounts(random).items()}},
        "queueingStrategy": random.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
        "placement": random.choice(("Spread", "Pack", "Ordered", "Weighted")),
    }
    if random.random() < 0.7:
        spec["maxPriority"] = random.randint(0, 3)
    if random.random() < 0.5:
        spec["quota"]["jobs"] = random.randint(0, 4)
    if random.random() < 0.3:
        spec["workers"] = {"names": random.sample((*WORKERS, "w9"), random.randint(1, 3))}
    if random.random() < 0.3:
        spec["fence"] = {"timeout": "60s"}
    return queue(**spec)


def a_job(random: Random, number: int) -> Candidate:
    return a_candidate(
        f"job-{number:02}",
        queue=random.choice(QUEUES),
        namespace=random.choice(NAMESPACES),
        priority=random.randint(0, 2),
        created=random.choice("123"),
        requests=amounts(random),
        clusters=frozenset(random.sample(WORKERS, 2)) if random.random() < 0.2 else None,
        avoid={random.choice(WORKERS): "it refused"} if random.random() < 0.2 else {},
        problem="cannot be read" if random.random() < 0.1 else "",
    )


def a_scene(seed: int) -> Scene:
    """Drawn from a seed, not from Hypothesis' own choices: those are so short that hardly anything competes."""
    random, usage = Random(seed), UsageCache()
    for number in range(random.randint(0, 4)):
        reservation = Reservation(
            random.choice(QUEUES), random.choice(NAMESPACES), random.choice(WORKERS), amounts(random)
        )
        usage.put(ref(f"there-{number}"), reservation)
    return Scene(
        [a_job(random, number) for number in range(random.randint(0, 25))],
        {name: a_queue(random) for name in QUEUES if random.random() < 0.9},
        {name: a_worker(random, name) for name in WORKERS if random.random() < 0.9},
        usage,
    )


some_scenes = settings(max_examples=150, deadline=None)
scenes = st.integers(0, 10**9).map(a_scene)


def shown(sums: UsageSums) -> object:
    by_queue = [
        (sums.queue(name), dict(sums.by_namespace(name)), dict(sums.by_worker(name)), dict(sums.turns(name)))
        for name in QUEUES
    ]
    return copy.deepcopy((by_queue, [sums.worker(name) for name in WORKERS]))


def told(steps: list[Step]) -> list[object]:
    return [(type(step), step.candidate, step.decision, str(step.decision), step.decision.results) for step in steps]


@some_scenes
@given(scenes)
def test_everybody_is_decided_about_once_and_hears_why(scene: Scene) -> None:
    steps = scene.steps()
    assert sorted(step.candidate.name for step in steps) == sorted(each.name for each in scene.candidates)
    for step in steps:
        assert isinstance(step, Placed) == (step.decision.chosen is not None) == (step.decision.reason == "")
        assert str(step.decision)


@some_scenes
@given(scenes)
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
@given(scenes, st.integers(0, 20))
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
@given(scenes)
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
@given(scenes, st.randoms())
def test_the_same_is_decided_in_whatever_order_things_came(scene: Scene, random: Random) -> None:
    def shuffled(table: Mapping[str, Any]) -> dict[str, Any]:
        return dict(random.sample(list(table.items()), len(table)))

    candidates = random.sample(scene.candidates, len(scene.candidates))
    again = Scene(candidates, shuffled(scene.queues), shuffled(scene.workers), scene.usage)
    assert told(again.steps()) == told(scene.steps())


@some_scenes
@given(scenes)
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
@given(scenes)
def test_nobody_waits_while_a_later_one_of_its_queue_goes_that_needs_no_less(scene: Scene) -> None:
    steps = scene.steps()
    for number, first in enumerate(steps):
        for later in steps[number + 1 :]:
            if isinstance(first, Waits) and isinstance(later, Placed) and not first.candidate.problem:
                assert not _could_stand_for(later.candidate, first.candidate)


@some_scenes
@given(scenes)
def test_in_a_queue_a_higher_priority_is_decided_about_first(scene: Scene) -> None:
    for name, spec in scene.queues.items():
        steps = [step.candidate for step in scene.steps() if step.candidate.queue == name]
        priorities = [min(each.priority, spec.max_priority or 0) for each in steps]
        assert priorities == sorted(priorities, reverse=True)
        for namespace in NAMESPACES:
            own = [each.priority for each in steps if each.namespace == namespace]
            assert own == sorted(own, reverse=True)


@some_scenes
@given(scenes)
def test_queues_of_one_namespace_each_are_served_by_priority_and_age_alone(scene: Scene) -> None:
    candidates = [replace(each, namespace="x") for each in scene.candidates if each.queue in scene.queues]
    queues = {name: replace(spec, max_priority=9) for name, spec in scene.queues.items()}
    steps = replace(scene, candidates=candidates, queues=queues).steps()
    order = [_by_priority_and_age(step.candidate) for step in steps]
    assert order == sorted(order)


def _could_stand_for(later: Candidate, first: Candidate) -> bool:
    """They may go to the same places, and the later one asks for no less."""
    same = ("queue", "namespace", "clusters", "avoid")
    no_less = all(later.requests.get(name, 0) >= asked for name, asked in first.requests.items())
    return no_less and all(getattr(later, each) == getattr(first, each) for each in same)


def _by_priority_and_age(candidate: Candidate) -> tuple[int, str, str]:
    return -candidate.priority, candidate.created, candidate.name

"""Runs in which queues share: cohorts, preemption, workers with limited room, and Jobs that are in each other's way.

What is needed for borrowing and preemption to happen at all: at first one queue's Jobs ask for more than it has, most
of them endless; later come those of the others. Near the end there is room for everybody (`enlarge`), so that every Job
comes to its end whatever was stopped on the way; but in `tight` runs, in which it may also wait for ever.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from faults.workload import SORTS, Step

Json = dict[str, Any]
EVERYTHING: Final = 100
"""In cpu: more than all Jobs of a run ask for."""
_ENLARGED: Final = 50.0
_SORTS: Final = ("one", "many", "indexed", "retried", "early", "fails", "each fails", "forbidden", "late", "fleeting")
_PREEMPTS: Final[Sequence[list[str]]] = (
    ["Reclaim"],
    ["Reclaim", "Priority"],
    ["Reclaim", "FairShare"],
    ["Reclaim", "Priority", "FairShare"],
    ["Reclaim", "Priority", "FairShare"],
    ["Priority"],
    [],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Who shares what."""

    queues: Mapping[str, Json]
    """What is special about each queue's spec, by the end of its name; the first one's is empty."""
    cohorts: Mapping[str, Json] = field(default_factory=dict)
    """The Cohorts that need an object."""
    capacity: Mapping[str, int] = field(default_factory=dict)
    """Of each worker, in cpu."""
    fenced: str | None = None
    """The only queue with a fence, where the run has one; None: all have it."""
    tight: bool = False
    """There is never room for everybody."""

    def story(self) -> list[str]:
        """Line by line."""
        lines = [f"      queue {name or '(first)'}: {spec}" for name, spec in self.queues.items()]
        lines += [f"      cohort {name}: {spec}" for name, spec in self.cohorts.items()]
        return [*lines, f"      capacity: {dict(self.capacity)}" + (", for ever" if self.tight else "")]


def share(chance: random.Random, workers: Sequence[str]) -> Sharing:
    """Two to four queues that share, flat or in a tree."""
    names = ["", "b", "c", "d"][: chance.choice([2, 2, 3, 3, 4])]
    cohorts: dict[str, Json] = {}
    places = dict.fromkeys(names, "all")
    if len(names) > 2 and chance.random() < 0.5:
        cohorts = {"left": {"parent": "all", "weight": chance.choice([1, 2])}, "right": {"parent": "all"}}
        if chance.random() < 0.5:
            cohorts["all"] = {"quota": {"resources": {"cpu": 1}}}
        if chance.random() < 0.3:
            cohorts["left"]["quota"] = {chance.choice(["lend", "borrow"]): {"cpu": chance.choice([0, 1, 2])}}
        places = {name: chance.choice(["left", "right"]) for name in names}
    queues = {name: {"cohort": places[name], **_a_queue(chance)} for name in names}
    total = sum(spec["quota"]["resources"]["cpu"] for spec in queues.values())
    each = total if chance.random() < 0.5 else max(2, -(-total // len(workers)))
    return Sharing(
        queues=queues,
        cohorts=cohorts,
        capacity={worker: each + chance.choice([0, 0, 1]) for worker in workers},
        fenced=chance.choice([None, chance.choice(names)]),
        tight=chance.random() < 0.2,
    )


def with_claims(sharing: Sharing, seed: int) -> Sharing:
    """In one run of three, the first Job of some queues keeps what becomes free after a short while."""
    chance = random.Random(f"claims {seed}")  # noqa: S311 - not a secret
    if chance.random() >= 1 / 3:
        return sharing
    waits = {
        name: {"headWait": chance.choice(["5s", "15s"])} if chance.random() < 0.6 else {} for name in sharing.queues
    }
    return replace(sharing, queues={name: {**spec, **waits[name]} for name, spec in sharing.queues.items()})


def _a_queue(chance: random.Random) -> Json:
    own = chance.choice([0, 1, 1, 2, 2, 3])
    quota: Json = {"resources": {"cpu": own}}
    if chance.random() < 0.3:
        quota["borrow"] = {"cpu": chance.choice([0, 1, 2])}
    if chance.random() < 0.3:
        quota["lend"] = {"cpu": chance.randint(0, own)}
    if chance.random() < 0.1:
        quota["jobs"] = chance.choice([2, 3])
    return {
        "quota": quota,
        "weight": chance.choice([1, 1, 2, "0.5", 0]),
        "preempts": chance.choice(_PREEMPTS),
        "maxPriority": 9,
        "minRuntime": chance.choice(["0s", "0s", "3s", "8s"]),
    }


def generate(chance: random.Random, workers: Sequence[str], sharing: Sharing) -> list[Step]:
    """The workload: one queue borrows, then the others come; and all that people do meanwhile."""
    names = list(sharing.queues)
    first = chance.choice(names)
    steps: list[Step] = []
    count = chance.randint(7, 11)
    for number in range(count):
        early = number < count // 2
        at = round(chance.uniform(0, 6) if early else chance.uniform(6, 32), 1)
        queue = first if early and chance.random() < 0.8 else chance.choice(names)
        step = _a_job(chance, Step(at, "submit", f"job-{number}", queue=queue), endless=0.85 if early else 0.4)
        steps += [step, *_done_to(chance, step, workers, sharing)]
    for worker in workers:
        if chance.random() < 0.15:
            at = round(chance.uniform(0, 25), 1)
            steps += [Step(at, "cordon", worker), Step(at + round(chance.uniform(5, 15), 1), "uncordon", worker)]
    if not sharing.tight:
        steps += [*_done_to_queues(chance, sharing), Step(_ENLARGED, "enlarge", "", value=EVERYTHING)]
    return sorted(steps, key=lambda step: step.at)


def _a_job(chance: random.Random, step: Step, *, endless: float) -> Step:
    runs = chance.random() < endless
    return replace(
        step,
        sort=chance.choice(["forever", "forever", "forever", "wide"]) if runs else chance.choice(_SORTS),
        value=round(chance.uniform(0, 20), 1),
        cpu=chance.choice([500, 1000, 1000, 1000, 2000]),
        priority=chance.choice([0, 0, 0, 5, 9]),
        firm=chance.random() < 0.1,
        stops=round(chance.uniform(0.5, 1.9), 1) if chance.random() < 0.5 else 0.0,
    )


def _done_to(chance: random.Random, step: Step, workers: Sequence[str], sharing: Sharing) -> list[Step]:
    """What is done to a Job. In a tight run it may wait for ever: nobody can count on being able to."""
    name, at = step.name, step.at
    steps = []
    if chance.random() < 0.1:
        steps.append(Step(0.0, "squat", name, value=chance.randrange(len(workers))))
    if chance.random() < 0.2:
        return [*steps, Step(at + round(chance.uniform(0, 25), 1), "delete", name)]
    if chance.random() < 0.1:
        steps.append(Step(at + round(chance.uniform(1, 20), 1), "vanish", name))
    if sharing.tight or not SORTS[step.sort].runs:
        return steps
    if chance.random() < 0.3:
        at += round(chance.uniform(2, 15), 1)
        steps.append(Step(at, "suspend", name))
        if chance.random() < 0.7:
            at += round(chance.uniform(2, 15), 1)
            steps.append(Step(at, "resume", name))
    if chance.random() < 0.2:
        steps.append(Step(at + round(chance.uniform(1, 10), 1), "scale", name, value=chance.choice([1, 2, 4])))
    return steps


def _done_to_queues(chance: random.Random, sharing: Sharing) -> list[Step]:
    steps = []
    for name in sharing.queues:
        if chance.random() < 0.2:
            steps.append(Step(round(chance.uniform(5, 35), 1), "own", "", value=chance.randint(0, 3), queue=name))
        if chance.random() < 0.1:
            at = round(chance.uniform(5, 30), 1)
            steps.append(Step(at, "hold", "", chance.choice(["Hold", "Drain"]), queue=name))
            steps.append(Step(at + round(chance.uniform(3, 15), 1), "hold", "", "None", queue=name))
    return steps

"""Queues, cohorts and Jobs that share, in a word each. Amounts are in whole units; a number alone is cpu."""

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

from multimirror.api import CohortSpec, MirrorQueueSpec, Preempts, Quota
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.preemption import find_preemption
from multimirror.scheduling.quota import QuotaTree, QuotaUsage
from multimirror.scheduling.running import RunningJob, RunningJobs
from multimirror.scheduling.simulation import SimulatedJob
from multimirror.scheduling.trial import Room
from multimirror.scheduling.victims import NoPreemption, Preemption, Preemptor, Surroundings

Given = Mapping[str, float | str] | float
RECLAIM, FAIR, PRIORITY = Preempts.RECLAIM, Preempts.FAIR_SHARE, Preempts.PRIORITY
ALL = (RECLAIM, FAIR, PRIORITY)


def of(given: Given) -> dict[str, int]:
    """Amounts, in billionths."""
    return {name: nanos(value) for name, value in _decimals(given).items()}


def _decimals(given: Given | None) -> dict[str, Decimal]:
    if given is None:
        return {}
    named = given if isinstance(given, Mapping) else {"cpu": given}
    return {name: Decimal(str(value)) for name, value in named.items()}


def queue(
    own: Given | None = None,
    cohort: str | None = "all",
    *,
    borrow: Given | None = None,
    lend: Given | None = None,
    weight: str = "1",
    preempts: Collection[Preempts] = (),
    **more: Any,
) -> MirrorQueueSpec:
    quota = Quota(resources=_decimals(own), borrow=_decimals(borrow), lend=_decimals(lend))
    return MirrorQueueSpec(cohort=cohort, weight=Fraction(weight), quota=quota, preempts=frozenset(preempts), **more)


def cohort(
    own: Given | None = None,
    parent: str | None = None,
    *,
    borrow: Given | None = None,
    lend: Given | None = None,
    weight: str = "1",
) -> CohortSpec:
    quota = Quota(resources=_decimals(own), borrow=_decimals(borrow), lend=_decimals(lend))
    return CohortSpec(parent=parent, weight=Fraction(weight), quota=quota)


def usage(
    queues: Mapping[str, MirrorQueueSpec],
    cohorts: Mapping[str, CohortSpec] | None = None,
    /,
    **used: Given,
) -> QuotaUsage:
    return QuotaUsage(
        QuotaTree(queues, cohorts or {}), {name.replace("_", "-"): of(each) for name, each in used.items()}
    )


def job(name: str, queue: str, size: Given, priority: int = 0, **more: Any) -> RunningJob:
    return RunningJob(uid=name, name=name, queue=queue, requests=of(size), priority=priority, **more)


def search(
    queues: Mapping[str, MirrorQueueSpec],
    running: Sequence[RunningJob],
    asks: tuple[str, Given] | tuple[str, Given, int],
    cohorts: Mapping[str, CohortSpec] | None = None,
    *,
    rooms: Sequence[Room] | None = None,
    own_quota_only: bool = False,
    **around: Any,
) -> Preemption | NoPreemption:
    """For a Job in a queue, of a size, of a priority (0)."""
    name, size, priority = asks if len(asks) == 3 else (*asks, 0)
    used = QuotaUsage(QuotaTree(queues, cohorts or {}))
    for each in running:
        if each.uid not in around.get("leaving", ()):
            used.add(each.queue, each.requests)
    preemptor = Preemptor(
        uid="asks",
        queue=name,
        requests=of(size),
        priority=priority,
        preempts=queues[name].preempts,
        own_quota_only=own_quota_only,
    )
    return find_preemption(preemptor, used, Surroundings(running=RunningJobs(running).snapshot(), **around), rooms)


def victims(found: Preemption | NoPreemption) -> dict[str, str]:
    assert isinstance(found, Preemption), found
    return {each.job.name: str(each.reason) for each in found.victims}


def random_tree(random: Random, resources: Sequence[str]) -> tuple[dict[str, MirrorQueueSpec], dict[str, CohortSpec]]:
    """Two to four queues under up to three cohorts, with limits and weights."""

    def some(most: int, *, often: float = 1.0) -> dict[str, float]:
        return {name: random.randint(0, most) for name in resources if random.random() < often}

    def limits() -> dict[str, Any]:
        return {"borrow": some(4, often=0.25), "lend": some(4, often=0.25), "weight": random.choice(WEIGHTS)}

    cohorts = {"root": cohort(some(3))}
    for number in range(random.randint(0, 2)):
        cohorts[f"c{number}"] = cohort(some(3), random.choice(list(cohorts)), **limits())
    queues = {}
    for number in range(random.randint(2, 4)):
        preempts = [each for each in Preempts if random.random() < 0.6]
        queues[f"q{number}"] = queue(some(5), random.choice(list(cohorts)), preempts=preempts, **limits())
    return queues, cohorts


WEIGHTS = ("1", "1", "1", "2", "0.5", "0")


def random_jobs(random: Random, queues: Collection[str], resources: Sequence[str], most: int) -> list[SimulatedJob]:
    return [
        SimulatedJob(
            name=f"j{number}",
            queue=random.choice(sorted(queues)),
            requests=of({name: random.randint(0 if len(resources) > 1 else 1, 4) for name in resources}),
            priority=random.randint(-1, 2),
            age=number,
        )
        for number in range(random.randint(1, most))
    ]

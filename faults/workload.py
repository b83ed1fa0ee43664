"""What people do in a run: Jobs of all sorts, and everything that they do to them, to queues and to workers.

A workload is a list of steps, each at its time, so that it can be shortened step by step. Every sort of Job has one end
that it comes to whatever goes wrong on the way; that end is what a run with faults is compared with.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.nodes import PREFIX
from multimirror.api import MANAGED_BY, PREEMPTIBLE_LABEL, PRIORITY_LABEL, QUEUE_LABEL

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of Job."""

    end: str
    """Complete, Failed (and its reason), Running; what its status says at the end."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    behaviour: Mapping[str, str] = field(default_factory=dict)
    """Of its pods on simulated nodes."""
    succeeded: int = 0
    runs: bool = False
    """It runs until somebody ends it."""


_INDEXED: Final = {"completionMode": "Indexed"}
_RULE: Final = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}

SORTS: Final[Mapping[str, Sort]] = {
    "one": Sort("Complete", {"backoffLimit": 0}, succeeded=1),
    "many": Sort("Complete", {"completions": 4, "parallelism": 2}, succeeded=4),
    "indexed": Sort("Complete", {"completions": 3, "parallelism": 2, **_INDEXED}, succeeded=3),
    "retried": Sort("Complete", {"backoffLimit": 3}, {"fail-first": "1"}, succeeded=1),
    "early": Sort(
        "Complete",
        {"completions": 2, "parallelism": 2, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}, **_INDEXED},
        succeeded=1,
    ),
    "fails": Sort("Failed BackoffLimitExceeded", {"backoffLimit": 1}, {"exit-code": "1"}),
    "each fails": Sort(
        "Failed FailedIndexes",
        {"completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0, **_INDEXED},
        {"exit-code": "1"},
    ),
    "forbidden": Sort("Failed PodFailurePolicy", {"podFailurePolicy": {"rules": [_RULE]}}, {"exit-code": "42"}),
    "late": Sort("Failed DeadlineExceeded", {"activeDeadlineSeconds": 8}, {"never-finish": "true"}),
    "fleeting": Sort("gone", {"ttlSecondsAfterFinished": 3}, succeeded=1),
    "forever": Sort("Running", {}, {"never-finish": "true"}, runs=True),
    "wide": Sort("Running", {"parallelism": 3, "completions": 9}, {"never-finish": "true"}, runs=True),
}


@dataclass(frozen=True, slots=True)
class Step:
    """Something that somebody does."""

    at: float
    do: str
    """submit, delete, suspend, resume, scale, vanish, cordon, uncordon, limit, place, rotate, squat, forge, usurp,
    narrow, widen; where queues share: own, hold, enlarge"""
    name: str
    """Of a Job, or of a worker; empty for the queue."""
    sort: str = ""
    value: float = 0.0
    queue: str = ""
    """The end of its queue's name, where several share; empty: the first."""
    cpu: int = 0
    """What each pod asks for, in thousandths; 0: nothing."""
    priority: int = 0
    firm: bool = False
    """It is never to be stopped for others."""
    stops: float = 0.0
    """For so many seconds its pods do not listen when they are told to stop."""

    def __str__(self) -> str:
        more = f" ({self.sort})" if self.sort else f" {self.value:g}" if self.value else ""
        if self.cpu:
            more += f", queue {self.queue or '(first)'}, {self.cpu}m a pod, priority {self.priority}"
            more += ", firm" if self.firm else ""
        elif self.queue:
            more += f", queue {self.queue}"
        return f"{self.at:6.1f} s  {self.do} {self.name}{more}"


def a_shared_job(step: Step, queue: str, seconds: float) -> Json:
    """A Job that asks for something, of which there may be too little."""
    job = a_job(step.name, step.sort, queue, seconds)
    labels, template = job["metadata"]["labels"], job["spec"]["template"]
    if step.cpu:
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{step.cpu}m"}}
    if step.priority:
        labels[PRIORITY_LABEL] = str(step.priority)
    if step.firm:
        labels[PREEMPTIBLE_LABEL] = "false"
    if step.stops:
        template["metadata"]["annotations"][f"{PREFIX}ignore-sigterm"] = f"{step.stops:g}"
    return job


def a_job(name: str, sort: str, queue: str, seconds: float) -> Json:
    """A Job as admission leaves it: managed by us, and suspended."""
    kind = SORTS[sort]
    annotations = {f"{PREFIX}{key}": value for key, value in kind.behaviour.items()}
    if "never-finish" not in kind.behaviour:
        annotations[f"{PREFIX}duration"] = f"{seconds:g}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: queue}},
        "spec": {
            "managedBy": MANAGED_BY,
            "suspend": True,
            **kind.spec,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 2,
                    "containers": [{"name": "main", "image": "busybox"}],
                },
            },
        },
    }


def generate(
    chance: random.Random, workers: Sequence[str], *, jobs: tuple[int, int] = (4, 9), until: float = 25
) -> list[Step]:
    """A workload of about half a minute; nothing is submitted after `until`."""
    steps: list[Step] = []
    for number in range(chance.randint(*jobs)):
        sort = chance.choice(list(SORTS))
        name, at = f"job-{number}", round(chance.uniform(0, until), 1)
        steps.append(Step(at, "submit", name, sort, round(chance.uniform(0, 12), 1)))
        if chance.random() < 0.15:
            steps.append(Step(0.0, "squat", name, value=chance.randrange(len(workers))))
        if chance.random() < 0.25:
            steps.append(Step(at + round(chance.uniform(0, 25), 1), "delete", name))
        elif SORTS[sort].runs:
            steps += _fiddle(chance, name, at)
        elif chance.random() < 0.1:
            steps.append(Step(at + round(chance.uniform(1, 15), 1), "vanish", name))
    steps += _operate(chance, workers)
    return sorted(steps, key=lambda step: step.at)


def _fiddle(chance: random.Random, name: str, at: float) -> list[Step]:
    """What is done to a Job that runs on and on."""
    steps = []
    if chance.random() < 0.5:
        at += round(chance.uniform(2, 15), 1)
        steps.append(Step(at, "suspend", name))
        if chance.random() < 0.7:
            at += round(chance.uniform(2, 15), 1)
            steps.append(Step(at, "resume", name))
    if chance.random() < 0.3:
        steps.append(Step(at + round(chance.uniform(1, 10), 1), "scale", name, value=chance.choice([1, 2, 4])))
    return steps


def _operate(chance: random.Random, workers: Sequence[str]) -> list[Step]:
    """What is done to queue and workers."""
    steps = []
    for worker in workers:
        if chance.random() < 0.2:
            at = round(chance.uniform(0, 20), 1)
            steps.append(Step(at, "cordon", worker))
            steps.append(Step(at + round(chance.uniform(5, 20), 1), "uncordon", worker))
        if chance.random() < 0.2:
            steps.append(Step(round(chance.uniform(0, 30), 1), "rotate", worker))
        if chance.random() < 0.15:
            at = round(chance.uniform(0, 25), 1)
            steps.append(Step(at, "narrow", worker))
            steps.append(Step(at + round(chance.uniform(5, 25), 1), "widen", worker))
    if chance.random() < 0.3:
        steps.append(Step(round(chance.uniform(0, 10), 1), "limit", "", value=chance.choice([1, 2, 3])))
        steps.append(Step(40.0, "limit", "", value=50))
    if chance.random() < 0.3:
        steps.append(Step(round(chance.uniform(0, 20), 1), "place", "", chance.choice(["Ordered", "Pack", "Spread"])))
    return steps


def expected_end(steps: Sequence[Step], name: str) -> str:
    """How a Job ends, whatever goes wrong on the way."""
    mine = [step for step in steps if step.name == name]
    sort = next((step.sort for step in mine if step.do == "submit"), None)
    if sort is None or any(step.do == "delete" for step in mine):
        return "gone"
    last = [step.do for step in mine if step.do in ("suspend", "resume")]
    if last and last[-1] == "suspend":
        return "Suspended"
    return SORTS[sort].end

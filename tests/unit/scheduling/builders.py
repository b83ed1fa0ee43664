"""Workers, queues and candidates, in a word each."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from multimirror.api import MirrorQueueSpec, WorkerClusterSpec
from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.decisions import Placed, Step
from multimirror.scheduling.plan import plan
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.scheduling.waiting import Waiting
from multimirror.workers import WorkerState

READY = WorkerState(connected=True)


def ref(name: str) -> Ref:
    return Ref("jobs.batch", name)


def worker(name: str, state: WorkerState = READY, **spec: Any) -> WorkerSnapshot:
    """`capacity` is a number of cpu, or quantities by resource."""
    capacity = spec.pop("capacity", None)
    if capacity is not None:
        given = capacity if isinstance(capacity, Mapping) else {"cpu": capacity}
        spec["capacity"] = {resource: Decimal(amount) for resource, amount in given.items()}
    return WorkerSnapshot(name=name, spec=WorkerClusterSpec(**spec), state=state)


TWO = [worker("w1"), worker("w2")]


def queue(**spec: Any) -> MirrorQueueSpec:
    return MirrorQueueSpec.read({"spec": spec})


def a_candidate(name: str, **more: Any) -> Candidate:
    """The longer the name, the younger it is."""
    cpu = more.pop("cpu", 0)
    requests = {"cpu": nanos(cpu)} if cpu else {}
    fields = {"namespace": "team", "queue": "q", "created": f"2027-01-01T00:00:{len(name):02}Z", "requests": requests}
    return Candidate(ref=ref(name), name=name, **(fields | more))


def used(*workers: str, namespace: str = "team", cpu: int = 1) -> UsageCache:
    """By Jobs of queue q on these workers."""
    usage = UsageCache()
    for number, name in enumerate(workers):
        usage.put(ref(f"there-{number}"), Reservation("q", namespace, name, {"cpu": nanos(cpu)}))
    return usage


def planned(
    jobs: Iterable[Candidate],
    queues: MirrorQueueSpec | Mapping[str, MirrorQueueSpec],
    workers: Iterable[WorkerSnapshot],
    usage: UsageCache | None = None,
) -> list[Step]:
    """A whole pass; one queue alone is q."""
    named = queues if isinstance(queues, Mapping) else {"q": queues}
    sums = (usage or UsageCache()).snapshot()
    steps = plan(Waiting(jobs).snapshot(), named, {each.name: each for each in workers}, sums)
    return [step for step in steps if step is not None]


def where(steps: Iterable[Step]) -> list[tuple[str, str | None]]:
    return [(step.candidate.name, step.decision.chosen) for step in steps]


def placed(steps: Iterable[Step]) -> list[str]:
    return [step.candidate.name for step in steps if isinstance(step, Placed)]


def why(steps: list[Step]) -> str:
    """Of the first one."""
    return str(steps[0].decision)

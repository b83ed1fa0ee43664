"""What passes are measured on: workers, and Jobs that wait, as a dispatcher has them in its caches."""

import time
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from multimirror.api import WorkerClusterSpec
from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_sets import Amounts, nanos
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.usage import Reservation, UsageCache
from multimirror.workers import WorkerState

QUEUES: Final = 1000
WORKERS: Final = 100


def fleet(workers: int, cpu: int, *, namespaces: int) -> dict[str, WorkerSnapshot]:
    """With room for all that is not cpu."""
    state = WorkerState(connected=True, namespaces=frozenset(f"team-{number}" for number in range(namespaces)))
    capacity = {"cpu": Decimal(cpu), "memory": Decimal(2**60), "pods": Decimal(1_000_000)}
    names = (f"worker-{number}" for number in range(workers))
    return {name: WorkerSnapshot(name=name, spec=WorkerClusterSpec(capacity=capacity), state=state) for name in names}


def fill_up(usage: UsageCache, workers: Iterable[str]) -> None:
    """Workers of 1,000 cpus. Each has to be looked at to find that nothing fits: half of them lack cpu, half memory."""
    for number, name in enumerate(workers):
        full = {"cpu": nanos(999)} if number % 2 else {"memory": nanos(2**60)}
        usage.put(Ref("jobs.batch", f"running-{number}"), Reservation("other", "team-0", name, full))


def candidate(number: int, namespace: str, queue: str, requests: Amounts, *, priority: int = 0) -> Candidate:
    """The larger its number, the younger it is."""
    return Candidate(
        ref=Ref("jobs.batch", f"uid-{number}"),
        namespace=namespace,
        name=f"job-{number}",
        queue=queue,
        priority=priority,
        created=f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        version=str(number),
        requests=requests,
    )


def longest_step(steps: Iterable[object]) -> float:
    """In CPU seconds. Looking at the clock takes time, too: the whole is measured in a round of its own."""
    longest, before = 0.0, time.thread_time()
    for _ in steps:
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest


def cpu_seconds(steps: Iterable[object]) -> float:
    """Of all of them."""
    started = time.thread_time()
    for _ in steps:
        pass
    return time.thread_time() - started

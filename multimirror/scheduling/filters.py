"""Where a Job could go, and where it goes: filters, then a score, each candidate with its reason.

    Spread     the worker that is least full, then the one with the fewest of our Jobs
    Pack       the fullest that still has room
    Ordered    the first in the queue's order that has room
    Weighted   the worker with the fewest Jobs for its weight

Equal scores go to the heavier one, then by name, so that the same caches always give the same answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from multimirror.api import MirrorQueueSpec, Placement
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.candidates import Candidate, WorkerView
from multimirror.scheduling.usage import Ledger, Use

_TOLD: Final = 8
"""Workers in one sentence."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One worker, for one Job: `score` (lower is better) or why not. `never`: not even if nothing else ran there."""

    worker: str
    score: tuple[float, ...] | None
    why: str
    never: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole decision about one Job."""

    chosen: str | None
    verdicts: tuple[Verdict, ...] = ()
    reason: str = ""
    why: str = ""

    def __str__(self) -> str:
        """For people: the worker that was chosen first, and no more than a few."""
        first = sorted(self.verdicts, key=lambda verdict: verdict.worker != self.chosen)
        words = [f"{verdict.worker}: {verdict.why}" for verdict in first[:_TOLD]]
        if len(first) > _TOLD:
            words.append(f"and {len(first) - _TOLD} more")
        told = "; ".join(words)
        return f"{self.why} ({told})" if self.why and told else self.why or told


def place(
    job: Candidate, name: str, queue: MirrorQueueSpec, workers: Mapping[str, WorkerView], ledger: Ledger
) -> Explanation:
    """Choose a worker for the Job, or say why there is none."""
    if job.problem:
        return Explanation(None, reason="Invalid", why=job.problem)
    waits = over_quota(job, name, queue, ledger.queue(name))
    if waits is not None:
        return waits
    names = members(queue, workers)
    if not names:
        return Explanation(None, reason="NoWorkers", why=f"queue {name} has no worker clusters")
    verdicts = tuple(_verdict(job, queue, (rank, each), workers.get(each), ledger) for rank, each in enumerate(names))
    fitting = [verdict for verdict in verdicts if verdict.score is not None]
    if fitting:
        best = min(fitting, key=lambda verdict: (verdict.score, verdict.worker))
        return Explanation(best.worker, verdicts)
    if all(verdict.never for verdict in verdicts):
        return Explanation(None, verdicts, "NeverFits", "no worker cluster of its queue is large enough")
    return Explanation(None, verdicts, "NoWorkerFits", "no worker cluster can take it now")


def members(queue: MirrorQueueSpec, workers: Mapping[str, WorkerView]) -> Sequence[str]:
    """The queue's workers, in its order; those that it names and nobody has made included."""
    selected = [name for name, worker in workers.items() if queue.workers.include(name, worker.spec.labels)]
    return sorted({*queue.workers.names, *selected}, key=queue.workers.rank)


def over_quota(job: Candidate, name: str, queue: MirrorQueueSpec, use: Use) -> Explanation | None:
    """Why the queue's quota leaves no room for the Job."""
    quota = queue.quota
    for resource, limit in quota.resources.items():
        asked = job.requests.get(resource, Decimal(0))
        if asked > limit:
            why = f"it asks for {_text(asked)} {resource}, more than the whole quota of queue {name} ({_text(limit)})"
            return Explanation(None, reason="NeverFits", why=why)
    if quota.jobs is not None and use.jobs >= quota.jobs:
        why = f"queue {name} runs {use.jobs} Jobs, as many as its quota allows"
        return Explanation(None, reason="QuotaExceeded", why=why)
    for resource, limit in quota.resources.items():
        asked, left = job.requests.get(resource, Decimal(0)), limit - use.of(resource)
        if asked and asked > left:
            why = f"queue {name} has {_text(left)} {resource} left of its quota, it asks for {_text(asked)}"
            return Explanation(None, reason="QuotaExceeded", why=why)
    return None


def _verdict(
    job: Candidate, queue: MirrorQueueSpec, place: tuple[int, str], worker: WorkerView | None, ledger: Ledger
) -> Verdict:
    rank, name = place
    if worker is None:
        return Verdict(name, None, "there is no such WorkerCluster")
    problem = _filtered(job, worker, fenced=queue.fence is not None)
    if problem:
        return Verdict(name, None, problem)
    use = ledger.worker(name)
    if worker.spec.max_jobs is not None and use.jobs >= worker.spec.max_jobs:
        return Verdict(name, None, f"it runs {use.jobs} Jobs, as many as it may")
    crowded = _too_small(job.requests, worker.capacity, use)
    if crowded is not None:
        return Verdict(name, None, *crowded)
    full = _fullness(job.requests, worker.capacity, use)
    why = f"{use.jobs} Job{'' if use.jobs == 1 else 's'} there" + (f", would be {full:.0%} full" if full else "")
    return Verdict(name, _score(queue.placement, rank, worker.spec.weight, use.jobs, full), why)


def _filtered(job: Candidate, worker: WorkerView, *, fenced: bool) -> str:
    if job.clusters is not None and worker.name not in job.clusters:
        return "not among the Job's multimirror.dev/clusters"
    if not worker.state.ready:
        return "not ready: " + worker.state.why_not_ready[1]
    if worker.spec.cordoned:
        return "cordoned"
    if fenced and not worker.recorded:
        return "its status does not say yet that it is connected, and the queue has a fence"
    namespace = worker.spec.namespace_for(job.namespace)
    if namespace is None:
        return f"takes no Jobs from namespace {job.namespace}"
    if worker.state.namespaces is not None and namespace not in worker.state.namespaces:
        return f"has no namespace {namespace}"
    return job.avoid.get(worker.name, "")


def _too_small(requests: Amounts, capacity: Amounts | None, use: Use) -> tuple[str, bool] | None:
    for name, total in (capacity or {}).items():
        asked, left = requests.get(name, Decimal(0)), total - use.of(name)
        if asked > total:
            return f"has {_text(total)} {name} in all, the Job asks for {_text(asked)}", True
        if asked and asked > left:
            return f"has {_text(left)} {name} left, the Job asks for {_text(asked)}", False
    return None


def _fullness(requests: Amounts, capacity: Amounts | None, use: Use) -> float:
    """How full the worker would be of what the Job asks for."""
    shares = (
        float((use.of(name) + requests[name]) / total)
        for name, total in (capacity or {}).items()
        if total and requests.get(name)
    )
    return max(shares, default=0.0)


def _score(placement: Placement, rank: int, weight: int, jobs: int, full: float) -> tuple[float, ...]:
    match placement:
        case Placement.ORDERED:
            return (rank,)
        case Placement.PACK:
            return (-full, -jobs, -weight)
        case Placement.WEIGHTED:
            return ((jobs + 1) / weight, -weight)
        case _:
            return (full, jobs, -weight)


def _text(amount: Decimal) -> str:
    """As people write it: 1.5, 200; large amounts in powers of 1024."""
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
        if abs(amount) >= size:
            return f"{(amount / size).quantize(Decimal('0.1')).normalize():f}{suffix}"
    return f"{amount.normalize():f}"

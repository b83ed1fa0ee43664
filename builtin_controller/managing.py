"""How many pods there should be, and the one kind of change that this sync makes towards that.

Deleting goes before creating: a sync that removes pods creates none. Neither is done while the cache may not have seen
the effect of the last change (expectations), which is for the caller to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from builtin_controller.backoff import Record, remaining
from builtin_controller.indexes import failures_so_far, pending_indexes, split_surplus
from builtin_controller.job import Job
from builtin_controller.options import Options
from builtin_controller.pods import Pod
from builtin_controller.removal import cheapest_first
from builtin_controller.templates import new_pod
from builtin_controller.vocabulary import PODS_CREATED, PODS_DELETED, RECONCILING, TRACKING
from multimirror.batch import IndexSet, Json


@dataclass(frozen=True, slots=True)
class Work:
    """What to do about the number of pods; at most one of the three lists is not empty.

    `kill`: delete because the Job ends; the finalizer stays until the pod is counted.
    `remove`: too many, or suspended; the finalizer goes first, so that the pod is never counted.
    `create`: in slow-start batches; the rest of them is dropped once one fails.
    """

    action: str
    kill: Sequence[Pod] = ()
    remove: Sequence[Pod] = ()
    create: Sequence[Json] = ()
    wait: float | None = None
    """Pods are due in that many seconds, because the last ones failed."""


NOT_MANAGED = Work(RECONCILING)


@dataclass(frozen=True, slots=True)
class Counts:
    """What is known about the Job's pods when it is decided how many there should be."""

    pods: Sequence[Pod]
    active: Sequence[Pod]
    terminating: int
    succeeded: int
    succeeded_indexes: IndexSet
    failed_indexes: IndexSet | None
    kept: dict[int, Pod] = field(default_factory=dict)


def manage(job: Job, counts: Counts, record: Record, *, now: float, options: Options, pod_group: str | None) -> Work:
    """The change that brings the number of active pods to what the Job asks for."""
    active = len(counts.active)
    if job.suspended:
        return Work(PODS_DELETED, remove=_surplus(job, counts.active, active))
    want = _wanted(job, active, counts.succeeded)
    surplus = _surplus(job, counts.active, max(0, active - want))[: options.max_pods_per_sync]
    if surplus:
        return Work(PODS_DELETED, remove=surplus)
    held = counts.terminating if job.only_failed_replaced else 0
    short = want - active - held
    if short <= 0:
        return Work(TRACKING)
    count = min(short, options.max_pods_per_sync)
    return _create(job, counts, record, count=count, now=now, options=options, pod_group=pod_group)


def _wanted(job: Job, active: int, succeeded: int) -> int:
    if job.completions is None:  # a work queue: the first success means that there is no more work
        return active if succeeded > 0 else job.parallelism
    return max(0, min(job.completions - succeeded, job.parallelism))


def _surplus(job: Job, active: Sequence[Pod], at_least: int) -> list[Pod]:
    go, stay = split_surplus(job, active) if job.indexed else ([], list(active))
    if len(go) < at_least:
        go += cheapest_first(stay)[: at_least - len(go)]
    return go


def _create(
    job: Job, counts: Counts, record: Record, *, count: int, now: float, options: Options, pod_group: str | None
) -> Work:
    def left(record: Record) -> float:
        return remaining(record, now, base=options.pod_backoff_base, maximum=options.pod_backoff_max)

    if not job.per_index:
        wait = left(record)
        if wait > 0:
            return Work(PODS_CREATED, wait=wait)
    if not job.indexed:
        return Work(PODS_CREATED, create=[new_pod(job, pod_group=pod_group)] * count)
    picked = pending_indexes(job, counts.pods, counts.succeeded_indexes, counts.failed_indexes, count)
    if job.per_index:
        # Picked first, sorted out second: an index that waits still takes one of the places.
        waits = {index: left(_index_record(counts.kept.get(index))) for index in picked}
        ready = [index for index in picked if waits[index] == 0]
        if picked and not ready:
            return Work(PODS_CREATED, wait=min(waits.values()))
        picked = ready
    pods = [new_pod(job, index, replaces=counts.kept.get(index), pod_group=pod_group) for index in picked]
    return Work(PODS_CREATED, create=pods)


def _index_record(last: Pod | None) -> Record:
    return Record() if last is None else Record(failures_so_far(last) + 1, last.finish_time())

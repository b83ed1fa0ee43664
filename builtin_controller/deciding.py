"""The first half of a sync: what the Job and its pods look like now, and what to do about its pods.

`decide` is a pure function: cached objects and memory in, a Decision out. The shell then deletes or creates pods, and
hands the outcome to tracking.py, which decides what to write down and which finalizers go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from builtin_controller import backoff, failure_policy, verdict
from builtin_controller.indexes import failed_indexes, kept_back, succeeded_indexes
from builtin_controller.job import Job
from builtin_controller.managing import NOT_MANAGED, Counts, Work, manage
from builtin_controller.options import Options
from builtin_controller.pods import Pod
from builtin_controller.times import format_time
from builtin_controller.vocabulary import RECONCILING, SUCCEEDED
from multimirror.batch import IndexSet, Json

NO_INDEXES = IndexSet([], [])


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a sync looks at.

    `pods` are the claimed pods; those that ended and were counted may be left out (ledger.py does), for they change
    nothing. `removing` are pods whose finalizer we took off, though the cache still shows it. `settled`: the cache
    shows everything that we created and deleted.
    """

    job: Job
    pods: Sequence[Pod]
    now: float
    options: Options
    settled: bool = True
    removing: frozenset[str] | set[str] = frozenset()
    record: backoff.Record = field(default_factory=backoff.Record)
    pod_group: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a sync found, and what it wants done about the pods."""

    observed: Observed
    work: Work
    managed: bool
    verdict: verdict.Verdict | None
    active: int
    ready: int
    terminating: int
    succeeded: int
    failed: int
    indexes_before: IndexSet
    indexes: IndexSet
    failed_indexes: IndexSet | None
    kept: dict[int, Pod]
    record: backoff.Record
    start_time: str | None
    wake_after: float | None
    """Look again then: the Job's own deadline."""


def decide(seen: Observed) -> Decision:
    """What to do about the Job's pods."""
    job, pods, now = seen.job, seen.pods, seen.now
    status = job.status
    active = [pod for pod in pods if pod.active]
    terminating = sum(pod.terminating for pod in pods)
    uncounted = status.get("uncountedTerminatedPods") or {}
    new_succeeded, new_failed = _newly_finished(seen, uncounted)
    succeeded = (status.get("succeeded") or 0) + len(new_succeeded) + len(uncounted.get("succeeded") or ())
    counted = [pod for pod in new_failed if failure_policy.match(job.pod_failure_policy, pod).counted]
    failed = (status.get("failed") or 0) + len(counted) + len(uncounted.get("failed") or ())
    start_time = status.get("startTime")
    if start_time is None and not job.suspended:
        start_time = format_time(now)
    record = backoff.updated(seen.record, new_succeeded, new_failed)

    end = verdict.earlier_verdict(job) or verdict.policy_verdict(job, pods)
    wake_after = None
    if end is None:
        end = verdict.limit_verdict(job, pods, failed, start_time, now)
        if end is None:
            wake_after = verdict.time_left(job, start_time, now)

    before = indexes = NO_INDEXES
    lost: IndexSet | None = None
    kept: dict[int, Pod] = {}
    if job.indexed:
        before, indexes = succeeded_indexes(job, pods)
        succeeded = len(indexes)
        if job.per_index:
            lost = failed_indexes(job, pods)
            end = end or verdict.index_verdict(job, indexes, lost)
            kept = kept_back(job, pods, seen.removing, indexes, lost)
        end = end or verdict.success_verdict(job, indexes)

    managed = False
    if end is not None:
        work = Work(RECONCILING, kill=active)
    elif seen.settled and not job.deleting:
        counts = Counts(pods, active, terminating, succeeded, indexes, lost, kept)
        work = manage(job, counts, record, now=now, options=seen.options, pod_group=seen.pod_group)
        managed = True
    else:
        work = NOT_MANAGED
    return Decision(
        observed=seen,
        work=work,
        managed=managed,
        verdict=end,
        active=len(active),
        ready=sum(pod.ready for pod in active),
        terminating=terminating,
        succeeded=succeeded,
        failed=failed,
        indexes_before=before,
        indexes=indexes,
        failed_indexes=lost,
        kept=kept,
        record=record,
        start_time=start_time,
        wake_after=wake_after,
    )


def _newly_finished(seen: Observed, uncounted: Json) -> tuple[list[Pod], list[Pod]]:
    """The pods that ended and stand in no counter and no list yet."""
    job = seen.job
    listed_succeeded = set(uncounted.get("succeeded") or ())
    listed_failed = set(uncounted.get("failed") or ())
    succeeded: list[Pod] = []
    failed: list[Pod] = []
    for pod in seen.pods:
        if not pod.tracked or pod.active or pod.uid in seen.removing or not job.has_index(pod.index):
            continue
        if pod.phase == SUCCEEDED:
            if pod.uid not in listed_succeeded:
                succeeded.append(pod)
        elif pod.counts_as_failed(only_failed_replaced=job.only_failed_replaced) and pod.uid not in listed_failed:
            failed.append(pod)
    return succeeded, failed

"""How a Job ends: the first of these that holds.

1. SuccessCriteriaMet or FailureTarget stands in the status already: no later finding can change it
2. a failed pod matches a FailJob rule
3. too many failures, or too many restarts
4. the deadline has passed
5. backoffLimitPerIndex: too many failed indexes, or none left that could still succeed
6. the success policy is satisfied

Reaching all completions is found out later, after pods were managed (tracking.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from builtin_controller import failure_policy, success_policy
from builtin_controller.job import Job
from builtin_controller.pods import Pod
from builtin_controller.times import parse_time
from builtin_controller.vocabulary import (
    BACKOFF_LIMIT_EXCEEDED,
    DEADLINE_EXCEEDED,
    FAILED_INDEXES,
    MAX_FAILED_INDEXES_EXCEEDED,
    MESSAGES,
    POD_FAILURE_POLICY,
    SUCCESS_POLICY,
)
from multimirror.batch import IndexSet
from multimirror.batch.conditions import FAILURE_TARGET, SUCCESS_CRITERIA_MET


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end that a Job comes to. `told`: the status says so already."""

    success: bool
    reason: str
    message: str
    told: bool = False

    @property
    def interim(self) -> str:
        """The condition that says how the Job will end."""
        return SUCCESS_CRITERIA_MET if self.success else FAILURE_TARGET


def failure(reason: str) -> Verdict:
    return Verdict(success=False, reason=reason, message=MESSAGES[reason])


def earlier_verdict(job: Job) -> Verdict | None:
    """What an earlier sync decided. A condition that is not True decides nothing."""
    for kind in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
        condition = job.condition(kind)
        if condition is not None and condition.get("status") == "True":
            success = kind == SUCCESS_CRITERIA_MET
            return Verdict(success, condition.get("reason", ""), condition.get("message", ""), told=True)
    return None


def policy_verdict(job: Job, pods: Iterable[Pod]) -> Verdict | None:
    """A failed pod that fails the Job, counted or not."""
    if job.pod_failure_policy is None:
        return None
    for pod in pods:
        if pod.counts_as_failed(only_failed_replaced=job.only_failed_replaced):
            message = failure_policy.match(job.pod_failure_policy, pod).message
            if message is not None:
                return Verdict(success=False, reason=POD_FAILURE_POLICY, message=message)
    return None


def limit_verdict(job: Job, pods: Iterable[Pod], failed: int, start_time: str | None, now: float) -> Verdict | None:
    """Failures, restarts and time."""
    if failed > job.backoff_limit or _restarted_too_often(job, pods):
        return failure(BACKOFF_LIMIT_EXCEEDED)
    left = time_left(job, start_time, now)
    return failure(DEADLINE_EXCEEDED) if left is not None and left <= 0 else None


def time_left(job: Job, start_time: str | None, now: float) -> float | None:
    """Seconds until the deadline; None when there is none, or the clock does not run."""
    started = parse_time(start_time)
    if job.active_deadline is None or started is None or job.suspended:
        return None
    return job.active_deadline - (now - started)


def index_verdict(job: Job, succeeded: IndexSet, failed: IndexSet) -> Verdict | None:
    """backoffLimitPerIndex: indexes that failed for good."""
    if job.max_failed_indexes is not None and len(failed) > job.max_failed_indexes:
        return failure(MAX_FAILED_INDEXES_EXCEEDED)
    if failed and len(failed) + len(succeeded) >= job.index_count:
        return failure(FAILED_INDEXES)
    return None


def success_verdict(job: Job, succeeded: IndexSet) -> Verdict | None:
    message = success_policy.match(job.success_policy, job.index_count, succeeded)
    return None if message is None else Verdict(success=True, reason=SUCCESS_POLICY, message=message)


def _restarted_too_often(job: Job, pods: Iterable[Pod]) -> bool:
    if (job.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        container.get("restartCount") or 0
        for pod in pods
        if pod.phase in ("Running", "Pending")
        for kind in ("initContainerStatuses", "containerStatuses")
        for container in pod.status.get(kind) or ()
    )
    return restarts > 0 if job.backoff_limit == 0 else restarts >= job.backoff_limit

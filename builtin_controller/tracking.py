"""The second half of a sync: what is written down, and which finalizers go (KEP-2307).

A pod is counted in three steps, so that a crash between any two of them loses and doubles nothing:

1. its UID goes into status.uncountedTerminatedPods (or its index into completedIndexes), with the interim condition;
2. its finalizer is taken off;
3. its UID leaves the list, and the counter goes up; the terminal condition may follow.

`track` prepares step 1 and says which finalizers go in step 2; `settle` is step 3. Both are pure. At most
`max_uncounted_pods` are counted in one sync.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from builtin_controller import failure_policy
from builtin_controller.deciding import Decision
from builtin_controller.options import CLEAR_START_TIME
from builtin_controller.pods import Pod
from builtin_controller.times import format_time
from builtin_controller.verdict import Verdict
from builtin_controller.vocabulary import COMPLETIONS_REACHED, MESSAGES, SUCCEEDED
from multimirror.batch import IndexSet, Json, find_condition, with_condition
from multimirror.batch.conditions import COMPLETE, FAILED, SUCCESS_CRITERIA_MET, SUSPENDED
from multimirror.batch.types import clone


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the work on pods.

    `created` includes pods that a terminating namespace refused: the count is not corrected for those.
    `ready` are the ready ones among the deleted pods.
    """

    created: int = 0
    deleted: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True)
class Tracking:
    """What to write before finalizers go, and which go."""

    decision: Decision
    status: Json
    flush: bool
    release: Sequence[Pod]
    tracked: Collection[str]
    """UIDs of all pods whose finalizer is still on."""
    verdict: Verdict | None
    decided_at: float
    terminating: int
    capped: bool
    policy_actions: Counter[str]
    events: Sequence[tuple[str, str]]
    """Reason and message of the events to tell before the status is written."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What to write after finalizers went. `finished`: this status carries the terminal condition."""

    status: Json
    flush: bool
    finished: bool


def track(decision: Decision, outcome: Outcome, now: float) -> Tracking:
    """The status to write first, and the finalizers to take off after that."""
    seen, job, work = decision.observed, decision.observed.job, decision.work
    status = clone(job.status)
    active = decision.active + outcome.created - outcome.deleted
    terminating = decision.terminating + outcome.deleted
    ready = decision.ready - outcome.ready
    end = decision.verdict
    events: list[tuple[str, str]] = []
    if decision.start_time is not None:
        status["startTime"] = decision.start_time

    if end is not None:
        if outcome.deleted != len(work.kill) or not seen.settled:
            end = None  # there may be pods left that we could not delete, or do not see yet
    elif _complete(decision, active):
        reason = COMPLETIONS_REACHED
        end = Verdict(success=True, reason=reason, message=MESSAGES[reason])
    elif decision.managed:
        events += _suspension(decision, status, now)

    flush = (
        bool(events)
        or active != (status.get("active") or 0)
        or ready != status.get("ready")
        or terminating != status.get("terminating")
    )
    _set_number(status, "active", active)
    status["ready"], status["terminating"] = ready, terminating
    counting = _Counting(decision, status, end)
    counting.run()
    flush |= counting.changed
    if end is not None and not end.told and not _has_interim(status, end):
        status["conditions"] = [
            *(status.get("conditions") or ()),
            _condition(end.interim, end, now),
        ]
        flush = True
    return Tracking(
        decision=decision,
        status=status,
        flush=flush,
        release=counting.release,
        tracked=counting.tracked,
        verdict=end,
        decided_at=now,
        terminating=terminating,
        capped=counting.capped,
        policy_actions=counting.actions,
        events=events,
    )


def settle(tracking: Tracking, status: Json, released: Collection[str], *, failed: bool, now: float) -> Settlement:
    """The status to write last: counted pods leave the lists; when nothing is left to wait for, the Job is finished.

    `status` is what the server holds after the first write; `failed` says that some finalizers could not be taken off.
    """
    status = clone(status)
    flush = count_released(status, set(tracking.tracked).difference(released))
    end = tracking.verdict
    uncounted = status.get("uncountedTerminatedPods") or {}
    waiting = bool(uncounted.get("succeeded") or uncounted.get("failed")) or tracking.terminating > 0
    if failed or end is None or tracking.capped or waiting:
        return Settlement(status, flush, finished=False)
    status["conditions"] = with_condition(
        list(status.get("conditions") or ()),
        COMPLETE if end.success else FAILED,
        "True",
        now=format_time(now),
        reason=end.reason,
        message=end.message,
    )
    if end.success:
        status["completionTime"] = format_time(tracking.decided_at)
    return Settlement(status, flush=True, finished=True)


def count_released(status: Json, tracked: Collection[str]) -> bool:
    """Move the UIDs whose pod has lost its finalizer from the lists into the counters; whether any moved."""
    lists = status.get("uncountedTerminatedPods")
    if lists is None:
        lists = status["uncountedTerminatedPods"] = {}
    moved = False
    for kind in ("succeeded", "failed"):
        listed = lists.get(kind) or ()
        left = [uid for uid in listed if uid in tracked]
        if len(left) != len(listed):
            moved = True
            _set_number(status, kind, (status.get(kind) or 0) + len(listed) - len(left))
            lists[kind] = left
        if not left:
            lists.pop(kind, None)
    return moved


class _Counting:
    """One pass over the pods."""

    def __init__(self, decision: Decision, status: Json, end: Verdict | None) -> None:
        seen = decision.observed
        self.decision = decision
        self.job = seen.job
        self.status = status
        self.end = end
        self.release: list[Pod] = []
        self.actions: Counter[str] = Counter()
        self.changed = False
        self.capped = False
        self.tracked = {pod.uid for pod in seen.pods if pod.tracked and pod.uid not in seen.removing}
        listed = status.get("uncountedTerminatedPods") or {}
        self._was_succeeded = frozenset(listed.get("succeeded") or ())
        self._was_failed = frozenset(listed.get("failed") or ())
        self._new_indexes: list[int] = []

    def run(self) -> None:
        # What an earlier process listed, and released before it could count it.
        self.changed = count_released(self.status, self.tracked)
        lists: Json = self.status["uncountedTerminatedPods"]
        succeeded: list[str] = lists.get("succeeded") or []
        failed: list[str] = lists.get("failed") or []
        limit = self.decision.observed.options.max_uncounted_pods
        pods = self.decision.observed.pods
        if self.job.indexed:
            pods = sorted(pods, key=lambda pod: pod.index)
        for pod in pods:
            if pod.uid not in self.tracked or not self._may_go(pod):
                continue
            self.release.append(pod)
            if pod.phase == SUCCEEDED and pod.uid not in self._was_failed:
                self._succeeded(pod, succeeded)
            elif self._is_failure(pod):
                self._failed(pod, failed)
            if len(self._new_indexes) + len(succeeded) + len(failed) >= limit:
                self.capped = True
                break
        for kind, uids in (("succeeded", succeeded), ("failed", failed)):
            if uids:
                lists[kind] = uids
        if self.job.indexed:
            self._write_indexes()

    def _may_go(self, pod: Pod) -> bool:
        if self.job.deleting or self.end is not None or pod.phase == SUCCEEDED:
            return True
        if not self._counts_as_failed(pod):
            return False
        kept = self.decision.kept.get(pod.index)
        return kept is None or kept.uid != pod.uid

    def _counts_as_failed(self, pod: Pod) -> bool:
        return pod.counts_as_failed(only_failed_replaced=self.job.only_failed_replaced)

    def _is_failure(self, pod: Pod) -> bool:
        """A Job that fails takes its running pods with it; one that succeeds does not count them."""
        return self._counts_as_failed(pod) or (self.end is not None and not self.end.success)

    def _succeeded(self, pod: Pod, listed: list[str]) -> None:
        if self.job.indexed:
            # The index is enough to count it once: no UID needs to be listed.
            if self.job.has_index(pod.index) and pod.index not in self.decision.indexes_before:
                self._new_indexes.append(pod.index)
                self.changed = True
        elif pod.uid not in self._was_succeeded:
            listed.append(pod.uid)
            self.changed = True

    def _failed(self, pod: Pod, listed: list[str]) -> None:
        if pod.uid in self._was_failed or not self.job.has_index(pod.index):
            return
        match = failure_policy.match(self.job.pod_failure_policy, pod)
        if match.action is not None:
            self.actions[match.action] += 1
        if match.counted:
            listed.append(pod.uid)
            self.changed = True

    def _write_indexes(self) -> None:
        decision, status = self.decision, self.status
        done = decision.indexes | IndexSet.of(self._new_indexes) if self._new_indexes else decision.indexes
        text = str(done)
        if text != (status.get("completedIndexes") or ""):
            self.changed = True
        if text:
            status["completedIndexes"] = text
        else:
            status.pop("completedIndexes", None)
        _set_number(status, "succeeded", len(done))
        lost = None if decision.failed_indexes is None else str(decision.failed_indexes)
        if lost != status.get("failedIndexes"):
            self.changed = True
            if lost is None:
                status.pop("failedIndexes", None)
            else:
                status["failedIndexes"] = lost


def _complete(decision: Decision, active: int) -> bool:
    job = decision.observed.job
    enough = decision.succeeded > 0 if job.completions is None else decision.succeeded >= job.completions
    return enough and active == 0


def _suspension(decision: Decision, status: Json, now: float) -> list[tuple[str, str]]:
    """Bring the Suspended condition up to date; the event to tell if that changed anything."""
    seen = decision.observed
    conditions = list(status.get("conditions") or ())
    if seen.job.suspended:
        word, value = "suspended", "True"
    elif find_condition(conditions, SUSPENDED) is None:
        return []  # never suspended: nothing to take back
    else:
        word, value = "resumed", "False"
    reason, message = f"Job{word.capitalize()}", f"Job {word}"
    fresh = with_condition(conditions, SUSPENDED, value, now=format_time(now), reason=reason, message=message)
    if fresh == conditions:
        return []
    status["conditions"] = fresh
    if value == "False":
        status["startTime"] = format_time(now)  # the deadline counts the time since the Job was resumed
    elif seen.options.enabled(CLEAR_START_TIME):
        status.pop("startTime", None)
    return [(word.capitalize(), message)]


def _has_interim(status: Json, end: Verdict) -> bool:
    """An interim success is not told twice; a failure is, since a stray one that is not True may stand there."""
    if end.interim != SUCCESS_CRITERIA_MET:
        return False
    condition = find_condition(status.get("conditions") or (), SUCCESS_CRITERIA_MET)
    return condition is not None and condition.get("status") == "True"


def _condition(kind: str, end: Verdict, now: float) -> Json:
    time = format_time(now)
    return {
        "type": kind,
        "status": "True",
        "lastProbeTime": time,
        "lastTransitionTime": time,
        "reason": end.reason,
        "message": end.message,
    }


def _set_number(status: Json, field: str, value: int) -> None:
    """A counter that is 0 is not written, as in the API's own encoding."""
    if value:
        status[field] = value
    else:
        status.pop(field, None)

"""On which workers Jobs do not start: kept up to date from the originals alone, so that a restart remembers.

A worker where three Jobs that ask for different things did not start in a row, and none did since, is likely to be
broken: a registry that cannot be reached, nodes that are not really there. It gets one Job at a time, until one starts.
A failure is forgotten after an hour, and with its Job.

What says that a Job started is its status: a pod is ready, or has succeeded, and its pods are not waited for any more.
Of those that were there before us only the time is known at which their copy began, so after a restart a worker may be
suspected once more: then the next Job that starts there ends that.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from multimirror.api.not_started import LONGEST_PAUSE_SECONDS, is_starting, not_started_of
from multimirror.api.placement import cluster_of, preempted_of
from multimirror.batch import Json
from multimirror.batch.times import seconds_of
from multimirror.kinds import Kind, Ref

_IN_A_ROW: Final = 3
_TOLD: Final = 3
FORGOTTEN_AFTER_SECONDS: Final = LONGEST_PAUSE_SECONDS


class _Failure(NamedTuple):
    at: float
    shape: str
    job: str


class _Assigned(NamedTuple):
    worker: str
    settled: bool
    """It has started, or its user has stopped it: nobody waits for its pods."""
    up: bool


class Starts:
    """What the originals tell about the workers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, dict[Ref, _Failure]] = {}
        self._failed_on: dict[Ref, tuple[str, ...]] = {}
        self._assigned: dict[Ref, _Assigned] = {}
        self._settled: dict[str, int] = {}
        self._started: dict[str, float] = {}
        """When a Job started last on a worker."""

    def observe(self, kind: Kind, ref: Ref, obj: Json | None) -> bool:
        """The cache shows this object now; None: it is gone. Whether it says something new about a worker that Jobs did
        not start on."""
        changed = self._note_failures(ref, obj)
        worker = cluster_of(obj) if obj is not None else None
        before = self._assigned.get(ref)
        if obj is None or worker is None:
            self._settle(ref, before, None)
            return changed or (before is not None and before.worker in self._failures)
        up = not is_starting(obj) and kind.pods_up(obj)[0] > 0
        stopped = kind.is_suspended(obj) and preempted_of(obj) is None
        if up and (before is None or not before.up):
            known = before is not None and before.worker == worker
            begun = seconds_of((obj.get("status") or {}).get("startTime"), 0.0)
            at = self._clock() if known else min(begun, self._clock())
            self._started[worker] = max(at, self._started.get(worker, 0.0))
            changed |= worker in self._failures
        finished = kind.outcome(obj).finished
        self._settle(ref, before, None if finished else _Assigned(worker, up or stopped, up))
        return changed or (finished and before is not None and worker in self._failures)

    def suspicion(self, worker: str) -> str:
        """Why it gets one Job at a time, in words; empty: it does not."""
        failures = self._failures.get(worker)
        if failures is None:
            return ""
        since = max(self._started.get(worker, 0.0), self._clock() - FORGOTTEN_AFTER_SECONDS)
        latest = sorted((each for each in failures.values() if each.at > since), reverse=True)
        by_shape = {each.shape: each.job for each in reversed(latest)}
        if len(by_shape) < _IN_A_ROW:
            return ""
        jobs = ", ".join(sorted(by_shape.values())[:_TOLD])
        return (
            f"{len(by_shape)} Jobs that ask for different things did not start there one after the other ({jobs}); it "
            "gets one Job at a time until one starts"
        )

    def settled(self, worker: str) -> int:
        """How many Jobs it has that nobody waits for."""
        return self._settled.get(worker, 0)

    def _settle(self, ref: Ref, before: _Assigned | None, after: _Assigned | None) -> None:
        if before == after:
            return
        for each, sign in ((before, -1), (after, 1)):
            if each is not None and each.settled:
                self._settled[each.worker] = self._settled.get(each.worker, 0) + sign
        if after is not None:
            self._assigned[ref] = after
        else:
            self._assigned.pop(ref, None)

    def _note_failures(self, ref: Ref, obj: Json | None) -> bool:
        before = self._failed_on.get(ref, ())
        found = not_started_of(obj) if obj is not None else None
        if not before and (found is None or not found.workers):
            return False
        after = found.workers if found is not None else {}
        changed = False
        for worker in (*(each for each in before if each not in after), *after):
            known = self._failures.setdefault(worker, {})
            failure = None
            if obj is not None and worker in after:
                metadata, told = obj["metadata"], after[worker]
                failure = _Failure(told.at, told.shape, f"{metadata['namespace']}/{metadata['name']}")
            changed |= known.get(ref) != failure
            if failure is not None:
                known[ref] = failure
            else:
                known.pop(ref, None)
            if not known:
                del self._failures[worker]
        self._failed_on[ref] = tuple(after)
        if not after:
            del self._failed_on[ref]
        return changed

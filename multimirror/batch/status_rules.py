"""The rules for a Job's status, strengthened for Jobs that somebody else manages (KEP-4368) and kept for every Job.

Most rules are only checked when something that they watch changes, so that an object which already breaks one still
accepts unrelated updates; the rest is checked always. Everything is judged against the *stored* spec. Rule names in
comments (R1, R2, ...) are those of the written specification; R14 and R15 are switched off at v1.36.
"""

from collections.abc import Iterator
from typing import Final

from multimirror.batch.conditions import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    true_conditions,
)
from multimirror.batch.errors import OMITTED, FieldError, duplicate, invalid, not_negative, required
from multimirror.batch.indexes import IndexFormatError, IndexSet, readable_fragments
from multimirror.batch.times import canonical, earlier, same_instant
from multimirror.batch.types import Json

INDEXED: Final = "Indexed"
_CONDITIONS: Final = "status.conditions"
_STORED_WHEN_SET: Final = ("active", "succeeded", "failed", "completedIndexes", "conditions")


def validate_job_status(status: Json, old: Json, spec: Json) -> list[FieldError]:
    """The violations in replacing the one status by the other on a Job with that spec, in the server's order."""
    write = _Write(status, old, spec)
    errors = _counter_errors(status)
    if uncounted := status.get("uncountedTerminatedPods"):
        errors += _uncounted_errors(uncounted)
    errors += write.ending_errors()
    errors += write.finished_errors()
    errors += write.index_errors()
    errors += write.pod_errors()
    errors += write.lasting_errors()
    return errors


def stored_status(status: Json) -> Json:
    """A Job's status as it is read back. `ready`, `terminating` and `failedIndexes` stay: there, empty is not none."""
    stored = {
        key: value for key, value in status.items() if value is not None and (value or key not in _STORED_WHEN_SET)
    }
    uncounted = stored.get("uncountedTerminatedPods")
    if uncounted:
        stored["uncountedTerminatedPods"] = {key: uids for key, uids in uncounted.items() if uids}
    return stored


def _counter_errors(status: Json) -> list[FieldError]:
    # R1 to R5. Nearly every status is good here: look once before naming fields.
    counters = ("active", "succeeded", "failed", "ready", "terminating")
    if all((status.get(key) or 0) >= 0 for key in counters):
        return []
    return [error for key in counters for error in not_negative(f"status.{key}", status.get(key))]


def _uncounted_errors(uncounted: Json) -> list[FieldError]:
    errors = []
    seen: set[str] = set()
    for key in ("succeeded", "failed"):
        for i, uid in enumerate(uncounted.get(key) or ()):
            path = f"status.uncountedTerminatedPods.{key}[{i}]"
            if not uid:  # R6, R7
                errors.append(invalid(path, uid, "must not be empty"))
            elif uid in seen:  # R8
                errors.append(duplicate(path, uid))
            seen.add(uid)
    return errors


def _uncounted(status: Json) -> tuple[list[str], list[str]]:
    uncounted = status.get("uncountedTerminatedPods") or {}
    return uncounted.get("succeeded") or [], uncounted.get("failed") or []


class _Write:
    """One status update, with what its rules ask about most."""

    __slots__ = ("finished", "finished_changed", "new", "old", "old_true", "spec", "true")

    def __init__(self, new: Json, old: Json, spec: Json) -> None:
        self.new = new
        self.old = old
        self.spec = spec
        self.true = true_conditions(new)
        self.old_true = true_conditions(old)
        self.finished = COMPLETE in self.true or FAILED in self.true
        self.finished_changed = self.finished != (COMPLETE in self.old_true or FAILED in self.old_true)

    def turned(self, kind: str) -> bool:
        return (kind in self.true) != (kind in self.old_true)

    def changed(self, key: str) -> bool:
        return bool(self.new.get(key) != self.old.get(key))

    def count_changed(self, key: str) -> bool:
        return (self.new.get(key) or 0) != (self.old.get(key) or 0)

    def ending_errors(self) -> Iterator[FieldError]:
        """How the Job ends: terminal and interim conditions, and completionTime."""
        complete, failed, target = COMPLETE in self.true, FAILED in self.true, FAILURE_TARGET in self.true
        complete_turned, failed_turned = self.turned(COMPLETE), self.turned(FAILED)
        if complete and failed and (complete_turned or failed_turned):  # R16
            yield invalid(_CONDITIONS, OMITTED, "cannot set Complete=True and Failed=true conditions")
        if complete and target and (complete_turned or self.turned(FAILURE_TARGET)):  # R17
            yield invalid(_CONDITIONS, OMITTED, "cannot set Complete=True and FailureTarget=true conditions")
        yield from self._completion_time_errors(complete=complete, complete_turned=complete_turned)
        if failed and not target and (failed_turned or self.changed("failedIndexes")):  # R21
            yield invalid(
                _CONDITIONS, OMITTED, "cannot set Failed=True condition without the FailureTarget=true condition"
            )
        met = SUCCESS_CRITERIA_MET in self.true
        if complete and not met and (complete_turned or self.turned(SUCCESS_CRITERIA_MET)):  # R22
            detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
            yield invalid(_CONDITIONS, OMITTED, detail)

    def _completion_time_errors(self, *, complete: bool, complete_turned: bool) -> Iterator[FieldError]:
        field = "status.completionTime"
        time, start = self.new.get("completionTime"), self.new.get("startTime")
        time_changed = not same_instant(time, self.old.get("completionTime"))
        if complete_turned or time_changed:
            if time is not None and not complete:  # R18
                detail = "cannot set completionTime when there is no Complete=True condition"
                yield invalid(field, canonical(time), detail)
            if time is None and complete:  # R19
                yield required(field, "completionTime is required for Complete jobs")
        if time is not None and start is not None and earlier(time, start):  # R20
            if time_changed or not same_instant(start, self.old.get("startTime")):
                yield invalid(field, canonical(time), "must be equal to or after `startTime`")

    def finished_errors(self) -> Iterator[FieldError]:
        """What a finished Job may not have, or must have."""
        if not self.finished:
            return
        active = self.new.get("active") or 0
        if active > 0 and (self.finished_changed or self.count_changed("active")):  # R23
            yield invalid("status.active", active, "active>0 is invalid for finished job")
        if self.new.get("startTime") is None and (
            self.finished_changed or self.old.get("startTime") is not None
        ):  # R24
            if not (self.spec.get("suspend") and self.spec.get("completions") == 0):
                yield required("status.startTime", "startTime is required for finished job")
        uncounted = _uncounted(self.new)
        if any(uncounted) and (self.finished_changed or uncounted != _uncounted(self.old)):  # R25
            lists = self.new["uncountedTerminatedPods"]
            printed = {"Succeeded": lists.get("succeeded"), "Failed": lists.get("failed")}
            yield invalid("status.uncountedTerminatedPods", printed, "must be empty for finished job")

    def index_errors(self) -> Iterator[FieldError]:
        completed, failed = self.new.get("completedIndexes") or "", self.new.get("failedIndexes")
        completed_changed = completed != (self.old.get("completedIndexes") or "")
        failed_changed = self.changed("failedIndexes")
        if not (completed_changed or failed_changed):
            return
        completions, per_index = self.spec.get("completions"), self.spec.get("backoffLimitPerIndex")
        if completed_changed and completions is not None:  # R26
            yield from _format_errors("completedIndexes", completed, completions)
        if failed_changed and failed is not None and completions is not None and per_index is not None:  # R27
            yield from _format_errors("failedIndexes", failed, completions)
        if completed_changed and completed and not is_indexed(self.spec):  # R28
            detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
            yield invalid("status.completedIndexes", completed, detail)
        if failed_changed and failed is not None and per_index is None:  # R29
            detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            yield invalid("status.failedIndexes", failed, detail)
        if failed and completed and completions is not None:  # R30
            overlap = _first_overlap(completed, failed, completions)
            if overlap is not None:
                detail = f"failedIndexes and completedIndexes overlap at index: {overlap}"
                yield invalid("status.failedIndexes", failed, detail)

    def pod_errors(self) -> Iterator[FieldError]:
        terminating, ready = self.new.get("terminating"), self.new.get("ready")
        if self.finished and terminating and terminating > 0:  # R31
            if self.finished_changed or self.changed("terminating"):
                yield invalid("status.terminating", terminating, "terminating>0 is invalid for finished job")
        if ready is not None and ready > (self.new.get("active") or 0):  # R32
            if self.changed("ready") or self.count_changed("active"):
                yield invalid("status.ready", ready, "cannot set more ready pods than active")

    def lasting_errors(self) -> Iterator[FieldError]:
        """The rules that are checked on every write."""
        met, old_met = SUCCESS_CRITERIA_MET in self.true, SUCCESS_CRITERIA_MET in self.old_true
        if met and FAILED in self.true:  # R9
            yield invalid(_CONDITIONS, OMITTED, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
        if met and FAILURE_TARGET in self.true:  # R10
            yield invalid(_CONDITIONS, OMITTED, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
        if COMPLETE in self.true and not met and self.spec.get("successPolicy") is not None:  # R11
            detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
            yield invalid(_CONDITIONS, OMITTED, detail)
        for kind in (FAILED, COMPLETE, FAILURE_TARGET):  # R33
            if kind in self.old_true and kind not in self.true:
                yield invalid(_CONDITIONS, OMITTED, f"cannot disable the terminal {kind}=True condition")
        yield from self._counter_errors()
        yield from self._time_errors()
        if old_met and not met:  # R12
            yield invalid(_CONDITIONS, OMITTED, "cannot disable the SuccessCriteriaMet=True condition")
        if COMPLETE in self.old_true and not old_met and met:  # R13
            detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
            yield invalid(_CONDITIONS, OMITTED, detail)

    def _counter_errors(self) -> Iterator[FieldError]:
        failed, succeeded = self.new.get("failed") or 0, self.new.get("succeeded") or 0
        if failed < (self.old.get("failed") or 0):  # R34
            yield invalid("status.failed", failed, "cannot decrease the failed counter")
        if succeeded < (self.old.get("succeeded") or 0) and not is_elastic(self.spec):  # R35
            yield invalid("status.succeeded", succeeded, "cannot decrease the succeeded counter")

    def _time_errors(self) -> Iterator[FieldError]:
        time, old_time = self.new.get("completionTime"), self.old.get("completionTime")
        if time is not None and old_time is not None and not same_instant(time, old_time):  # R36
            yield invalid("status.completionTime", canonical(time), "field is immutable")
        start, old_start = self.new.get("startTime"), self.old.get("startTime")
        if old_start is None or self.spec.get("suspend") or same_instant(start, old_start):
            return
        if not self._resumes():  # R37
            printed = None if start is None else canonical(start)
            yield invalid("status.startTime", printed, "field is immutable for unsuspended job once set")

    def _resumes(self) -> bool:
        if SUSPENDED not in self.old_true:
            return False
        return any(c.get("type") == SUSPENDED and c.get("status") == "False" for c in self.new.get("conditions") or ())


def is_indexed(spec: Json) -> bool:
    return spec.get("completionMode") == INDEXED


def is_elastic(spec: Json) -> bool:
    """An Indexed Job whose size may change, so that finished indexes may be forgotten."""
    completions = spec.get("completions")
    return is_indexed(spec) and completions is not None and completions == spec.get("parallelism")


def _format_errors(key: str, text: str, completions: int) -> list[FieldError]:
    try:
        IndexSet.parse(text, completions)
    except IndexFormatError as error:
        return [invalid(f"status.{key}", text, f"error parsing {key}: {error}")]
    return []


def _first_overlap(completed: str, failed: str, completions: int) -> int | None:
    """What the server finds: it walks both lists as they stand, so in unsorted ones it can miss an overlap."""
    completed_list = list(readable_fragments(completed, completions))
    failed_list = list(readable_fragments(failed, completions))
    i = j = 0
    while i < len(completed_list) and j < len(failed_list):
        (start, end), (failed_start, failed_end) = completed_list[i], failed_list[j]
        if start <= failed_end and failed_start <= end:
            return max(start, failed_start)
        if start <= failed_start:
            i += 1
        else:
            j += 1
    return None

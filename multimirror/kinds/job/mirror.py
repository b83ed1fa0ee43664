"""The mirror: from a Job, as it is, and the status of its copy on a worker, the status to write onto the Job.

The worker is not trusted. Only status fields that we know pass, with the types and sizes that they may have on *this*
Job (conditions of the Job API's own types, one of each; messages of 1 KiB without control characters; indexes below its
completions; uncounted pods in proportion to its parallelism), and what comes out is judged by the API server's own
rules before anybody sends it. The observer may have missed any number of steps, and the copy may be a second attempt on
another worker, so:

- the counters `succeeded` and `failed` never go down (an elastic Job may forget indexes that it no longer has);
- a `startTime` that the rules hold fast stays, and `completionTime` does not precede it;
- a terminal condition brings its interim one along, and waits until no pod is left running or terminating;
- indexes beyond the Job's current size are left out;
- once the Job is finished, nothing changes any more.

What no rule lets through is refused, and the refusal says which rule. Conditions of our own on the Job stay. A change
of nothing but the uncounted pods is the worker's bookkeeping and no reason to write.
"""

from typing import Any, Final

from multimirror.api.names import OUR_DOMAIN
from multimirror.batch.conditions import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    is_finished,
    is_suspended,
)
from multimirror.batch.indexes import IndexFormatError, IndexSet
from multimirror.batch.status_rules import is_elastic, is_indexed, stored_status, validate_job_status
from multimirror.batch.times import canonical, earlier
from multimirror.batch.types import Json, clone
from multimirror.kinds.kind import Rejection

_MAX_INT32: Final = 2**31 - 1
_TYPES: Final = frozenset({COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED})
_TAKEN_UP: Final = ("startTime", "conditions", "active", "terminating", "succeeded", "failed")
"""What a copy has something of that its worker's controller has looked at."""
CONDITIONS_LIMIT: Final = 32
_REASON_LIMIT: Final = 128
MESSAGE_LIMIT: Final = 1024
INDEXES_LIMIT: Final = 1024 * 1024
UNCOUNTED_LIMIT: Final = 500
"""As many as the Job controller has at most; fewer for a Job that never has so many pods."""
UID_LIMIT: Final = 64
_INTERIM: Final = {COMPLETE: SUCCESS_CRITERIA_MET, FAILED: FAILURE_TARGET}


def mirror_status(original: Json, observed: object) -> Json | Rejection | None:
    """The status to write onto the original, a rejection, or None where there is nothing to write."""
    spec, current = original["spec"], original.get("status") or {}
    if is_finished(current):
        return None
    observed = observed if isinstance(observed, dict) else {}
    if is_suspended(current) and not any(observed.get(key) for key in _TAKEN_UP):
        return None  # that it goes is written when it does: a moment before would be a write of its own
    status = _mirrored(spec, current, observed)
    if not _visibly_differs(status, current):
        return None
    errors = validate_job_status(status, current, spec)
    return Rejection(errors) if errors else status


def _mirrored(spec: Json, current: Json, observed: Json) -> Json:
    conditions = _conditions(observed.get("conditions"))
    counts = {key: _count(observed.get(key)) for key in ("active", "ready", "terminating", "succeeded", "failed")}
    uncounted = _uncounted(observed.get("uncountedTerminatedPods"), _uncounted_limit(spec))
    if counts["active"] or counts["terminating"] or (uncounted and any(uncounted.values())):
        conditions = _not_yet_finished(conditions)
    conditions = _with_conditions_of(current, conditions, spec, _time(observed.get("startTime")))
    status = dict(current)
    status |= {
        "conditions": conditions,
        "active": counts["active"] or 0,
        "ready": None if counts["ready"] is None else min(counts["ready"], counts["active"] or 0),
        "terminating": counts["terminating"],
        "failed": max(counts["failed"] or 0, current.get("failed") or 0),
        "uncountedTerminatedPods": uncounted,
    }
    status |= _indexes(spec, current, observed)
    status["succeeded"] = max(counts["succeeded"] or 0, _least_succeeded(spec, current))
    status |= _times(spec, current, observed, conditions)
    return stored_status(status)


def _visibly_differs(status: Json, current: Json) -> bool:
    # The server gives back a null for a time that was not sent: that is no difference.
    current = clone(stored_status(current))
    if status == current:
        return False
    if status.get("uncountedTerminatedPods"):
        current["uncountedTerminatedPods"] = status["uncountedTerminatedPods"]
    return status != current


# --- what passes: known fields, of the right type, of a sane size -----------------------------------------------------


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_INT32:
        return value
    return None


def _time(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return canonical(value)
    except ValueError:
        return None


def _conditions(value: object) -> list[Json]:
    if not isinstance(value, list):
        return []
    found: dict[str, Json] = {}
    for condition in value[:CONDITIONS_LIMIT]:
        passed = _condition(condition)
        if passed is not None:
            found.setdefault(passed["type"], passed)
    return list(found.values())


def _condition(value: Any) -> Json | None:
    if not isinstance(value, dict):
        return None
    kind, status = value.get("type"), value.get("status")
    if not isinstance(kind, str) or kind not in _TYPES:
        return None
    if status not in ("True", "False", "Unknown"):
        return None
    condition: Json = {"type": kind, "status": status}
    for key in ("lastProbeTime", "lastTransitionTime"):
        if time := _time(value.get(key)):
            condition[key] = time
    for key, limit in (("reason", _REASON_LIMIT), ("message", MESSAGE_LIMIT)):
        text = value.get(key)
        if text and isinstance(text, str):
            condition[key] = _text(text, limit)
    return condition


def _text(text: str, limit: int) -> str:
    """So many bytes at most, of nothing that a terminal would obey."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(each if each.isprintable() or each == "\n" else " " for each in cut)
    return cut if cut.isascii() else cut.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _uncounted_limit(spec: Json) -> int:
    """For each of the two lists: pods that run at once, and a few that came after them."""
    parallelism = spec.get("parallelism", 1)
    return min(UNCOUNTED_LIMIT, 2 * parallelism + 10) if isinstance(parallelism, int) else UNCOUNTED_LIMIT


def _uncounted(value: object, most: int) -> Json | None:
    if not isinstance(value, dict):
        return None
    seen: set[str] = set()
    lists: Json = {}
    for key in ("succeeded", "failed"):
        uids = value.get(key)
        if isinstance(uids, list):
            good = [uid for uid in uids[:most] if isinstance(uid, str) and 0 < len(uid) <= UID_LIMIT]
            lists[key] = [uid for uid in dict.fromkeys(good) if uid not in seen]
            seen.update(lists[key])
    return lists


def _index_set(value: object) -> IndexSet | None:
    if not isinstance(value, str) or len(value) > INDEXES_LIMIT:
        return None
    try:
        return IndexSet.parse(value, _MAX_INT32)
    except IndexFormatError:
        return None


# --- what becomes of it on this Job -----------------------------------------------------------------------------------


def _not_yet_finished(conditions: list[Json]) -> list[Json]:
    """Without the terminal conditions, but with what they announce: pods are still on their way out."""
    return [c for c in _with_interim(conditions) if c["type"] not in _INTERIM]


def _with_interim(conditions: list[Json]) -> list[Json]:
    """A terminal condition brings its interim one along, where the worker is too old to write it."""
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    result = []
    for condition in conditions:
        interim = _INTERIM.get(condition["type"])
        if interim and interim not in true and condition["status"] == "True":
            result.append({**condition, "type": interim})
            true.add(interim)
        result.append(condition)
    return result


def _with_conditions_of(current: Json, conditions: list[Json], spec: Json, start: str | None) -> list[Json]:
    """The copy's conditions, and those that only the original can have."""
    conditions = _with_interim(conditions)
    types = {condition["type"] for condition in conditions}
    kept = []
    for condition in current.get("conditions") or ():
        if condition["type"].startswith(OUR_DOMAIN):
            kept.append(clone(condition))
        elif condition["type"] == SUSPENDED and SUSPENDED not in types:
            # The copy was never suspended; the original was, and is or is not any more.
            kept.append(clone(condition) if spec.get("suspend") else _resumed(condition, start))
    return kept + conditions if kept else conditions


def _resumed(condition: Json, start: str | None) -> Json:
    """Since its copy started, as in Kubernetes; not before it was suspended, whatever the worker's clock says."""
    condition = dict(clone(condition))
    if condition["status"] == "False":
        return condition
    since = condition.get("lastTransitionTime")
    if start is not None and (since is None or earlier(since, start)):
        condition |= {"lastProbeTime": start, "lastTransitionTime": start}
    return condition | {"status": "False", "reason": "JobResumed", "message": "Job resumed"}


def _indexes(spec: Json, current: Json, observed: Json) -> Json:
    if not is_indexed(spec) or (completions := spec.get("completions")) is None:
        return {}
    fields: Json = {}
    completed = _index_set(observed.get("completedIndexes", ""))
    if completed is not None:
        completed = completed.below(completions)
        fields["completedIndexes"] = str(completed)
    if spec.get("backoffLimitPerIndex") is None:
        return fields
    failed = _index_set(observed.get("failedIndexes"))
    if failed is not None:
        if completed is None:
            completed = _index_set(current.get("completedIndexes") or "") or IndexSet.of(())
        fields["failedIndexes"] = str(failed.below(completions) - completed)
    return fields


def _least_succeeded(spec: Json, current: Json) -> int:
    """How many successes the Job has shown and may not take back."""
    shown: int = current.get("succeeded") or 0
    if not is_elastic(spec):
        return shown
    # A smaller Job forgets the indexes that it no longer has. Where the counter stands above the list, an earlier
    # attempt's successes are in it, and only the Job's size bounds them.
    completions: int = spec["completions"]
    completed = _index_set(current.get("completedIndexes") or "")
    if completed is None or len(completed) != shown:
        return min(shown, completions)
    return len(completed.below(completions))


def _times(spec: Json, current: Json, observed: Json, conditions: list[Json]) -> Json:
    start = _start_time(spec, current, observed, conditions)
    completion = None
    if any(c["type"] == COMPLETE and c["status"] == "True" for c in conditions):
        completion = current.get("completionTime") or _time(observed.get("completionTime"))
        if completion and start and earlier(completion, start):
            # Two workers' clocks need not agree.
            completion = start
    return {"startTime": start, "completionTime": completion}


def _start_time(spec: Json, current: Json, observed: Json, conditions: list[Json]) -> str | None:
    """The copy's start, unless the Job already has one that only a suspension may change."""
    held: str | None = current.get("startTime")
    start = _time(observed.get("startTime"))
    if held is None or spec.get("suspend"):
        return start
    resumes = any(c["type"] == SUSPENDED and c["status"] == "True" for c in current.get("conditions") or ()) and any(
        c["type"] == SUSPENDED and c["status"] == "False" for c in conditions
    )
    return start if resumes and start else held

"""The fence: a copy that is cut off from us ends by itself, so that the Job may run elsewhere and never in two places.

A Job that was assigned by a queue with a fence carries its timeout (an annotation, written with the assignment: whoever
comes after us, and whatever becomes of the queue, knows it). Its copy gets an activeDeadlineSeconds that is never
further away than the timeout, and is pushed forward about twice in that time while there is contact. Without contact
the worker's own Job controller ends the copy with DeadlineExceeded; the timeout, a grace and the pods' own time to stop
after the contact was lost, the Job may move. A user's own deadline holds: when it is nearer, it is the copy's.

Which clocks count. A deadline runs from the copy's startTime, on the worker's clock; how long the copy has run is
reckoned on that clock too (see Contact.clock_ahead, which errs towards an earlier end). Since when there is no
contact is reckoned on ours. Between the two only durations are compared.

Fences are renewed only while the WorkerCluster's status says Connected: so the time at which it says the opposite is
after the last renewal by anybody, and is still known after a restart.

Not guaranteed: a worker whose own Job controller does not run, or starts a new copy later than the grace, or whose
nodes are cut off from it, keeps its pods for longer.
"""

import zlib
from typing import Final

from multimirror.api.placement import Copy, fence_of
from multimirror.batch import Json, find_condition
from multimirror.batch.times import seconds_of
from multimirror.kinds.reserved import reserved_of

_TOLERANCE: Final = 2.0
"""The worker's clock is known to about a second; a deadline is not taken back for less than this."""
_STOP_SECONDS: Final = 30
"""A pod's terminationGracePeriodSeconds, where it does not say."""


def first_deadline(job: Json) -> int | None:
    """The activeDeadlineSeconds of a new copy."""
    return _nearer(granted_deadline(job), fence_of(job))


def granted_deadline(job: Json) -> int | None:
    """Its user's, but no later than what was granted to it on its worker (docs/decisions/0226)."""
    reserved = reserved_of(job)
    return _nearer(job["spec"].get("activeDeadlineSeconds"), reserved.deadline if reserved is not None else None)


def deadline(job: Json, copy: Copy, now_there: float) -> tuple[int | None, float | None]:
    """The activeDeadlineSeconds that the copy should have now, and in how many seconds that may be another one."""
    timeout, users = fence_of(job), granted_deadline(job)
    if timeout is None:
        return users, None
    ran = _ran(copy.object, now_there)
    furthest = int(ran) + timeout
    if users is not None and users <= furthest:
        return users, None
    current = copy.object["spec"].get("activeDeadlineSeconds")
    least = timeout * _share(copy.uid)
    if current is None or not least < current - ran <= timeout + _TOLERANCE:
        current = furthest
    return current, max(0.0, current - ran - least) + 0.1 if _runs(copy.object) else None


def may_resume(copy: Copy) -> bool:
    """Whether the worker has noticed that the copy was suspended: only then its time starts anew when it is resumed."""
    return is_suspended(copy.object)


def fence_expired(job: Json, status: Json) -> bool:
    """Whether the copy with this status was ended by its fence, and not by a deadline of its user."""
    if fence_of(job) is None:
        return False
    conditions = status.get("conditions") or ()
    ends = (find_condition(conditions, "FailureTarget"), find_condition(conditions, "Failed"))
    end = next((c for c in ends if c is not None and c.get("status") == "True"), None)
    if end is None or end.get("reason") != "DeadlineExceeded":
        return False
    users = granted_deadline(job)
    start = seconds_of(status.get("startTime"), 0.0)
    return users is None or seconds_of(end.get("lastTransitionTime"), start) - start < users


def safe_after(job: Json, grace: float) -> float:
    """How many seconds after the last contact no pod of the Job runs there any more."""
    timeout = fence_of(job)
    if timeout is None:
        return 0.0
    return timeout + grace + stop_seconds(job)


def stop_seconds(job: Json) -> float:
    """How long its pods may take to stop."""
    stop = job["spec"]["template"]["spec"].get("terminationGracePeriodSeconds")
    return float(_STOP_SECONDS if stop is None else stop)


def _ran(copy: Json, now_there: float) -> float:
    """For how long its deadline has been running."""
    if not _runs(copy):
        return 0.0
    return max(0.0, now_there - seconds_of(copy["status"]["startTime"], now_there))


def _runs(copy: Json) -> bool:
    return bool((copy.get("status") or {}).get("startTime")) and not is_suspended(copy)


def is_suspended(copy: Json) -> bool:
    """Its controller says so."""
    return _suspended(copy) is not None


def suspended_at(copy: Json) -> float | None:
    """Since when it says so; 0 where it does not say since when."""
    condition = _suspended(copy)
    return None if condition is None else seconds_of(condition.get("lastTransitionTime"), 0.0)


def _suspended(copy: Json) -> Json | None:
    condition = find_condition((copy.get("status") or {}).get("conditions") or (), "Suspended")
    return condition if condition is not None and condition.get("status") == "True" else None


def _nearer(users: int | None, timeout: int | None) -> int | None:
    return min((each for each in (users, timeout) if each is not None), default=None)


def _share(uid: str) -> float:
    """From 0.5 to 0.6: copies that were made together are not renewed together."""
    return 0.5 + zlib.crc32(uid.encode()) % 1000 / 10_000

"""Statuses that no worker tells, because there is none to tell them: waiting again, and ended without a last word.

They go through the mirror like any other, so that every rule of the Job API is applied to them too.
"""

from multimirror.batch import Json, Phase, find_condition, phase, with_condition


def waiting_status(job: Json, now: str) -> Json:
    """What a Job shows that ran and now waits for a worker, or for its user to resume it."""
    status = job.get("status") or {}
    conditions = [c for c in status.get("conditions") or () if c["type"] != "Suspended"]
    current = find_condition(status.get("conditions") or (), "Suspended")
    suspended = with_condition(
        [current] if current is not None else [],
        "Suspended",
        "True",
        now=now,
        reason="JobSuspended",
        message="Job suspended",
    )
    if current is not None and current.get("status") == "True":
        suspended = [current]
    return {"conditions": conditions + suspended, "active": 0, "ready": 0, "terminating": 0}


def ended_status(job: Json, now: str, *, reason: str = "", message: str = "") -> Json:
    """The Job's status brought to its end: the one that it had announced, else failure for that reason."""
    status = dict(job.get("status") or {})
    conditions = list(status.get("conditions") or ())
    if phase(status) is Phase.SUCCESS_CRITERIA_MET:
        interim, terminal = find_condition(conditions, "SuccessCriteriaMet"), "Complete"
        status["completionTime"] = now
    else:
        interim, terminal = find_condition(conditions, "FailureTarget"), "Failed"
    reason = (interim or {}).get("reason") or reason
    message = (interim or {}).get("message") or message
    if terminal == "Failed" and interim is None:
        conditions = with_condition(conditions, "FailureTarget", "True", now=now, reason=reason, message=message)
    conditions = with_condition(conditions, terminal, "True", now=now, reason=reason, message=message)
    status |= {"conditions": conditions, "active": 0, "ready": 0, "terminating": 0}
    status.pop("uncountedTerminatedPods", None)
    status.setdefault("startTime", now)
    return status

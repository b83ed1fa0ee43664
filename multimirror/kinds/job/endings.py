"""Statuses that no worker tells, because there is none to tell them: waiting, and ended without a last word.

They go through the mirror like any other, so that every rule of the Job API is applied to them too.
"""

from typing import Final

from multimirror.api import HOLD_ANNOTATION
from multimirror.api.not_started import was_given_up
from multimirror.api.placement import cluster_of, hold_requested
from multimirror.batch import Json, Phase, find_condition, is_suspended, phase, with_condition
from multimirror.batch.conditions import SUSPENDED

STOPPED: Final = "Job suspended"
"""What Kubernetes says of a Job that its user suspended."""
_OURS: Final = f"{STOPPED}: "
"""So begins what only we say. Versions before and after know it by this: it stays."""
WAITS: Final = f"{_OURS}it waits for a worker cluster; its events and `multimirror explain` say why"
"""True for as long as it waits, whatever for: it is written once. Other words would be a write for each that waits."""
HELD: Final = (
    f"{_OURS}it is held, as its user asked; set spec.suspend to false, or remove the annotation {HOLD_ANNOTATION}, "
    "to let it go"
)
GIVEN_UP: Final = (
    f"{_OURS}it is held, because its pods were not ready in time wherever it was tried; its events say more. Set "
    f"spec.suspend to false, or remove the annotation {HOLD_ANNOTATION}, to have it tried again"
)


def waiting_status(job: Json, now: str, *, reword: bool = False) -> Json:
    """What a Job shows that waits for a worker, or for its user to resume it. One that shows it already keeps the time
    since when it does, and its words, unless they are to be put right."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    rest = [c for c in conditions if c["type"] != SUSPENDED]
    current, message = find_condition(conditions, SUSPENDED) or {}, _message(job)
    shown = current.get("status") == "True"
    suspended = current
    if not shown or (reword and current.get("message") != message):
        suspended = {
            "type": SUSPENDED,
            "status": "True",
            "lastProbeTime": now,
            "lastTransitionTime": current.get("lastTransitionTime", now) if shown else now,
            "reason": "JobSuspended",
            "message": message,
        }
    return {"conditions": [*rest, suspended], "active": 0, "ready": 0, "terminating": 0}


def shows_that_it_waits(job: Json) -> bool:
    """Its status says so, and whether for a worker or for its user."""
    current = find_condition((job.get("status") or {}).get("conditions") or (), SUSPENDED)
    return current is not None and current.get("status") == "True" and current.get("message") == _message(job)


def is_our_own(condition: Json) -> bool:
    """A condition that we write onto a Job before anybody has run it."""
    return condition.get("type") == SUSPENDED and str(condition.get("message", "")).startswith(_OURS)


def _message(job: Json) -> str:
    if cluster_of(job) is not None:
        return STOPPED
    if hold_requested(job) and job["spec"].get("suspend"):
        return GIVEN_UP if was_given_up(job) else HELD
    return WAITS


def ended_status(job: Json, now: str, *, reason: str = "", message: str = "") -> Json:
    """The Job's status brought to its end: the one that it had announced, else failure for that reason."""
    status = dict(job.get("status") or {})
    conditions = list(status.get("conditions") or ())
    if is_suspended(status) and not job["spec"].get("suspend"):
        conditions = with_condition(conditions, SUSPENDED, "False", now=now, reason="JobResumed", message="Job resumed")
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

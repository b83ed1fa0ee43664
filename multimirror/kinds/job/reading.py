"""A Job as a worker sent it: only fields of the types that the Job API gives them are left for those who decide.

The worker is not trusted. What the mirror writes onto the original it judges by itself (mirror.py); here is what is
decided on: whether the copy has ended, whether it is suspended, and what of its spec is kept in step.
"""

from typing import Any, Final, TypeGuard

from multimirror.kinds.job.trim import trim_copy
from multimirror.kube.resource import Object

_NUMBERS: Final = ("parallelism", "completions", "activeDeadlineSeconds")
_MOST_CONDITIONS: Final = 32
_MAX_INT64: Final = 2**63 - 1


def read_copy(obj: Object) -> Object:
    """What is kept of a copy. Its metadata are sound, its spec and status are mappings (workers/reading.py)."""
    obj = trim_copy(obj)
    spec = obj["spec"]
    for key in _NUMBERS:
        if key in spec and not is_count(spec[key]):
            del spec[key]
    if not isinstance(spec.get("suspend", False), bool):
        del spec["suspend"]
    status = obj.get("status")
    if status:
        conditions = status.get("conditions")
        if conditions is not None:
            status["conditions"] = _conditions(conditions)
        if not isinstance(status.get("startTime", ""), str):
            del status["startTime"]
    return obj


def is_count(value: object) -> TypeGuard[int]:
    """What the API takes for a number of pods, or of seconds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_INT64


def _conditions(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return []
    return [
        condition
        for condition in value[:_MOST_CONDITIONS]
        if isinstance(condition, dict)
        and isinstance(condition.get("type"), str)
        and isinstance(condition.get("status"), str)
        and all(isinstance(condition.get(key) or "", str) for key in ("reason", "lastTransitionTime"))
    ]

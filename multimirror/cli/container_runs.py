"""The runs of one container of a pod, as the pod's status tells of them: begun, ended, to be done again. Pure."""

from typing import Final

from multimirror.batch import Json

_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_FINAL: Final = frozenset({"Succeeded", "Failed"})


def is_sound(pod: Json) -> bool:
    """It is made as API servers make them, in all that is read here and by whoever shows its logs."""
    try:
        metadata, status = pod["metadata"], pod.get("status") or {}
        statuses = [each for name in _STATUSES for each in status.get(name) or ()]
        states = [each.get(name) or {} for each in statuses for name in ("state", "lastState")]
        texts = [metadata["name"], metadata["uid"], metadata.get("creationTimestamp", "")]
        texts += [each["name"] for each in pod["spec"]["containers"]]
        mappings = [metadata.get("annotations") or {}, pod["spec"], *states]
        mappings += [each.get("terminated") or {} for each in states]
    except (AttributeError, KeyError, TypeError):
        return False
    complete = len(texts) > 3 and all(isinstance(each, str) for each in texts)
    return complete and all(isinstance(each, dict) for each in mappings)


def run_number(pod: Json, container: str) -> int | None:
    """The number of its latest run that has begun, from 0 on; None: none has."""
    status = _status(pod, container)
    state, last = status.get("state") or {}, status.get("lastState") or {}
    if "running" in state or "terminated" in state or "terminated" in last:
        count = status.get("restartCount")
        return count if isinstance(count, int) else 0
    return None


def has_ended(pod: Json | None, container: str, run: int) -> bool:
    """That run will write nothing more. None: the pod is gone."""
    if pod is None:
        return True
    latest = run_number(pod, container)
    if is_over(pod) or (latest is not None and latest > run):
        return True
    return latest is not None and "running" not in (_status(pod, container).get("state") or {})


def may_run_again(pod: Json | None, container: str) -> bool:
    """No run is on, and there may be another one in this pod: the first, or one after a run that failed."""
    if pod is None or is_over(pod) or "deletionTimestamp" in pod["metadata"]:
        return False
    status = _status(pod, container)
    ended = (status.get("state") or {}).get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    policy = (pod.get("spec") or {}).get("restartPolicy", "Always")
    if not ended:
        return True
    return policy == "Always" or (policy == "OnFailure" and ended.get("exitCode") != 0)


def is_over(pod: Json) -> bool:
    """All its containers have ended for good."""
    return (pod.get("status") or {}).get("phase") in _FINAL


def _status(pod: Json, container: str) -> Json:
    status = pod.get("status") or {}
    found = (each for name in _STATUSES for each in status.get(name) or () if each.get("name") == container)
    return next(found, {})

"""Which pods to lose when there are too many: those in which the least work would be lost come first."""

from collections.abc import Sequence
from typing import Final

from builtin_controller.pods import Pod, condition_of, sidecar_names
from builtin_controller.times import parse_time
from multimirror.batch import Json

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def cheapest_first(pods: Sequence[Pod]) -> list[Pod]:
    """Unscheduled, then by phase, then not ready, then ready for less long, then more restarts, then younger."""
    return sorted(pods, key=_cost)


def _cost(pod: Pod) -> tuple[object, ...]:
    raw = pod.raw
    spec = raw.get("spec") or {}
    status = pod.status
    ready_since = 0.0
    if pod.ready:
        condition = condition_of(status, "Ready") or {}
        ready_since = _newest_first(condition.get("lastTransitionTime"))
    return (
        bool(spec.get("nodeName")),
        _PHASES.get(pod.phase, 0),
        pod.ready,
        ready_since,
        *_restarts(raw, status),
        _newest_first(pod.metadata.get("creationTimestamp")),
    )


def _newest_first(text: str | None) -> float:
    """Sorts a missing time first, then the latest."""
    time = parse_time(text)
    return float("-inf") if time is None else -time


def _restarts(raw: Json, status: Json) -> tuple[int, int]:
    sidecars = sidecar_names(raw)
    regular = max((s.get("restartCount") or 0 for s in status.get("containerStatuses") or ()), default=0)
    beside = max(
        (s.get("restartCount") or 0 for s in status.get("initContainerStatuses") or () if s.get("name") in sidecars),
        default=0,
    )
    return -regular, -beside

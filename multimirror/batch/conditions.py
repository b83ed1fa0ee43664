"""Conditions and the life of a Job.

    Running -> FailureTarget -> Failed
    Running -> SuccessCriteriaMet -> Complete

A Job is *finished* once Failed or Complete is True, and stays so. The interim conditions say how it will end while its
last pods still run (KEP-3998, KEP-4368). An observer may miss any of the steps between, never see one taken back.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from multimirror.batch.types import Json

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
FAILURE_TARGET: Final = "FailureTarget"
SUCCESS_CRITERIA_MET: Final = "SuccessCriteriaMet"
SUSPENDED: Final = "Suspended"


class Phase(StrEnum):
    """Where in its life a Job is."""

    RUNNING = "Running"
    FAILURE_TARGET = FAILURE_TARGET
    FAILED = FAILED
    SUCCESS_CRITERIA_MET = SUCCESS_CRITERIA_MET
    COMPLETE = COMPLETE


_REACHABLE: Final = {
    Phase.RUNNING: frozenset(Phase),
    Phase.FAILURE_TARGET: frozenset({Phase.FAILURE_TARGET, Phase.FAILED}),
    Phase.SUCCESS_CRITERIA_MET: frozenset({Phase.SUCCESS_CRITERIA_MET, Phase.COMPLETE}),
    Phase.FAILED: frozenset({Phase.FAILED}),
    Phase.COMPLETE: frozenset({Phase.COMPLETE}),
}
# A terminal condition outranks an interim one.
_PRECEDENCE: Final = (Phase.COMPLETE, Phase.FAILED, Phase.FAILURE_TARGET, Phase.SUCCESS_CRITERIA_MET)


def true_conditions(status: Json) -> frozenset[str]:
    """The types of which some condition is True; the same type may stand there more than once."""
    conditions = status.get("conditions")
    if not conditions:
        return frozenset()
    return frozenset([condition.get("type") for condition in conditions if condition.get("status") == "True"])


def is_complete(status: Json) -> bool:
    return COMPLETE in true_conditions(status)


def is_failed(status: Json) -> bool:
    return FAILED in true_conditions(status)


def is_suspended(status: Json) -> bool:
    return SUSPENDED in true_conditions(status)


def is_finished(status: Json) -> bool:
    return not true_conditions(status).isdisjoint((COMPLETE, FAILED))


def phase(status: Json) -> Phase:
    true = true_conditions(status)
    return next((phase for phase in _PRECEDENCE if phase.value in true), Phase.RUNNING)


def may_become(now: Phase, later: Phase) -> bool:
    """Whether a Job seen in the one phase can be in the other when it is seen next."""
    return later in _REACHABLE[now]


def find_condition(conditions: Iterable[Json], kind: str) -> Json | None:
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def with_condition(
    conditions: list[Json], kind: str, status: str, *, now: str, reason: str = "", message: str = ""
) -> list[Json]:
    """The list with that condition set. One that already says the same keeps its times; a changed one is replaced in
    place with new ones, as the Job controller does it."""
    current = find_condition(conditions, kind)
    fresh = {
        "type": kind,
        "status": status,
        "lastProbeTime": now,
        "lastTransitionTime": now,
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }
    if current is None:
        return [*conditions, fresh]
    if all(current.get(key, "") == fresh.get(key, "") for key in ("status", "reason", "message")):
        return conditions
    return [fresh if condition is current else condition for condition in conditions]

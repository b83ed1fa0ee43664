"""spec.podFailurePolicy: what a failed pod means, decided by the first rule that matches.

An unknown action or operator (written by a newer API server) is passed over.
"""

from typing import Final, NamedTuple

from builtin_controller.pods import Pod
from multimirror.batch import Json

FAIL_JOB: Final = "FailJob"
FAIL_INDEX: Final = "FailIndex"
IGNORE: Final = "Ignore"
COUNT: Final = "Count"
_KNOWN: Final = frozenset({FAIL_JOB, FAIL_INDEX, IGNORE, COUNT})


class Match(NamedTuple):
    """`message` says why the Job fails, when it does; `action` is None when no rule matched."""

    message: str | None
    counted: bool
    action: str | None


_NO_MATCH: Final = Match(None, counted=True, action=None)


def match(policy: Json | None, pod: Pod) -> Match:
    """What the policy says about this pod."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        action = rule.get("action")
        if action not in _KNOWN:
            continue
        reason = _reason(rule, pod)
        if reason is not None:
            message = f"{reason} matching {action} rule at index {number}" if action == FAIL_JOB else None
            return Match(message, counted=action != IGNORE, action=action)
    return _NO_MATCH


def _reason(rule: Json, pod: Pod) -> str | None:
    """What about the pod satisfies the rule, in words; None when nothing does."""
    codes = rule.get("onExitCodes")
    if codes is not None:
        found = _container(pod.status, codes)
        if found is None:
            return None
        code = found["state"]["terminated"]["exitCode"]
        return f"Container {found.get('name')} for pod {pod.namespace}/{pod.name} failed with exit code {code}"
    kind = _condition(pod.status, rule.get("onPodConditions") or ())
    return None if kind is None else f"Pod {pod.namespace}/{pod.name} has condition {kind}"


def _container(status: Json, codes: Json) -> Json | None:
    for kind in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(kind) or ():
            terminated = (container.get("state") or {}).get("terminated")
            if not terminated or not terminated.get("exitCode"):
                continue  # still running, or ended well: no code to compare
            if codes.get("containerName") not in (None, container.get("name")):
                continue
            if _satisfies(terminated["exitCode"], codes):
                found: Json = container
                return found
    return None


def _satisfies(code: int, codes: Json) -> bool:
    values = codes.get("values") or ()
    match codes.get("operator"):
        case "In":
            return code in values
        case "NotIn":
            return code not in values
        case _:
            return False


def _condition(status: Json, patterns: list[Json] | tuple[()]) -> str | None:
    for condition in status.get("conditions") or ():
        for pattern in patterns:
            if condition.get("type") == pattern.get("type") and condition.get("status") == pattern.get("status"):
                return str(condition.get("type"))
    return None

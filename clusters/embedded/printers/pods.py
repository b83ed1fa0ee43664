"""Pods in tables: one word for what their containers are doing."""

from typing import Any, Final

from clusters.embedded.printers.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    Printer,
    age_of,
    human_duration,
    is_true,
    seconds,
)
from clusters.embedded.store import Object

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


def _pod(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    statuses = status.get("containerStatuses") or []
    sidecars = [each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    started = [each for each in status.get("initContainerStatuses") or () if each["name"] in sidecars]
    ready = sum(1 for each in [*statuses, *started] if each.get("ready") and "running" in (each.get("state") or {}))
    total = len(spec.get("containers") or ()) + len(sidecars)
    return [
        obj["metadata"]["name"],
        f"{ready}/{total}",
        _reason(obj),
        _restarts(obj, now),
        age_of(obj, now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(obj),
    ]


def _reason(obj: Object) -> str:
    status, deleted = obj.get("status", {}), obj["metadata"].get("deletionTimestamp")
    reason = _containers_reason(obj)
    if deleted and status.get("reason") == "NodeLost":
        return "Unknown"
    if deleted and status.get("phase") not in _TERMINAL:
        return "Terminating"
    return reason


def _containers_reason(obj: Object) -> str:
    status = obj.get("status", {})
    reason: str = status.get("reason") or status.get("phase", "")
    for each in status.get("conditions") or ():
        if each["type"] == "PodScheduled" and each.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    initializing = _initializing(obj)
    if initializing and not is_true(obj, "Initialized"):
        return initializing
    running = False
    for each in reversed(status.get("containerStatuses") or ()):
        state = each.get("state") or {}
        if state.get("waiting", {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            reason = _terminated(state["terminated"])
        elif each.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        return "Running" if is_true(obj, "Ready") else "NotReady"
    return reason


def _initializing(obj: Object) -> str:
    containers = obj["spec"].get("initContainers") or []
    sidecars = {each["name"] for each in containers if each.get("restartPolicy") == "Always"}
    for index, each in enumerate(obj.get("status", {}).get("initContainerStatuses") or ()):
        state = each.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated and not terminated.get("exitCode"):
            continue
        if each["name"] in sidecars and each.get("started"):
            continue
        if terminated:
            return f"Init:{_terminated(terminated)}"
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(containers)}"
    return ""


def _terminated(state: dict[str, Any]) -> str:
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


def _restarts(obj: Object, now: float) -> str:
    statuses = obj.get("status", {}).get("containerStatuses") or ()
    count = sum(each.get("restartCount", 0) for each in statuses)
    ends = [(each.get("lastState") or {}).get("terminated", {}).get("finishedAt") for each in statuses]
    last = max((seconds(each) for each in ends if each), default=None)
    if count and last is not None:
        return f"{count} ({human_duration(now - last)} ago)"
    return str(count)


def _gates(obj: Object) -> str:
    gates = obj["spec"].get("readinessGates") or ()
    if not gates:
        return NONE
    return f"{sum(1 for each in gates if is_true(obj, each['conditionType']))}/{len(gates)}"


PODS: Final = Printer(
    (
        NAME,
        Column("Ready", description="How many containers are ready, and how many there are."),
        Column("Status", description="What the pod is doing."),
        Column("Restarts", description="How often containers were restarted, and when last."),
        AGE,
        Column("IP", description="The pod's address.", priority=1),
        Column("Node", description="Where the pod runs.", priority=1),
        Column("Nominated Node", description="Where the pod will run when others have made room.", priority=1),
        Column("Readiness Gates", description="How many further conditions for readiness hold.", priority=1),
    ),
    _pod,
)

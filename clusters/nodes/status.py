"""The statuses that a node writes on a pod: phase, conditions and containers, in the form that a kubelet gives them.

Each function returns the body of a strategic merge patch of `status`: conditions merge by type, so that what others
wrote there (`DisruptionTarget` of an eviction) stays. A condition keeps its transition time while its status stays
the same.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from clusters.nodes.runs import KILLED, Run

Json = dict[str, Any]
_REASONS: Final = {0: "Completed"}
LOST_MESSAGE: Final = "The container could not be located when the pod was terminated"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the pod runs."""

    host_ip: str
    pod_ip: str


def timestamp(moment: float) -> str:
    """As the API writes times."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running(pod: Json, run: Run, addresses: Addresses, now: float) -> Json:
    """Its containers run, ready or not yet."""
    ready = now >= run.ready_at
    begun = timestamp(run.started)
    state: Json = {"running": {"startedAt": begun}}
    return {
        "phase": "Running",
        **_basics(pod, addresses, run.started),
        "conditions": _conditions(pod, now, ready=_yes() if ready else _no("ContainersNotReady", _unready(pod))),
        **_init_statuses(pod, run, state, ready=ready),
        "containerStatuses": [
            _keep(pod, spec) or _container(pod, spec, state, ready=ready, started=True)
            for spec in pod["spec"]["containers"]
        ],
    }


def is_behind(pod: Json, run: Run, now: float) -> bool:
    """Whether its containers are ready and its status does not say so."""
    return now >= run.ready_at and _condition(pod, "Ready").get("status") != "True"


def ended(pod: Json, run: Run, addresses: Addresses, now: float) -> Json:
    """Its containers have exited: Succeeded or Failed."""
    failed_init = first_failed_init(pod, run)
    codes = [run.exit_code(spec["name"]) for spec in pod["spec"]["containers"] if not _keep(pod, spec)]
    failed = failed_init is not None or any(codes)
    reason = "PodFailed" if failed else "PodCompleted"
    end = min(run.ends, now)
    return {
        "phase": "Failed" if failed else "Succeeded",
        **_basics(pod, addresses, run.started),
        "conditions": _conditions(
            pod,
            now,
            ready=_no(reason),
            sandbox=_no(),
            initialized=_no("ContainersNotInitialized") if failed_init else ("True", "" if failed else reason, ""),
        ),
        **_init_statuses(pod, run, {"terminated": _terminated(pod, "", 0, run.started, end)}, ready=False),
        "containerStatuses": [
            _container(pod, spec, {"waiting": {"reason": "PodInitializing"}})
            if failed_init
            else _keep(pod, spec) or _exited(pod, spec, run.exit_code(spec["name"]), run.started, end)
            for spec in pod["spec"]["containers"]
        ],
    }


def stopped(pod: Json, why: tuple[str, str], addresses: Addresses, run: Run | None, now: float) -> Json:
    """The node itself ends it: evicted, out of time, or never started before it was deleted."""
    started = run.started if run else now
    return {
        "phase": "Failed",
        "reason": why[0],
        "message": why[1],
        **_basics(pod, addresses, started),
        "conditions": _conditions(pod, now, ready=_no("PodFailed"), sandbox=_no()),
        "containerStatuses": [
            _keep(pod, spec) or _exited(pod, spec, KILLED, started, now) for spec in pod["spec"]["containers"]
        ],
    }


def lost(pod: Json, addresses: Addresses, now: float) -> Json:
    """It was deleted before its containers started."""
    terminated = {
        "exitCode": KILLED,
        "reason": "ContainerStatusUnknown",
        "message": LOST_MESSAGE,
        "startedAt": None,
        "finishedAt": None,
    }
    return {
        "phase": "Failed",
        **_basics(pod, addresses, now),
        "conditions": _conditions(pod, now, ready=_no("PodFailed"), sandbox=_no()),
        "containerStatuses": [
            _keep(pod, spec) or _container(pod, spec, {"terminated": terminated}) for spec in pod["spec"]["containers"]
        ],
    }


def backing_off(pod: Json, run: Run, delay: float, now: float) -> Json:
    """Failed containers wait before they are started again."""
    message = f"back-off {delay:g}s restarting failed container"
    statuses = []
    for spec in pod["spec"]["containers"]:
        exited = _keep(pod, spec)
        if exited is None:
            code = run.exit_code(spec["name"])
            exited = _exited(pod, spec, code, run.started, min(run.ends, now))
            if _restarts_after(pod, code):
                exited["lastState"] = exited["state"]
                exited["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": f"{message}={spec['name']}"}}
        statuses.append(exited)
    return {
        "phase": "Running",
        "conditions": _conditions(pod, now, ready=_no("ContainersNotReady", _unready(pod))),
        "containerStatuses": statuses,
    }


def restarted(pod: Json, before: Run | None, run: Run, now: float) -> Json:
    """Failed containers run again. `before`: the run that failed, unless the pod's status already tells of it."""
    ready = now >= run.ready_at
    statuses = []
    for spec in pod["spec"]["containers"]:
        status = _keep(pod, spec)
        if status is None and before is not None and not _restarts_after(pod, before.exit_code(spec["name"])):
            status = _exited(pod, spec, 0, before.started, min(before.ends, now))
        if status is None:
            restarts = _restarts(pod, spec) + 1
            last = _status_of(pod, spec).get("lastState", {})
            if before is not None:
                end = min(before.ends, now)
                last = {
                    "terminated": _terminated(pod, spec["name"], before.exit_code(spec["name"]), before.started, end)
                }
            status = _container(
                pod,
                spec,
                {"running": {"startedAt": timestamp(run.started)}},
                ready=ready,
                started=True,
                restarts=restarts,
            )
            status["lastState"] = last
        statuses.append(status)
    wanted = _yes() if ready else _no("ContainersNotReady", _unready(pod))
    return {"phase": "Running", "conditions": _conditions(pod, now, ready=wanted), "containerStatuses": statuses}


def disrupted(reason: str, message: str, now: float) -> Json:
    """The condition that says why a pod was stopped from outside."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }


def restart_count(pod: Json) -> int:
    """How often its containers were started again, at most."""
    return max((_restarts(pod, spec) for spec in pod["spec"].get("containers", ())), default=0)


def is_to_restart(pod: Json, run: Run) -> bool:
    """Whether the containers of an ended run are to be started again."""
    policy = pod["spec"].get("restartPolicy", "Always")
    if policy == "OnFailure":
        return first_failed_init(pod, run) is not None or any(
            run.exit_code(spec["name"]) for spec in pod["spec"]["containers"] if not _keep(pod, spec)
        )
    return bool(policy == "Always")


def ended_well(pod: Json) -> frozenset[str]:
    """The containers that are over and are not started again with the others."""
    return frozenset(spec["name"] for spec in pod["spec"]["containers"] if _keep(pod, spec))


def is_backing_off(pod: Json) -> bool:
    """Whether its status says that a failed container waits."""
    statuses: list[Json] = pod.get("status", {}).get("containerStatuses") or []
    return any(status["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff" for status in statuses)


def first_failed_init(pod: Json, run: Run) -> str | None:
    """The init container that does not let the others start."""
    for spec in pod["spec"].get("initContainers", ()):
        if spec.get("restartPolicy") != "Always" and run.exit_code(spec["name"], init=True):
            return str(spec["name"])
    return None


def _basics(pod: Json, addresses: Addresses, started: float) -> Json:
    return {
        "startTime": pod.get("status", {}).get("startTime") or timestamp(started),
        "hostIP": addresses.host_ip,
        "hostIPs": [{"ip": addresses.host_ip}],
        "podIP": addresses.pod_ip,
        "podIPs": [{"ip": addresses.pod_ip}],
        **_observed(pod),
    }


def _observed(pod: Json) -> Json:
    generation = pod["metadata"].get("generation")
    return {"observedGeneration": generation} if generation else {}


_Wanted = tuple[str, str, str]


def _yes() -> _Wanted:
    return "True", "", ""


def _no(reason: str = "", message: str = "") -> _Wanted:
    return "False", reason, message


def _conditions(
    pod: Json, now: float, *, ready: _Wanted, sandbox: _Wanted | None = None, initialized: _Wanted | None = None
) -> list[Json]:
    wanted = {
        "PodReadyToStartContainers": sandbox or _yes(),
        "Initialized": initialized or _yes(),
        "Ready": ready,
        "ContainersReady": ready,
    }
    result = []
    for kind, (status, reason, message) in wanted.items():
        current = _condition(pod, kind)
        since = current.get("lastTransitionTime") if current.get("status") == status else None
        result.append(
            {
                "type": kind,
                "status": status,
                "lastProbeTime": None,
                "lastTransitionTime": since or timestamp(now),
                "reason": reason or None,
                "message": message or None,
                **_observed(pod),
            }
        )
    return result


def _condition(pod: Json, kind: str) -> Json:
    conditions: list[Json] = pod.get("status", {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _unready(pod: Json) -> str:
    return f"containers with unready status: [{' '.join(spec['name'] for spec in pod['spec']['containers'])}]"


def _status_of(pod: Json, spec: Json) -> Json:
    statuses: list[Json] = pod.get("status", {}).get("containerStatuses") or []
    return next((status for status in statuses if status["name"] == spec["name"]), {})


def _keep(pod: Json, spec: Json) -> Json | None:
    """The container's status if it already ended well: it is not started again."""
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return None
    status = _status_of(pod, spec)
    return status if status.get("state", {}).get("terminated", {}).get("exitCode") == 0 else None


def _restarts_after(pod: Json, code: int) -> bool:
    return code != 0 or pod["spec"].get("restartPolicy", "Always") == "Always"


def _restarts(pod: Json, spec: Json) -> int:
    return int(_status_of(pod, spec).get("restartCount", 0))


def _container(
    pod: Json, spec: Json, state: Json, *, ready: bool = False, started: bool = False, restarts: int | None = None
) -> Json:
    count = _restarts(pod, spec) if restarts is None else restarts
    is_waiting = "waiting" in state
    return {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "" if is_waiting else _image_id(spec.get("image", "")),
        **({} if is_waiting else {"containerID": _container_id(pod, spec["name"])}),
        "ready": ready,
        "started": started,
        "restartCount": count,
        "state": state,
        "lastState": _status_of(pod, spec).get("lastState", {}),
    }


def _exited(pod: Json, spec: Json, code: int, start: float, end: float) -> Json:
    return _container(pod, spec, {"terminated": _terminated(pod, spec["name"], code, start, end)})


def _terminated(pod: Json, container: str, code: int, start: float, end: float) -> Json:
    return {
        "exitCode": code,
        "reason": _REASONS.get(code, "Error"),
        "startedAt": timestamp(start),
        "finishedAt": timestamp(max(start, end)),
        "containerID": _container_id(pod, container),
    }


def _init_statuses(pod: Json, run: Run, state: Mapping[str, Any], *, ready: bool) -> Json:
    specs = pod["spec"].get("initContainers")
    if not specs:
        return {}
    failed, statuses, blocked = first_failed_init(pod, run), [], False
    for spec in specs:
        if blocked:
            statuses.append(_container(pod, spec, {"waiting": {"reason": "PodInitializing"}}))
        elif spec.get("restartPolicy") == "Always":
            statuses.append(_container(pod, spec, dict(state), ready=ready, started="running" in state))
        else:
            status = _exited(pod, spec, run.exit_code(spec["name"], init=True), run.started, run.started)
            statuses.append({**status, "ready": not run.exit_code(spec["name"], init=True)})
        blocked = blocked or spec["name"] == failed
    return {"initContainerStatuses": statuses}


def _container_id(pod: Json, container: str) -> str:
    digest = hashlib.sha256(f"{pod['metadata']['uid']}/{container}".encode()).hexdigest()
    return f"simulated://{digest}"


def _image_id(image: str) -> str:
    return f"{image.partition('@')[0]}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"

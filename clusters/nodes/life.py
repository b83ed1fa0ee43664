"""What a node does next for a pod: a pure function of the pod, its behaviour, its current run and the time.

    Pending --bind--> Pending --start--> Running and Ready --end--> Succeeded | Failed
                                            ^---- restart ----'        (restartPolicy OnFailure, Always)
    being deleted: SIGTERM, then SIGKILL when the grace period is over, the final status, and the pod's removal

Few writes: one for Running and Ready together, one for the end; a pod that takes no time goes straight to its end.
The final status comes before the removal, so that a controller that counts pods sees how each of them ended.
Decisions are repeated until nothing is left to do, and each is right whatever was lost before it: a node that forgot
everything goes on from what the pod's status says.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.nodes import status
from clusters.nodes.behaviour import Behaviour
from clusters.nodes.runs import FOREVER, Ending, Run
from clusters.nodes.status import Addresses

Json = dict[str, Any]
TERMINAL: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Nothing:
    """Until the pod changes."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again then."""

    until: float


@dataclass(frozen=True, slots=True)
class Bind:
    """Choose a node for it."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start its containers, for the first time or again."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write this status."""

    status: Json
    restart_at: float | None = None
    """The run is over, and the next one is not to start before that."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send its containers SIGTERM."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Send its containers SIGKILL."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The pod takes its node down, for that long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Remove:
    """It is over: delete the pod with no grace."""


Step = Nothing | Wait | Bind | Start | Write | Terminate | Kill | Crash | Remove


@dataclass(slots=True)
class Memory:
    """What a node remembers of a pod beyond its status, which has whole seconds only.

    Losing it costs precision, no more.
    """

    noticed: float
    """When it was first seen on its node."""
    tries: int = 0
    """How many tries of the same work were started before the next one."""
    run: Run | None = None
    failed: Run | None = None
    """The run before this one, until the pod's status tells of it."""
    restart_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed container waits: not at all the first time, then `base`, doubled each time up to `cap`."""

    base: float = 10.0
    cap: float = 300.0

    def delay(self, restarts: int) -> float:
        """After that many restarts."""
        return 0.0 if restarts == 0 else min(self.base * 2 ** min(restarts - 1, 32), self.cap)


DEFAULT_BACKOFF: Final = Backoff()


def decide(
    pod: Json,
    behaviour: Behaviour,
    memory: Memory,
    addresses: Addresses,
    *,
    now: float,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> Step:
    """The next step for a pod that is on a node of ours, or on none yet."""
    meta, spec = pod["metadata"], pod["spec"]
    phase = pod.get("status", {}).get("phase", "Pending")
    deleting = "deletionTimestamp" in meta
    if phase in TERMINAL:
        return Remove() if deleting and meta.get("deletionGracePeriodSeconds") else Nothing()
    if not spec.get("nodeName"):
        return Nothing() if deleting or spec.get("schedulingGates") else Bind()
    run = memory.run
    if run is None:
        if deleting:
            return Write(status.lost(pod, addresses, now))
        due = max(memory.noticed + behaviour.start_after, memory.restart_at)
        return Start() if due <= now else Wait(due)
    if memory.failed is not None or status.is_backing_off(pod):
        return Write(status.restarted(pod, memory.failed, run, now))
    if run.ends <= now:
        return _ended(pod, behaviour, run, addresses, backoff, deleting=deleting, now=now)
    if deleting:
        return _stopping(meta.get("deletionGracePeriodSeconds") or 0, run, now)
    return _running(pod, run, addresses, phase, now)


def _ended(
    pod: Json, behaviour: Behaviour, run: Run, addresses: Addresses, backoff: Backoff, *, deleting: bool, now: float
) -> Step:
    if run.ending is Ending.NODE_CRASH:
        return Crash(behaviour.crash_node or 0.0)
    if run.ending is Ending.EVICTED:
        text = "The node was low on resource: memory."
        evicted = status.stopped(pod, ("Evicted", text), addresses, run, now)
        evicted["conditions"].append(status.disrupted("TerminationByKubelet", text, now))
        return Write(evicted)
    if deleting or not status.is_to_restart(pod, run):
        return Write(status.ended(pod, run, addresses, now))
    delay = backoff.delay(status.restart_count(pod))
    return Write(status.backing_off(pod, run, delay, now), restart_at=run.ends + delay) if delay else Start()


def _stopping(grace: float, run: Run, now: float) -> Step:
    if run.told is None:
        return Terminate()
    if now >= run.told + grace:
        return Kill()
    return Wait(min(run.ends, run.told + grace))


def _running(pod: Json, run: Run, addresses: Addresses, phase: str, now: float) -> Step:
    deadline = _deadline(pod, run)
    if deadline <= now:
        text = "Pod was active on the node longer than the specified deadline"
        return Write(status.stopped(pod, ("DeadlineExceeded", text), addresses, run, now))
    if status.first_failed_init(pod, run) is None:
        if phase == "Pending" or status.is_behind(pod, run, now):
            return Write(status.running(pod, run, addresses, now))
        if run.ready_at > now:
            return Wait(min(run.ends, run.ready_at, deadline))
    return Wait(min(run.ends, deadline))


def _deadline(pod: Json, run: Run) -> float:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    if seconds is None:
        return FOREVER
    since = pod.get("status", {}).get("startTime")
    return float(seconds + (datetime.fromisoformat(since).timestamp() if since else run.started))


def remember(memory: Memory, step: Step, run: Run | None = None, *, now: float) -> None:
    """What a step that was carried out means for the node's memory. `run`: what `Start` started."""
    match step:
        case Start():
            memory.failed, memory.run = memory.run, run
            memory.tries += 1
        case Terminate() if memory.run is not None:
            memory.run.terminate(now)
        case Kill() if memory.run is not None:
            memory.run.kill(now)
        case Write():
            memory.failed = None
            if step.restart_at is not None:
                memory.run, memory.restart_at = None, step.restart_at
        case _:
            pass

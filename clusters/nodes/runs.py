"""One run of a pod's containers: from their start to their end, on simulated time.

A run is what `life.decide` looks at: has it ended, with which exit codes, when is something going to change. Real
processes (`processes.py`) have the same face. A node that lost its memory resumes a run from what the pod's status
says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, Protocol

from clusters.nodes.behaviour import Behaviour

Json = dict[str, Any]
FOREVER: Final = float("inf")
KILLED: Final = 137
_BATCH: Final = "batch.kubernetes.io/"
_FAILURES: Final = (f"{_BATCH}job-index-failure-count", f"{_BATCH}job-index-ignored-failure-count")


class Ending(Enum):
    """How a run ends."""

    EXIT = "its containers exit"
    EVICTED = "the node evicts it"
    NODE_CRASH = "it takes the node down"


class Run(Protocol):
    """What is known of the containers that run now."""

    started: float
    told: float | None
    """When it was sent SIGTERM."""

    @property
    def ends(self) -> float:
        """When it ends, or ended; infinity while nobody knows."""

    @property
    def ready_at(self) -> float:
        """When its containers are ready."""

    @property
    def ending(self) -> Ending:
        """How it ends."""

    def exit_code(self, container: str, *, init: bool = False) -> int:
        """What that container ends with; for an init container it is known at once."""

    def terminate(self, now: float) -> None:
        """SIGTERM."""

    def kill(self, now: float) -> None:
        """SIGKILL."""


@dataclass(slots=True)
class SimulatedRun:
    """Ends when its behaviour says so, or some time after SIGTERM."""

    behaviour: Behaviour
    started: float
    tries: int = 0
    told: float | None = None
    ends: float = field(init=False)
    ready_at: float = field(init=False)
    ending: Ending = field(init=False)
    _forced: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.ends = self.started + self.behaviour.duration
        self.ready_at = self.started + self.behaviour.ready_after
        self.ending = Ending.EXIT
        if self.behaviour.fails(self.tries):
            if self.behaviour.crash_node is not None:
                self.ending = Ending.NODE_CRASH
            elif self.behaviour.evict:
                self.ending = Ending.EVICTED

    def exit_code(self, container: str, *, init: bool = False) -> int:
        """What that container ends with."""
        if self._forced is not None and not init:
            return self._forced
        return self.behaviour.exit_code(container, self.tries, init=init)

    def finish(self, now: float) -> None:
        """It has done its work, sooner than its behaviour says."""
        self.ends = min(self.ends, now)

    def terminate(self, now: float) -> None:
        """SIGTERM: it ends after the time for which it ignores it, unless it would have ended sooner."""
        self.told = now
        if now + self.behaviour.ignore_sigterm < self.ends:
            self._end(now + self.behaviour.ignore_sigterm, self.behaviour.sigterm_exit_code)

    def kill(self, now: float) -> None:
        """SIGKILL, or the end of its node."""
        if now < self.ends or self.ending is Ending.NODE_CRASH:
            self._end(now, KILLED)

    def _end(self, when: float, code: int) -> None:
        self.ends, self.ending, self._forced = when, Ending.EXIT, code


def resumed(pod: Json, behaviour: Behaviour, tries: int, now: float) -> SimulatedRun:
    """The run that the pod's status speaks of, for a node that does not remember it."""
    states = [status.get("state", {}) for status in pod.get("status", {}).get("containerStatuses", ())]
    started = [state["running"]["startedAt"] for state in states if "running" in state]
    since = datetime.fromisoformat(min(started)).timestamp() if started else now
    return SimulatedRun(behaviour, min(since, now), tries)


class Tries:
    """Counts the tries of the same work: pods of one owner and, for Indexed Jobs, one index.

    A pod's number is given when it first starts (or ends without) and stays with it. Where the Job controller has
    written on the pod how many failures of its index came before, it is at least that: this node may not have seen
    them. The oldest are forgotten past `limit`.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._next: dict[tuple[str, str], int] = {}

    def before(self, pod: Mapping[str, Any]) -> int:
        """How many tries came before this pod's; call it once for a pod."""
        meta = pod["metadata"]
        owner = next((ref["uid"] for ref in meta.get("ownerReferences", ()) if ref.get("controller")), None)
        if owner is None:
            return 0
        annotations = meta.get("annotations") or {}
        index = annotations.get(f"{_BATCH}job-completion-index", "")
        told = sum(int(text) for name in _FAILURES if (text := annotations.get(name, "")).isdecimal())
        earlier = max(self._next.pop((owner, index), 0), told)
        self._next[owner, index] = earlier + 1
        if len(self._next) > self._limit:
            del self._next[next(iter(self._next))]
        return earlier

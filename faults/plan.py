"""Faults, as data: what goes wrong, where, and when. A run is its workload, its plan and its seed.

A link is the way from one client to one cluster: `dispatcher/worker-1`. A fault waits for the nth request on its link
that matches its verb and resource, counted from `at` seconds after the start; or, where its kind is a state of the
whole link, it begins at that moment and lasts for `seconds`.

    one request     reset, hang             not passed on: the connection breaks, or nothing ever comes back
                    error                   not passed on, answered with `status` (429, 500, 503, ...)
                    delay                   passed on after `seconds`, whether or not the client still waits
                    lost, late, wrong       passed on, and it took effect; then the connection breaks, or nothing
                                            comes back, or the answer says `status`
    one watch       gone, expired_event     410, as an answer or in the middle
                    end, cut                ended in order, or broken, after `nth` events
                    mute                    stays open and never says anything again
                    late_events, twice      events are held back for `seconds`, or told twice
                    replay                  starts `nth` versions before the one that was asked for
    a link          partition               connections break and are refused
                    blackhole               connections stay, and nothing comes through
                    unauthorized            everything is answered with 401
                    overload                everything is answered with 429 and Retry-After
                    slow                    everything takes `seconds` / 10 longer
                    slow_writes             every write takes SLOW_WRITE_SECONDS, reads and watches are quick: an
                                            admission webhook over there is dead, and each write waits for it
    a process       crash                   killed before (or after: `crash_after`) the nth matching write,
                                            or at a moment (`crash_at`); started again after `seconds`
                    pause                   stopped at a moment (SIGSTOP), and goes on after `seconds` as if nothing
                                            had happened; real processes only
    a cluster       wipe                    replaced by an empty one behind the same address
                    swap                    its kubeconfig is that of another cluster, for `seconds`
                    restart                 its API server is started again
                    removed                 its WorkerCluster is deleted, for `seconds`
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from faults.wire import WRITES

REQUESTS: Final = ("reset", "hang", "error", "delay", "lost", "late", "wrong")
WATCHES: Final = ("gone", "expired_event", "end", "cut", "mute", "late_events", "twice", "replay")
LINKS: Final = ("partition", "blackhole", "unauthorized", "overload", "slow", "slow_writes")
HELD_UP: Final = ("delay", "slow", "slow_writes")
"""A write that met one of these is carried out later than it was sent."""
SLOW_WRITE_SECONDS: Final = 10.0
"""For which an API server waits for a webhook, where its configuration says nothing else."""
PROCESSES: Final = ("crash", "crash_after", "crash_at", "pause")
CLUSTERS: Final = ("wipe", "swap", "restart", "removed")
KINDS: Final = REQUESTS + WATCHES + LINKS + PROCESSES + CLUSTERS
AT_A_MOMENT: Final = (*CLUSTERS, "crash_at", "pause")
LEADER: Final = "leader"
"""In the place of a client: whichever of several leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    kind: str
    link: str
    """`client/cluster`; for faults of a cluster the cluster's name alone, for `crash_at` and `pause` the client's,
    or `leader` for whichever of several leads at that moment."""
    at: float = 0.0
    verb: str = "*"
    """get, list, watch, create, patch, update, delete; `write` for the last four; `*`."""
    resource: str = "*"
    """`jobs`, `jobs/status`, ...; `*`."""
    nth: int = 1
    seconds: float = 0.0
    status: int = 503

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no such fault: {self.kind!r}; there are {', '.join(KINDS)}")

    def matches(self, verb: str, resource: str) -> bool:
        """Whether a request is of the sort that it waits for."""
        if self.kind in WATCHES and verb != "watch":
            return False
        if verb == "watch" and self.kind not in WATCHES and self.verb != "watch":
            return False
        if self.kind in ("lost", "late", "wrong", "crash", "crash_after") and verb not in WRITES:
            return False
        if self.verb not in ("*", verb) and not (self.verb == "write" and verb in WRITES):
            return False
        return self.resource in ("*", resource)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Fault":
        """From a file: the fields by their names."""
        names = {each.name for each in fields(cls)}
        unknown = found.keys() - names
        if unknown:
            raise ValueError(f"a fault has no field {min(unknown)!r}; there are {', '.join(sorted(names))}")
        return cls(**found)

    def __str__(self) -> str:
        if self.kind in LINKS:
            return f"{self.at:6.1f} s  {self.kind} of {self.link} for {self.seconds:g} s"
        if self.kind in AT_A_MOMENT:
            return f"{self.at:6.1f} s  {self.kind} of {self.link}" + (f", {self.seconds:g} s" if self.seconds else "")
        what = f"{self.verb} {self.resource}".replace("* *", "request").replace("*", "any")
        more = f" {self.status}" if self.kind in ("error", "wrong") else ""
        more += f" {self.seconds:g} s" if self.seconds else ""
        return f"{self.at:6.1f} s  {self.kind}{more}: {what} number {self.nth} on {self.link}"

"""What is known about one worker cluster: plain values, and the conditions that they make."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, NamedTuple

from multimirror.api import CONNECTED, MISBEHAVING, READY, RENEWED, ROOM_COUNTED
from multimirror.batch import Json, find_condition
from multimirror.batch.times import seconds_of, utc_datetime
from multimirror.workers.misbehaviour import Misbehaviour

ANSWERED: Final = frozenset(
    {
        *("ApiError", "BadAnswer", "BadRequest", "Conflict", "Forbidden", "Gone", "Invalid", "NotFound"),
        *("ServerError", "TooManyRequests", "Unauthorized"),
    }
)
"""Reasons why a worker is not connected although its API server answers."""
_LONGEST_WHY: Final = 200
_COUNTED: Final = "its room is what is left on each node: its pods are seen, whosever they are"


@dataclass(frozen=True, slots=True)
class Contact:
    """Whether a worker (or what is ours in one of its namespaces) can be talked to, and its cache believed."""

    connected: bool
    lost_since: float | None = None
    """Since when not (seconds since the epoch). None: it can, or it is being tried right now and nobody knows yet."""
    why: str = ""
    """Why not, in words."""
    reason: str = ""
    """And in one word, that of the condition."""
    outages: tuple[tuple[float, float], ...] = ()
    """From when until when it was lost before, the latest last; as far as that is remembered."""
    recorded: bool = True
    """Its WorkerCluster says that it is connected, so that whoever comes after us will know: without that no fence
    is renewed there."""
    clock_ahead: float = 0.0
    """How many seconds its clock is ahead of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenState:
    """The token of one worker."""

    expires: float | None = None
    """Seconds since the epoch; None: never, or nobody can tell."""
    renewable: bool = False
    """We renew it."""
    problem: str = ""
    """Why the last try to do so failed."""


class Uncounted(NamedTuple):
    """Why what is left on the nodes of a worker is not known, and what to do."""

    reason: str
    message: str

    @classmethod
    def of(cls, what: str, why: str | None) -> "Uncounted":
        """`what`: pods or nodes. `why` they cannot be followed, in words; None: we may not."""
        total = "so its total counts, as with Auto"
        if why is None:
            where = " of all namespaces" if what == "pods" else ""
            message = f"its account may not list and watch the {what}{where}, {total}"
            return cls("PermissionDenied", f"{message}; `multimirror join --free-capacity` grants that")
        message = f"what is left on its nodes is not known, {total}: its {what} cannot be followed now"
        return cls(
            "NotFollowed",
            f"{message} ({why[:_LONGEST_WHY]}). That is tried again; see whether its API server serves them",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """One worker, as we see it."""

    connected: bool = False
    """It answers, and our copies there are followed."""
    reason: str = "Connecting"
    message: str = "not tried yet"
    last_contact: float | None = None
    latency: float | None = None
    clock_ahead: float = field(default=0.0, compare=False)
    """How many seconds its clock is ahead of ours; what it says itself, so never more than the truth by much."""
    version: str = ""
    identity: str = ""
    """Which cluster it is, since it was connected."""
    former: tuple[str, ...] = ()
    """Which clusters were in its place before: some copies there may be signed for those."""
    misbehaviour: Misbehaviour | None = None
    """What it did that no honest worker does; None: nothing, lately."""
    is_management: bool = False
    """It is the management cluster itself."""
    missing: tuple[str, ...] = ()
    """What we may not do there, and would need to."""
    capacity: Mapping[str, Decimal] | None = None
    namespaces: frozenset[str] | None = field(default=None, compare=False)
    counts_nodes: bool = False
    """What is left on each of its nodes is known."""
    uncounted: Uncounted | None = None
    """Why that is not so although it is asked for, or was so before."""
    not_starting: str = ""
    """Why it gets one Job at a time, in words; empty: it does not."""
    unfollowed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Kinds (`jobs.batch`) and namespaces there whose copies cannot be followed, and why: their own trouble alone."""

    @property
    def ready(self) -> bool:
        """It may get Jobs."""
        return self.connected and not self.missing

    @property
    def why_not_ready(self) -> tuple[str, str]:
        """Reason and message."""
        if not self.connected:
            return self.reason, self.message
        if self.missing:
            return "PermissionDenied", f"the account may not {', '.join(self.missing)}; see deploy/worker"
        return "Ready", "it takes Jobs"


def out_of_reach(worker: str, reason: str, why: str) -> str:
    """That a worker is not connected, in words for the users of its Jobs."""
    how = "is of no use now" if reason in ANSWERED else "cannot be reached"
    return f"worker {worker} {how}" + (f" ({why})" if why else "")


def conditions(
    state: WorkerState, *, cordoned: bool, token: TokenState | None = None
) -> list[tuple[str, bool, str, str]]:
    """(type, holds, reason, message) of each condition."""
    reason, message = state.why_not_ready
    if state.ready and cordoned:
        reason, message = "Cordoned", "it takes no new Jobs; those that run there go on"
    elif state.ready and state.not_starting:
        reason, message = "JobsDoNotStart", state.not_starting
    found = [
        (CONNECTED, state.connected, state.reason, state.message),
        (READY, state.ready and not cordoned and not state.not_starting, reason, message),
        *_token_condition(token),
    ]
    if state.uncounted is not None:
        found.append((ROOM_COUNTED, False, *state.uncounted))
    elif state.counts_nodes:
        found.append((ROOM_COUNTED, True, "Counted", _COUNTED))
    if state.misbehaviour is not None:
        found.append((MISBEHAVING, True, "OverBudget", str(state.misbehaviour)))
    return found


def _token_condition(token: TokenState | None) -> list[tuple[str, bool, str, str]]:
    """Only of one that we renew."""
    if token is None or not token.renewable or token.expires is None:
        return []
    end = f"{utc_datetime(token.expires):%Y-%m-%d %H:%M} UTC"
    if token.problem:
        return [(RENEWED, False, "RenewalFailed", f"its token ends at {end}, and is not renewed: {token.problem}")]
    return [(RENEWED, True, "Renewed", f"its token is good until {end}, and is renewed before")]


def merged_conditions(
    before: list[Json], wanted: list[tuple[str, bool, str, str]], *, now: str, generation: int
) -> list[Json]:
    """The list to write: a condition that did not change keeps its time, and those of others stay."""
    result: list[Json] = []
    for kind, holds, reason, message in wanted:
        old = next((each for each in before if each.get("type") == kind), None)
        status = "True" if holds else "False"
        since = old["lastTransitionTime"] if old is not None and old.get("status") == status else now
        result.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
                "observedGeneration": generation,
            }
        )
    ours = {kind for kind, _, _, _ in wanted} | {MISBEHAVING, ROOM_COUNTED}  # which are there only while they hold
    return result + [each for each in before if each.get("type") not in ours]


def recorded_as_connected(cluster: Json | None) -> bool:
    """What a WorkerCluster's own status says."""
    condition = _connected_condition(cluster)
    return condition is not None and condition.get("status") == "True"


def recorded_identity(cluster: Json | None) -> str:
    """Which cluster it was at first contact, or since it was replaced; empty: never seen."""
    return str(((cluster or {}).get("status") or {}).get("identity") or "")


def recorded_identities(cluster: Json | None) -> list[str]:
    """Which clusters it has been, as far as that is written down, the present one last."""
    found = ((cluster or {}).get("status") or {}).get("formerIdentities") or ()
    return [*map(str, found), *filter(None, [recorded_identity(cluster)])]


def disconnected_at(cluster: Json | None) -> float | None:
    """Since when a WorkerCluster's status says that it is not: a restart does not set the clock of a lost one back."""
    condition = _connected_condition(cluster)
    if condition is None or condition.get("status") != "False":
        return None
    since = seconds_of(condition.get("lastTransitionTime"), -1.0)
    return since if since >= 0 else None


def _connected_condition(cluster: Json | None) -> Json | None:
    return find_condition(((cluster or {}).get("status") or {}).get("conditions") or (), CONNECTED)

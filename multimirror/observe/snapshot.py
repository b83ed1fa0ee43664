"""The read model: the fleet as the caches show it, as plain values. The only source of what we tell about it.

    FleetState                  what is asked of the dispatcher's caches (observe/sources.py answers)
    WorkerClusterView           one worker: connection, capacity, usage, copies
    MirrorQueueView             one queue: how many wait, run and have finished, and why the first one waits
    JobView                     one Job: where it is, and why it is not further
    FleetSnapshot               all workers and queues at one instant

Statuses (observe/status.py), explanations, gauges and whatever shows the fleet to people are functions of these views;
none of them looks into a cache. Making a view asks no API server and changes nothing, and what is in it stays as it is
while the caches go on.

Of resources only those are told of that a quota or the capacity of the worker names, a few dozen of them: Jobs may ask
for anything that has a name, and nodes may say that they have it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Protocol

from multimirror.api import CohortSpec, Hold, MirrorQueueSpec, SpecError, WorkerClusterSpec
from multimirror.batch import Json
from multimirror.batch.names import qualified_name
from multimirror.observe.sharing import QuotaView, RecentStarts
from multimirror.workers import TokenState, WorkerState

_MOST_RESOURCES: Final = 32
_NATIVE: Final = ("cpu", "memory", "pods", "ephemeral-storage")
COPY_STATES: Final = ("running", "suspended", "complete", "failed", "terminating")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHead:
    """The first Job of a queue that waits."""

    job: str
    """namespace/name."""
    since: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkerFit:
    """One worker, for one Job: whether it could take it, and in words why, or why not."""

    name: str
    fits: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    """The latest placement decision about a Job that waits."""

    reason: str
    message: str
    why: str = ""
    """The message without the workers."""
    workers: tuple[WorkerFit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InLine:
    """One that waits in a queue."""

    key: str
    """namespace/name."""
    uid: str
    priority: int = 0
    since: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    """In billionths."""
    grows: bool = False
    """It has a worker, and asks for more there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """One of our objects on the management cluster, whatever its kind."""

    key: str
    uid: str
    queue: str
    cluster: str | None = None
    attempt: int = 0
    finished: bool = False
    suspended: bool = False
    held: bool = False


class Usage(Protocol):
    """A sum over assigned Jobs."""

    @property
    def jobs(self) -> int: ...

    @property
    def resources(self) -> Mapping[str, Decimal]: ...


class FleetState(Protocol):
    """The caches, as far as anything about them is told. Answers are not kept, and not changed."""

    def worker_clusters(self) -> Iterable[Json]: ...

    def mirror_queues(self) -> Iterable[Json]: ...

    def cohorts(self) -> Iterable[Json]: ...

    def worker_state(self, worker: str) -> WorkerState | None:
        """None while nobody tries to connect to it."""

    def worker_token(self, worker: str) -> TokenState | None:
        """None where nobody has looked at it."""

    def worker_spec(self, worker: str) -> WorkerClusterSpec | None:
        """None where it cannot be read."""

    def queue_spec(self, queue: str) -> MirrorQueueSpec | None:
        """None where it cannot be read."""

    @property
    def queue_specs(self) -> Mapping[str, MirrorQueueSpec]:
        """All that can be read."""

    @property
    def cohort_specs(self) -> Mapping[str, CohortSpec]:
        """All that can be read."""

    def kinds(self) -> Iterable[str]:
        """What can be mirrored, such as Job.batch."""

    def worker_usage(self, worker: str) -> Usage: ...

    def queue_usage(self, queue: str) -> Usage: ...

    def running_by_worker(self, queue: str) -> Mapping[str, int]:
        """Jobs of the queue that are assigned and not finished."""

    def finished_by_worker(self, queue: str) -> Mapping[str, int]:
        """Finished Jobs of the queue that are still there, by the worker that had them last ("": none)."""

    def pending(self, queue: str) -> int: ...

    def head(self, queue: str) -> QueueHead | None: ...

    def recent_starts(self, queue: str) -> RecentStarts | None:
        """None: nothing of it was placed in the last hour."""

    def waiting_requests(self) -> Iterable[tuple[str, Mapping[str, int]]]:
        """Of everything that waits, its queue and what it asks for, in billionths. May be taken bit by bit."""

    def quota_resources(self) -> Collection[str]:
        """The resources that the quotas of all queues name."""

    def copy_states(self, worker: str) -> Iterable[str]:
        """Of every copy there, one of COPY_STATES. May be taken bit by bit, while the cache changes."""

    def original(self, key: str) -> Original | None:
        """Ours, by namespace/name."""

    def line(self, queue: str) -> Iterator[InLine | None]:
        """Who waits in a queue, in the order in which they would be placed if there were room for one after the other,
        as things are when the first is asked for. None: time has passed, and nobody is found yet."""

    def starts_by_deadlines(self, uid: str) -> float | None:
        """In how many seconds enough of what runs must have ended for a Job that waits; None: nobody knows."""

    def decision(self, uid: str, *, workers: bool = True) -> DecisionView | None:
        """None for a Job that does not wait. Without `workers` there is nothing about any of them in it: words about
        each cost a look at all of its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClusterView:
    """One worker."""

    name: str
    generation: int = 1
    state: WorkerState | None = None
    token: TokenState | None = None
    cordoned: bool = False
    capacity: Mapping[str, Decimal] | None = None
    """Declared, or found; None: not known."""
    jobs: int = 0
    used: Mapping[str, Decimal] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    copies: Mapping[str, int] | None = None
    """By state; None: not counted yet."""


@dataclass(frozen=True, slots=True)
class QueueOnWorker:
    """How many Jobs of a queue one worker has, and has had."""

    name: str
    running: int
    finished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorQueueView:
    """One queue."""

    name: str
    generation: int = 1
    problem: str = ""
    """Why its spec cannot be read."""
    hold: Hold = Hold.NONE
    pending: int = 0
    running: int = 0
    finished: int = 0
    workers: tuple[QueueOnWorker, ...] = ()
    head: QueueHead | None = None
    quota: QuotaView | None = None
    """None: not counted yet."""
    starts: RecentStarts | None = None
    """None: nothing was placed in the last hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One Job on its way."""

    key: str
    uid: str
    queue: str
    state: str
    attempt: int
    cluster: str | None = None
    connected: bool = False
    decision: DecisionView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """Everything at one instant."""

    workers: tuple[WorkerClusterView, ...] = ()
    queues: tuple[MirrorQueueView, ...] = ()


class CountedQuotas(Protocol):
    """What was counted last."""

    def queue(self, name: str) -> QuotaView | None: ...


def fleet_snapshot(
    state: FleetState, copies: Mapping[str, Mapping[str, int]], quotas: CountedQuotas | None = None
) -> FleetSnapshot:
    """`copies`, `quotas`: what was counted last, by worker and state; there may be too many to count them now."""
    resources = state.quota_resources()
    return FleetSnapshot(
        workers=tuple(worker_cluster_view(state, each, copies, resources) for each in state.worker_clusters()),
        queues=tuple(mirror_queue_view(state, each, quotas) for each in state.mirror_queues()),
    )


def worker_cluster_view(
    state: FleetState, cluster: Json, copies: Mapping[str, Mapping[str, int]], quotas: Collection[str]
) -> WorkerClusterView:
    """`quotas`: the resources that quotas name."""
    name = cluster["metadata"]["name"]
    found, spec, usage = state.worker_state(name), state.worker_spec(name), state.worker_usage(name)
    declared = spec.capacity if spec is not None else None
    capacity = declared if declared is not None or found is None else found.capacity
    resources = _reported(quotas, capacity or {})
    return WorkerClusterView(
        name=name,
        generation=cluster["metadata"].get("generation", 1),
        state=found,
        token=state.worker_token(name),
        cordoned=spec is not None and spec.cordoned,
        capacity=_of(capacity, resources) if capacity is not None else None,
        jobs=usage.jobs,
        used=_of(usage.resources, resources),
        kinds=tuple(state.kinds()) if found is not None and found.ready else (),
        copies=copies.get(name),
    )


def mirror_queue_view(state: FleetState, queue: Json, quotas: CountedQuotas | None = None) -> MirrorQueueView:
    name = queue["metadata"]["name"]
    running, finished, pending = state.running_by_worker(name), state.finished_by_worker(name), state.pending(name)
    workers = sorted(each for each in {*running, *finished} if each and (running.get(each) or finished.get(each)))
    spec = state.queue_spec(name)
    return MirrorQueueView(
        name=name,
        generation=queue["metadata"].get("generation", 1),
        problem=_problem(queue) if spec is None else "",
        hold=spec.hold if spec is not None else Hold.NONE,
        pending=pending,
        running=state.queue_usage(name).jobs,
        finished=sum(finished.values()),
        workers=tuple(QueueOnWorker(each, running.get(each, 0), finished.get(each, 0)) for each in workers),
        head=state.head(name) if pending else None,
        quota=quotas.queue(name) if quotas is not None else None,
        starts=state.recent_starts(name),
    )


def job_view(state: FleetState, key: str, *, deciding: bool = True) -> JobView | None:
    """None where there is no such Job, or it is not ours. `deciding`: it is us who place Jobs; whoever does not goes by
    what the one who does has reported."""
    original = state.original(key)
    if original is None:
        return None
    worker = state.worker_state(original.cluster) if original.cluster is not None else None
    return JobView(
        key=original.key,
        uid=original.uid,
        queue=original.queue,
        state=_state(original),
        attempt=original.attempt,
        cluster=original.cluster,
        connected=worker is not None and worker.connected,
        decision=state.decision(original.uid) if deciding else _reported_decision(state, original),
    )


def _reported_decision(state: FleetState, original: Original) -> DecisionView | None:
    """Why a Job waits, as far as the status of its queue tells."""
    if original.cluster is not None or original.finished or original.held:
        return None
    queues = {queue["metadata"]["name"]: queue for queue in state.mirror_queues()}
    head = ((queues.get(original.queue) or {}).get("status") or {}).get("head") or {}
    if not head:
        return None
    reason, message = str(head.get("reason", "")), str(head.get("message", ""))
    behind = "" if head.get("job") == original.key else f"behind {head.get('job')}: "
    return DecisionView(reason=reason, message=behind + message, why=behind + message)


def _reported(quotas: Collection[str], capacity: Mapping[str, Decimal]) -> tuple[str, ...]:
    """The resources that are worth telling of: those first that a quota names."""
    wanted = dict.fromkeys((*_NATIVE, *sorted(quotas), *sorted(capacity)))
    return tuple(name for name in wanted if not qualified_name(name))[:_MOST_RESOURCES]


def _of(amounts: Mapping[str, Decimal], resources: Collection[str]) -> dict[str, Decimal]:
    return {name: amounts[name] for name in resources if name in amounts}


def _problem(queue: Json) -> str:
    """Why the spec cannot be read; nothing where it can, and the cache of specs is about to say so."""
    try:
        MirrorQueueSpec.read(queue)
    except SpecError as error:
        return str(error)
    return ""


def _state(original: Original) -> str:
    if original.finished:
        return "Finished"
    if original.cluster is not None:
        return "Suspended" if original.suspended else "Assigned"
    return "Held" if original.held else "Waiting"

"""What placement knows about objects and workers: plain values, read from our API and from the caches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from multimirror.api import (
    SpecError,
    WorkerClusterSpec,
    allowed_clusters,
    check_preemptible,
    is_preemptible,
    priority_of,
)
from multimirror.api.placement import Claim, claim_of, preempted_at_of, preemptions_of
from multimirror.batch import Json
from multimirror.kinds.kind import Ref
from multimirror.kinds.pod_sets import Amounts, amounts_of
from multimirror.kinds.pod_shapes import Gang
from multimirror.kinds.reserved import Reserved
from multimirror.scheduling.free_room import FreeRoom
from multimirror.workers.node_table import NodesView
from multimirror.workers.state import WorkerState


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """A worker cluster, as a place for objects."""

    name: str
    spec: WorkerClusterSpec = field(default_factory=WorkerClusterSpec)
    state: WorkerState = field(default_factory=lambda: WorkerState(connected=True))
    recorded: bool = True
    """Its status says that it is connected; see the fence."""
    suspicion: str = ""
    """Why it gets one Job at a time, in words; empty: it does not."""
    most_jobs: int | None = None
    """As many as it may have for that."""
    nodes: NodesView | None = field(default=None, compare=False, repr=False)
    """Its nodes, where they and all of its pods are known."""
    free: FreeRoom | None = field(default=None, compare=False, repr=False)
    """What is left on them when everybody placed has his pods."""
    capacity: Amounts = field(init=False, compare=False, repr=False)
    """Declared, or found. What is not in it is not known, and has no limit (but see `lists_all`)."""

    def __post_init__(self) -> None:
        capacity = self.spec.capacity if self.spec.capacity is not None else self.state.capacity
        object.__setattr__(self, "capacity", amounts_of(capacity or {}))

    @property
    def is_open(self) -> bool:
        """It takes new objects."""
        return self.state.ready and not self.spec.cordoned

    @property
    def lists_all(self) -> bool:
        """Its capacity was found on its nodes: an extended resource that none of them names is not there."""
        return self.spec.capacity is None and self.state.capacity is not None


@dataclass(frozen=True, slots=True)
class Growth:
    """An object has a worker, and wants more there than is reserved for it."""

    worker: str
    before: Reserved
    after: Reserved
    total: Amounts
    """All that it would ask for."""

    @classmethod
    def of(cls, worker: str, before: Reserved, after: Reserved) -> "Growth":
        return cls(worker, before, after, after.requests)

    @property
    def shape(self) -> tuple[object, ...]:
        """All that a decision depends on, the difference aside."""
        return self.worker, tuple(sorted(self.total.items()))

    @property
    def requests(self) -> dict[str, int]:
        """The difference: what there has to be room for."""
        before = self.before.requests
        more = {name: amount - before.get(name, 0) for name, amount in self.total.items()}
        return {name: amount for name, amount in more.items() if amount > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An object that wants a worker, or more of the one that it has."""

    ref: Ref
    namespace: str
    name: str
    queue: str
    priority: int = 0
    created: str = ""
    version: str = ""
    """The resourceVersion that is decided on. Whoever writes the decision down asks for it."""
    requests: Amounts = field(default_factory=dict)
    gang: Gang = ()
    """The pods that it asks for, each with what it needs of a node."""
    clusters: frozenset[str] | None = None
    """The workers that its user allows."""
    avoid: Mapping[str, str] = field(default_factory=dict)
    """The workers that refused it, and why."""
    problem: str = ""
    """Why it cannot be placed whatever happens, until it is changed."""
    growth: Growth | None = None
    """It runs, and asks for the difference."""
    preemptible: bool = True
    """It may be stopped for others; if not, it is placed on its queue's own quota only."""
    preemptions: int = 0
    """How often it was stopped while its queue borrowed."""
    stopped: float | None = None
    """When it was last stopped for another one."""
    run_seconds: float | None = None
    """After so many seconds on a worker it is gone, whatever happens; None: nobody knows."""
    claim: Claim | None = None
    """Where room is kept for it, as it is written down."""


def candidate(
    ref: Ref,
    obj: Json,
    *,
    queue: str,
    requests: Amounts,
    gang: Gang = (),
    avoid: Mapping[str, str] = MappingProxyType({}),
    growth: Growth | None = None,
    run_seconds: float | None = None,
) -> Candidate:
    """An object of any kind, as something to place, or to let grow."""
    metadata = obj["metadata"]
    priority, clusters, problem = 0, None, ""
    try:
        priority, clusters = priority_of(obj), allowed_clusters(obj)
        check_preemptible(obj)
    except SpecError as error:
        problem = str(error)
    return Candidate(
        ref=ref,
        namespace=metadata["namespace"],
        name=metadata["name"],
        queue=queue,
        priority=priority,
        created=metadata.get("creationTimestamp") or "",
        version=metadata["resourceVersion"],
        requests=requests,
        gang=gang,
        clusters=clusters,
        avoid=dict(avoid),
        problem=problem,
        growth=growth,
        preemptible=is_preemptible(obj),
        preemptions=preemptions_of(obj),
        stopped=preempted_at_of(obj),
        run_seconds=run_seconds,
        claim=claim_of(obj) if growth is None else None,
    )

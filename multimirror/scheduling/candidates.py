"""What placement knows about workers, queues and Jobs: plain values, read from our API and from the caches."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from multimirror.api import MirrorQueueSpec, SpecError, WorkerClusterSpec, allowed_clusters, priority_of
from multimirror.batch import Json
from multimirror.kinds.pod_sets import Amounts, job_requests
from multimirror.reconcile.decide import Policy
from multimirror.workers import WorkerState


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker cluster, as a place for Jobs."""

    name: str
    spec: WorkerClusterSpec = field(default_factory=WorkerClusterSpec)
    state: WorkerState = field(default_factory=lambda: WorkerState(connected=True))
    recorded: bool = True
    """Its status says that it is connected; see the fence."""

    @property
    def capacity(self) -> Amounts | None:
        """Declared, or found; None: not known, and no limit."""
        return self.spec.capacity if self.spec.capacity is not None else self.state.capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A Job that wants a worker."""

    uid: str
    namespace: str
    name: str
    queue: str
    priority: int = 0
    created: str = ""
    requests: Amounts = field(default_factory=dict)
    clusters: frozenset[str] | None = None
    """The workers that its user allows."""
    avoid: Mapping[str, str] = field(default_factory=dict)
    """The workers that refused it, and why."""
    problem: str = ""
    """Why it cannot be placed whatever happens, until it is changed."""


def candidate(job: Json, queue: str, avoid: Mapping[str, str]) -> Candidate:
    """The Job, as something to place."""
    metadata = job["metadata"]
    priority, clusters, problem = 0, None, ""
    try:
        priority, clusters = priority_of(job), allowed_clusters(job)
    except SpecError as error:
        problem = str(error)
    return Candidate(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        queue=queue,
        priority=priority,
        created=metadata.get("creationTimestamp") or "",
        requests=job_requests(job),
        clusters=clusters,
        avoid=dict(avoid),
        problem=problem,
    )


def policy_of(queue: MirrorQueueSpec | None) -> Policy:
    """What a queue says about Jobs that run; the defaults where there is no such queue any more."""
    queue = queue or MirrorQueueSpec()
    lost = queue.on_worker_lost
    policy = Policy(lost_after=lost.after, when_lost=lost.action.value, retention=queue.retention)
    return replace(policy, grace=queue.fence.grace) if queue.fence is not None else policy

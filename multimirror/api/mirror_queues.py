"""MirrorQueue: who may send Jobs, to which clusters, how many at a time, and what happens when a cluster is lost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Final, Self

from multimirror.api import schema
from multimirror.api.reading import Fields, SpecError, read_spec
from multimirror.api.schema import Schema, rule
from multimirror.batch import Json, selector_matches

DEFAULT_LOST_AFTER: Final = "5m"
DEFAULT_RETENTION: Final = "10m"
DEFAULT_GRACE: Final = "30s"
SHORTEST_FENCE: Final = 10


class Placement(StrEnum):
    """How one of the clusters that would do is chosen."""

    SPREAD = "Spread"
    PACK = "Pack"
    ORDERED = "Ordered"
    WEIGHTED = "Weighted"


class QueueingStrategy(StrEnum):
    """Whether Jobs may pass one that does not fit."""

    BEST_EFFORT_FIFO = "BestEffortFIFO"
    STRICT_FIFO = "StrictFIFO"


class LostAction(StrEnum):
    """What happens to the Jobs of a cluster that is lost."""

    REDISPATCH = "Redispatch"
    WAIT = "Wait"
    FAIL = "Fail"


class Hold(StrEnum):
    """Whether a queue places its Jobs, and keeps those that run."""

    NONE = "None"
    HOLD = "Hold"
    DRAIN = "Drain"


@dataclass(frozen=True, slots=True)
class QueueWorkers:
    """The clusters of a queue: those named, in this order, and those selected."""

    names: tuple[str, ...] = ()
    selector: Json | None = field(default_factory=dict)

    def include(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a cluster with this name and these labels is one of them."""
        return name in self.names or selector_matches(self.selector, labels)

    def rank(self, name: str) -> tuple[int, str]:
        """Sorts clusters for `Ordered`: named ones as listed, then the others by name."""
        return (self.names.index(name) if name in self.names else len(self.names), name)


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that Jobs of a queue may have running at a time. None, or a resource not named: no limit."""

    jobs: int | None = None
    resources: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OnWorkerLost:
    """After so many seconds without contact, this is done."""

    after: float
    action: LostAction


@dataclass(frozen=True, slots=True)
class Fence:
    """Copies end by themselves `timeout` seconds after the last contact; `grace` seconds later the Job may move."""

    timeout: float
    grace: float


@dataclass(frozen=True, slots=True)
class MirrorQueueSpec:
    """What a MirrorQueue asks for."""

    namespace_selector: Json = field(default_factory=dict)
    workers: QueueWorkers = field(default_factory=QueueWorkers)
    placement: Placement = Placement.SPREAD
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    max_priority: int | None = None
    """Up to this one, the priorities of Jobs count for others; None: only among a namespace's own Jobs."""
    quota: Quota = field(default_factory=Quota)
    on_worker_lost: OnWorkerLost = field(default_factory=lambda: OnWorkerLost(300.0, LostAction.REDISPATCH))
    retention: float = 600.0
    """How many seconds a finished copy, its pods and their logs stay on the worker cluster."""
    fence: Fence | None = None
    hold: Hold = Hold.NONE

    @classmethod
    def read(cls, obj: Json) -> Self:
        """The spec of a MirrorQueue. Raises SpecError."""
        spec = read_spec(obj, "MirrorQueue")
        quota, lost = spec.part("quota"), spec.part("onWorkerLost")
        selector = spec.selector("namespaceSelector")
        return cls(
            namespace_selector={} if selector is None else selector,
            workers=_workers(spec.part("workers")) if "workers" in spec else QueueWorkers(),
            placement=spec.choice("placement", Placement.SPREAD),
            queueing_strategy=spec.choice("queueingStrategy", QueueingStrategy.BEST_EFFORT_FIFO),
            max_priority=spec.optional_number("maxPriority", minimum=0),
            quota=Quota(quota.optional_number("jobs", minimum=0), quota.quantities("resources")),
            on_worker_lost=OnWorkerLost(
                lost.seconds("after", DEFAULT_LOST_AFTER), lost.choice("action", LostAction.REDISPATCH)
            ),
            retention=spec.seconds("retention", DEFAULT_RETENTION),
            fence=_fence(spec.part("fence")) if "fence" in spec else None,
            hold=spec.choice("hold", Hold.NONE),
        )

    def admits(self, namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether a namespace with these labels may use the queue."""
        return selector_matches(self.namespace_selector, namespace_labels)


def _workers(fields: Fields) -> QueueWorkers:
    names, selector = fields.names("names"), fields.selector("selector")
    if not names and selector is None:
        raise SpecError(fields.path, _SOME_WORKERS)
    return QueueWorkers(names, selector)


def _fence(fields: Fields) -> Fence:
    return Fence(fields.seconds("timeout", None, minimum=SHORTEST_FENCE), fields.seconds("grace", DEFAULT_GRACE))


_SOME_WORKERS: Final = "give names, a selector, or both; an empty selector ({}) means all clusters"


def spec_schema() -> Schema:
    """The schema of spec."""
    return schema.struct(
        "Who may use the queue, and what becomes of their Jobs.",
        {
            "namespaceSelector": schema.label_selector(
                "The namespaces, by their labels, whose Jobs may use the queue. Empty, as without it: all.", default={}
            ),
            "workers": _workers_schema(),
            "placement": schema.choice(
                "How a cluster is chosen among those that would do. Spread: the one with most room left. Pack: the "
                "one with least. Ordered: the first, in the order of workers.names. Weighted: by their weights.",
                Placement.SPREAD,
            ),
            "queueingStrategy": schema.choice(
                "Jobs go by priority, then by age. BestEffortFIFO: one that does not fit is passed by others. "
                "StrictFIFO: all wait behind it, unless it is its own wishes that it waits for.",
                QueueingStrategy.BEST_EFFORT_FIFO,
            ),
            "maxPriority": schema.whole(
                "The highest multimirror.dev/priority that a Job may have, over the Jobs of other namespaces and of "
                "other queues. Jobs above it are refused; those that were there before count as this one. Without it: "
                "any, and it counts among the Jobs of their own namespace only.",
                maximum=999_999_999,
            ),
            "quota": schema.struct(
                "The most that may be given to clusters at a time, over all clusters. Other Jobs wait.",
                {
                    "jobs": schema.whole("Jobs. 0 holds the queue."),
                    "resources": schema.quantities(
                        "Amounts of cpu, memory and any other resource: the requests of a Job's pods times parallelism."
                    ),
                },
            ),
            "onWorkerLost": schema.struct(
                "What happens to a Job when its cluster cannot be reached any more.",
                {
                    "after": schema.duration("How long without contact, such as 5m.", default=DEFAULT_LOST_AFTER),
                    "action": schema.choice(
                        "Redispatch: another cluster gets it (it may still run on the lost one, unless the queue has a "
                        "fence). Wait: for as long as it takes. Fail: the Job fails.",
                        LostAction.REDISPATCH,
                    ),
                },
                default={},
            ),
            "retention": schema.duration(
                "How long a finished copy, with its pods and logs, stays on its cluster. 0s: not at all.",
                default=DEFAULT_RETENTION,
            ),
            "fence": _fence_schema(),
            "hold": schema.choice(
                "Hold: nothing is placed, what runs goes on. Drain: what runs is stopped, too, and waits in its place "
                "until the queue is released.",
                Hold.NONE,
            ),
        },
    )


def _workers_schema() -> Schema:
    workers = schema.struct(
        "The clusters that the Jobs may go to: those named and those selected. Without it: all.",
        {
            "names": schema.name_set(
                "WorkerClusters by name, in the order that the placement Ordered follows.",
                schema.text("The name of a WorkerCluster.", pattern=schema.DNS_SUBDOMAIN, limit=63),
                limit=256,
            ),
            "selector": schema.label_selector("WorkerClusters by their spec.labels. Empty: all."),
        },
        default={"selector": {}},
    )
    some = "has(self.selector) || (has(self.names) && size(self.names) > 0)"
    return schema.ruled(workers, rule(some, _SOME_WORKERS))


def _fence_schema() -> Schema:
    short = rule(f"duration(self) >= duration('{SHORTEST_FENCE}s')", f"must be at least {SHORTEST_FENCE}s")
    return schema.struct(
        "At most one copy ever runs, even during a network partition: a cluster that is cut off ends the copy itself, "
        "by its deadline, which is pushed forward while there is contact.",
        {
            "timeout": schema.duration("How long a copy may run without contact, such as 5m.", short),
            "grace": schema.duration(
                "How much longer than that, and than the pods' own time to stop, we wait before the Job moves: for a "
                "Job controller that is slow, and clocks that differ.",
                default=DEFAULT_GRACE,
            ),
        },
        required=("timeout",),
    )


def status_schema() -> Schema:
    """The schema of status."""
    worker = schema.struct(
        "What this queue has on one cluster.",
        {
            "name": schema.text("The WorkerCluster."),
            "running": schema.whole("Jobs there that have not finished."),
            "finished": schema.whole("Finished Jobs that it had, and that are still on the management cluster."),
        },
        required=("name",),
    )
    head = schema.struct(
        "The Job that would go next, and why it waits.",
        {
            "job": schema.text("Its namespace and name.", limit=320),
            "since": schema.timestamp("Since when it waits."),
            "reason": schema.text("Why, in one CamelCase word.", limit=128),
            "message": {"type": "string", "description": "Why, in words.", "maxLength": 32768},
        },
    )
    return schema.struct(
        "How the queue is doing. Written by multimirror.",
        {
            "observedGeneration": schema.generation("The generation of the spec that this status answers."),
            "conditions": schema.conditions("Ready: Jobs are taken. With the reason why not."),
            "pending": schema.whole("Jobs that wait."),
            "running": schema.whole("Jobs that were given to a cluster and have not finished."),
            "finished": schema.whole("Finished Jobs that are still there."),
            "workers": schema.keyed("By cluster.", worker, "name", limit=4096),
            "head": head,
        },
    )


def printer_columns() -> list[Json]:
    """What `kubectl get` shows."""
    return [
        {
            "name": "Placement",
            "type": "string",
            "jsonPath": ".spec.placement",
            "description": "How clusters are chosen",
        },
        {"name": "Pending", "type": "integer", "jsonPath": ".status.pending", "description": "Jobs that wait"},
        {"name": "Running", "type": "integer", "jsonPath": ".status.running", "description": "Jobs on a cluster"},
        {
            "name": "Waiting",
            "type": "string",
            "jsonPath": ".status.head.reason",
            "description": "Why the next Job waits",
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Finished", "type": "integer", "jsonPath": ".status.finished", "priority": 1},
        {"name": "Lost", "type": "string", "jsonPath": ".spec.onWorkerLost.action", "priority": 1},
        {"name": "Why", "type": "string", "jsonPath": ".status.head.message", "priority": 1},
    ]

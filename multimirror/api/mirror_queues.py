"""MirrorQueue: who may send Jobs, to which clusters, how many at a time, with whom it shares, and what happens when a
cluster is lost.

Here is what its users say (spec); what they are told (status) is in mirror_queue_status. A queue without a cohort
shares with nobody: its quota is a limit, and its Jobs are stopped only by Jobs of its own (`preempts: [Priority]`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final, Self

from multimirror.api import schema
from multimirror.api.quotas import Quota, queue_quota_schema, read_queue_quota, sharing_rules
from multimirror.api.reading import Fields, SpecError, read_spec
from multimirror.api.schema import Schema, rule
from multimirror.batch import Json, selector_matches

DEFAULT_LOST_AFTER: Final = "5m"
DEFAULT_RETENTION: Final = "10m"
DEFAULT_GRACE: Final = "30s"
DEFAULT_WEIGHT: Final = 1
DEFAULT_MIN_RUNTIME: Final = "0s"
DEFAULT_ATTEMPTS: Final = 3
SHORTEST_FENCE: Final = 10
SHORTEST_START: Final = 10
MOST_ATTEMPTS: Final = 10
SHORTEST_HEAD_WAIT: Final = 1


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


class Preempts(StrEnum):
    """For what the Jobs of a queue may stop others."""

    RECLAIM = "Reclaim"
    FAIR_SHARE = "FairShare"
    PRIORITY = "Priority"


class Hold(StrEnum):
    """Whether a queue places Jobs, and what becomes of those that run when it does not."""

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
class Start:
    """Pods that are not ready `within` seconds: the Job is taken back and tried elsewhere, `attempts` times in all."""

    within: float
    attempts: int = DEFAULT_ATTEMPTS


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
    cohort: str | None = None
    """With whose queues it shares what it does not use; None: with nobody."""
    weight: Fraction = Fraction(DEFAULT_WEIGHT)
    """Its part of what the others of its cohort leave over; 0: only what nobody else wants."""
    preempts: frozenset[Preempts] = frozenset()
    min_runtime: float = 0.0
    """For so many seconds its Jobs are not stopped for others."""
    head_wait: float | None = None
    """After so many seconds the first Job that waits keeps what becomes free; None: never."""
    start: Start | None = None
    hold: Hold = Hold.NONE

    @classmethod
    def read(cls, obj: Json) -> Self:
        """The spec of a MirrorQueue. Raises SpecError."""
        spec = read_spec(obj, "MirrorQueue")
        cohort, lost = spec.label_name("cohort"), spec.part("onWorkerLost")
        selector = spec.selector("namespaceSelector")
        return cls(
            namespace_selector={} if selector is None else selector,
            workers=_workers(spec.part("workers")) if "workers" in spec else QueueWorkers(),
            placement=spec.choice("placement", Placement.SPREAD),
            queueing_strategy=spec.choice("queueingStrategy", QueueingStrategy.BEST_EFFORT_FIFO),
            max_priority=spec.optional_number("maxPriority", minimum=0),
            quota=read_queue_quota(spec.part("quota"), cohort),
            on_worker_lost=OnWorkerLost(
                lost.seconds("after", DEFAULT_LOST_AFTER), lost.choice("action", LostAction.REDISPATCH)
            ),
            retention=spec.seconds("retention", DEFAULT_RETENTION),
            fence=_fence(spec.part("fence")) if "fence" in spec else None,
            cohort=cohort,
            weight=spec.weight("weight", DEFAULT_WEIGHT),
            preempts=_preempts(spec, cohort),
            min_runtime=spec.seconds("minRuntime", DEFAULT_MIN_RUNTIME),
            head_wait=spec.seconds("headWait", None, minimum=SHORTEST_HEAD_WAIT) if "headWait" in spec else None,
            start=_start(spec.part("start")) if "start" in spec else None,
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


def _preempts(spec: Fields, cohort: str | None) -> frozenset[Preempts]:
    if "preempts" not in spec:
        return frozenset() if cohort is None else frozenset({Preempts.RECLAIM})
    found = spec.choices("preempts", Preempts)
    if cohort is None and found - {Preempts.PRIORITY}:
        raise spec.error("preempts", _PREEMPTS_ALONE)
    return found


def _start(fields: Fields) -> Start:
    return Start(
        fields.seconds("within", None, minimum=SHORTEST_START),
        fields.number("attempts", DEFAULT_ATTEMPTS, minimum=1, maximum=MOST_ATTEMPTS),
    )


_SOME_WORKERS: Final = "give names, a selector, or both; an empty selector ({}) means all clusters"
_PREEMPTS_ALONE: Final = (
    "Reclaim and FairShare need spec.cohort: without one there are no other queues to take from. Name a cohort, or "
    "leave [Priority]"
)


def spec_schema() -> Schema:
    """The schema of spec."""
    spec = schema.struct(
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
            "quota": queue_quota_schema(),
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
            **_sharing_schemas(),
            "headWait": _head_wait_schema(),
            "start": _start_schema(),
            "hold": schema.choice(
                "None: Jobs are placed. Hold: no more Jobs are placed; those that run go on, and what the queue does "
                "not use is still lent. Drain: Hold, and those that run are taken back and wait.",
                Hold.NONE,
            ),
        },
    )
    shared = "has(self.cohort) || !has(self.preempts) || self.preempts.all(each, each == 'Priority')"
    return schema.ruled(
        spec, *sharing_rules("cohort"), rule(shared, f"preempts: {_PREEMPTS_ALONE}", fieldPath=".preempts")
    )


def _sharing_schemas() -> dict[str, Schema]:
    """What a queue says about others: the schemas by field."""
    return {
        "cohort": schema.text(
            "The queues that name the same cohort share what they do not use. It needs no object; one of kind Cohort "
            "gives it a parent, a weight or a pool. Without it: the queue shares with nobody.",
            pattern=schema.DNS_LABEL,
            limit=63,
        ),
        "weight": schema.weight(
            "Its part of what is left over in its cohort, relative to the cohort's other queues: a number such as 2 or "
            '"0.5". 0: only what nobody else wants.',
            DEFAULT_WEIGHT,
        ),
        "preempts": schema.name_set(
            "For what its Jobs may stop others. Reclaim: to get its own quota back from those who borrow it. "
            "FairShare: to get its part of what is left over from those who have more. Priority: one of this queue "
            "with lower priority. Without it: Reclaim in a cohort, nothing without one. []: nothing.",
            schema.optional_choice("One of them.", Preempts),
            limit=len(Preempts),
        ),
        "minRuntime": schema.duration(
            "How long its Jobs run at least before they are stopped for others, such as 10m. For Reclaim, half of it "
            "counts.",
            default=DEFAULT_MIN_RUNTIME,
        ),
    }


def _head_wait_schema() -> Schema:
    short = rule(f"duration(self) >= duration('{SHORTEST_HEAD_WAIT}s')", f"must be at least {SHORTEST_HEAD_WAIT}s")
    return schema.duration(
        "How long a Job waits for room, such as 15m, before room is kept for it: on one cluster, and of what is due to "
        "the queue. Others get that only if they surely end before (activeDeadlineSeconds), or come first by "
        "priority. One Job of the queue at a time. Without it: those that fit may pass a large Job for ever.",
        short,
    )


def _start_schema() -> Schema:
    short = rule(f"duration(self) >= duration('{SHORTEST_START}s')", f"must be at least {SHORTEST_START}s")
    return schema.struct(
        "A Job whose pods do not all become ready is taken back, and tried on another cluster. Without it: it stays.",
        {
            "within": schema.duration("How long they may take, from when the cluster got the Job, such as 10m.", short),
            "attempts": schema.whole(
                "How many clusters are tried, before the Job is held for somebody to look at it.",
                minimum=1,
                maximum=MOST_ATTEMPTS,
                default=DEFAULT_ATTEMPTS,
            ),
        },
        required=("within",),
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

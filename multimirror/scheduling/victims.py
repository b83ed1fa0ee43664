"""What a search for room is given, and what it answers: plain values (`preemption` is the search)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from multimirror.api import Preempts
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.quota import Short
from multimirror.scheduling.running import RunningJob, RunningSnapshot
from multimirror.scheduling.shares import Share


class Plan(StrEnum):
    RECLAIM = "Reclaim"
    PRIORITY = "Priority"
    BOTH = "Both"
    FAIR_SHARE = "FairShare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """The Job that needs room."""

    uid: str
    queue: str
    requests: Amounts
    priority: int = 0
    preempts: frozenset[Preempts] = frozenset()
    """What its queue allows."""
    own_quota_only: bool = False
    """It is never to be stopped, or was stopped too often while it borrowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What else a search looks at. Times are in seconds."""

    running: RunningSnapshot
    leaving: Collection[str] = frozenset()
    """The uids of those that are being stopped, or are finishing."""
    now: float = 0.0
    min_runtime: Mapping[str, float] = field(default_factory=dict)
    """By queue."""
    unready: Collection[str] = frozenset()
    """Workers on which nothing can be stopped now: a Job there makes no room, but gives its quota back in time."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a side of a fork uses of a resource, and has: a queue, or a cohort."""

    name: str
    is_queue: bool
    used: int
    own: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The numbers by which a Job of another queue may be stopped: usage as it was, shares as they will be."""

    resource: str
    asked: int
    taker: Standing
    giver: Standing
    taker_share: Share
    giver_share: Share


@dataclass(frozen=True, slots=True)
class Victim:
    job: RunningJob
    reason: Preempts
    compared: Compared | None = None
    """None: of the same queue; then the two priorities say it."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """These are to be stopped. None of them is too many."""

    plan: Plan
    victims: tuple[Victim, ...]
    worker: str | None = None
    """Where there will be room; None: no workers were given."""
    contended: tuple[str, ...] = ()
    tried: tuple[tuple[str, int], ...] = ()
    """The other workers that would have done, and how many would have had to be stopped for them."""


@dataclass(frozen=True, slots=True)
class NobodyToStop:
    """Nobody, or not enough, may be stopped for it."""

    short: tuple[Short, ...]
    """What is missing of quota; nothing: only room is."""
    cut: bool = False
    """There were more candidates than are looked at."""
    room: tuple[str, str] | None = None
    """The worker that is nearest to have room for it, and of what there is too little; None: what is short is quota."""


@dataclass(frozen=True, slots=True)
class Protected:
    """These would make room, but have not run long enough yet: `until` then."""

    jobs: tuple[RunningJob, ...]
    """The one first that is left alone longest."""
    until: float


@dataclass(frozen=True, slots=True)
class OwnQuotaOnly:
    """It may not borrow, and cannot have so much of its queue's own quota; `available` is what is left of that."""

    short: tuple[Short, ...]


@dataclass(frozen=True, slots=True)
class NobodyThere:
    """Only room is short, and no queue of the tree has anything of that on a worker that could take the Job: it is not
    for want of victims that it waits. What is there belongs to others, or no worker that is open is large enough."""


NoPreemption = NobodyToStop | NobodyThere | Protected | OwnQuotaOnly

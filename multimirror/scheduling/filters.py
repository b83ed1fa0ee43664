"""May it go there? Each filter is a function that names its objection, or none.

A pass asks them thousands of times, so they are asked in the order that costs least: what is the same for everybody
once (`is_open`), then the room (`has_room`), then what depends on the candidate (`is_welcome`). People are told the
first objection in the order that helps most (`result`), and the words are made only when somebody reads them: from the
numbers that were compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from multimirror.api import is_protected
from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.candidates import Candidate, WorkerSnapshot
from multimirror.scheduling.free_room import FreeRoom
from multimirror.scheduling.slot_words import never_places, places_asked_for, too_few_places
from multimirror.scheduling.slot_words import text as text  # noqa: PLC0414 - amounts are written the same everywhere
from multimirror.scheduling.slots import fits_when_empty, is_extended
from multimirror.scheduling.usage import Usage
from multimirror.scheduling.waiting import Asked, Waiter

NO_ROOM: Final = "no worker cluster can take it now"


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker at one moment of a pass: what it is, what it has, and what is used of it."""

    name: str
    snapshot: WorkerSnapshot
    capacity: Amounts
    usage: Usage
    left: Amounts
    weight: int
    is_full: bool
    """It has as many Jobs as it may."""
    lists_all: bool = False
    """What of the extended resources is not listed is not there; else it has no limit."""
    free: FreeRoom | None = None
    """What is left on its nodes, where that is known, as everybody sees it."""
    whole: FreeRoom | None = None
    """The same, with what is kept for others."""

    @classmethod
    def of(
        cls,
        snapshot: WorkerSnapshot,
        capacity: Amounts,
        usage: Usage,
        free: FreeRoom | None = None,
        whole: FreeRoom | None = None,
    ) -> "WorkerInfo":
        used = usage.resources
        left = {name: amount - used.get(name, 0) for name, amount in capacity.items()}
        weight, limit, most, jobs = snapshot.spec.weight, snapshot.spec.max_jobs, snapshot.most_jobs, usage.jobs
        full = (limit is not None and jobs >= limit) or (most is not None and jobs >= most)
        return cls(snapshot.name, snapshot, capacity, usage, left, weight, full, snapshot.lists_all, free, whole)

    def fullness(self, asked: Asked) -> float:
        """How full it would be of what is asked for, from 0 to 1."""
        capacity, usage, most = self.capacity, self.usage.resources, 0.0
        for name, amount in asked:
            total = capacity.get(name)
            if total:
                most = max(most, (usage.get(name, 0) + amount) / total)
        return most


@dataclass(frozen=True, slots=True)
class FilterResult:
    """One worker, for one candidate: whether it would do, and what there is to say about it."""

    worker: str
    fits: bool
    why: str
    never: bool = False
    """Not even if nothing else ran there."""


# --- the quota of the queue


@dataclass(frozen=True, slots=True)
class AboveQuota:
    """It asks for more than there is in all."""

    queue: str
    resource: str
    asked: int
    limit: int

    def __str__(self) -> str:
        asked, limit = text(self.asked), text(self.limit)
        return (
            f"it asks for {asked} {self.resource}, more than the whole quota of queue {self.queue} ({limit}). Raise "
            "quota.resources of the queue, or ask for less"
        )


@dataclass(frozen=True, slots=True)
class QuotaUsed:
    """It asks for more than is left; without a resource: the number of Jobs is reached."""

    queue: str
    resource: str = ""
    asked: int = 0
    left: int = 0
    limit: int = 0
    jobs: int = 0

    def __str__(self) -> str:
        if not self.resource:
            jobs = "1 Job" if self.jobs == 1 else f"{self.jobs} Jobs"
            return f"queue {self.queue} runs {jobs}, as many as its quota allows (quota.jobs)"
        left, asked = text(max(0, self.left)), text(self.asked)
        used = f"{text(self.limit - self.left)} of {text(self.limit)} are used"
        return f"queue {self.queue} has {left} {self.resource} left of its quota, it asks for {asked}: {used}"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """A queue's quota, as amounts."""

    queue: str
    jobs: int | None
    resources: Amounts

    def exceeded(self, requests: Amounts, usage: Usage) -> AboveQuota | QuotaUsed | None:
        """Why the quota leaves no room for these requests."""
        for resource, limit in self.resources.items():
            asked = requests.get(resource, 0)
            if asked > limit:
                return AboveQuota(self.queue, resource, asked, limit)
        if self.jobs is not None and usage.jobs >= self.jobs:
            return QuotaUsed(self.queue, jobs=usage.jobs)
        for resource, limit in self.resources.items():
            asked, left = requests.get(resource, 0), limit - usage.of(resource)
            if asked and asked > left:
                return QuotaUsed(self.queue, resource, asked, left, limit)
        return None


# --- one worker, without room: each names its objection, or none


def not_allowed(candidate: Candidate, info: WorkerInfo) -> str:
    if candidate.clusters is not None and info.name not in candidate.clusters:
        return "not among the Job's multimirror.dev/clusters"
    return ""


def not_ready(info: WorkerInfo) -> str:
    state = info.snapshot.state
    return "" if state.ready else f"not ready: {state.why_not_ready[1]}"


def cordoned(info: WorkerInfo) -> str:
    return "cordoned" if info.snapshot.spec.cordoned else ""


def not_recorded(info: WorkerInfo) -> str:
    """For queues with a fence: whoever comes after us has to know that there was contact."""
    if info.snapshot.recorded:
        return ""
    return "its status does not say yet that it is connected, and the queue has a fence"


def namespace_not_there(candidate: Candidate, info: WorkerInfo) -> str:
    namespace = info.snapshot.spec.namespace_for(candidate.namespace)
    if namespace is None:
        never = info.snapshot.spec.namespaces is None and is_protected(candidate.namespace)
        why = f"; no Job goes to {candidate.namespace} of a worker" if never else ""
        return f"takes no Jobs from namespace {candidate.namespace}{why}"
    there = info.snapshot.state.namespaces
    if there is not None and namespace not in there:
        return f"has no namespace {namespace}"
    return info.snapshot.state.unfollowed.get((candidate.ref.kind, namespace), "")


def refused_before(candidate: Candidate, info: WorkerInfo) -> str:
    return candidate.avoid.get(info.name, "")


def is_open(info: WorkerInfo, *, fenced: bool) -> bool:
    """Whether it takes anything now, whoever asks: answered once in a pass."""
    return not (not_ready(info) or cordoned(info) or (fenced and not_recorded(info)))


def is_welcome(candidate: Candidate, info: WorkerInfo) -> bool:
    """Whether a worker that is open takes this one, if it has room."""
    return not (not_allowed(candidate, info) or namespace_not_there(candidate, info) or refused_before(candidate, info))


# --- the room on it


def short_of(asked: Asked, there: Amounts, *, lists_all: bool = False) -> str | None:
    """The first resource of which more is asked than is there; what is not listed has no limit, unless it would be
    listed if it were there."""
    for name, amount in asked:
        amount_there = there.get(name)
        if amount_there is None:
            if lists_all and is_extended(name):
                return name
        elif amount_there < amount:
            return name
    return None


def has_room(waiter: Waiter, info: WorkerInfo) -> bool:
    """Now."""
    return (
        not info.is_full
        and short_of(waiter.asked, info.left, lists_all=info.lists_all) is None
        and (info.free is None or info.free.fits(waiter.candidate.gang))
    )


def could_take(waiter: Waiter, info: WorkerInfo) -> bool:
    """If nothing else ran there."""
    return short_of(waiter.asked, info.capacity, lists_all=info.lists_all) is None and (
        info.free is None or fits_when_empty(info.free.table, waiter.candidate.gang)
    )


def is_too_large(waiter: Waiter, info: WorkerInfo) -> bool:
    """It would not fit even if nothing else ran there, and nothing else is in its way."""
    return not could_take(waiter, info) and not info.is_full and is_welcome(waiter.candidate, info)


def lacked_by_all(asked: Asked, workers: Iterable[WorkerInfo]) -> str | None:
    """The first resource that none of the workers has any of."""
    infos = tuple(workers)

    def lacks(info: WorkerInfo, name: str) -> bool:
        return not info.capacity.get(name, 0 if info.lists_all and is_extended(name) else 1)

    return next((name for name, _ in asked if all(lacks(info, name) for info in infos)), None)


# --- in words


def result(waiter: Waiter, worker: str, info: WorkerInfo | None, *, fenced: bool) -> FilterResult:
    """What there is to say about one worker (None: nobody has made it), the first objection of all."""
    if info is None:
        return FilterResult(worker, fits=False, why="there is no such WorkerCluster")
    candidate, jobs = waiter.candidate, info.usage.jobs
    why = (
        not_allowed(candidate, info)
        or not_ready(info)
        or cordoned(info)
        or (not_recorded(info) if fenced else "")
        or namespace_not_there(candidate, info)
        or refused_before(candidate, info)
        or (_full(info) if info.is_full else "")
    )
    if why:
        return FilterResult(worker, fits=False, why=why)
    resource = short_of(waiter.asked, info.capacity, lists_all=info.lists_all)
    if resource is not None:
        return FilterResult(worker, fits=False, why=_too_little(waiter, resource, info.capacity, "in all"), never=True)
    resource = short_of(waiter.asked, info.left, lists_all=info.lists_all)
    if resource is not None:
        return FilterResult(worker, fits=False, why=_too_little(waiter, resource, info.left, "left"))
    gang = candidate.gang
    if info.free is not None and not fits_when_empty(info.free.table, gang):
        return FilterResult(worker, fits=False, why=never_places(info.free.table, gang), never=True)
    if info.free is not None and not info.free.fits(gang):
        return FilterResult(worker, fits=False, why=too_few_places(info.free.table, gang))
    full = info.fullness(waiter.asked)
    why = f"{jobs} Job{'' if jobs == 1 else 's'} there" + (f", would be {full:.0%} full" if full else "")
    return FilterResult(worker, fits=True, why=why)


def _full(info: WorkerInfo) -> str:
    jobs, limit = info.usage.jobs, info.snapshot.spec.max_jobs
    if limit is not None and jobs >= limit:
        return f"it runs {jobs} Jobs, as many as it may"
    return f"one Job is tried there: {info.snapshot.suspicion}"


def _too_little(waiter: Waiter, resource: str, there: Amounts, which: str) -> str:
    asked = text(waiter.candidate.requests[resource])
    return f"has {text(there.get(resource, 0))} {resource} {which}, the Job asks for {asked}"


def no_room(waiter: Waiter, workers: Iterable[WorkerInfo]) -> str:
    """That none of the workers can take it, in words: with how many places it asks for, if one of them has too few."""
    gang = waiter.candidate.gang
    counted = ((info, info.free) for info in workers if info.free is not None)
    if any(is_welcome(waiter.candidate, info) and not free.fits(gang) for info, free in counted):
        return f"no worker cluster has {places_asked_for(gang)}"
    return NO_ROOM

"""May an object that runs have more pods? Its queue's quota and its worker are asked for the difference. Pure.

It stands in line with those that want a worker (order.py), by its priority, its namespace's turn and its age, and takes
nothing but the difference: the number of Jobs is the same. It does not move: where its own worker has no room it waits,
and holds nobody up, for it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from multimirror.scheduling.candidates import Candidate, Growth
from multimirror.scheduling.filters import (
    AboveQuota,
    QueueLimits,
    QuotaUsed,
    WorkerInfo,
    cordoned,
    not_ready,
    short_of,
    text,
)
from multimirror.scheduling.refusals import Objection
from multimirror.scheduling.slot_words import too_few_places
from multimirror.scheduling.usage import Usage


@dataclass(frozen=True, slots=True)
class GrowthWaits:
    """In words, made when they are read."""

    growth: Growth
    why: object

    def __str__(self) -> str:
        before, after = (sum(each.granted.values()) for each in (self.growth.before, self.growth.after))
        worker = self.growth.worker
        return f"it runs on worker {worker} with room for {_pods(before)}, and waits to grow to {after}: {self.why}"


def objection(
    candidate: Candidate, growth: Growth, limits: QueueLimits, used: Usage, info: WorkerInfo | None
) -> Objection | None:
    """`used`: of the quota. `info`: its worker; None: nobody has made it."""
    for resource, limit in limits.resources.items():
        asked = growth.total.get(resource, 0)
        if asked > limit and candidate.requests.get(resource):
            return Objection("GrowthNeverFits", GrowthWaits(growth, AboveQuota(limits.queue, resource, asked, limit)))
    for resource, limit in limits.resources.items():
        asked, left = candidate.requests.get(resource, 0), limit - used.of(resource)
        if asked and asked > left:
            return Objection("GrowthWaits", GrowthWaits(growth, QuotaUsed(limits.queue, resource, asked, left)))
    if info is None:
        return Objection("GrowthWaits", GrowthWaits(growth, "there is no such WorkerCluster"))
    why = not_ready(info) or cordoned(info)
    if why:
        return Objection("GrowthWaits", GrowthWaits(growth, f"the worker is {why}"))
    short = short_of(_asked(growth.total, candidate.requests), info.capacity)
    if short is not None:
        words = f"the worker has {text(info.capacity[short])} {short} in all, it asks for"
        return Objection("GrowthNeverFits", GrowthWaits(growth, f"{words} {text(growth.total[short])}"))
    short = short_of(_asked(candidate.requests, candidate.requests), info.left)
    if short is not None:
        words = f"the worker has {text(info.left[short])} {short} left, it asks for"
        return Objection("GrowthWaits", GrowthWaits(growth, f"{words} {text(candidate.requests[short])} more"))
    if info.free is not None and not info.free.fits(candidate.gang):
        words = too_few_places(info.free.table, candidate.gang)
        return Objection("GrowthWaits", GrowthWaits(growth, f"the worker {words} more"))
    return None


def is_wanted(growth: Growth, asked: Mapping[str, int]) -> bool:
    """Whether an object that asks for so many pods (by pod set) would still grow to that."""
    before = growth.before.granted
    return growth.after.granted == {name: max(asked.get(name, 0), count) for name, count in before.items()}


def _asked(amounts: Mapping[str, int], more: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if more.get(name)))


def _pods(number: int) -> str:
    return f"{number} pod{'' if number == 1 else 's'}"

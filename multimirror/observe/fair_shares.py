"""What is due to each member of a cohort of what the others leave over, by weight. Pure.

A member is due its weight's part of the surplus, relative to the weights of all who want some; what they do not want is
dealt out again. Each is told what it would get if it asked for everything: so a queue that asks for nothing today knows
what it can count on. Nobody is due more than its limit on what it borrows. Who has weight 0 is due what is left when
all others have what they want.

Found from the level to which everybody would be filled, relative to its weight. The levels at which members have enough
are sorted once; for each member a binary search finds where the surplus ends if this one never has enough.
"""

from collections.abc import Sequence
from typing import NamedTuple

from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.quota import Node, QuotaTree


class Claim(NamedTuple):
    weight: float
    wants: float
    """Beyond its own."""


def dealt(surplus: float, claims: Sequence[Claim]) -> list[float]:
    """What is due to each."""
    if surplus <= 0:
        return [0.0] * len(claims)
    weighted = [each for each, claim in enumerate(claims) if claim.weight > 0]
    weighted.sort(key=lambda each: claims[each].wants / claims[each].weight)
    levels = _Levels([claims[each] for each in weighted])
    place = {each: number for number, each in enumerate(weighted)}
    wanted = sum(claim.wants for claim in claims)
    return [
        min(surplus, levels.fill(surplus, place[number]) * claim.weight)
        if claim.weight > 0
        else max(0.0, surplus - (wanted - claim.wants))
        for number, claim in enumerate(claims)
    ]


class _Levels:
    """Claims in the order in which they have enough."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._claims = claims
        self._filled = [0.0]
        """What those before each one want."""
        for claim in claims:
            self._filled.append(self._filled[-1] + claim.wants)
        self._weights = [0.0]
        """The weights of each one and those after it, from the end."""
        for claim in reversed(claims):
            self._weights.append(self._weights[-1] + claim.weight)
        self._weights.reverse()

    def fill(self, surplus: float, insatiable: int) -> float:
        """The level at which the surplus ends, if this one never has enough."""
        low, high = 0, len(self._claims)
        while low < high:
            middle = (low + high) // 2
            claim = self._claims[middle]
            if self._poured(claim.wants / claim.weight, middle, insatiable) >= surplus:
                high = middle
            else:
                low = middle + 1
        own = self._claims[insatiable]
        filled, weight = self._filled[low], self._weights[low]
        if insatiable < low:
            filled, weight = filled - own.wants, weight + own.weight
        return (surplus - filled) / weight

    def _poured(self, level: float, reached: int, insatiable: int) -> float:
        """What it takes to fill all up to a level, which is where `reached` has enough."""
        own = self._claims[insatiable]
        return self._filled[reached] + level * self._weights[reached] + max(0.0, level * own.weight - own.wants)


class FairShares:
    """Of all trees, by node and resource: what is due to it on top of its own."""

    def __init__(self, tree: QuotaTree) -> None:
        self._wants: list[dict[str, int]] = [{} for _ in tree.nodes]
        self._due: list[dict[str, float]] = [{} for _ in tree.nodes]

    def due(self, node: Node) -> dict[str, float]:
        return self._due[node.index]

    def want(self, queue: Node, has: Amounts, waiting: Amounts) -> None:
        """What a queue has, and what its Jobs that wait ask for."""
        self._wants[queue.index] = {name: has.get(name, 0) + waiting.get(name, 0) for name in queue.quotas}

    def count_wants(self, cohort: Node) -> None:
        """After those of all below it."""
        wants = self._wants[cohort.index]
        for child in cohort.children:
            for name, wanted in self._wants[child.index].items():
                quota = child.quotas[name]
                most = wanted if quota.borrow is None else min(wanted, quota.subtree + quota.borrow)
                wants[name] = wants.get(name, 0) + max(0, most - quota.local)

    def deal(self, cohort: Node, resource: str) -> None:
        """Among the members of a cohort; after its parent's."""
        members = [child for child in cohort.children if resource in child.quotas]
        surplus = cohort.quotas[resource].own + self._due[cohort.index].get(resource, 0.0)
        claims: list[Claim] = []
        for child in members:
            quota, wants = child.quotas[resource], self._wants[child.index].get(resource, 0)
            beyond = max(0, wants - quota.subtree)
            if quota.borrow is not None:
                beyond = min(beyond, quota.borrow)
            surplus += max(0, quota.subtree - max(quota.local, wants))
            claims.append(Claim(float(child.weight), float(beyond)))
        for child, due in zip(members, dealt(float(surplus), claims), strict=True):
            borrow = child.quotas[resource].borrow
            self._due[child.index][resource] = min(due, borrow) if borrow is not None else due

"""Shares: how much of what is shared a queue or a cohort has, relative to its weight.

The share of a node is what it uses beyond its quota, as a part of the most that its parent could lend, for the resource
for which that is largest, divided by its weight. Who is within its quota has a share of 0, and so has a root. Who
borrows with weight 0 has an infinite share, and two infinite ones are compared as if they had weights of 1.

Shares are compared exactly, by multiplying crosswise: fractions would have to be reduced first, and that costs more
than everything else here. They are shown in thousandths, rounded up.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import total_ordering
from types import MappingProxyType
from typing import Final

from multimirror.kinds.pod_sets import Amounts
from multimirror.scheduling.quota import Node, QuotaUsage

_ONE: Final = Fraction(1)
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


@total_ordering
class Share:
    """A share. Equal where it is as large, whatever resource it is of."""

    __slots__ = ("_denominator", "_numerator", "borrows", "infinite", "resource")

    def __init__(
        self, over: int = 0, lendable: int = 1, weight: Fraction = _ONE, *, resource: str = "", borrows: bool = False
    ) -> None:
        self.infinite = not weight
        if self.infinite:
            weight = _ONE
        self._numerator, self._denominator = over * weight.denominator, lendable * weight.numerator
        self.resource, self.borrows = resource, borrows

    @property
    def thousandths(self) -> int | None:
        """Rounded up; None: infinite."""
        return None if self.infinite else -(-1000 * self._numerator // self._denominator)

    @property
    def written(self) -> tuple[int, int, bool]:
        """Shares that are written the same are equal; not all that are equal are."""
        return self._numerator, self._denominator, self.infinite

    def plus(self, other: "Share") -> "Share":
        """Both together, of what this one is of."""
        made = Share(resource=self.resource, borrows=self.borrows)
        made.infinite = self.infinite or other.infinite
        made._numerator = self._numerator * other._denominator + other._numerator * self._denominator
        made._denominator = self._denominator * other._denominator
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Share):
            return NotImplemented
        return (
            self.infinite == other.infinite
            and self._numerator * other._denominator == other._numerator * self._denominator
        )

    def __lt__(self, other: "Share") -> bool:
        if self.infinite != other.infinite:
            return other.infinite
        return self._numerator * other._denominator < other._numerator * self._denominator

    def __le__(self, other: "Share") -> bool:
        return not other < self

    __hash__ = None  # type: ignore[assignment]  # equal ones may be written differently

    def __float__(self) -> float:
        return float("inf") if self.infinite else self._numerator / self._denominator

    def __str__(self) -> str:
        return "infinite" if self.infinite else f"{self.thousandths} of 1000"

    def __repr__(self) -> str:
        return f"<share {self} of {self.resource or 'nothing'}>"


NO_SHARE: Final = Share()


def share(
    usage: QuotaUsage, node: Node, *, more: Amounts = _NOTHING, resources: Collection[str] | None = None
) -> Share:
    """The share of a queue or a cohort; `more`: if it used that much more; `resources`: of these alone."""
    parent = node.parent
    if parent is None:
        return NO_SHARE
    found, largest, lends, borrows = "", 0, 1, False
    quotas, used = node.quotas, usage.used_by(node)
    for name in quotas if resources is None else resources:
        quota = quotas.get(name)
        if quota is None:
            continue
        over = used.get(name, 0) - quota.subtree + more.get(name, 0)
        if over <= 0:
            continue
        borrows = True
        lendable = parent.quotas[name].most
        if lendable <= 0:
            continue
        mine, theirs = over * lends, largest * lendable
        if mine > theirs or (mine == theirs and name < found):
            found, largest, lends = name, over, lendable
    return Share(largest, lends, node.weight, resource=found, borrows=True) if borrows else NO_SHARE


def share_of_queue(usage: QuotaUsage, queue: str) -> Share:
    return share(usage, usage.tree.queues[queue])


def share_of_cohort(usage: QuotaUsage, cohort: str) -> Share:
    return share(usage, usage.tree.cohorts[cohort])

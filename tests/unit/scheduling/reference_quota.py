"""The arithmetic of quota that is shared, a second time: slow, recursive, and as near to its definition as can be.

    subtree(n)      own(n) + what its children have that is not theirs alone
    local(n)        what of that is never lent: max(0, subtree(n) - lend(n)); 0 without a limit, and for a root
    usage(queue)    what its Jobs are charged; usage(cohort): what its children use beyond what is theirs alone
    available(n)    what is left of its own alone, and of its parent's no more than it may borrow

It is what the product is held against, so nothing of the product's own arithmetic is used here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from multimirror.api import CohortSpec, MirrorQueueSpec, Quota
from multimirror.kinds.pod_sets import Amounts, nanos


class Place(NamedTuple):
    """A queue or a cohort."""

    is_queue: bool
    name: str

    def __str__(self) -> str:
        return f"{'queue' if self.is_queue else 'cohort'} {self.name}"


@dataclass(frozen=True)
class Reference:
    """Queues and cohorts at one moment, and what is charged to the queues."""

    queues: Mapping[str, MirrorQueueSpec]
    cohorts: Mapping[str, CohortSpec]
    charged: Mapping[str, Amounts]

    # --- the tree

    def path(self, queue: str) -> list[Place]:
        """It, and all above it up to the root."""
        way = [Place(True, queue)]
        while (parent := self.parent(way[-1])) is not None:
            way.append(parent)
        return way

    def parent(self, place: Place) -> Place | None:
        if place.is_queue:
            name = self.queues[place.name].cohort
        else:
            name = self.cohorts[place.name].parent if place.name in self.cohorts else None
        return Place(False, name) if name is not None else None

    @cached_property
    def _children(self) -> dict[Place, list[Place]]:
        found: dict[Place, list[Place]] = {}
        named = {spec.cohort for spec in self.queues.values()} | {spec.parent for spec in self.cohorts.values()}
        cohorts = {Place(False, name) for name in (*self.cohorts, *named) if name is not None}
        for place in sorted(cohorts | {Place(True, name) for name in self.queues}):
            parent = self.parent(place)
            if parent is not None:
                found.setdefault(parent, []).append(place)
        return found

    def members(self, root: Place) -> Iterator[Place]:
        """All of a tree."""
        yield root
        for child in self._children.get(root, ()):
            yield from self.members(child)

    def counts(self, queue: str, resource: str) -> bool:
        """It is listed by the queue, or by somebody above it."""
        return any(
            resource in self._quota(place).resources
            or (resource in self._quota(place).borrow and self.parent(place) is not None)
            for place in self.path(queue)
        )

    # --- what there is

    def own(self, place: Place, resource: str) -> int:
        return nanos(self._quota(place).resources.get(resource, 0))

    def borrow(self, place: Place, resource: str) -> int | None:
        return _limit(self._quota(place).borrow, resource) if self.parent(place) is not None else 0

    def lend(self, place: Place, resource: str) -> int | None:
        return _limit(self._quota(place).lend, resource)

    def subtree(self, place: Place, resource: str) -> int:
        children = self._counted(place, resource)
        lent = sum(self.subtree(child, resource) - self.local(child, resource) for child in children)
        return self.own(place, resource) + lent

    def local(self, place: Place, resource: str) -> int:
        limit = self.lend(place, resource)
        if limit is None or self.parent(place) is None:
            return 0
        return max(0, self.subtree(place, resource) - limit)

    # --- what is used

    def usage(self, place: Place, resource: str) -> int:
        if place.is_queue:
            counts = self.counts(place.name, resource)
            return self.charged.get(place.name, {}).get(resource, 0) if counts else 0
        return sum(
            max(0, self.usage(child, resource) - self.local(child, resource))
            for child in self._counted(place, resource)
        )

    def over(self, place: Place, resource: str) -> int:
        """How much more it uses than it and those below it have."""
        return self.usage(place, resource) - self.subtree(place, resource)

    def above_limit(self, place: Place, resource: str) -> int:
        """How much more it uses than it may; negative: how much less."""
        borrow = self.borrow(place, resource)
        return self.over(place, resource) - borrow if borrow is not None else -1

    def available(self, queue: str, resource: str) -> int | None:
        """None: there is no limit."""
        return max(0, self._available(Place(True, queue), resource)) if self.counts(queue, resource) else None

    def _available(self, place: Place, resource: str) -> int:
        usage, subtree, parent = self.usage(place, resource), self.subtree(place, resource), self.parent(place)
        if parent is None:
            return subtree - usage
        local, borrow = self.local(place, resource), self.borrow(place, resource)
        above = self._available(parent, resource)
        if borrow is not None:
            above = min(above, subtree - local - max(0, usage - local) + borrow)
        return max(0, local - usage) + above

    def left_at(self, place: Place, resource: str) -> int:
        """What a cohort itself would let through to those below it: by what it may borrow, or, of a root, has."""
        borrow, over = self.borrow(place, resource), self.over(place, resource)
        if self.parent(place) is None:
            return -over
        assert borrow is not None, "without a limit it lets everything through"
        local, usage = self.local(place, resource), self.usage(place, resource)
        return max(0, local - usage) + self.subtree(place, resource) - max(local, usage) + borrow

    def most(self, queue: str, resource: str) -> int | None:
        """What could ever be available, if nobody used anything; None: there is no limit."""
        return self._most(Place(True, queue), resource) if self.counts(queue, resource) else None

    def _most(self, place: Place, resource: str) -> int:
        subtree, parent, borrow = self.subtree(place, resource), self.parent(place), self.borrow(place, resource)
        if parent is None:
            return subtree
        most = self.local(place, resource) + self._most(parent, resource)
        return most if borrow is None else min(most, subtree + borrow)

    def lent(self, queue: str, resource: str) -> int:
        """What the others of its tree use beyond all that is not this queue's: so much at least is lent by it."""
        queue_place, root = Place(True, queue), self.path(queue)[-1]
        others = [place for place in self.members(root) if place != queue_place]
        used = sum(self.usage(place, resource) for place in others if place.is_queue)
        return max(0, used - sum(self.own(place, resource) for place in others))

    def _counted(self, place: Place, resource: str) -> list[Place]:
        children = self._children.get(place, [])
        return [child for child in children if not child.is_queue or self.counts(child.name, resource)]

    def _quota(self, place: Place) -> Quota:
        if place.is_queue:
            return self.queues[place.name].quota
        return self.cohorts[place.name].quota if place.name in self.cohorts else Quota()


def _limit(limits: Mapping[str, object], resource: str) -> int | None:
    return nanos(limits[resource]) if resource in limits else None  # type: ignore[arg-type]

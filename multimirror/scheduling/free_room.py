"""The room on a worker whose nodes and pods are known: what is left on each node when all who are placed have their
pods. Pure.

A Job that was just placed has no pods there yet. So that nobody else counts on the same room, those of its pods that
are not seen are put at the first places that they find, as slots of their shape. Seen are those whose Job is the copy
that we made; of a Job that is placed as many count as it has reserved, there or not: one that is being stopped keeps
its room until it is charged no more. Where a scheduler will put pods that are not seen is its own business: they hold
as many places as they need, but maybe others.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from multimirror.kinds.pod_shapes import Gang
from multimirror.scheduling import slots
from multimirror.scheduling.usage import UsageCache
from multimirror.workers.node_table import Amounts, Held, NodesView, NodeTable

_MOST_NEIGHBOURHOODS: Final = 4


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """At one moment."""

    table: NodeTable
    seen: Mapping[str, Held] = field(default_factory=dict)
    """By uid: the pods of those that are placed."""
    unseen: Mapping[str, Held] = field(default_factory=dict)
    """By uid: what is kept for those that are not there yet."""

    @classmethod
    def of(cls, view: NodesView, placed: Iterable[tuple[str, Gang]]) -> "FreeRoom":
        """`placed`: by uid, what everybody has reserved who has this worker."""
        steps = cls.steps(view, placed)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: FreeRoom = end.value
                return found

    @classmethod
    def steps(cls, view: NodesView, placed: Iterable[tuple[str, Gang]]) -> "Generator[None, None, FreeRoom]":
        """The same in small steps: on a large worker each one that is not there yet costs a look at all of its nodes,
        and a worker that never shows any pods has as many of those as it was given Jobs."""
        there = [(uid, gang, view.seen.get(uid, ())) for uid, gang in placed]
        missing = ((uid, _missing(gang, len(held))) for uid, gang, held in there)
        table, unseen = view.table, {}
        for uid, gang in sorted(((uid, gang) for uid, gang in missing if gang), key=lambda each: each[0]):
            table, unseen[uid] = slots.put_all(table, gang)
            yield
        # A worker says whose pods are whose, and may say that all of them are one Job's.
        cut = {uid: held[:most] for uid, gang, held in there if gang and len(held) > (most := _most_seen(gang))}
        return cls(table, {**view.seen, **cut} if cut else view.seen, unseen)

    def fits(self, gang: Gang) -> bool:
        return slots.fits(self.table, gang)

    def take(self, gang: Gang) -> "FreeRoom":
        """With one more that is placed, or has grown. (Nobody stops it before another room is made.)"""
        table, _ = slots.put_all(self.table, gang)
        return FreeRoom(table, self.seen, self.unseen)

    def held_by(self, uid: str) -> Held:
        """What becomes free when it is gone."""
        return tuple(self.seen.get(uid, ())) + tuple(self.unseen.get(uid, ()))

    def by_place(self, but: AbstractSet[str]) -> Mapping[int, Sequence[tuple[str, Amounts]]]:
        """Who holds what there; `but` these."""
        found: dict[int, list[tuple[str, Amounts]]] = {}
        for held_by in (self.seen, self.unseen):
            for uid, held in held_by.items():
                if uid not in but:
                    for place, amounts in held:
                        found.setdefault(place, []).append((uid, amounts))
        return found

    def without(self, uids: Iterable[str]) -> NodeTable:
        """When those are gone."""
        return self.table.changed((each for uid in uids for each in self.held_by(uid)), 1)

    def keep(self, gang: Gang, leaving: Iterable[str]) -> "FreeRoom":
        """For everybody but one that is to come when those are gone who are leaving: the places where it will be are
        not for others, whether they are free already or not."""
        _, held = slots.put_all(self.without(leaving), gang)
        return FreeRoom(self.table.changed(held, -1), self.seen, self.unseen)


class Places:
    """Whether a Job will have places on a worker when some are gone; asked again and again, with one more or less."""

    def __init__(self, room: FreeRoom, gang: Gang, leaving: Iterable[str], coming: Iterable[Gang]) -> None:
        """`leaving`: those are gone then in any case, and `coming` are there."""
        left = frozenset(leaving)
        table = room.without(left)
        for each in coming:
            table, _ = slots.put_all(table, each)
        self._leaving = left
        self._room, self._gang, self._table = room, gang, table
        self._gone: frozenset[str] = frozenset()
        self._lacking: list[str] | None = None

    @property
    def lacking(self) -> list[str]:
        """What there is too little of, as long as nobody else is gone. Found when it is asked for, and once: that costs
        a look at all nodes."""
        if self._lacking is None:
            table = self._without(frozenset())
            self._lacking = sorted({name for shape, _ in self._gang for name in slots.binding(table, shape)})
        return self._lacking

    def suffice(self, gone: AbstractSet[str]) -> bool:
        """When those are gone as well."""
        return slots.fits(self._without(gone), self._gang)

    def helps(self, uid: str, gone: AbstractSet[str]) -> bool:
        """There are more places when it is gone, too."""
        before = self._without(gone)
        after = before.changed(self._room.held_by(uid), 1)
        return any(slots.slots(after, shape) > slots.slots(before, shape) for shape, _ in self._gang)

    def neighbours(self) -> Iterator[frozenset[str]]:
        """Some sets of those whose going makes enough places on the fewest nodes: where one alone makes none, all that
        are on a node may make some."""
        if len(self._gang) != 1:
            return
        ((shape, count),) = self._gang
        table, there = self._without(frozenset()), self._room.by_place(self._leaving)
        gains: list[tuple[float, int, int]] = []
        for place, node in table.nodes():
            held = there.get(place)
            if held is None or not slots.matches(node, shape):
                continue
            free = dict(node.free)
            for _, amounts in held:
                for name, amount in amounts.items():
                    if name in free:
                        free[name] += amount
            gain = slots.node_slots(free, shape) - slots.node_slots(node.free, shape)
            if gain > 0:
                gains.append((len({uid for uid, _ in held}) / gain, place, gain))
        gains.sort()
        missing = count - slots.slots(table, shape)
        for start in range(min(len(gains), _MOST_NEIGHBOURHOODS)):
            found: set[str] = set()
            left = missing
            for _, place, gain in gains[start:]:
                if left <= 0:
                    break
                found.update(uid for uid, _ in there[place])
                left -= gain
            if left <= 0:
                yield frozenset(found)

    @property
    def shortage(self) -> float:
        """The share of its pods that have no place."""
        table = self._without(frozenset())
        return max(((count - slots.slots(table, shape)) / count for shape, count in self._gang if count), default=0.0)

    def _without(self, gone: AbstractSet[str]) -> NodeTable:
        for uids, sign in ((gone - self._gone, 1), (self._gone - gone, -1)):
            self._table = self._table.changed((each for uid in uids for each in self._room.held_by(uid)), sign)
        self._gone = frozenset(gone)
        return self._table


class FreeRooms:
    """By worker. Made anew when its nodes, or what is placed there, are others."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodesView, int, FreeRoom]] = {}

    def steps(self, worker: str, view: NodesView, usage: UsageCache) -> Iterator[None]:
        """Make it, where it is not known, as things are at the first step; then it is `latest`."""
        version = usage.version(worker)
        known = self._known.get(worker)
        if known is not None and known[0] is view and known[1] == version:
            return
        placed = [(ref.uid, each.gang) for ref, each in usage.reservations(worker)]
        room = yield from FreeRoom.steps(view, placed)
        self._known[worker] = view, version, room

    def latest(self, worker: str) -> FreeRoom:
        return self._known[worker][2]

    def forget_all_but(self, workers: Iterable[str]) -> None:
        for name in self._known.keys() - set(workers):
            del self._known[name]


def _most_seen(gang: Gang) -> int:
    """So many pods a Job of these may have at once, with those that stop while others start in their places."""
    return 2 * sum(count for _, count in gang) + 8


def _missing(gang: Gang, seen: int) -> Gang:
    """Of its pods, those that are not there. Of several sets the first ones count as those that are."""
    left = []
    for shape, count in gang:
        there = min(seen, count)
        seen -= there
        if count > there:
            left.append((shape, count - there))
    return tuple(left)

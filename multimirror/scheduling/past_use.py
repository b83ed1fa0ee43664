"""What queues and cohorts have used before, halved every so often: who had much stands behind those who had little.

Where a Cohort sets `halfLife`, its members, and those of cohorts below it that set none, are ordered by their share and
their past use u. With `using`, the part of all that the parent could give that a member has now (of several resources
the largest), u goes towards it, u += (using - u) * (1 - 0.5 ** (elapsed / halfLife)), and is between 0 and 1 always.
It counts in the order as `COUNTS` * u / weight would as a share: who had everything for one half-life stands where one
stands that borrows everything now. (A weight of 0 counts as 1 here: its share is infinite once it borrows.) Nobody is
stopped because of it.

Between two changes of `using` nothing has to be done: u at any later time follows from what it was, and since when.
So it does not matter how often, or in which order, it is asked for; it is kept anew only when `using` changes, and that
is what the status has of it. Whoever comes to lead goes on from there. Of what is known and what is written the later
counts, so it does not matter either who has written it.

All of this is whole numbers, and no clock is read: the same history gives the same order, on any machine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from types import MappingProxyType
from typing import Any, Final, Self

from multimirror.batch import Json
from multimirror.batch.quantities import QuantityError, quantity
from multimirror.batch.times import format_time, seconds_of, utc_datetime
from multimirror.scheduling.quota import Node, QuotaTree, QuotaUsage
from multimirror.scheduling.shares import Share

COUNTS: Final = 2
"""So much more than a share: everything for one half-life (u is a half then) is a share of 1000 thousandths."""
WHOLE: Final = 10**9
"""All that there is, in `using` and in the status: billionths."""
_FINER: Final = 10**9
"""u is kept so much finer: what a busy queue gains in a second, of a half-life of months, must not be rounded away."""
_ONE: Final = Fraction(1)
_MICROSECONDS: Final = 10**6
_BITS: Final = 96
_FRACTION_BITS: Final = 48
_STEP: Final = 64
Key = tuple[bool, str]
"""Whether it is a queue, and its name."""


def _roots() -> Iterator[int]:
    """The square root of a half, the square root of that, and so on."""
    root = 1 << (_BITS - 1)
    for _ in range(_FRACTION_BITS):
        root = isqrt(root << _BITS)
        yield root


_ROOTS: Final = tuple(_roots())


def remaining(elapsed: int, half_life: int) -> int:
    """0.5 ** (elapsed / half_life), of 2 ** 96."""
    if elapsed <= 0:
        return 1 << _BITS
    halves, rest = divmod(elapsed, half_life)
    if halves >= _BITS:
        return 0
    part, found = (rest << _FRACTION_BITS) // half_life, 1 << _BITS
    for place, root in enumerate(_ROOTS, 1):
        if part >> (_FRACTION_BITS - place) & 1:
            found = found * root >> _BITS
    return found >> halves


@dataclass(frozen=True, slots=True)
class PastUse:
    """Of one queue or cohort, since what it uses last changed."""

    value: int
    """u, in billionths of billionths."""
    using: int
    """What it uses since then, in billionths of all that there is."""
    at: int
    """In microseconds since 1970."""

    def value_at(self, at: int, half_life: int) -> int:
        target = self.using * _FINER
        return target + ((self.value - target) * remaining(at - self.at, half_life * _MICROSECONDS) >> _BITS)

    def then(self, using: int, at: int, half_life: int) -> "PastUse":
        """From now on it uses that."""
        return self if using == self.using else PastUse(self.value_at(at, half_life), using, max(at, self.at))

    def written(self, now: float, half_life: int) -> Json:
        """As the status has it, for the second that has begun."""
        value = self.value_at(int(now) * _MICROSECONDS, half_life) // _FINER
        return {"value": _text(value), "using": _text(self.using), "at": format_time(utc_datetime(int(now)))}

    @classmethod
    def read(cls, written: object, now: float) -> Self | None:
        """None where there is none, or nobody can read it. A time that is still to come is taken for now."""
        if not isinstance(written, dict):
            return None
        at, value, using = seconds_of(written.get("at"), -1.0), _part(written.get("value")), _part(written.get("using"))
        if at < 0 or value is None or using is None:
            return None
        return cls(value * _FINER, using, min(_micros(at), _micros(now)))


class Past:
    """The past use of everybody at one moment. Nothing of it changes any more."""

    __slots__ = ("_known", "_now", "_values")

    def __init__(self, known: Mapping[Key, PastUse] = MappingProxyType({}), now: float = 0.0) -> None:
        self._known, self._now = known, now
        self._values: dict[Key, int] = {}

    def written(self, node: Node) -> Json | None:
        """As the status has it; None where it does not count."""
        known, half_life = self._known.get(_key(node)), half_life_of(node)
        return known.written(self._now, half_life) if known is not None and half_life is not None else None

    def value(self, node: Node) -> int:
        """Its u, in billionths of billionths; 0 where nobody asks for it."""
        key = _key(node)
        if key not in self._values:
            known, half_life, found = self._known.get(key), half_life_of(node), 0
            if known is not None and half_life is not None:
                found = known.value_at(_micros(self._now), half_life)
            self._values[key] = found
        return self._values[key]

    def counted(self, node: Node) -> Share:
        """What it counts for in the order."""
        return Share(COUNTS * self.value(node), WHOLE * _FINER, node.weight or _ONE)

    def added_to(self, share: Share, node: Node) -> Share:
        """What is compared of a member of a cohort with a half-life."""
        return share.plus(self.counted(node))


NO_PAST: Final = Past()


class PastUses:
    """What is known of everybody. `written`: what the status of a queue (True), or of a cohort, has of it."""

    def __init__(self, written: Callable[[bool, str], Any] = lambda is_queue, name: None) -> None:
        self._written = written
        self._known: Mapping[Key, PastUse] = {}
        self._tree: QuotaTree | None = None

    def at(self, tree: QuotaTree, now: float) -> Past:
        """As it is now: for those whom nobody has observed yet, as it was written."""
        if not tree.decays:
            return NO_PAST
        if tree is not self._tree:
            self._tree = tree
            missing = (node for node in members(tree) if _key(node) not in self._known)
            found = {_key(node): PastUse.read(self._written(*_key(node)), now) for node in missing}
            self._known = {**self._known, **{key: each for key, each in found.items() if each is not None}}
        return self.observed(now)

    def observed(self, now: float) -> Past:
        """Of those who were observed last."""
        return Past(self._known, now)

    def observe(self, using: Iterable[tuple[Node, int]], now: float) -> Iterator[None]:
        """This is what they use now, and others are forgotten; in small steps."""
        known: dict[Key, PastUse] = {}
        for number, (node, part) in enumerate(using, 1):
            key, half_life = _key(node), half_life_of(node)
            if half_life is not None:
                before, written = self._known.get(key), PastUse.read(self._written(*key), now)
                if written is not None and (before is None or written.at > before.at):
                    before = written
                at = _micros(now)
                known[key] = before.then(part, at, half_life) if before is not None else PastUse(0, part, at)
            if number % _STEP == 0:
                yield None
        self._known = known


def half_life_of(node: Node) -> int | None:
    """The one by which it is compared with its siblings, in seconds; None: what was used before does not count."""
    return node.parent.half_life if node.parent is not None else None


def members(tree: QuotaTree) -> Iterator[Node]:
    """Those whose past use counts."""
    return (node for node in tree.nodes if half_life_of(node) is not None) if tree.decays else iter(())


def part_used(usage: QuotaUsage, node: Node) -> int:
    """Of all that its parent could give, in billionths; of the resource of which it is most."""
    assert node.parent is not None
    most = 0
    for name in node.quotas:
        used, whole = usage.used(node, name), node.parent.quotas[name].most
        if used > 0 and whole > 0:
            most = max(most, min(WHOLE, WHOLE * used // whole))
    return most


def _key(node: Node) -> Key:
    return node.is_queue, node.name


def _micros(seconds: float) -> int:
    return round(seconds * _MICROSECONDS)


def _text(billionths: int) -> str:
    """Of 1."""
    return f"{billionths // WHOLE}.{billionths % WHOLE:09d}".rstrip("0").rstrip(".")


def _part(text: object) -> int | None:
    """None: it is no part of 1."""
    try:
        found = int(quantity(text) * WHOLE) if isinstance(text, str) else -1
    except QuantityError:
        return None
    return found if 0 <= found <= WHOLE else None

"""What is told of a queue's or a cohort's quota: plain values, and the words and numbers of its status. Pure.

own         what it has itself (a cohort: with all its members)
used        what its Jobs have
borrowed    what of that is more than its own
lent        what of its own others use; where several could have lent it, each lends in proportion to what it has left
share       what it borrows of what can be lent, over its weight: who has least goes first
fair_share  what is due to it by weight of what is left over, with what others do not ask for dealt out again
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

from multimirror.api import Hold
from multimirror.api.mirror_queue_status import BORROWING, HELD, INFINITE, OVERUSED
from multimirror.batch import Json

_TOLD: Final = 4
"""Resources in one sentence."""
_MUCH: Final = Decimal("0.1")
"""Of past use: what is in the status may be off by less."""
Condition = tuple[str, bool, str, str]
"""Its type, whether it holds, its reason, its message."""


class Overuse(NamedTuple):
    """More is used than may be, since quota was taken away."""

    resource: str
    """Empty: Jobs are counted."""
    used: Decimal
    most: Decimal
    cohort: str = ""
    """Whose limit it is; empty: the queue's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaView:
    """The quota of a queue or a cohort at one moment, by resource."""

    own: Mapping[str, Decimal] = field(default_factory=dict)
    used: Mapping[str, Decimal] = field(default_factory=dict)
    borrowed: Mapping[str, Decimal] = field(default_factory=dict)
    lent: Mapping[str, Decimal] = field(default_factory=dict)
    lenders: Mapping[str, str] = field(default_factory=dict)
    """Of what it borrows: the queue that would take its own back first, where one may."""
    counted: tuple[str, ...] = ()
    """The resources that a quota limits for it."""
    shares: bool = False
    """It is in a cohort."""
    share: int | None = None
    """In thousandths; None: infinite."""
    fair_share: int | None = None
    """In thousandths of all that can be lent; None: it shares nothing."""
    overused: tuple[Overuse, ...] = ()
    limited: bool = False
    """There is something that it may not have more of."""
    past_use: Json | None = None
    """What it used before, as its status has it; None: that does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentStarts:
    """What was placed of a queue in the last hour."""

    jobs: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    """What they asked for together, in billionths."""
    p50: float | None = None
    """So many seconds half of the latest waited at most; None: none was placed for the first time."""
    p90: float | None = None


def share_text(view: QuotaView) -> int | str:
    """As the status has it."""
    return view.share if view.share is not None else INFINITE


def sharing_conditions(view: QuotaView | None) -> Iterator[Condition]:
    """Of a queue: those that can hold for it at all."""
    if view is None:
        return
    if view.shares:
        yield _borrowing(view)
    if view.limited:
        yield _overused(view)


def hold_conditions(hold: Hold) -> Iterator[Condition]:
    """Only while it is held: since when, its time of transition says."""
    if hold is Hold.HOLD:
        yield HELD, True, "Hold", "nothing of it is placed, as spec.hold says; what runs goes on"
    elif hold is Hold.DRAIN:
        yield HELD, True, "Drain", "nothing of it is placed, as spec.hold says, and what ran is taken back"


def _borrowing(view: QuotaView) -> Condition:
    if not view.borrowed:
        return BORROWING, False, "WithinQuota", "it uses no more than its own"
    words = [_borrows(view, name) for name in sorted(view.borrowed)]
    rest = f", and of {len(words) - _TOLD} more" if len(words) > _TOLD else ""
    return BORROWING, True, "Borrowing", f"it uses {', and '.join(words[:_TOLD])}{rest}"


def _borrows(view: QuotaView, name: str) -> str:
    used, own = view.used.get(name, Decimal(0)), view.own.get(name, Decimal(0))
    first = f", by queue {view.lenders[name]} first" if name in view.lenders else ""
    return (
        f"{_text(used)} {name}, {_text(own)} its own; {_text(view.borrowed[name])} may be taken back at any time{first}"
    )


def _overused(view: QuotaView) -> Condition:
    if not view.overused:
        return OVERUSED, False, "WithinQuota", "it uses no more than it may have"
    told = "; ".join(_over(each) for each in view.overused[:_TOLD])
    then = "Nothing is stopped for that, and nothing more is placed until less is used"
    return OVERUSED, True, "QuotaLowered", f"{told}, since quota was taken away. {then}"


def _over(found: Overuse) -> str:
    what = found.resource or "Jobs"
    if found.cohort:
        return f"cohort {found.cohort}, of which it borrows, uses {_text(found.used)} {what} and may have " + _text(
            found.most
        )
    return f"it uses {_text(found.used)} {what} and may have {_text(found.most)}"


def are_about_the_same(recent: Json, written: Json) -> bool:
    """Whether what slips out of the last hour by and by is worth no write of its own: within a factor of 2."""
    if (recent["waitSeconds"] is None) != (written.get("waitSeconds") is None):
        return False
    now, then = recent["startsPerHour"], written.get("startsPerHour")
    if not isinstance(now, int) or not isinstance(then, int):
        return bool(now == then)
    return min(now, then) * 2 >= max(now, then)


def past_use_is_news(past: Json | None, written: object) -> bool:
    """Whether it is worth a write of its own: it goes elsewhere than was written, or is off by much by now."""
    if past is None or not isinstance(written, dict):
        return past is not None or written is not None
    if past["using"] != written.get("using"):
        return True
    try:
        return abs(Decimal(past["value"]) - Decimal(str(written.get("value")))) >= _MUCH
    except InvalidOperation:
        return True


def recent_numbers(starts: RecentStarts | None) -> Json:
    """The fields of a queue's status; None for one that is to go."""
    if starts is None:
        return {"startsPerHour": None, "waitSeconds": None}
    if starts.p50 is None or starts.p90 is None:
        return {"startsPerHour": starts.jobs, "waitSeconds": None}
    return {"startsPerHour": starts.jobs, "waitSeconds": {"p50": round(starts.p50), "p90": round(starts.p90)}}


def _text(amount: Decimal) -> str:
    """As people write it: 1.5, 200; large amounts in powers of 1024."""
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
        if abs(amount) >= size:
            return f"{(amount / size).quantize(Decimal('0.1')).normalize():f}{suffix}"
    return f"{amount.normalize():f}"

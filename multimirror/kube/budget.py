"""How much of what a server says is taken in: bytes by purpose, bytes over time, and what a cache may come to.

A server that we do not run may be broken, or hostile: it can answer a question about its version with 400 MB, or tell
of new objects for as long as somebody listens. So nothing is read without an idea of how large it can honestly be:

    AnswerLimits    one answer, by what was asked; one event of a watch; one page of a list
    Budget          everything from one server over time: it fills up at a rate that its user explains (the objects that
                    we made there), and whoever takes more has broken it
    CacheBudget     the objects that are kept, and their weight in memory

What breaks one of them is refused as OverBudget, before it is parsed where that is possible, and told to whoever owns
the budget: the reader alone cannot know that the server as a whole is not to be listened to any more.

Our own management cluster is trusted further (TRUSTED): it is where our own rights come from.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .errors import OverBudget

KIB: Final = 1024
MIB: Final = 1024 * 1024
ERROR_BYTES: Final = MIB
"""Of an answer that is no success, whatever was asked."""
_EVENT_BYTES: Final = 2 * KIB
_VALUE_BYTES: Final = 32
"""What an event, and each of its values, costs besides its bytes: it is work, not length, that has to be paid for."""
_PER_WRITE: Final = 64 * KIB
_PER_WRITTEN_BYTE: Final = 16
"""What a write of ours explains: its answer, and the events that follow from it."""
_MOST_EARNED: Final = 512 * MIB
"""What writes can explain beyond the burst: many large Jobs that come at once."""
_FEW, _MANY = 20_000, 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """Bytes. What etcd stores is 1.5 MiB at most, so that no object is much larger than twice that."""

    small: int
    """Of what is small by its nature: versions, reviews, one namespace, anything that is asked for by path."""
    object: int
    """Of one object: the answer to a get or a write."""
    page: int
    """Of a list, or of one page of it."""
    page_items: int | None
    """So many objects are asked for at once; fewer when they are too large together. None: all."""
    event: int
    """Of one event of a watch."""
    values: int | None
    """How many values one of these may have: a megabyte of brackets takes longer to look at than one of text."""
    list_seconds: float
    """For a whole list, with all its pages."""


TRUSTED: Final = AnswerLimits(
    small=16 * MIB, object=16 * MIB, page=1024 * MIB, page_items=None, event=64 * MIB, values=None, list_seconds=300.0
)
UNTRUSTED: Final = AnswerLimits(
    small=MIB, object=4 * MIB, page=4 * MIB, page_items=500, event=4 * MIB, values=400_000, list_seconds=120.0
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a server may send: so many bytes at once, and so many in a minute from then on."""

    burst: float
    per_minute: float


class Budget:
    """Everything that one server sends, over all its connections."""

    def __init__(
        self,
        cluster: str,
        allowance: Callable[[], Allowance],
        on_breach: Callable[[OverBudget], None] = lambda _: None,
    ) -> None:
        """`allowance` may change as time goes by. `on_breach` is told of everything that goes too far."""
        self.cluster = cluster
        self._allowance, self._on_breach = allowance, on_breach
        self._level: float | None = None  # what may still come; None: the full burst
        self._at = 0.0
        self._asked = float("-inf")
        self._known = Allowance(0.0, 0.0)

    def spend(self, size: int, *, values: int = 0, events: int = 0) -> None:
        """So much has come. Raises OverBudget."""
        self._level = self._filled() - size - values * _VALUE_BYTES - events * _EVENT_BYTES
        if self._level < 0:
            self._level = None  # it starts anew with whatever comes after its owner was told
            known = self._allowance()
            raise self.breach(
                f"it sent more than {_mib(known.burst)}, and {_mib(known.per_minute)} a minute, although nothing that "
                "we have there explains that"
            )

    def earn(self, size: int, *, values: int = 0) -> None:
        """We have written so much there: it comes back, in the coin in which it is paid for."""
        earned = _PER_WRITE + _PER_WRITTEN_BYTE * (size + values * _VALUE_BYTES)
        self._level = min(self._filled() + earned, self._known.burst + _MOST_EARNED)

    def breach(self, message: str, *, outcome_unknown: bool = False) -> OverBudget:
        """The error to raise; its owner has been told."""
        error = OverBudget(message, cluster=self.cluster, outcome_unknown=outcome_unknown)
        self._on_breach(error)
        return error

    def _filled(self) -> float:
        now = asyncio.get_running_loop().time()
        if now >= self._asked + 1.0:  # not for each event
            self._known, self._asked = self._allowance(), now
        level = self._known.burst if self._level is None else self._level
        if level < self._known.burst:
            level = min(self._known.burst, level + self._known.per_minute * (now - self._at) / 60)
        self._at = now
        return level


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How many objects, and how many bytes of memory (about: see trimming.weight)."""

    objects: int
    weight: int


class CacheBudget:
    """What the caches of one purpose hold together."""

    def __init__(self, what: str, limits: Callable[[], CacheLimits], breach: Callable[[str], OverBudget]) -> None:
        """`what`: how the objects are called in a message."""
        self.objects = 0
        self.weight = 0
        self._what, self._limits, self._breach = what, limits, breach

    def check(self, objects: int, weight: int) -> None:
        """Whether there is room for so many more; what was taken stays, also when limits fall. Raises OverBudget."""
        limits = self._limits()
        if objects > 0 and self.objects + objects > limits.objects:
            raise self._breach(f"it shows more than {limits.objects} {self._what}")
        if weight > 0 and self.weight + weight > limits.weight:
            raise self._breach(f"the {self._what} that it shows take more than {_mib(limits.weight)} of memory")

    def add(self, objects: int, weight: int) -> None:
        """What is kept has changed by so much."""
        self.objects += objects
        self.weight += weight


def values_in(text: bytes) -> int:
    """How many values this JSON has at most. Quick: what stands in strings is counted as well, unless it is much."""
    found = _marks_in(text)
    if found <= _FEW:
        return found
    # A text may be nothing but commas: a tenant's Job can have one, and its worker is not to blame for that.
    text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    strings = text.count(b'"') // 2
    if strings > 2 * _MANY:
        return strings // 2  # no more than a key and a value for each mark
    return _marks_in(b"".join(text.split(b'"')[::2]))


def _marks_in(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _mib(size: float) -> str:
    return f"{size / MIB:.3g} MiB"

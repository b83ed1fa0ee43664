"""What a hostile worker does, as data: to which requests, from when, for how long, and how often.

A worker behind which an honest cluster stands answers as that does, but for its tricks. The first group takes the
place of an answer, whatever was asked; the others fit one question each. Lies about Jobs are told in lists, in watches
and in the answers to writes alike.

    anything        huge, endless, drip, silent     more, longer, or later than anybody waits for
                    garbage, truncated, html, empty, deep, wrong_kind
                    bad_http                        answers that are no HTTP, or lie about their length
                    redirect, code, retry_years     elsewhere, never, in years
                    date                            another time in the Date header
    identity        uid_of_other, uid_changes, uid_odd
    rights          no_rights, odd_rights
    nodes           absurd_nodes
    jobs            finished, failed, counters, flips, long_texts, foreign_conditions, indexes, odd_types
                    no_uid, no_namespace, odd_version, hidden
    list, watch     forged                          copies with our labels, of Jobs that are not there
    watch           twice, backwards, deleted, unknown_types, bookmarks, endless_line, flood, odd_lines
    writes          forgotten, another_uid, another_object, taken
    deletes         kept                            the answer is that it is gone, and it stays
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MIB: Final = 2**20

ANYTHING: Final = (
    "huge",
    "endless",
    "drip",
    "silent",
    "garbage",
    "truncated",
    "html",
    "empty",
    "deep",
    "wrong_kind",
    "bad_http",
    "redirect",
    "code",
    "retry_years",
)
"""In the place of an answer."""
IDENTITY: Final = ("uid_of_other", "uid_changes", "uid_odd")
RIGHTS: Final = ("no_rights", "odd_rights")
NODES: Final = ("absurd_nodes",)
STATUSES: Final = (
    "finished",
    "failed",
    "counters",
    "flips",
    "long_texts",
    "foreign_conditions",
    "indexes",
    "odd_types",
)
OBJECTS: Final = ("no_uid", "no_namespace", "odd_version", "hidden")
FORGERIES: Final = ("forged",)
STREAMS: Final = ("twice", "backwards", "deleted", "unknown_types", "bookmarks", "endless_line", "flood", "odd_lines")
WRITES: Final = ("forgotten", "another_uid", "another_object", "taken")
DELETES: Final = ("kept",)
HEADERS: Final = ("date",)
VOLUME: Final = ("huge", "endless", "endless_line", "flood")
"""Those that send as much as they can,"""
VOLUME_LIMIT: Final = 96 * MIB
"""and how much that is, in one run."""

_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(ANYTHING, ("*", "version", "identity", "rights", "namespaces", "nodes", "list", "watch", "write")),
    **dict.fromkeys(HEADERS, ("*",)),
    **dict.fromkeys(IDENTITY, ("identity",)),
    **dict.fromkeys(RIGHTS, ("rights",)),
    **dict.fromkeys(NODES, ("nodes",)),
    **dict.fromkeys((*STATUSES, *OBJECTS), ("jobs",)),
    **dict.fromkeys(FORGERIES, ("jobs",)),
    **dict.fromkeys(STREAMS, ("watch",)),
    **dict.fromkeys((*WRITES, *DELETES), ("write",)),
}
KINDS: Final = tuple(_ASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trick:
    """One way of not being honest."""

    kind: str
    on: str = "*"
    """What is asked: version, identity, rights, namespaces, nodes, list, watch (of Jobs), write; jobs (in whichever
    answer they are); `*`."""
    at: float = 0.0
    seconds: float = 1e9
    chance: float = 1.0
    """How often it is played, of the times that it could be."""
    size: int = MIB
    """Of what is huge or endless, in bytes."""
    status: int = 503

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no such trick: {self.kind!r}; there are {', '.join(KINDS)}")

    def is_on(self, now: float) -> bool:
        """Whether it is played at that moment."""
        return self.at <= now < self.at + self.seconds

    def __str__(self) -> str:
        often = f", {self.chance:.0%} of the time" if self.chance < 1 else ""
        until = f" to {self.at + self.seconds:.1f} s" if self.seconds < 1e6 else ""
        more = f" {self.size / MIB:g} MiB" if self.kind in VOLUME else f" {self.status}" if self.kind == "code" else ""
        return f"{self.at:6.1f} s{until}  {self.kind}{more} on {self.on}{often}"


def choose(chance: random.Random, *, volume: bool) -> Sequence[Trick]:
    """The tricks of one worker. `volume`: tens of MiB, instead of sizes that cost nothing."""
    kinds = [chance.choice(KINDS) for _ in range(chance.randint(1, 6))]
    if volume:
        kinds[0] = chance.choice(VOLUME)
    return tuple(_a_trick(chance, kind, volume=volume) for kind in kinds)


def _a_trick(chance: random.Random, kind: str, *, volume: bool) -> Trick:
    """Half of them from the first moment on, which is when identity and rights are asked for."""
    late = chance.random() < 0.5
    sizes = (24 * MIB, 32 * MIB, 48 * MIB) if volume else (MIB // 4, MIB, 2 * MIB)
    return Trick(
        kind=kind,
        on=chance.choice(_ASKED[kind]),
        at=round(chance.uniform(1, 25), 1) if late else 0.0,
        seconds=chance.choice([3.0, 10.0, 30.0, 1e9]) if chance.random() < 0.5 else 1e9,
        chance=chance.choice([1.0, 1.0, 0.5, 0.2]),
        size=chance.choice(sizes),
        status=chance.choice([400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504]),
    )

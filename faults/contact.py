"""When a controller could not know, or could not tell a cluster, what it had to: what checks may excuse, and no more.

A spell is a time without sure contact: as long as faults on that one link were felt, and the while that it takes to
come back, which is no longer than the outage was (waits between two tries double) and half a minute at most. Spells
that touch are one.
"""

from collections.abc import Callable, Iterable
from typing import Final

from faults.plan import LEADER, LINKS, PROCESSES, WATCHES, Fault
from faults.record import Record, Struck, is_of

Spell = tuple[float, float]

_LONGEST_WAIT: Final = 30.0  # between two tries
_AT_LEAST: Final = 5.0  # to notice, to connect, to list, to act
_FELT: Final = {"hang": 30.0, "late": 30.0, "mute": 100.0}
"""Until a request without an answer, or a watch without a word, is given up."""
_LOSES: Final = (
    *(kind for kind in LINKS if kind != "slow_writes"),
    "wipe",
    "restart",
    "removed",
    "hang",
    "delay",
    "mute",
    "late_events",
)


def no_contact(record: Record, client: str, cluster: str) -> list[Spell]:
    """The spells in which that client could not be sure to reach that cluster, or did not live."""
    return _spells(record, lambda fault: _cuts_off(fault, client, cluster))


def no_contact_by_name(record: Record, client: str, cluster: str) -> list[Spell]:
    """The same for one that knows clusters by their kubeconfigs, which may be exchanged."""
    return _spells(record, lambda fault: _cuts_off(fault, client, cluster) or fault.kind == "swap")


def no_answers(record: Record, client: str, cluster: str) -> list[Spell]:
    """Those in which requests might fail or wait; watches do not count."""
    return _spells(
        record,
        lambda fault: (_cuts_off(fault, client, cluster) and fault.kind not in WATCHES) or fault.kind == "swap",
    )


def no_reads(record: Record, client: str, cluster: str) -> list[Spell]:
    """Those in which it might not be heard from; writes that take long do not count, nor do they keep reads waiting."""
    return _spells(
        record,
        lambda fault: (_cuts_off(fault, client, cluster) and fault.kind != "slow_writes") or fault.kind == "swap",
    )


def lost(record: Record, client: str, cluster: str) -> list[Spell]:
    """Those in which it may have been taken for lost: the link was bad, or a heartbeat or a list got no answer."""
    return _spells(record, lambda fault: _is_between(fault, client, cluster) and fault.kind in _LOSES)


def swapped(record: Record) -> list[Spell]:
    """Those in which two workers had changed places: each may be taken for the other, or for one of no use."""
    return _spells(record, lambda fault: fault.kind == "swap")


def spell_at(spells: Iterable[Spell], moment: float) -> Spell | None:
    """The one that was on at that moment."""
    return next((spell for spell in spells if spell[0] <= moment <= spell[1]), None)


def lost_before(spells: Iterable[Spell], spell: Spell) -> float:
    """For how long it was lost in earlier spells, less the times between them: what is not waited for once more."""
    lost, back = 0.0, 0.0
    for begin, end in sorted(each for each in spells if each[0] <= spell[0]):
        lost = max(0.0, lost - max(0.0, begin - back))
        if (begin, end) == spell:
            break
        lost, back = lost + end - begin, end
    return lost


def overlaps(spells: Iterable[Spell], since: float, until: float) -> bool:
    """Whether one of them touches that time."""
    return any(begin <= until and end >= since for begin, end in spells)


def _is_between(fault: Fault, client: str, cluster: str) -> bool:
    who, _, where = fault.link.rpartition("/")
    return where == cluster and (not who or is_of(who, client)) and fault.kind != "swap"


def _cuts_off(fault: Fault, client: str, cluster: str) -> bool:
    who = fault.link.partition("/")[0]
    dies = fault.kind in PROCESSES and (is_of(who, client) or who == LEADER)
    return dies or _is_between(fault, client, cluster)


def _spells(record: Record, counts: Callable[[Fault], bool]) -> list[Spell]:
    merged: list[Spell] = []
    for begin, end in sorted(_felt(struck) for struck in record.struck if counts(struck.fault)):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _felt(struck: Struck) -> Spell:
    over = max(struck.until, struck.time + _FELT.get(struck.fault.kind, 0.0))
    return struck.time, over + max(_AT_LEAST, min(over - struck.time, _LONGEST_WAIT))

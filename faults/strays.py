"""Copies that nobody can know of: what checks leave out, and no more.

A request for a copy is held up on its way; meanwhile its sender asks once more, or its successor does, and the copy is
made. If that one is gone when the first request arrives, there is another one of the same attempt, of which nobody was
ever told: the Job knows its copy by the uid, and whoever else has its labels is somebody who took its place, and is
left alone (I5). No write can be called back, and no API server can be asked what is on its way.
"""

from faults.plan import HELD_UP
from faults.record import MANAGEMENT, Record, Seen
from faults.rules import Rules


def known(record: Record, rules: Rules) -> list[Seen]:
    """What was seen, without them; their pods stay in."""
    unknown = strays(record, rules)
    return [seen for seen in record.seen if seen.uid not in unknown] if unknown else record.seen


def strays(record: Record, rules: Rules) -> set[str]:
    """Their uids."""
    made: dict[tuple[str, str, str], str] = {}
    found: set[str] = set()
    for seen in record.changes("Job"):
        original = rules.labels.original_of(seen.object) if seen.cluster != MANAGEMENT else ""
        if not original:
            continue
        first = made.setdefault((seen.cluster, original, rules.labels.attempt_of(seen.object)), seen.uid)
        if seen.type == "ADDED" and first != seen.uid:
            request = record.created_by(seen)
            if request is not None and request.fault in HELD_UP:
                found.add(seen.uid)
    return found

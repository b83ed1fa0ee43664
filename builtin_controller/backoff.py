"""How long a failed pod's replacement waits: base, twice that, four times, up to a maximum.

The Job-wide record (failures since the last success) lives in memory only and is lost with the process, as in
Kubernetes; with backoffLimitPerIndex the count stands on the pods themselves.
"""

from collections.abc import Sequence
from typing import NamedTuple

from builtin_controller.pods import Pod


class Record(NamedTuple):
    """Failures since the last success, and when the last of them was."""

    failures: int = 0
    last: float | None = None


def updated(record: Record, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> Record:
    """The record after these pods finished."""
    if not succeeded and not failed:
        return record
    times = sorted(pod.finish_time() for pod in failed)
    if not succeeded:
        return Record(record.failures + len(times), times[-1])
    success = max(pod.finish_time() for pod in succeeded)
    after = [time for time in times if time > success]
    return Record(len(after), after[-1]) if after else Record()


def remaining(record: Record, now: float, *, base: float, maximum: float) -> float:
    """Seconds until the next pod may be created; 0 when it may be now."""
    if record.failures == 0 or record.last is None:
        return 0.0
    delay = base
    if record.failures > 1:
        delay = min(maximum, base * 2.0 ** min(record.failures - 1, 63))
    return max(0.0, delay - (now - record.last))

"""What is counted and timed of Jobs on their way: copies made and deleted, statuses mirrored.

`DispatchTimer` measures `multimirror_dispatch_seconds` from the assignment as our cache shows it, so that the wait in a
worker's queue, back-off and repeated calls are part of it; the call alone says little about how long a user waits.
"""

from typing import Final

from prometheus_client import Counter, Histogram

from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json

_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 1800.0)

UNASSIGNED: Final = Counter(
    "multimirror_jobs_unassigned_total", "Jobs taken from a worker, by why.", ("worker", "reason")
)
CREATED: Final = Counter("multimirror_copies_created_total", "Copies made.", ("worker",))
DELETED: Final = Counter(
    "multimirror_copies_deleted_total", "Copies deleted, by why: finished, orphan, stale, stuck.", ("worker", "reason")
)
RENEWED: Final = Counter(
    "multimirror_fences_renewed_total", "Fences renewed: deadlines of copies pushed forward.", ("worker",)
)
DISPATCH_SECONDS: Final = Histogram(
    "multimirror_dispatch_seconds",
    "Time from seeing the assignment in the cache to the worker's answer that the copy is there.",
    ("worker",),
    buckets=_BUCKETS,
)
REFUSED: Final = Counter("multimirror_copies_refused_total", "Copies that a worker would not take.", ("worker",))
MIRRORED: Final = Counter("multimirror_status_mirrored_total", "Statuses written onto originals.", ("worker",))
MIRROR_SECONDS: Final = Histogram(
    "multimirror_mirror_lag_seconds",
    "Time from seeing a copy's change in the cache to the mirrored status.",
    ("worker",),
    buckets=_BUCKETS,
)
PACED: Final = Counter(
    "multimirror_writes_paced_total",
    "Times that a write was put off because a worker brings about too many: statuses, and copies that vanish.",
    ("worker",),
)
STATUS_REFUSED: Final = Counter(
    "multimirror_status_refused_total",
    "Statuses that were not written, by who refused: rules, server.",
    ("worker", "by"),
)


class DispatchTimer:
    """When each assignment was seen whose copy is not there yet. Times are the event loop's."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}  # uid: the attempt, and since when it is in the cache

    def original_changed(self, old: Json | None, new: Json | None, now: float) -> None:
        """To be told of every change in the cache of originals, except what it held when it was filled."""
        if new is None or cluster_of(new) is None:
            gone = new if new is not None else old
            self._seen.pop(gone["metadata"]["uid"] if gone is not None else "", None)
        elif old is None or cluster_of(old) is None or attempt_of(old) != attempt_of(new):
            self._seen[new["metadata"]["uid"]] = attempt_of(new), now

    def copy_created(self, uid: str, attempt: int, worker: str, now: float) -> None:
        """The worker says that the copy is there. Counts once for each assignment."""
        seen = self._seen.get(uid)
        if seen is not None and seen[0] == attempt:
            del self._seen[uid]
            DISPATCH_SECONDS.labels(worker).observe(now - seen[1])

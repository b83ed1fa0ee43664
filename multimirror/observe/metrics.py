"""What we count about Jobs on their way, next to what the runtime counts."""

import contextlib
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 1800.0)

PENDING: Final = Gauge("multimirror_queue_pending_jobs", "Jobs that wait for a worker.", ("queue",))
RUNNING: Final = Gauge("multimirror_queue_running_jobs", "Jobs that were given to a worker.", ("queue",))
WAIT_SECONDS: Final = Histogram(
    "multimirror_queue_wait_seconds",
    "Time from a Job's creation to its first assignment (the API's clock has whole seconds).",
    ("queue",),
    buckets=_SECONDS,
)
PASSES: Final = Histogram("multimirror_planning_seconds", "Time of one pass over what waits.", buckets=_SECONDS)
ASSIGNED: Final = Counter("multimirror_jobs_assigned_total", "Assignments, by queue and worker.", ("queue", "worker"))
UNASSIGNED: Final = Counter(
    "multimirror_jobs_unassigned_total", "Jobs taken from a worker, by why.", ("worker", "reason")
)
CREATED: Final = Counter("multimirror_copies_created_total", "Copies made.", ("worker",))
DELETED: Final = Counter(
    "multimirror_copies_deleted_total", "Copies deleted, by why: finished, orphan, stale.", ("worker", "reason")
)
RENEWED: Final = Counter("multimirror_leases_renewed_total", "Deadlines of copies pushed forward.", ("worker",))
STATES: Final = ("running", "suspended", "complete", "failed", "terminating")
COPIES: Final = Gauge(
    "multimirror_copies",
    "Copies there, by state: running, suspended, complete, failed, terminating.",
    ("worker", "state"),
)
CREATE_SECONDS: Final = Histogram(
    "multimirror_dispatch_seconds",
    "Time from seeing the assignment to the worker's answer.",
    ("worker",),
    buckets=_SECONDS,
)
REFUSED: Final = Counter("multimirror_copies_refused_total", "Copies that a worker would not take.", ("worker",))
MIRRORED: Final = Counter("multimirror_status_mirrored_total", "Statuses written onto originals.", ("worker",))
MIRROR_SECONDS: Final = Histogram(
    "multimirror_mirror_lag_seconds",
    "Time from hearing of a copy's change to the mirrored status.",
    ("worker",),
    buckets=_SECONDS,
)
STATUS_REFUSED: Final = Counter(
    "multimirror_status_refused_total",
    "Statuses that were not written, by who refused: rules, server.",
    ("worker", "by"),
)
WORKER_UP: Final = Gauge("multimirror_worker_up", "1 while a worker is connected.", ("worker",))
ASSIGNED_JOBS: Final = Gauge("multimirror_worker_jobs", "Jobs that are assigned to a worker.", ("worker",))


def forget_worker(name: str) -> None:
    """What is measured of a worker that is none any more must not look as if it were."""
    _forget((WORKER_UP, (name,)), (ASSIGNED_JOBS, (name,)), *((COPIES, (name, state)) for state in STATES))


def forget_queue(name: str) -> None:
    """The same for a queue."""
    _forget((PENDING, (name,)), (RUNNING, (name,)))


def _forget(*series: tuple[Gauge, tuple[str, ...]]) -> None:
    for gauge, labels in series:
        with contextlib.suppress(KeyError):  # it was never set; newer versions of the library do not mind
            gauge.remove(*labels)

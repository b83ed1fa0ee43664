"""Gauges of the fleet as it is now: its workers, its queues, the copies on each worker."""

import contextlib
from typing import Final

from prometheus_client import Counter, Gauge

from multimirror.observe.snapshot import COPY_STATES, MirrorQueueView, WorkerClusterView

PENDING: Final = Gauge("multimirror_queue_pending_jobs", "Jobs that wait for a worker.", ("queue",))
RUNNING: Final = Gauge("multimirror_queue_running_jobs", "Jobs that were given to a worker.", ("queue",))
COPIES: Final = Gauge("multimirror_copies", f"Copies there, by state: {', '.join(COPY_STATES)}.", ("worker", "state"))
WORKER_UP: Final = Gauge("multimirror_worker_up", "1 while a worker is connected.", ("worker",))
ASSIGNED_JOBS: Final = Gauge("multimirror_worker_jobs", "Jobs that are assigned to a worker.", ("worker",))

TOKEN_EXPIRES: Final = Gauge(
    "multimirror_worker_token_expires_timestamp_seconds", "When the token of a worker comes to its end.", ("worker",)
)
STATUS_WRITE_FAILURES: Final = Counter(
    "multimirror_status_write_failures_total",
    "Writes of the status of our own objects that failed, by kind and reason. They are tried again.",
    ("kind", "reason"),
)


def show_worker(view: WorkerClusterView) -> None:
    if view.state is None:
        return
    WORKER_UP.labels(view.name).set(1 if view.state.connected else 0)
    ASSIGNED_JOBS.labels(view.name).set(view.jobs)
    if view.token is not None and view.token.expires is not None:
        TOKEN_EXPIRES.labels(view.name).set(view.token.expires)
    else:
        _forget((TOKEN_EXPIRES, (view.name,)))
    if view.copies is not None:
        for state in COPY_STATES:
            COPIES.labels(view.name, state).set(view.copies.get(state, 0))


def show_queue(view: MirrorQueueView) -> None:
    PENDING.labels(view.name).set(view.pending)
    RUNNING.labels(view.name).set(view.running)


def forget_worker(name: str) -> None:
    """What is measured of a worker that is none any more must not look as if it were."""
    _forget((WORKER_UP, (name,)), (ASSIGNED_JOBS, (name,)), (TOKEN_EXPIRES, (name,)))
    _forget(*((COPIES, (name, state)) for state in COPY_STATES))


def forget_queue(name: str) -> None:
    """The same for a queue."""
    _forget((PENDING, (name,)), (RUNNING, (name,)))


def _forget(*series: tuple[Gauge, tuple[str, ...]]) -> None:
    for gauge, labels in series:
        with contextlib.suppress(KeyError):  # it was never set; newer versions of the library do not mind
            gauge.remove(*labels)

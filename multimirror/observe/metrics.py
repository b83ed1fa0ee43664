"""Gauges of the fleet as it is now: its workers, its queues, the copies on each worker."""

import contextlib
from typing import Final

from prometheus_client import Counter, Gauge

from multimirror.observe.cohorts import CohortView
from multimirror.observe.sharing import QuotaView
from multimirror.observe.snapshot import COPY_STATES, MirrorQueueView, WorkerClusterView

PENDING: Final = Gauge("multimirror_queue_pending_jobs", "Jobs that wait for a worker.", ("queue",))
RUNNING: Final = Gauge("multimirror_queue_running_jobs", "Jobs that were given to a worker.", ("queue",))
COPIES: Final = Gauge("multimirror_copies", f"Copies there, by state: {', '.join(COPY_STATES)}.", ("worker", "state"))
WORKER_UP: Final = Gauge("multimirror_worker_up", "1 while a worker is connected.", ("worker",))
ASSIGNED_JOBS: Final = Gauge("multimirror_worker_jobs", "Jobs that are assigned to a worker.", ("worker",))

TOKEN_EXPIRES: Final = Gauge(
    "multimirror_worker_token_expires_timestamp_seconds", "When the token of a worker comes to its end.", ("worker",)
)
QUOTA: Final = Gauge(
    "multimirror_queue_quota",
    "Amounts of a resource that a quota limits: what a queue has of its own, what its Jobs have (used), what of that "
    "is more than its own (borrowed), and what of its own others use (lent).",
    ("queue", "resource", "kind"),
)
SHARE: Final = Gauge(
    "multimirror_queue_share",
    "What a queue of a cohort borrows of what can be lent, in thousandths, over its weight; infinite with weight 0.",
    ("queue",),
)
PAST_USE: Final = Gauge(
    "multimirror_queue_past_use",
    "What a queue used before, of all that its cohort could give, from 0 to 1; where that has a halfLife.",
    ("queue",),
)
COHORT_PAST_USE: Final = Gauge(
    "multimirror_cohort_past_use",
    "What a cohort used before, of all that the one above it could give, from 0 to 1; where that has a halfLife.",
    ("cohort",),
)
STATUS_WRITE_FAILURES: Final = Counter(
    "multimirror_status_write_failures_total",
    "Writes of the status of our own objects that failed, by kind and reason. They are tried again.",
    ("kind", "reason"),
)


_quota_series: Final[dict[str, set[tuple[str, str, str]]]] = {}
"""By queue: what is shown of its quota."""


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
    if view.quota is not None:
        _show_quota(view.name, view.quota)
        _show_past_use(PAST_USE, view.name, view.quota)


def show_cohort(view: CohortView) -> None:
    if view.quota is not None:
        _show_past_use(COHORT_PAST_USE, view.name, view.quota)
    else:
        forget_cohort(view.name)


def _show_past_use(gauge: Gauge, name: str, quota: QuotaView) -> None:
    if quota.past_use is not None:
        gauge.labels(name).set(float(quota.past_use["value"]))
    else:
        _forget((gauge, (name,)))


def _show_quota(queue: str, quota: QuotaView) -> None:
    kinds = {"own": quota.own, "used": quota.used, "borrowed": quota.borrowed, "lent": quota.lent}
    shown = {(queue, resource, kind) for resource in quota.counted for kind in kinds}
    for labels in shown:
        QUOTA.labels(*labels).set(float(kinds[labels[2]].get(labels[1], 0)))
    _forget(*((QUOTA, labels) for labels in _quota_series.get(queue, set()) - shown))
    _quota_series[queue] = shown
    if quota.shares:
        SHARE.labels(queue).set(quota.share if quota.share is not None else float("inf"))
    else:
        _forget((SHARE, (queue,)))


def forget_worker(name: str) -> None:
    """What is measured of a worker that is none any more must not look as if it were."""
    _forget((WORKER_UP, (name,)), (ASSIGNED_JOBS, (name,)), (TOKEN_EXPIRES, (name,)))
    _forget(*((COPIES, (name, state)) for state in COPY_STATES))


def forget_queue(name: str) -> None:
    """The same for a queue."""
    _forget((PENDING, (name,)), (RUNNING, (name,)), (SHARE, (name,)), (PAST_USE, (name,)))
    _forget(*((QUOTA, labels) for labels in _quota_series.pop(name, set())))


def forget_cohort(name: str) -> None:
    """The same for a cohort."""
    _forget((COHORT_PAST_USE, (name,)))


def _forget(*series: tuple[Gauge, tuple[str, ...]]) -> None:
    for gauge, labels in series:
        with contextlib.suppress(KeyError):  # it was never set; newer versions of the library do not mind
            gauge.remove(*labels)

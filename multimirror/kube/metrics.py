"""What we count, under the names that boards for Kubernetes controllers know; our own are `multimirror_*`.

All live in prometheus-client's default registry, which the health server shows at /metrics. A child per label set is
looked up once and kept by whoever counts on a hot path.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_REQUEST_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_QUEUE_SECONDS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0)

REQUESTS: Final = Counter(
    "rest_client_requests_total",
    "Requests to API servers; code is <error> when no answer came.",
    ("code", "method", "host", "cluster"),
)
REQUEST_SECONDS: Final = Histogram(
    "rest_client_request_duration_seconds",
    "Time to an answer, waiting for our own limits not included.",
    ("verb", "host", "cluster"),
    buckets=_REQUEST_SECONDS,
)
LIMITER_SECONDS: Final = Histogram(
    "rest_client_rate_limiter_duration_seconds",
    "Time that requests waited for our own limits.",
    ("cluster",),
    buckets=_REQUEST_SECONDS,
)

QUEUE_DEPTH: Final = Gauge("workqueue_depth", "Keys that wait.", ("name",))
QUEUE_ADDS: Final = Counter("workqueue_adds_total", "Keys that were added.", ("name",))
QUEUE_RETRIES: Final = Counter("workqueue_retries_total", "Keys that were added again after a failure.", ("name",))
QUEUE_WAIT_SECONDS: Final = Histogram(
    "workqueue_queue_duration_seconds", "Time that a key waited.", ("name",), buckets=_QUEUE_SECONDS
)
QUEUE_WORK_SECONDS: Final = Histogram(
    "workqueue_work_duration_seconds", "Time that a key was worked on.", ("name",), buckets=_QUEUE_SECONDS
)
QUEUE_UNFINISHED: Final = Gauge(
    "workqueue_unfinished_work_seconds", "Sum of the time that keys are being worked on by now.", ("name",)
)
QUEUE_LONGEST: Final = Gauge(
    "workqueue_longest_running_processor_seconds", "How long the longest reconcile runs by now.", ("name",)
)

RECONCILES: Final = Counter(
    "controller_runtime_reconcile_total",
    "Reconciles, by result: success, error, requeue_after, terminal_error.",
    ("controller", "result"),
)
RECONCILE_ERRORS: Final = Counter("controller_runtime_reconcile_errors_total", "Failed reconciles.", ("controller",))
RECONCILE_SECONDS: Final = Histogram(
    "controller_runtime_reconcile_time_seconds", "Time of one reconcile.", ("controller",), buckets=_QUEUE_SECONDS
)
ACTIVE_WORKERS: Final = Gauge("controller_runtime_active_workers", "Reconciles that run now.", ("controller",))
MAX_WORKERS: Final = Gauge(
    "controller_runtime_max_concurrent_reconciles", "Reconciles that may run at once.", ("controller",)
)

LEADER: Final = Gauge("leader_election_master_status", "1 while this process leads.", ("name",))

WATCH_RESTARTS: Final = Counter(
    "multimirror_watch_restarts_total",
    "Watches that had to be opened again, by why: ended, expired, silent, broken, error.",
    ("cluster", "resource", "reason"),
)
RELISTS: Final = Counter(
    "multimirror_relists_total", "Whole lists that were fetched, the first included.", ("cluster", "resource")
)
CACHED: Final = Gauge("multimirror_cache_objects", "Objects in a cache.", ("cluster", "resource"))
INFORMER_LAG: Final = Gauge(
    "multimirror_informer_lag_seconds", "Time since a cache last heard from its server.", ("cluster", "resource")
)
EVENTS_DROPPED: Final = Counter(
    "multimirror_events_dropped_total", "Events for people that were not written, by why.", ("cluster", "reason")
)

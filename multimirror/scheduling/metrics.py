"""What the scheduler counts and times."""

from typing import Final

from prometheus_client import Counter, Histogram

WAIT_SECONDS: Final = Histogram(
    "multimirror_queue_wait_seconds",
    "Time from a Job's creation to its first assignment (the API's clock has whole seconds).",
    ("queue",),
    buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0),
)
PASSES: Final = Histogram(
    "multimirror_planning_seconds",
    "Time of one pass over what waits.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
ASSIGNED: Final = Counter("multimirror_jobs_assigned_total", "Assignments, by queue and worker.", ("queue", "worker"))

"""What is counted about workers' conduct."""

from typing import Final

from prometheus_client import Counter

MISBEHAVED: Final = Counter(
    "multimirror_worker_misbehaved_total",
    "Sessions ended because the worker sent more, or larger things, than our Jobs there explain.",
    ("worker",),
)

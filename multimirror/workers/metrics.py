"""What is measured of workers where they are followed: their conduct, and what is there that only looks like ours."""

import contextlib
from collections.abc import Callable
from typing import Final

from prometheus_client import Counter, Gauge

MISBEHAVED: Final = Counter(
    "multimirror_worker_misbehaved_total",
    "Sessions ended because the worker sent more, or larger things, than our Jobs there explain.",
    ("worker",),
)
FOREIGN: Final = Gauge(
    "multimirror_foreign_objects",
    "Objects there that carry our labels and are not ours: not mirrored, changed or deleted. Counted to a thousand for "
    "each kind and namespace that is followed; `multimirror doctor` names them.",
    ("worker",),
)


def show_foreign(worker: str, count: Callable[[], int]) -> None:
    """Asked whenever metrics are read."""
    FOREIGN.labels(worker).set_function(count)


def forget_worker(worker: str) -> None:
    """What is measured of a worker that is none any more must not look as if it were."""
    with contextlib.suppress(KeyError):
        FOREIGN.remove(worker)

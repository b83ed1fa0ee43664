"""`multimirror_dispatch_seconds`: from the assignment in the cache to the copy, whatever happens in between."""

import uuid
from typing import Any

import pytest
from prometheus_client import REGISTRY

from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION
from multimirror.batch import Json
from multimirror.reconcile.metrics import DispatchTimer


@pytest.fixture
def worker() -> str:
    return f"worker-{uuid.uuid4()}"


def a_job(cluster: str | None = None, attempt: int = 0, **status: Any) -> Json:
    annotations = {CLUSTER_ANNOTATION: cluster} if cluster is not None else {}
    if attempt:
        annotations[ATTEMPT_ANNOTATION] = str(attempt)
    return {"metadata": {"uid": "uid", "annotations": annotations}, "spec": {}, "status": status}


def measured(worker: str) -> tuple[float, float]:
    """How often, and how long in all."""
    count, total = (
        REGISTRY.get_sample_value(f"multimirror_dispatch_seconds_{part}", {"worker": worker})
        for part in ("count", "sum")
    )
    return count or 0.0, total or 0.0


def test_the_time_begins_when_the_cache_shows_the_assignment(worker: str) -> None:
    timer = DispatchTimer()
    timer.original_changed(a_job(), a_job(worker, 1), 10.0)
    timer.copy_created("uid", 1, worker, 12.5)
    assert measured(worker) == (1, 2.5)


def test_other_changes_of_the_job_do_not_begin_it_again(worker: str) -> None:
    timer = DispatchTimer()
    timer.original_changed(a_job(), a_job(worker, 1), 10.0)
    timer.original_changed(a_job(worker, 1), a_job(worker, 1, active=0), 11.0)
    timer.copy_created("uid", 1, worker, 12.5)
    timer.original_changed(a_job(worker, 1), a_job(worker, 1, active=1), 13.0)
    timer.copy_created("uid", 1, worker, 20.0)  # a call whose answer was lost, repeated
    assert measured(worker) == (1, 2.5)


def test_a_new_attempt_has_a_time_of_its_own(worker: str) -> None:
    timer = DispatchTimer()
    timer.original_changed(a_job(), a_job("another", 1), 10.0)
    timer.original_changed(a_job("another", 1), a_job(worker, 2), 20.0)  # a watch that was closed shows only the last
    timer.copy_created("uid", 1, "another", 21.0)
    timer.copy_created("uid", 2, worker, 23.0)
    assert measured("another") == (0, 0)
    assert measured(worker) == (1, 3)


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(None, id="deleted"),
        pytest.param(a_job(attempt=1), id="taken back"),
    ],
)
def test_what_needs_no_copy_any_more_is_forgotten(worker: str, new: Json | None) -> None:
    timer = DispatchTimer()
    timer.original_changed(None, a_job(worker, 1), 10.0)
    timer.original_changed(a_job(worker, 1), new, 11.0)
    timer.copy_created("uid", 1, worker, 12.0)
    assert measured(worker) == (0, 0)

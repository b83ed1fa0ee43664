"""How much pods ask for."""

from decimal import Decimal
from typing import Any

import pytest

from multimirror.kinds import JOB
from multimirror.kinds.pod_sets import PodSet, amounts_of, nanos, pod_requests, quantities_of, total
from tests.unit.reconcile.builders import a_job


def test_a_pods_requests_are_counted_as_the_scheduler_counts_them() -> None:
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": "1"}}},
        ],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"resources": {"requests": {"memory": "4Gi"}}},
        ],
        "overhead": {"cpu": "50m"},
    }
    assert pod_requests(spec) == {"cpu": nanos(Decimal("1.65")), "memory": nanos(4 * 2**30)}


def test_a_jobs_requests_are_those_of_the_pods_that_run_at_once() -> None:
    job = a_job().spec(parallelism=10, completions=3).job
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    (pods,) = JOB.pod_sets(job)
    assert pods == PodSet("main", 3, job["spec"]["template"]["spec"])
    assert total([pods]) == {"cpu": nanos(6), "pods": nanos(3)}


def pod(**requests: str) -> dict[str, Any]:
    return {"containers": [{"resources": {"requests": requests}}]}


def test_pod_sets_of_different_templates_add_up() -> None:
    driver, workers = PodSet("driver", 1, pod(cpu="1")), PodSet("workers", 4, pod(cpu="2", gpu="1"))
    assert total([driver, workers]) == {"cpu": nanos(9), "gpu": nanos(4), "pods": nanos(5)}


@pytest.mark.parametrize("text", ["0", "0.000000001", "1.65", "9223372036854775807", "-3"])
def test_amounts_are_exact(text: str) -> None:
    assert quantities_of(amounts_of({"cpu": Decimal(text)})) == {"cpu": Decimal(text)}


def test_a_limit_of_the_whole_pod_is_a_request_unless_containers_ask_for_that_resource() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "500m"}}}],
        "resources": {"limits": {"cpu": "100", "memory": "1Gi"}},
    }
    assert pod_requests(spec) == {"cpu": nanos(Decimal("0.5")), "memory": nanos(2**30)}
    assert pod_requests({**spec, "containers": [{}]})["cpu"] == nanos(100)
    spec["resources"] = {"limits": {"cpu": "100"}, "requests": {"cpu": "2"}}
    assert pod_requests(spec) == {"cpu": nanos(2)}

"""Rows of `multimirror get`: what a user of kubectl expects to find in them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from multimirror.cli import rows


@pytest.mark.parametrize(
    ("spec", "status", "done"),
    [
        pytest.param({"completions": 3, "parallelism": 2}, {"succeeded": 1}, "1/3", id="a number of completions"),
        pytest.param({"completions": 0, "parallelism": 1}, {}, "0/0", id="none is wanted"),
        pytest.param({"completions": 1, "parallelism": 0}, {}, "0/1", id="none at once"),
        pytest.param({"parallelism": 3}, {"succeeded": 2}, "2/1 of 3", id="a work queue"),
        pytest.param({"parallelism": 1}, {}, "0/1", id="a work queue of one pod"),
        pytest.param({"parallelism": 0}, {}, "0/1", id="a work queue that stands still"),
    ],
)
def test_done_is_what_kubectl_shows_as_completions(spec: dict[str, Any], status: dict[str, Any], done: str) -> None:
    job = {"metadata": {"name": "train", "namespace": "team", "uid": "u"}, "spec": spec, "status": status}
    row = rows.job_row(job, rows.JobContext(), datetime.now(UTC), wide=False)
    assert dict(zip(rows.JOB_TITLES, row, strict=True))["DONE"] == done


def test_a_cohort_shows_its_place_in_the_tree_and_what_is_wrong_with_it() -> None:
    now = datetime.now(UTC)
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "all is well"}
    status = {"conditions": [ready], "queues": 3, "own": {"cpu": "8"}, "used": {"cpu": "9"}}
    cohort: dict[str, Any] = {
        "metadata": {"name": "research"},
        "spec": {"parent": "company", "weight": 2},
        "status": status,
    }
    wide = dict(zip(rows.COHORT_WIDE, rows.cohort_row(cohort, now, wide=True), strict=True))
    assert wide == {
        "NAME": "research",
        "PARENT": "company",
        "READY": True,
        "QUEUES": 3,
        "AGE": None,
        "WEIGHT": 2,
        "OWN": "cpu=8",
        "USED": "cpu=9",
        "BORROWED": None,
        "LENT": None,
        "WHY": "-",
    }
    ready |= {"status": "False", "message": "cohorts are in one another"}
    assert rows.cohort_row(cohort, now, wide=False)[-1] == "cohorts are in one another"
    assert rows.cohort_row({"metadata": {"name": "new"}}, now, wide=False)[-1] == "no dispatcher has looked at it yet"

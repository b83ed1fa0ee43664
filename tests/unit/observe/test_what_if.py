"""A Job as it would be: its pods ask for what it asks for."""

import pytest

from multimirror.kinds import Ref
from multimirror.kinds.pod_sets import nanos
from multimirror.kinds.pod_shapes import ONE_POD, Gang, PodShape
from multimirror.observe.what_if import Changes
from multimirror.scheduling.candidates import Candidate

GPU = (("zone", "gpu"),)


def a_shape(cpus: int) -> PodShape:
    return PodShape((("cpu", nanos(cpus)), ("pods", ONE_POD)), GPU)


def a_candidate(cpus: int, gang: Gang) -> Candidate:
    pods = sum(count for _, count in gang)
    return Candidate(
        ref=Ref("jobs.batch", "1"),
        namespace="t1",
        name="train",
        queue="a",
        priority=0,
        created="2026-11-17T00:00:00Z",
        requests={"cpu": nanos(cpus), "pods": nanos(pods)},
        gang=gang,
    )


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param(Changes(priority=7), ((a_shape(4), 2),), id="another priority: the same pods"),
        pytest.param(Changes(pods=3), ((a_shape(4), 3),), id="more pods of the same size"),
        pytest.param(Changes(requests={"cpu": nanos(2)}), ((a_shape(1), 2),), id="smaller pods"),
        pytest.param(Changes(pods=0), (), id="no pods"),
    ],
)
def test_places_are_looked_for_for_the_pods_that_it_would_have(changes: Changes, wanted: Gang) -> None:
    assert changes.made_to(a_candidate(8, ((a_shape(4), 2),))).gang == wanted


def test_pods_of_several_sizes_are_counted_in_sums_when_they_change() -> None:
    changed = Changes(requests={"cpu": nanos(2)}).made_to(a_candidate(5, ((a_shape(4), 1), (a_shape(1), 1))))
    assert changed.gang == ()

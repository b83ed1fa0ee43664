"""A ranking that is kept up to date answers as one that is made anew for each Job."""

from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import Placement
from multimirror.scheduling.filters import WorkerInfo
from multimirror.scheduling.scores import Ranking
from multimirror.scheduling.usage import Usage
from multimirror.scheduling.waiting import Waiter, Waiting
from tests.unit.scheduling.builders import a_candidate, worker

NAMES = ("w2", "w0", "w1", "w3")


def _waiter(cpu: int, clusters: frozenset[str] | None = None) -> Waiter:
    candidate = a_candidate("x", cpu=cpu, clusters=clusters)
    found = Waiting([candidate]).snapshot().find(candidate)
    assert found is not None
    return found


@settings(deadline=None)
@given(
    st.sampled_from(list(Placement)),
    st.lists(st.integers(1, 20), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([None, "w0", "w3"])), max_size=40),
)
def test_whoever_is_placed_goes_where_a_new_ranking_would_send_it(
    placement: Placement, capacity: list[int], jobs: list[tuple[int, str | None]]
) -> None:
    workers = {}
    for name, cpu in zip(NAMES, capacity, strict=True):
        snapshot = worker(name, capacity=cpu, weight=1 + cpu % 2)
        workers[name] = WorkerInfo.of(snapshot, snapshot.capacity, Usage())
    kept: dict[int, Ranking] = {}
    changed: list[str] = []
    for cpu, only in jobs:
        waiter = _waiter(cpu, frozenset({only}) if only is not None else None)
        ranking = kept.setdefault(cpu, Ranking(placement, waiter, NAMES))
        found = ranking.best(waiter, workers, changed)
        assert found is Ranking(placement, waiter, NAMES).best(waiter, workers, changed)
        if found is not None:
            usage = found.usage.plus(waiter.candidate.requests)
            workers = {**workers, found.name: WorkerInfo.of(found.snapshot, found.capacity, usage)}
            changed.append(found.name)

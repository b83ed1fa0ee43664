"""What was placed in the last hour, and how long it had waited."""

from hypothesis import given
from hypothesis import strategies as st

from multimirror.observe.sharing import RecentStarts
from multimirror.observe.start_rates import StartRates

HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_starts_waits_and_sizes_of_the_last_hour() -> None:
    clock = Clock()
    starts = StartRates(clock)
    for waited in (10.0, 20.0, 30.0, 600.0):
        starts.placed("q", {"cpu": 2}, waited)
        clock.now += 60
    assert starts.recent("q") == RecentStarts(jobs=4, sizes={"cpu": 8}, p50=20.0, p90=600.0)
    assert starts.recent("another") is None


def test_what_is_placed_again_is_a_start_and_no_wait() -> None:
    starts = StartRates(Clock())
    starts.placed("q", {}, None)
    assert starts.recent("q") == RecentStarts(jobs=1)


def test_after_an_hour_it_is_forgotten() -> None:
    clock = Clock()
    starts = StartRates(clock)
    starts.placed("q", {"cpu": 2}, 5.0)
    clock.now += HOUR / 2
    starts.placed("q", {"cpu": 3}, 7.0)
    clock.now += HOUR / 2 + 60
    assert starts.recent("q") == RecentStarts(jobs=1, sizes={"cpu": 3}, p50=7.0, p90=7.0)
    clock.now += HOUR
    assert starts.recent("q") is None


@given(st.lists(st.floats(-600, 600), max_size=30))
def test_a_clock_that_goes_back_loses_nothing_of_this_hour(steps: list[float]) -> None:
    clock = Clock()
    starts = StartRates(clock)
    latest = clock.now
    for step in steps:
        clock.now = max(clock.now + step, latest - 600)
        latest = max(latest, clock.now)
        starts.placed("q", {"cpu": 1}, 1.0)
    found = starts.recent("q")
    assert (found.jobs if found is not None else 0) <= len(steps)
    if steps and latest - 1_800_000_000.0 < HOUR - 60:
        assert found is not None
        assert found.jobs == len(steps)

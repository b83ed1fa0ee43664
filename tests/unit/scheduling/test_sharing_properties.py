"""The properties of sharing, P1 to P14, over a whole dispatcher (sharing_stories.py, sharing_checks.py).

More than two hundred stories in each run, always the same, half of them on dispatchers that are broken on purpose
(sharing_mutants.py): each property is shown to fail on one. MULTIMIRROR_EXAMPLES=10000 asks for more, and new ones.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import structlog
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from multimirror.api.placement import cluster_of, preemptions_of
from multimirror.batch.times import seconds_of
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.preempting import WAIT_SECONDS
from tests.unit.scheduling.reference_quota import Place
from tests.unit.scheduling.sharing_mutants import MUTANTS, NO_CLAIMS, TOO_OFTEN, UNWEIGHTED
from tests.unit.scheduling.sharing_stories import AMPLE, CPU, NAMES, Sharing, queues, trees
from tests.unit.scheduling.sharing_told import STORIES, tell
from tests.unit.scheduling.sharing_world import SharingWorld

Json = dict[str, Any]
EXAMPLES: Final = int(os.environ.get("MULTIMIRROR_EXAMPLES", "0"))
_EACH_RUN: Final = 120
_PARTS: Final = 4
"""They are told side by side, where tests are."""
_A_PASS: Final = 2.0
"""Seconds in which whatever is due is done: a pass, its writes, and that Job controllers notice them, twice."""
_EVERYTHING: Final = ["Reclaim", "FairShare", "Priority"]


@pytest.fixture(autouse=True)
def logs_nothing() -> Iterator[None]:
    """A fifth of the time would go into lines that nobody reads."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def _settings(examples: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        **more,
    )


def _more(examples: int) -> settings:
    """As many, or a part of those that are asked for."""
    phases = [Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate]
    return _settings(max(examples, EXAMPLES // 100), derandomize=not EXAMPLES, phases=phases)


@contextmanager
def _world(specs: dict[str, Json], cohorts: dict[str, Json]) -> Iterator[SharingWorld]:
    """In which only quota is ever short."""
    world = SharingWorld(specs, cohorts, AMPLE)
    try:
        world.pass_time(1)
        yield world
    finally:
        world.close()


# --- stories


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(_PARTS))
def test_the_properties_hold_whatever_happens(part: int) -> None:
    class Stories(Sharing):
        """The same each time; or others."""

    if not EXAMPLES:
        seed(part)(Stories)
    phases = [Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate]
    run_state_machine_as_test(Stories, settings=_settings((EXAMPLES or _EACH_RUN) // _PARTS, phases=phases))


@pytest.mark.parametrize("number", range(len(STORIES)))
def test_nothing_is_wrong_with_stories_that_are_told_by_hand(number: int) -> None:
    assert tell(number) == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_dispatcher_that_is_broken_is_found(mutant: str) -> None:
    name = mutant.partition(":")[0]
    with MUTANTS[mutant]():
        assert any(each.startswith(f"{name}:") for number in range(len(STORIES)) for each in tell(number, only=name)), (
            "no story finds it"
        )


# --- P6: one that is stopped again and again


def _stopped_again_and_again() -> list[str]:
    """A Job borrows, and each time the owner wants its own back."""
    rules = {"cohort": "c", "preempts": ["Reclaim"]}
    specs = {"a": {**rules, "quota": {"resources": {CPU: "1"}}}, "b": {**rules, "quota": {"resources": {CPU: "0"}}}}
    with _world(specs, {}) as world:
        name = world.submit("b")
        for _ in range(5):
            world.pass_time(2)
            owner = world.submit("a")
            world.pass_time(10)
            for worker, copy in world.running():
                if copy["metadata"]["name"] == owner:
                    world.end_copy(worker, copy)
        world.pass_time(2)
        (job,) = [job for job in world.jobs() if job["metadata"]["name"] == name]
        assert preemptions_of(job) >= 3
        return world.watch.violations


def test_nobody_is_stopped_more_than_three_times_and_who_would_be_is_found() -> None:
    assert _stopped_again_and_again() == []
    with TOO_OFTEN():
        found = _stopped_again_and_again()
    assert "P6: job-001 was stopped 4 times" in found


# --- P8: own quota comes within the time that its victims need to go, and a pass


@settings(_more(15))
@given(
    specs=st.tuples(queues(), queues(), queues()),
    above=trees(),
    drain=st.sampled_from([0.0, 3.0, 20.0]),
)
def test_own_quota_comes_as_soon_as_its_victims_are_gone(
    specs: tuple[Json, ...], above: dict[str, Json], drain: float
) -> None:
    made = {name: {**spec, "minRuntime": "0s"} for name, spec in zip(NAMES, specs, strict=True)}
    made["a"]["preempts"] = ["Reclaim"]
    with _world(made, above) as world:
        world.drain_seconds, world.longest_step = drain, 0.5
        for name in ("b", "c"):
            for _ in range(6):
                world.submit(name, cpus=2)
        world.pass_time(3)
        own = world.watch.reference().own(Place(True, "a"), CPU) // nanos(1)
        names = {world.submit("a") for _ in range(own)}
        step = drain + _A_PASS
        for number in range(1, own + 1):
            world.pass_time(step + (WAIT_SECONDS if number == 1 else 0.0))
            placed = [job for job in world.jobs() if job["metadata"]["name"] in names and cluster_of(job) is not None]
            assert len(placed) >= number, f"P8: {len(placed)} of {own} are placed"
        assert world.watch.violations == []


# --- P9: the first of a queue waits no longer than headWait, and for those that run


def _waits_in_a_flood(head_wait: int, run: int, cpus: int) -> float:
    """Seconds that a large Job waits, while small ones come all the time and run for so many seconds."""
    rules = {"cohort": "c", "headWait": f"{head_wait}s", "quota": {"resources": {CPU: "4"}}}
    world = SharingWorld({"a": rules}, {}, {"w1": {CPU: 4}, "w2": {CPU: 0}})
    try:
        world.longest_step = 1.0
        for second in range(3 * (head_wait + run)):
            if second % 2 == 0:
                world.submit("a")
            if second == run:
                name, since = world.submit("a", cpus=cpus), world.clock()
            for worker, copy in world.running():
                if world.clock() - seconds_of(copy["status"]["startTime"], 0.0) >= run:
                    world.end_copy(worker, copy)
            world.pass_time(1)
            if second > run and any(job["metadata"]["name"] == name and cluster_of(job) for job in world.jobs()):
                break
        assert world.watch.violations == []
        return world.clock() - since
    finally:
        world.close()


@settings(_more(4))
@given(head_wait=st.sampled_from([10, 30]), run=st.sampled_from([8, 15]), cpus=st.integers(2, 4))
def test_a_large_job_waits_no_longer_than_head_wait_and_for_those_that_run(head_wait: int, run: int, cpus: int) -> None:
    waited = _waits_in_a_flood(head_wait, run, cpus)
    assert waited <= head_wait + run + 3, f"P9: it has waited {waited} s"


def test_a_dispatcher_that_keeps_nothing_for_who_waits_long_is_found() -> None:
    with NO_CLAIMS():
        assert _waits_in_a_flood(10, 8, 3) > 10 + 8 + 3


# --- P12: what is shared is shared by weight


def _shared(weights: list[int], own: list[int], pool: int, *, late: bool) -> list[float]:
    """By how many Jobs each queue has more or less than its weight says, at rest. `late`: all but one come later."""
    rules = {"cohort": "c", "preempts": _EVERYTHING}
    specs = {
        name: {**rules, "weight": weight, "quota": {"resources": {CPU: str(amount)}}}
        for name, weight, amount in zip(NAMES, weights, own, strict=False)
    }
    with _world(specs, {"c": {"quota": {"resources": {CPU: str(pool)}}}}) as world:
        for number, name in enumerate(specs):
            for _ in range(sum(own) + pool):
                world.submit(name)
            if late and number == 0:
                world.pass_time(3)
        world.pass_time(60)
        there = world.watch.reference()
        assert world.watch.violations == []
        return [
            there.over(Place(True, name), CPU) / nanos(1) - pool * weight / sum(weights)
            for name, weight in zip(specs, weights, strict=True)
        ]


@settings(_more(10))
@given(
    weights=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    own=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    pool=st.integers(3, 7),
    late=st.booleans(),
)
def test_what_is_shared_is_shared_by_weight(weights: list[int], own: list[int], pool: int, late: bool) -> None:
    found = _shared(weights, own, pool, late=late)
    assert all(-1 <= each <= 1 for each in found), f"P12: {found}"


def test_a_dispatcher_that_knows_no_weights_is_found() -> None:
    with UNWEIGHTED():
        found = _shared([1, 3], [0, 0], 8, late=False)
    assert not all(-1 <= each <= 1 for each in found)

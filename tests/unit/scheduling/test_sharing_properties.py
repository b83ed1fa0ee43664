"""The properties of sharing, P1 to P14, over a whole dispatcher (sharing_stories.py, sharing_checks.py).

More than two hundred stories in each run, always the same, half of them on dispatchers that are broken on purpose
(sharing_mutants.py): each property is shown to fail on one. MULTIMIRROR_EXAMPLES=10000 asks for more, and new ones.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import structlog
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from multimirror.api.placement import cluster_of, preemptions_of
from multimirror.batch.times import seconds_of
from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.preempting import WAIT_SECONDS
from tests.unit.scheduling.reference_quota import Place, Reference
from tests.unit.scheduling.sharing_mutants import MUTANTS, NO_CLAIMS, TOO_OFTEN, TOO_PATIENT, UNWEIGHTED
from tests.unit.scheduling.sharing_stories import AMPLE, CPU, GPU, NAMES, Sharing, queues, trees
from tests.unit.scheduling.sharing_told import STORIES, a_queue, tell
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
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if EXAMPLES else ())]
    return _settings(max(examples, EXAMPLES // 100), derandomize=not EXAMPLES, phases=phases)


@contextmanager
def _world(
    specs: dict[str, Json], cohorts: dict[str, Json], room: Mapping[str, Mapping[str, int]] = AMPLE
) -> Iterator[SharingWorld]:
    """In which only quota is ever short, unless there is less room."""
    world = SharingWorld(specs, cohorts, room)
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


def test_every_property_has_a_dispatcher_that_breaks_it() -> None:
    broken = {mutant.partition(":")[0] for mutant in MUTANTS}
    assert broken == {f"P{number}" for number in range(1, 15)} - {"P12"}, "that one is found by a test of its own"


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


def _comes_too_late(specs: tuple[Json, ...], above: dict[str, Json], drain: float, cpus: int, *, tight: bool) -> str:
    """Whether a Job of queue a waits longer for what is its own. `tight`: no worker has more room than there is quota,
    so that who has the quota has the room too."""
    made = {name: {**spec, "minRuntime": "0s"} for name, spec in zip(NAMES, specs, strict=True)}
    made["a"]["preempts"] = ["Reclaim"]
    quotas = [spec["quota"]["resources"].get(CPU, "0") for spec in (*made.values(), *above.values())]
    room = {"w1": {CPU: sum(map(int, quotas)), GPU: 0}, "w2": {CPU: 0, GPU: 0}} if tight else AMPLE
    with _world(made, above, room) as world:
        world.drain_seconds, world.longest_step = drain, 0.5
        for name in ("b", "c"):
            for _ in range(6):
                world.submit(name, cpus=2)
        world.pass_time(3)
        number = world.watch.reference().own(Place(True, "a"), CPU) // nanos(cpus)
        names = {world.submit("a", cpus=cpus) for _ in range(number)}
        for due in range(1, number + 1):
            world.pass_time(drain + _A_PASS + (WAIT_SECONDS if due == 1 else 0.0))
            placed = [job for job in world.jobs() if job["metadata"]["name"] in names and cluster_of(job) is not None]
            if len(placed) < due:
                return f"P8: {len(placed)} of {number} are placed, and {due} could be"
        assert world.watch.violations == []
    return ""


@pytest.mark.timeout(0)
@settings(_more(20))
@given(
    specs=st.tuples(queues(), queues(), queues()),
    above=trees(),
    drain=st.sampled_from([0.0, 3.0, 20.0]),
    cpus=st.sampled_from([1, 1, 2]),
    tight=st.booleans(),
)
def test_own_quota_comes_as_soon_as_its_victims_are_gone(
    specs: tuple[Json, ...], above: dict[str, Json], drain: float, cpus: int, tight: bool
) -> None:
    assert _comes_too_late(specs, above, drain, cpus, tight=tight) == ""


@pytest.mark.parametrize("tight", [False, True])
def test_a_dispatcher_that_takes_its_time_to_give_own_quota_back_is_found(tight: bool) -> None:
    specs = (a_queue(2), a_queue(2), a_queue(0))
    assert _comes_too_late(specs, {}, 3.0, 1, tight=tight) == ""
    with TOO_PATIENT():
        assert _comes_too_late(specs, {}, 3.0, 1, tight=tight) == "P8: 0 of 2 are placed, and 1 could be"


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


@pytest.mark.timeout(0)
@settings(_more(4))
@given(head_wait=st.sampled_from([10, 30]), run=st.sampled_from([8, 15]), cpus=st.integers(2, 4))
def test_a_large_job_waits_no_longer_than_head_wait_and_for_those_that_run(head_wait: int, run: int, cpus: int) -> None:
    waited = _waits_in_a_flood(head_wait, run, cpus)
    assert waited <= head_wait + run + 3, f"P9: it has waited {waited} s"


def test_a_dispatcher_that_keeps_nothing_for_who_waits_long_is_found() -> None:
    with NO_CLAIMS():
        assert _waits_in_a_flood(10, 8, 3) > 10 + 8 + 3


# --- P12: what is shared is shared by weight


@dataclass(frozen=True)
class _Members:
    """Queues of one cohort, or two cohorts of queues: their weights, what is their own, and what all of them share."""

    weights: dict[str, int]
    own: dict[str, int]
    pool: int
    above: dict[str, int] = field(default_factory=dict)
    """The weights of the cohorts `left` (a and b) and `right` (c); none: all are in one."""

    def specs(self) -> dict[str, Json]:
        rules = {"preempts": _EVERYTHING}
        return {
            name: {
                **rules,
                "cohort": ("right" if name == "c" else "left") if self.above else "root",
                "weight": weight,
                "quota": {"resources": {CPU: str(self.own[name])}},
            }
            for name, weight in self.weights.items()
        }

    def cohorts(self) -> dict[str, Json]:
        found: dict[str, Json] = {name: {"parent": "root", "weight": weight} for name, weight in self.above.items()}
        return found | {"root": {"quota": {"resources": {CPU: str(self.pool)}}}}

    def forks(self) -> list[dict[Place, int]]:
        """At each: the members, and their weights."""
        if not self.above:
            return [{Place(True, name): weight for name, weight in self.weights.items()}]
        left = {Place(True, name): weight for name, weight in self.weights.items() if name != "c"}
        return [left, {Place(False, name): weight for name, weight in self.above.items()}]


def _unfair(members: _Members, cpus: int, *, late: bool, ends: Sequence[int] = ()) -> list[str]:
    """Who has more or less than its weight says, by more than a Job, when all is at rest. `late`: all but one come
    later. `ends`: then so many of those that run end, one after the other; there are always others that wait."""
    specs = members.specs()
    with _world(specs, members.cohorts()) as world:
        most = sum(members.own.values()) + members.pool
        for number, name in enumerate(specs):
            for _ in range(most // cpus + len(ends) + 1):
                world.submit(name, cpus=cpus)
            if late and number == 0:
                world.pass_time(3)
        world.pass_time(60)
        for index in ends:
            running = world.running()
            world.end_copy(*running[index % len(running)])
            world.pass_time(2)
        world.pass_time(60)
        assert world.watch.violations == []
        there = world.watch.reference()
        return [each for fork in members.forks() for each in _not_by_weight(there, fork, cpus)]


def _not_by_weight(there: Reference, fork: Mapping[Place, int], cpus: int) -> Iterator[str]:
    """Of two members, by more than a Job. Of more, a member of weight w may be off by (n - 2) * w / sum more: that is
    what follows from the rules (the smaller share with the Job goes first; who takes has no more than he leaves), since
    (mine - 1) / my weight < (theirs + 1) / their weight at rest, for each other one."""
    borrowed = {place: there.over(place, CPU) / nanos(cpus) for place in fork}
    shared, weights = sum(borrowed.values()), sum(fork.values())
    for place, weight in fork.items():
        due, most = shared * weight / weights, 1 + (len(fork) - 2) * weight / weights
        if not -most <= borrowed[place] - due <= most:
            yield f"P12: {place} has {borrowed[place]} Jobs of what is shared, and {due} are due to it"


@pytest.mark.timeout(0)
@settings(_more(12))
@example(weights=[3, 1, 1], above={}, own=[0, 0, 0], pool=3, cpus=1, late=False, ends=[])
@given(
    weights=st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(lambda found: found[0] + found[1] > 0),
    above=st.sampled_from([{}, {"left": 1, "right": 1}, {"left": 2, "right": 1}, {"left": 0, "right": 1}]),
    own=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    pool=st.integers(3, 7),
    cpus=st.sampled_from([1, 1, 2]),
    late=st.booleans(),
    ends=st.lists(st.integers(0, 7), max_size=6),
)
def test_what_is_shared_is_shared_by_weight(
    *,
    weights: list[int],
    above: dict[str, int],
    own: list[int],
    pool: int,
    cpus: int,
    late: bool,
    ends: list[int],
) -> None:
    own = [cpus * amount for amount in own]  # else a Job is partly its own, and partly borrowed
    members = _Members(dict(zip(NAMES, weights, strict=True)), dict(zip(NAMES, own, strict=True)), cpus * pool, above)
    assert _unfair(members, cpus, late=late, ends=ends) == []


_ABC: Final = {"a": 1, "b": 3, "c": 1}


@pytest.mark.parametrize("above", [{}, {"left": 1, "right": 3}])
def test_a_dispatcher_that_knows_no_weights_is_found(above: dict[str, int]) -> None:
    members = _Members(_ABC, dict.fromkeys(_ABC, 0), 9, above)
    assert _unfair(members, 1, late=False) == []
    with UNWEIGHTED():
        found = _unfair(members, 1, late=False)
    assert found

"""Who has what, and that a fork of it goes its own way."""

from hypothesis import given
from hypothesis import strategies as st

from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.usage import Reservation, Usage, UsageCache, UsageSums
from tests.unit.scheduling.builders import ref

TWO_CPU = Reservation("q", "team", "w1", {"cpu": nanos(2)})


def test_what_is_put_counts_once_and_is_forgotten_when_it_is_over() -> None:
    usage = UsageCache()
    assert usage.put(ref("a"), TWO_CPU)
    assert not usage.put(ref("a"), TWO_CPU)
    assert usage.sums.queue("q") == usage.sums.worker("w1") == Usage(1, {"cpu": nanos(2)})
    assert usage.on("w1") == (ref("a"),)
    assert usage.put(ref("a"), None)
    assert not usage.put(ref("a"), None)
    assert usage.sums.queue("q") == usage.sums.worker("w1") == Usage()
    assert (dict(usage.sums.by_namespace("q")), dict(usage.sums.by_worker("q")), usage.on("w1")) == ({}, {}, ())


def test_one_that_moves_takes_its_reservation_along_and_that_is_no_new_turn() -> None:
    usage = UsageCache()
    usage.put(ref("a"), TWO_CPU)
    turns = dict(usage.sums.turns("q"))
    usage.put(ref("a"), Reservation("q", "team", "w2", {"cpu": nanos(1)}))
    assert (usage.sums.worker("w1"), usage.sums.worker("w2")) == (Usage(), Usage(1, {"cpu": nanos(1)}))
    assert (usage.on("w1"), usage.on("w2")) == ((), (ref("a"),))
    assert usage.sums.turns("q") == turns


def test_a_namespace_keeps_its_turn_when_what_it_had_is_over() -> None:
    usage = UsageCache()
    usage.put(ref("a"), TWO_CPU)
    usage.put(ref("b"), Reservation("q", "other", "w1", {}))
    usage.put(ref("a"), None)
    turns = usage.sums.turns("q")
    assert turns["team"] < turns["other"]


def test_a_fork_sees_nothing_of_what_comes_later_on_either_side() -> None:
    usage = UsageCache()
    usage.put(ref("a"), TWO_CPU)
    snapshot = usage.snapshot()
    trial = snapshot.fork()
    trial.add(Reservation("q", "other", "w2", {"cpu": nanos(5)}))
    usage.put(ref("a"), None)
    assert snapshot.queue("q") == snapshot.worker("w1") == Usage(1, {"cpu": nanos(2)})
    assert (trial.queue("q").jobs, trial.by_worker("q")) == (2, {"w1": 1, "w2": 1})
    assert usage.sums.queue("q") == Usage()


def shown(sums: UsageSums) -> object:
    names = ("a", "b")
    return [
        (sums.queue(name), sums.worker(name), dict(sums.by_namespace(name)), dict(sums.by_worker(name)))
        for name in names
    ]


NAMES = st.sampled_from(("a", "b"))
RESERVATIONS = st.builds(
    Reservation, NAMES, NAMES, NAMES, st.dictionaries(st.sampled_from(("cpu", "gpu")), st.integers(0, 3))
)


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.none() | RESERVATIONS, st.booleans())))
def test_the_sums_are_those_of_what_is_there_whatever_came_and_went(
    changes: list[tuple[str, Reservation | None, bool]],
) -> None:
    usage, there = UsageCache(), dict[str, Reservation]()
    snapshots: list[tuple[UsageSums, object]] = []
    for name, reservation, look in changes:
        usage.put(ref(name), reservation)
        if reservation is None:
            there.pop(name, None)
        else:
            there[name] = reservation
        if look:
            snapshots.append((usage.snapshot(), shown(usage.sums)))
    fresh = UsageSums()
    for reservation in there.values():
        fresh.add(reservation)
    assert shown(usage.sums) == shown(fresh)
    for snapshot, then in snapshots:
        assert shown(snapshot) == then


def test_of_namespaces_that_come_and_go_only_the_latest_turns_are_remembered() -> None:
    usage = UsageCache()
    for number in range(3000):
        usage.put(ref("a"), Reservation("q", f"ci-{number}", "w1", {}))
        usage.put(ref("a"), None)
    turns = usage.sums.turns("q")
    assert len(turns) <= 1000
    assert max(turns, key=lambda namespace: turns[namespace]) == "ci-2999"
    assert "ci-0" not in turns

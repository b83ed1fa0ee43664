"""Since when something is lost: the first moment counts, until there is contact."""

from multimirror.workers.losses import Losses
from multimirror.workers.state import disconnected_at, recorded_as_connected


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_moment_counts_until_there_is_contact() -> None:
    clock = Clock()
    losses: Losses[str] = Losses(clock)
    assert losses.since("east") is None
    losses.lost("east")
    clock.now = 150.0
    losses.lost("east")
    losses.lost("east", "team-a", since=120.0)
    assert (losses.since("east"), losses.since("east", "team-a"), losses.since("east", "team-b")) == (
        100.0,
        120.0,
        None,
    )
    assert losses.scopes("east") == {"team-a"}

    losses.found("east")
    losses.found("west")
    assert (losses.since("east"), losses.since("east", "team-a")) == (None, 120.0)
    losses.lost("east")
    assert losses.since("east") == 150.0


def test_what_was_lost_to_us_alone_counts_from_the_moment_that_we_work() -> None:
    clock = Clock()
    losses: Losses[str] = Losses(clock)
    losses.lost("east")
    losses.lost("west", since=90.0)
    clock.now = 200.0
    losses.begin("east", None)
    losses.begin("west", 95.0)
    assert (losses.since("east"), losses.since("west")) == (200.0, 95.0)
    losses.found("east")
    clock.now = 300.0
    losses.lost("east")
    assert losses.since("east") == 300.0


def test_losses_that_are_over_are_remembered_a_few_of_them() -> None:
    clock = Clock()
    losses: Losses[str] = Losses(clock)
    losses.found("east")
    assert losses.outages("east") == ()
    for _ in range(40):
        losses.lost("east")
        losses.lost("east", "team-a")
        clock.now += 10.0
        losses.found("east")
        losses.found("east", "team-a")
        clock.now += 1.0
    assert len(losses.outages("east")) == 16
    assert losses.outages("east")[-1] == (clock.now - 11.0, clock.now - 1.0)


def test_what_was_lost_to_a_standby_was_not_lost_to_those_who_worked() -> None:
    clock = Clock()
    losses: Losses[str] = Losses(clock)
    losses.lost("east")
    clock.now = 4000.0
    losses.found("east")
    losses.begin("east", None)
    assert losses.outages("east") == ()


def test_what_is_known_no_more_is_lost() -> None:
    clock = Clock()
    losses: Losses[str] = Losses(clock)
    losses.lost("east", "team-a")
    losses.forget("east")
    clock.now = 300.0
    assert (losses.since("east"), losses.since("east", "team-a")) == (100.0, None)


def test_what_a_worker_cluster_has_on_record() -> None:
    def cluster(**condition: object) -> dict[str, object]:
        return {"status": {"conditions": [{"type": "Connected", **condition}]}}

    away = cluster(status="False", lastTransitionTime="2023-11-14T22:13:20Z")
    assert (disconnected_at(away), recorded_as_connected(away)) == (1_700_000_000.0, False)
    there = cluster(status="True", lastTransitionTime="2023-11-14T22:13:20Z")
    assert (disconnected_at(there), recorded_as_connected(there)) == (None, True)
    for odd in (None, {}, {"status": None}, cluster(status="False"), cluster(status="False", lastTransitionTime=5)):
        assert (disconnected_at(odd), recorded_as_connected(odd)) == (None, False)

"""Ctrl-C while a fleet is being made: it ends at once, and what had been begun is deleted."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.background import BackgroundFleet
from clusters.kind import KindFleet, KindOptions
from clusters.kind.__main__ import main
from tests.unit.kind.stand_ins import Machine
from tests.waiting import awaited, eventually


@pytest.fixture
def at_a_terminal() -> Iterator[None]:
    """Ctrl-C is heard of, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("at_a_terminal")
def test_ctrl_c_while_clusters_are_being_made_deletes_them(machine: Machine) -> None:
    machine.settings(creating=600)

    def press() -> None:
        awaited(lambda: machine.clusters)
        os.kill(os.getpid(), signal.SIGINT)

    user = threading.Thread(target=press)
    user.start()
    options = KindOptions(workers=1, at_once=1, prefix="multimirror")
    with pytest.raises(KeyboardInterrupt), BackgroundFleet("kind", options):
        pytest.fail("it cannot have come up")
    user.join()
    assert machine.clusters == set()
    (call,) = machine.calls("kind", "delete", "cluster")
    assert call[3:5] == ["--name", "multimirror-management"]
    assert machine.records == []


def test_a_command_that_was_interrupted_does_not_say_that_it_is_done(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a script goes on, with clusters that are not there."""
    machine.settings(creating=600)

    def press() -> None:
        awaited(lambda: machine.clusters)
        os.kill(os.getpid(), signal.SIGINT)

    user = threading.Thread(target=press)
    user.start()
    assert main(["create", "--workers", "0", "--kubeconfigs", str(tmp_path / "kubeconfigs")]) == 130
    user.join()
    assert machine.clusters == set()
    assert "interrupted" in capsys.readouterr().err


async def test_a_container_that_docker_makes_after_kind_was_ended_is_deleted_too(machine: Machine) -> None:
    machine.settings(creating=600, late=str(machine.directory / "clusters" / "go"))
    fleet = KindFleet(KindOptions(workers=0, prefix="x"))
    starting = asyncio.ensure_future(fleet.__aenter__())
    await eventually(lambda: asyncio.sleep(0, (machine.directory / "child").exists()))
    starting.cancel()
    await eventually(lambda: asyncio.sleep(0, machine.calls("kind", "delete")))
    await eventually(lambda: asyncio.sleep(0, not machine.clusters))
    (machine.directory / "clusters" / "go").touch()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert machine.clusters == {"go"}
    assert machine.records == []

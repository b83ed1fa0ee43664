"""Ctrl-C while a fleet is being made: it ends at once, and what had been begun is deleted."""

import os
import signal
import threading

import pytest

from clusters.background import BackgroundFleet
from clusters.kind import KindOptions
from tests.unit.kind.stand_ins import Machine
from tests.waiting import awaited


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

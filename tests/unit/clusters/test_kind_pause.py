"""A cluster of kind that cannot be paused at once is tried again; whatever else stands in the way is told."""

import pytest

from clusters.kind import fleet
from clusters.kind.commands import CommandError
from clusters.kind.fleet import KindCluster


class Docker:
    """`docker`, with what it complains about, one after the other."""

    def __init__(self, *complaints: str) -> None:
        self.complaints, self.asked = list(complaints), 0

    async def run(self, *arguments: str) -> str:
        assert arguments == ("docker", "pause", "x-worker-1-control-plane")
        self.asked += 1
        if self.complaints:
            raise CommandError(self.complaints.pop(0))
        return ""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_FREEZE_SECONDS", 0.0)


async def test_a_node_that_could_not_be_frozen_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    docker = Docker("OCI runtime pause failed: unable to freeze: unknown", "unable to freeze")
    monkeypatch.setattr(fleet, "run", docker.run)
    await KindCluster("worker-1", "x-worker-1").pause()
    assert docker.asked == 3


@pytest.mark.parametrize(("complaint", "asked"), [("No such container", 1), ("unable to freeze", 20)])
async def test_what_does_not_pass_is_told(monkeypatch: pytest.MonkeyPatch, complaint: str, asked: int) -> None:
    docker = Docker(*[complaint] * 99)
    monkeypatch.setattr(fleet, "run", docker.run)
    with pytest.raises(CommandError, match=complaint):
        await KindCluster("worker-1", "x-worker-1").pause()
    assert docker.asked == asked

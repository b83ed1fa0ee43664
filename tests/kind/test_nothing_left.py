"""However a run with kind clusters ends, nothing of it is left: no container, network or volume, and no file."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusters.fleet import open_fleet
from clusters.kind import CommandError, KindFleet, KindOptions
from multimirror.kube import Client, Connection
from multimirror.kube.resources import NODES
from tests.waiting import awaited

PREFIX = f"mm-left-{os.getpid()}"
SECONDS = 600.0
UP = """
import asyncio, signal, sys
from clusters.foreground import until_told
from clusters.kind import KindFleet, KindOptions

async def main():
    async with KindFleet(KindOptions(workers=0, prefix=sys.argv[1])):
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(until_told(main()))
"""


def docker(*arguments: str) -> list[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout.split()


def containers() -> list[str]:
    return docker("ps", "--all", "--quiet", "--filter", f"name=^{PREFIX}-")


@dataclass(frozen=True)
class Place:
    """Where a run's files are: its temporary ones, its records, its home."""

    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        names = {"TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "HOME": "home"}
        return {**os.environ, **{key: str(self.directory / name) for key, name in names.items()}}

    def files(self) -> list[str]:
        """All but the lock that the records share."""
        found = [path for path in self.directory.rglob("*") if path.is_file() and path.name != ".lock"]
        return sorted(str(path.relative_to(self.directory)) for path in found)

    def run(self, *command: str) -> subprocess.Popen[str]:
        line = [sys.executable, *command]
        return subprocess.Popen(line, env=self.environment, cwd=self.directory, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """On the way out it is made sure of what the test says."""
    networks, volumes = docker("network", "ls", "--quiet"), docker("volume", "ls", "--quiet")
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir()
    yield Place(tmp_path)
    try:
        awaited(lambda: not containers())
        awaited(lambda: not Place(tmp_path).files())
        assert set(docker("network", "ls", "--quiet")) <= set(networks)
        mine = docker("volume", "ls", "--quiet", "--filter", f"label=io.x-k8s.kind.cluster={PREFIX}-management")
        assert set(mine) <= set(volumes)
    finally:
        if left := containers():
            docker("rm", "--force", "--volumes", *left)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_after_a_run_that_is_ended_while_it_creates(place: Place, number: signal.Signals) -> None:
    run = place.run("-m", "clusters.kind", "create", "--prefix", PREFIX, "--workers", "0")
    awaited(containers)
    run.send_signal(number)
    run.communicate(timeout=SECONDS)
    assert run.returncode != 0 or number is not signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_after_a_run_that_is_ended_while_its_fleet_is_up(place: Place, number: signal.Signals) -> None:
    run = place.run("-c", UP, PREFIX)
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    run.send_signal(number)
    run.communicate(timeout=SECONDS)


async def test_after_a_fleet_that_did_not_come_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in place.environment.items():
        monkeypatch.setenv(key, value)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = KindOptions(workers=0, prefix=PREFIX, ports={30000: taken.getsockname()[1]})
        with pytest.raises(CommandError, match="address already in use"):
            async with KindFleet(options):
                pytest.fail("its port is taken")


async def test_after_a_fleet_that_was_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in place.environment.items():
        monkeypatch.setenv(key, value)
    async with open_fleet("kind", KindOptions(workers=1, prefix=PREFIX)) as fleet:
        for cluster in fleet.clusters():
            async with Client(Connection.from_kubeconfig(cluster.kubeconfig)) as client:
                assert len((await client.list(NODES)).items) == 1

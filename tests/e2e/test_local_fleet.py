"""Local fleets on real binaries."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from clusters.fleet import FleetOptions, open_fleet
from clusters.local import LocalFleet, LocalOptions, StartError, sweep
from clusters.local.homes import temporary_root
from tests.waiting import DEADLINE


@pytest.fixture(autouse=True)
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Homes of these tests alone: a sweep by somebody else's run would be right, and in the way."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


pytestmark = [pytest.mark.cluster_kind("local"), pytest.mark.xdist_group("local-fleet")]


async def test_every_cluster_of_a_fleet_answers_and_nothing_is_left_after_it() -> None:
    async with open_fleet("local", FleetOptions(workers=2, nodes=False)) as fleet:
        assert isinstance(fleet, LocalFleet)
        assert [cluster.name for cluster in fleet.clusters()] == ["management", "worker-1", "worker-2"]
        versions = [await cluster.get("/version") for cluster in (fleet.management, *fleet.workers.values())]
        expected = f"v{fleet.management.binaries.version}"
        assert [version["gitVersion"] for version in versions] == [expected] * 3
        home = fleet.management.layout.directory.parent
        pids = [process.pid for cluster in fleet.workers.values() for process in cluster.processes.values()]
        assert home.is_dir()
    assert not home.exists()
    assert not [pid for pid in pids if pid and Path(f"/proc/{pid}").exists()]


_HOLDING = """
import asyncio, json
from clusters.local import LocalFleet, LocalOptions
async def main():
    async with LocalFleet(LocalOptions(workers=0, nodes=False)) as fleet:
        home = str(fleet.management.layout.directory.parent)
        pids = [process.pid for process in fleet.management.processes.values()]
        print(json.dumps({"home": home, "pids": pids, "port": fleet.management.ports.apiserver}), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def _holder() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", _HOLDING, stdout=asyncio.subprocess.PIPE)


async def _gone(pid: int) -> None:
    while Path(f"/proc/{pid}").exists():
        await asyncio.sleep(0.02)


def tree_pids(root: int) -> set[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = set(), [root]
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += children.get(pid, [])
    return found


async def test_a_killed_parent_takes_processes_ports_and_directory_with_it() -> None:
    parent = await _holder()
    assert parent.stdout is not None
    held = json.loads(await parent.stdout.readline())
    everything = tree_pids(parent.pid)
    assert everything > set(held["pids"])
    os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()
    async with asyncio.timeout(DEADLINE):
        for pid in everything:
            await _gone(pid)
    assert not Path(held["home"]).exists()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asyncio.open_connection("127.0.0.1", held["port"])


async def test_the_next_run_sweeps_what_a_killed_supervisor_left_and_nothing_else() -> None:
    parent = await _holder()
    assert parent.stdout is not None
    held = json.loads(await parent.stdout.readline())
    async with LocalFleet(LocalOptions(workers=0, nodes=False)) as running:
        everything = tree_pids(parent.pid)
        for pid in everything - set(held["pids"]):  # the parent and its supervisor, at one blow
            os.kill(pid, signal.SIGKILL)
        await parent.wait()
        async with asyncio.timeout(DEADLINE):
            for pid in everything:
                await _gone(pid)
        assert Path(held["home"]).exists()
        assert await asyncio.to_thread(sweep) == [Path(held["home"])]
        assert not Path(held["home"]).exists()
        assert running.management.layout.directory.exists()
        assert (await running.management.get("/version"))["major"] == "1"
    assert not list(temporary_root().glob(f"{Path(held['home']).name}*"))


async def test_a_component_that_does_not_start_is_quoted() -> None:
    options = LocalOptions(workers=0, nodes=False, extra_args={"kube-apiserver": ["--no-such-flag"]})
    told = r"kube-apiserver ended.*\n *(\S*kube-apiserver\.log).*\n.*unknown flag: --no-such-flag"
    with pytest.raises(StartError, match=told) as caught:
        async with LocalFleet(options):
            pass
    named = re.search(told, str(caught.value))
    assert named
    assert "--no-such-flag" in Path(named[1]).read_text(), "the log that is named outlives the fleet"


async def test_state_in_a_given_directory_is_found_again(tmp_path: Path) -> None:
    options = LocalOptions(workers=0, nodes=False, data_dir=tmp_path / "kept", controllers=())
    uids = []
    for _ in range(2):
        async with LocalFleet(options) as fleet:
            namespace = await fleet.management.get("/api/v1/namespaces/default")
            uids.append(namespace["metadata"]["uid"])
    assert uids[0] == uids[1]

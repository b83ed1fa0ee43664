"""However a run ends, the clusters that it began go; those of others, and those that are kept, stay."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.kind import CommandError, KindFleet, KindOptions, NotPossibleError, records, sweep
from clusters.kind.__main__ import main
from tests.unit.kind.stand_ins import Machine
from tests.waiting import DEADLINE, awaited

RUN = """
import asyncio, sys
from clusters.kind import KindFleet, KindOptions

async def main():
    async with KindFleet(KindOptions(workers=1, prefix=sys.argv[1])):
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def runs() -> Iterator[list[subprocess.Popen[str]]]:
    """Other processes with fleets; ended with the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def start(runs: list[subprocess.Popen[str]], prefix: str = "other") -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", RUN, prefix], stdout=subprocess.PIPE, text=True)
    runs.append(process)
    return process


def is_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"


def guards(prefix: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if b"clusters.kind.guard" in line and f"/{prefix}\0".encode() in line:
            found.append(int(path.parent.name))
    return found


def test_a_run_that_is_killed_is_cleaned_up_after_at_once(machine: Machine, runs: list[subprocess.Popen[str]]) -> None:
    process = start(runs)
    is_up(process)
    assert machine.clusters == {"other-management", "other-worker-1"}
    process.kill()
    awaited(lambda: not machine.clusters)
    awaited(lambda: not machine.records)


def test_a_run_that_is_killed_while_it_creates_is_cleaned_up_after_when_kind_has_ended(
    machine: Machine, runs: list[subprocess.Popen[str]]
) -> None:
    machine.settings(creating_until=str(machine.directory / "go"))
    process = start(runs)
    awaited(lambda: machine.clusters == {"other-management", "other-worker-1"})
    process.kill()
    process.wait(DEADLINE)
    assert machine.records == ["other"], "kind is still at it"
    assert main(["sweep"]) == 0
    assert machine.calls("kind", "delete") == []
    (machine.directory / "go").touch()
    awaited(lambda: not machine.clusters)
    awaited(lambda: not machine.records)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for the guard's process in /proc")
async def test_what_a_killed_run_and_its_guard_have_left_is_deleted_by_the_next(
    machine: Machine, runs: list[subprocess.Popen[str]]
) -> None:
    process, living = start(runs), start(runs, "living")
    is_up(process)
    is_up(living)
    (machine.directory / "clusters" / "strangers").touch()
    for guard in guards("other"):
        os.kill(guard, signal.SIGKILL)
    process.kill()
    process.wait(DEADLINE)
    async with KindFleet(KindOptions(workers=0, prefix="mine")):
        assert machine.clusters == {"living-management", "living-worker-1", "mine-management", "strangers"}
    assert machine.clusters == {"living-management", "living-worker-1", "strangers"}
    assert await sweep() == []


async def test_two_fleets_are_up_at_once_without_being_told_their_names(machine: Machine) -> None:
    async with KindFleet(KindOptions(workers=1)) as one, KindFleet(KindOptions(workers=1)) as other:
        assert one.prefix != other.prefix
        assert len(machine.clusters) == 4
    assert machine.clusters == set()


async def test_one_name_is_not_used_by_two_at_once(machine: Machine) -> None:
    async with KindFleet(KindOptions(workers=0, prefix="x")):
        with pytest.raises(NotPossibleError, match="x-management are there already"):
            await KindFleet(KindOptions(workers=0, prefix="x")).start()
    machine.settings()


async def test_what_could_not_be_deleted_is_remembered_and_deleted_later(machine: Machine) -> None:
    with pytest.raises(CommandError, match="the engine is busy"):
        async with KindFleet(KindOptions(workers=1, prefix="x")):
            machine.settings(fail={"delete cluster --name x-worker-1": "the engine is busy"})
    assert machine.clusters == {"x-worker-1"}
    assert machine.records == ["x"]
    machine.settings()
    assert await sweep() == ["x-management", "x-worker-1"]
    assert (machine.clusters, machine.records) == (set(), [])


async def test_a_container_that_came_after_all_goes_too(machine: Machine) -> None:
    machine.settings(containers="a1 b2")
    async with KindFleet(KindOptions(workers=0)):
        pass
    assert machine.calls("docker", "rm") == [["docker", "rm", "--force", "--volumes", "a1", "b2"]]


@pytest.mark.parametrize(
    ("there", "removed"),
    [pytest.param(True, 0, id="it was there before"), pytest.param(False, 1, id="it was made for us")],
)
async def test_kinds_network_goes_with_the_last_fleet_if_it_came_with_the_first(
    machine: Machine, there: bool, removed: int
) -> None:
    machine.settings(networks="bridge kind" if there else "bridge")
    async with KindFleet(KindOptions(workers=0)):
        machine.settings(networks="bridge kind")
        async with KindFleet(KindOptions(workers=0)):
            pass
        assert machine.calls("docker", "network", "rm") == []
    assert len(machine.calls("docker", "network", "rm")) == removed


def test_the_fleets_that_are_there_are_listed(
    machine: Machine, runs: list[subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    is_up(start(runs, "living"))
    for name in ("kept-management", "kept-worker-1", "kept-worker-2", "strangers"):
        (machine.directory / "clusters" / name).touch()
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "kept: 3 clusters, kept: kept-management, kept-worker-1, kept-worker-2",
        "living: 2 clusters, in use: living-management, living-worker-1",
    ]
    assert main(["delete", "--prefix", "kept"]) == 0
    assert "deleted kept-management, kept-worker-1, kept-worker-2" in capsys.readouterr().out
    assert machine.clusters == {"living-management", "living-worker-1", "strangers"}


def test_the_guard_runs_nothing_of_the_directory_that_it_is_started_in(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "anybodys").mkdir()
    trap = f"open({str(tmp_path / 'trapped')!r}, 'w').close()\nraise SystemExit"
    for module in ("clusters", "asyncio", "pathlib"):
        (tmp_path / "anybodys" / f"{module}.py").write_text(trap)
    monkeypatch.chdir(tmp_path / "anybodys")
    record = records.begin("mine")
    record.watch()
    asyncio.run(record.remove())
    assert not (tmp_path / "trapped").exists()


def test_records_that_others_can_write_to_are_not_believed(machine: Machine, tmp_path: Path) -> None:
    records.root().chmod(0o777)
    with pytest.raises(NotPossibleError, match="can be written to by others"):
        asyncio.run(sweep())

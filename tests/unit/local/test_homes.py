"""Homes, locks, the supervisor and the sweep, with `sleep` for a control plane."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from clusters.local import homes
from clusters.local.homes import HomeError
from clusters.local.processes import Processes, SupervisorGoneError


@pytest.fixture(autouse=True)
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


async def test_a_process_can_be_paused_resumed_stopped_and_started_again() -> None:
    home = homes.temporary_home()
    processes = Processes(home, grace=0)
    await processes.open()
    home.release()
    process = processes.process("one", ["/bin/sleep", "1000"], home.path / "log")
    await process.start()
    first = process.pid
    await process.pause()
    while _state(first) != "T":
        await asyncio.sleep(0.01)
    await process.resume()
    while _state(first) == "T":
        await asyncio.sleep(0.01)
    await process.pause()
    await process.stop()  # a paused process hears, too
    assert process.exit_code == -signal.SIGTERM
    await process.start()
    assert process.running
    assert process.pid != first
    await process.kill()
    assert process.exit_code == -signal.SIGKILL
    with pytest.raises(ProcessLookupError, match="one is not running"):
        await process.pause()
    await processes.close()
    assert not home.path.exists()


async def test_what_cannot_be_started_says_why() -> None:
    home = homes.temporary_home()
    processes = Processes(home, grace=0)
    await processes.open()
    process = processes.process("one", ["/no/such/program"], home.path / "log")
    with pytest.raises(OSError, match="No such file"):
        await process.start()
    assert not process.running
    await processes.close()
    home.release()


async def test_when_the_supervisor_is_killed_its_processes_go_and_calls_fail() -> None:
    home = homes.temporary_home()
    processes = Processes(home, grace=0)
    await processes.open()
    home.release()
    process = processes.process("one", ["/bin/sleep", "1000"], home.path / "log")
    await process.start()
    assert processes.supervisor_pid is not None
    os.kill(processes.supervisor_pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        assert await process.wait() is None
        while process.pid and _state(process.pid) not in (None, "Z"):
            await asyncio.sleep(0.01)
    with pytest.raises(SupervisorGoneError):
        await process.start()
    await processes.close()
    assert homes.sweep() == [home.path]


async def test_a_kept_home_stays_and_its_processes_end_in_order(tmp_path: Path) -> None:
    home = homes.given_home(tmp_path / "kept")
    processes = Processes(home, grace=10)
    await processes.open()
    home.release()
    tells = "trap 'echo {0} >> order; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    for name in ("etcd", "apiserver"):
        process = processes.process(name, ["/bin/sh", "-c", tells.format(name)], home.path / f"{name}.log")
        await process.start()
        while "ready" not in (process.log.read_text() if process.log.exists() else ""):
            await asyncio.sleep(0.01)
    await processes.close()
    assert (home.path / "order").read_text().split() == ["apiserver", "etcd"]


def test_a_home_in_use_is_not_swept_and_one_that_is_not_is() -> None:
    used, left = homes.temporary_home(), homes.temporary_home()
    left.release()
    assert homes.sweep() == [left.path]
    assert used.path.exists()
    used.release()


def test_a_sweep_ends_what_names_the_home_and_nothing_that_only_has_the_pid() -> None:
    home = homes.temporary_home()
    with (
        subprocess.Popen(["/bin/sh", "-c", "sleep 1000; :", f"--data-dir={home.path}/etcd"]) as ours,
        subprocess.Popen(["/bin/sleep", "1000"]) as stranger,
    ):
        (home.path / "pids.json").write_text(json.dumps({"etcd": ours.pid, "kube-apiserver": stranger.pid}))
        home.release()
        # it is our own child here, so somebody has to collect it while the sweep waits for its end
        collector = threading.Thread(target=ours.wait)
        collector.start()
        assert homes.sweep() == [home.path]
        collector.join()
        assert ours.returncode == -signal.SIGKILL
        assert stranger.poll() is None
        stranger.kill()


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(HomeError, match="holds something else"):
        homes.given_home(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_a_data_directory_serves_one_fleet_at_a_time(tmp_path: Path) -> None:
    first = homes.given_home(tmp_path / "data")
    with pytest.raises(HomeError, match="in use by another fleet"):
        homes.given_home(tmp_path / "data")
    first.release()
    homes.given_home(tmp_path / "data").release()


def test_a_planted_root_is_refused(tmp_path: Path) -> None:
    root = homes.temporary_root()
    shutil.rmtree(root)
    (tmp_path / "elsewhere").mkdir()
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HomeError, match="not a directory of this user"):
        homes.temporary_home()


def _state(pid: int | None) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None

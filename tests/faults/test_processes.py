"""A controller as a process: what the suite does to it, and what it notes."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.processes import Process
from faults.record import Record
from tests.waiting import DEADLINE

COUNTING = "import itertools, time\nfor n in itertools.count():\n    print(n, flush=True)\n    time.sleep(0.01)"


def a_process(record: Record, script: str) -> Process:
    return Process("it", [], lambda life: [sys.executable, "-c", f"life = {life}\n{script}"], record)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


def state(process: Process) -> str:
    """As the kernel tells it: R and S run, T is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def what(record: Record) -> list[str]:
    return [life.what for life in record.lives]


async def test_one_that_ends_by_itself_is_started_again_and_its_last_words_are_kept() -> None:
    record = Record()
    process = a_process(record, "import sys, time\nif life > 1: time.sleep(60)\nsys.exit('no such flag')")
    await process.start()
    await until(lambda: len(record.lives) == 3)
    assert what(record) == ["started", "ended by itself", "started"]
    assert list(record.lives[1].why) == ["exit code 1", "no such flag"]
    await process.kill()
    assert what(record)[-1] == "killed"
    assert not process.running


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
async def test_one_that_is_frozen_does_nothing_until_it_goes_on_and_can_be_killed_meanwhile() -> None:
    record = Record()
    process = a_process(record, COUNTING)
    assert not process.pause(), "it does not run yet"
    await process.start()
    await until(lambda: process.pid is not None)
    assert process.pause()
    assert not process.pause(), "once is enough"
    await until(lambda: state(process) == "T")
    process.resume()
    process.resume()
    await until(lambda: state(process) in "RS")
    assert process.pause()
    await process.kill()
    assert process.pid is None
    assert what(record) == ["started", "paused", "resumed", "paused", "killed"]

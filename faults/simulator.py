"""A simulation in a process of its own, for programs that keep their own clocks: tests, the command.

async with Simulator() as simulator:
    report = await simulator.run(scenario)
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from faults.hostile.attacks import Attack
from faults.scenario import Scenario


class Simulator:
    """An async context manager: the process runs inside."""

    def __init__(
        self, *, shorten: bool = True, command: Sequence[str] = ("-m", "faults.child"), suite: str = ""
    ) -> None:
        """`shorten`: look for the shortest story of a run that broke a promise. `command`: what Python is to run.
        `suite`: whose seeds they are: `worker` and `tenant` for the hostile ones."""
        self._shorten, self._command, self._suite = shorten, command, suite
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # the order of sets is part of a run
            limit=2**24,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        if process.returncode is None:
            process.kill()
        await process.communicate()

    async def seed(self, seed: int, suite: str | None = None) -> dict[str, Any]:
        """The report on a seed; see `faults.child.report`."""
        return await self._ask({"seed": seed, "suite": self._suite if suite is None else suite})

    async def attack(self, seed: int, attacks: Sequence[Attack]) -> dict[str, Any]:
        """The report on the honest tenants of a seed beside one who does this."""
        return await self._ask({"seed": seed, "suite": "tenant", "attacks": [asdict(each) for each in attacks]})

    async def run(self, scenario: Scenario) -> dict[str, Any]:
        """The report on a scenario."""
        return await self._ask({"seed": scenario.seed, "scenario": asdict(scenario)})

    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**question, "shorten": self._shorten}).encode() + b"\n")
        line = await process.stdout.readline()
        if not line:
            return {**question, "error": f"the simulation ended with exit code {await process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

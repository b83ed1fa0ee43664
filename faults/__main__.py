"""`python -m faults`: many runs with seeded faults, side by side, and what they found.

python -m faults --seeds 100                simulated, about a second each; exit code 1 when a promise broke
python -m faults --seed 42                  one of them again, with its story if it went wrong
python -m faults --seeds 30 --fleet local   on real control planes, with real dispatcher processes
python -m faults --crash-points --real      real processes that die at every write of a reference run
python -m faults --hostile-worker --seeds 1000      one worker of three answers anything
python -m faults --hostile-tenant           one tenant of three tries everything
"""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from faults.charges import FOR_OTHERS
from faults.scenario import Scenario, crash_points, reference, sharing_reference
from faults.simulator import Simulator

_EVERY = 10.0


class Summary:
    """What many runs came to."""

    # So many runs in which queues share cannot all be without a preemption, unless nothing is shared.
    _ENOUGH = 20

    def __init__(self, total: int, again: str = "make faults SEED={seed}") -> None:
        """`again`: how to repeat one of them."""
        self.total, self.again, self.done = total, again, 0
        self.faults: Counter[str] = Counter()
        self.sharing: Counter[str] = Counter()
        self.failed: list[int] = []
        self.writes, self.seconds, self.memory = 0, 0.0, 0
        self._began = self._told = time.monotonic()

    def add(self, answer: dict[str, Any]) -> None:
        """One more."""
        self.done += 1
        if "error" in answer or answer["violations"]:
            self.failed.append(answer["seed"])
            _say(_failure(answer, self.again))
        self.faults.update(answer.get("faults", {}))
        shared = answer.get("sharing") or {}
        self.sharing.update({**shared, "runs": 1} if shared else {})
        self.writes += answer.get("writes", 0)
        self.seconds += answer.get("seconds", 0.0)
        self.memory = max(self.memory, answer.get("memory", 0))
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._told = now
            left = (now - self._began) / self.done * (self.total - self.done)
            _say(f"{self.done} of {self.total} runs, {sum(self.faults.values())} faults; about {left:.0f} s to go")

    def __str__(self) -> str:
        took = time.monotonic() - self._began
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        grown = [f"at most {self.memory / 2**20:.0f} MiB of memory in one run"] if self.memory else []
        return "\n".join(
            [
                f"{self.done} runs in {took:.0f} s ({self.seconds / 3600:.1f} h as the fleets counted), "
                f"{self.writes} writes, {sum(self.faults.values())} faults: {kinds or 'none'}",
                *grown,
                *self._told_of_sharing(),
                f"{self.done - len(self.failed)} passed, {len(self.failed)} failed",
            ]
        )

    @property
    def proves_nothing(self) -> bool:
        """There were enough runs in which queues share for somebody to be stopped for others, and nobody was."""
        return self.sharing["runs"] >= self._ENOUGH and not any(self.sharing[why] for why in FOR_OTHERS)

    def _told_of_sharing(self) -> list[str]:
        if not self.sharing:
            return []
        stopped = {why: self.sharing[why] for why in FOR_OTHERS}
        return [
            f"queues that share: {self.sharing['runs']} runs, {self.sharing['placed']} placements, "
            f"{self.sharing['borrowing']} of them on borrowed quota, {sum(stopped.values())} preemptions: "
            + ", ".join(f"{why} {count}" for why, count in stopped.items())
        ]


def _failure(answer: dict[str, Any], again: str) -> str:
    seed = answer["seed"]
    if "error" in answer:
        return f"seed {seed} could not be run: {answer['error']}"
    story = answer["story"] or answer["violations"]
    head = f"seed {seed} broke a promise; again: {again.format(seed=seed)}"
    return "\n".join([head, *(f"  {line}" for line in story)])


def _say(text: str) -> None:
    print(text, flush=True)


async def simulated(
    scenarios: Sequence[Scenario | int], summary: Summary, processes: int, *, shorten: bool, suite: str = ""
) -> None:
    """All of them (a number is a seed of that suite), in so many processes."""
    left = iter(scenarios)
    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, min(processes, len(scenarios)))):
            group.create_task(_feed(left, summary, shorten=shorten, suite=suite))


async def _feed(scenarios: Iterator[Scenario | int], summary: Summary, *, shorten: bool, suite: str = "") -> None:
    async with Simulator(shorten=shorten, suite=suite) as simulator:
        for each in scenarios:
            summary.add(await (simulator.seed(each) if isinstance(each, int) else simulator.run(each)))


async def crashes(processes: int) -> Summary:
    """Every crash point of the reference runs: of one queue alone, and of queues that share."""
    points: list[Scenario] = []
    async with Simulator() as simulator:
        for scenario in (reference(), sharing_reference()):
            report = await simulator.run(scenario)
            found = list(crash_points(scenario, report["links"]))
            _say(f"{len(found)} crash points: before and after each write, {report['links']}{_shared(report)}")
            points += found
    summary = Summary(len(points))
    await simulated(points, summary, processes, shorten=False)
    return summary


def _shared(report: dict[str, Any]) -> str:
    found = report.get("sharing") or {}
    return f"; {', '.join(f'{what} {count}' for what, count in sorted(found.items()))}" if found else ""


async def real_crashes(processes: int) -> Summary:
    """The same with real processes, in real time; they mostly wait, so more of them go side by side."""
    from faults.real import crashes  # noqa: PLC0415 - most runs do not need it

    summary = Summary(0, "python -m faults --crash-points --real")

    def begin(points: Sequence[Scenario]) -> None:
        _say(f"{len(points)} crash points: before and after each write")
        summary.total = len(points)

    await crashes(processes * 3, begin, summary.add)
    return summary


async def local(seeds: Sequence[int], summary: Summary) -> None:
    """All seeds on real control planes."""
    from faults.real import on_local  # noqa: PLC0415 - most runs do not need it

    await on_local(seeds, summary.add)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description="Runs with seeded faults.")
    parser.add_argument("--seeds", type=int, default=100, help="how many runs (default: 100)")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed (default: 1)")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument(
        "--fleet",
        choices=["embedded", "local"],
        default="embedded",
        help="embedded: simulated; local: real control planes and two real dispatcher processes (default: embedded)",
    )
    parser.add_argument("--crash-points", action="store_true", help="die at every write of a reference run instead")
    parser.add_argument("--real", action="store_true", help="with --crash-points: real processes and SIGKILL")
    parser.add_argument(
        "--hostile-worker", action="store_const", const="worker", default="", dest="suite", help="one worker means harm"
    )
    parser.add_argument("--hostile-tenant", action="store_const", const="tenant", dest="suite", help="one tenant does")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="side by side (default: all cores)")
    parser.add_argument("--no-shorten", action="store_true", help="tell the whole story of a failing run, at once")
    options = parser.parse_args()
    if options.real and not options.crash_points:
        parser.error("--real goes with --crash-points; for random faults on real processes: --fleet local")
    if options.suite and (options.fleet != "embedded" or options.crash_points):
        parser.error("those who mean harm are simulated; on real control planes: tests/security")
    return options


def main() -> None:
    """The command."""
    options = _options()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    summary = Summary(len(seeds))
    if options.crash_points:
        summary = asyncio.run((real_crashes if options.real else crashes)(options.processes))
    elif options.fleet == "embedded":
        if options.suite:
            summary.again = f"make faults HOSTILE={options.suite} SEED={{seed}}"
        shorten = not options.no_shorten
        asyncio.run(simulated(seeds, summary, options.processes, shorten=shorten, suite=options.suite))
    else:
        summary.again = "make faults FLEET=local SEED={seed}"
        asyncio.run(local(seeds, summary))
    _say(str(summary))
    if summary.proves_nothing:
        _say("queues shared, and nobody was stopped for others: these runs do not show what they are there to show")
    sys.exit(1 if summary.failed or summary.proves_nothing else 0)


if __name__ == "__main__":
    main()

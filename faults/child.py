"""A process that runs simulated seeds and scenarios: a JSON object a line comes in, another goes out.

It is a process of its own because the simulation replaces clocks and chance for everything in it (see simulation.py).
"""

from faults.simulation import SimulatedLoop, install, reseed

install(0)

# What follows remembers the clocks: it has to come after `install`.
import asyncio  # noqa: E402
import contextlib  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import structlog  # noqa: E402

from faults.backends import EmbeddedBackend  # noqa: E402
from faults.hostile import tenants  # noqa: E402
from faults.hostile.attacks import Attack  # noqa: E402
from faults.hostile.bystanders import memory_is_bounded  # noqa: E402
from faults.record import Record  # noqa: E402
from faults.running import Outcome, Pace, run  # noqa: E402
from faults.scenario import Scenario, from_seed, with_a_hostile_worker  # noqa: E402
from faults.shrinking import shrink  # noqa: E402
from faults.stage import certificates  # noqa: E402
from faults.telling import tell  # noqa: E402


def simulate(scenario: Scenario) -> Outcome:
    """The run of a scenario; the same one every time."""

    async def main() -> Outcome:
        async with EmbeddedBackend(scenario.workers) as backend:
            if not scenario.hostile:
                return await run(scenario, backend)
            tidying = asyncio.get_running_loop().create_task(_tidy())
            try:
                return await run(scenario, backend, HOSTILE_PACE)
            finally:
                tidying.cancel()

    with _simulated(scenario.seed) as runner:
        return runner.run(main())


async def _tidy() -> None:
    """Garbage is no memory that anybody needs: where that is measured it is collected, always at the same moments."""
    while True:
        await asyncio.sleep(_TIDY_SECONDS)
        gc.collect()


def _simulated(seed: int) -> asyncio.Runner:
    """A loop on which the same things happen every time."""
    certificates().server_context()  # which draws on chance the first time only
    gc.collect()
    gc.disable()  # so that what is collected, and when, is no part of the run
    reseed(seed)
    return asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed))


HOSTILE_PACE = Pace(rest=150.0, quiet=10.0)
"""Everybody else has to come to rest, and soon."""
_TIDY_SECONDS = 15.0
_CLEAN: list[Outcome] = []
"""The last run without faults: many scenarios differ in their faults alone."""


def digest(outcome: Outcome) -> str:
    """Two runs with the same digest did the same things at the same times."""
    return _digest(outcome.record)


def _digest(record: Record) -> str:
    lines = "\n".join(map(str, record.exchanges))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def report(scenario: Scenario, *, shorten: bool) -> dict[str, Any]:
    """A scenario run twice, without its faults and with them; and, when it broke a promise, its story."""
    if scenario.hostile:
        return hostile_report(scenario, shorten=shorten)
    without = replace(scenario, plan=())
    if not _CLEAN or _CLEAN[0].scenario != without:
        _CLEAN[:] = [simulate(without)]
    clean = _CLEAN[0]
    outcome = simulate(scenario) if scenario.plan else clean
    violations = [*clean.violations, *outcome.violations]
    answer: dict[str, Any] = {
        "seed": scenario.seed,
        "violations": [str(violation) for violation in violations],
        "faults": dict(outcome.faults),
        "planned": len(scenario.plan),
        "writes": outcome.writes + clean.writes,
        "seconds": outcome.seconds + clean.seconds,
        "digest": digest(outcome),
        "links": dict(Counter(each.link for each in clean.record.writes())),
        "sharing": dict(outcome.sharing + clean.sharing),
        "story": [],
    }
    if violations:
        told = clean if clean.violations else outcome
        if shorten:
            short = shrink(told.scenario, told.violations, lambda each: simulate(each).violations)
            told = simulate(short)
        answer["story"] = tell(told)
    return answer


def answer_to(asked: dict[str, Any]) -> dict[str, Any]:
    """The report on a seed of some suite, or on a scenario."""
    shorten = asked.get("shorten", True)
    if asked.get("suite") == "tenant":
        chosen = tenants.from_seed(asked["seed"])
        if "attacks" in asked:
            chosen = replace(chosen, attacks=tuple(Attack(**attack) for attack in asked["attacks"]))
        return tenant_report(chosen, shorten=shorten)
    make = with_a_hostile_worker if asked.get("suite") == "worker" else from_seed
    scenario = Scenario.from_json(asked["scenario"]) if "scenario" in asked else make(asked["seed"])
    return report(scenario, shorten=shorten)


def simulate_tenants(chosen: tenants.Tenants) -> tenants.Course:
    """The run of a hostile tenant, or of its victims alone; the same one every time."""
    with _simulated(chosen.seed) as runner:
        return runner.run(tenants.simulate(chosen))


def tenant_report(chosen: tenants.Tenants, *, shorten: bool) -> dict[str, Any]:
    """A run with a hostile tenant, beside the same without; and, when it broke a promise, its story."""
    without = simulate_tenants(tenants.alone(chosen))
    beside = simulate_tenants(chosen)
    violations = tenants.compared(without, beside)
    answer: dict[str, Any] = {
        "seed": chosen.seed,
        "violations": [str(violation) for violation in violations],
        "faults": dict(beside.done),
        "refused": dict(beside.refused),
        "planned": len(chosen.attacks),
        "writes": sum(1 for course in (without, beside) for _ in course.record.writes()),
        "seconds": without.seconds + beside.seconds,
        "digest": _digest(beside.record),
        "links": {},
        "waits": [without.waits, beside.waits],
        "story": [],
    }
    if violations:
        if shorten:
            chosen = _fewer_attacks(chosen, without, {violation.invariant for violation in violations})
        broken = tenants.compared(without, simulate_tenants(chosen))
        told = [line for violation in broken for line in str(violation).splitlines()]
        answer["story"] = [*chosen.story(), "", "broken:", *(f"  {line}" for line in told)]
    return answer


def _fewer_attacks(chosen: tenants.Tenants, without: tenants.Course, broken: set[str]) -> tenants.Tenants:
    """The attacks without which it does not go wrong: halves are dropped, then smaller parts."""
    size = len(chosen.attacks) // 2
    while size:
        for start in range(0, len(chosen.attacks), size):
            fewer = replace(chosen, attacks=(*chosen.attacks[:start], *chosen.attacks[start + size :]))
            found = tenants.compared(without, simulate_tenants(fewer))
            if broken & {violation.invariant for violation in found}:
                chosen = fewer
                break
        else:
            size //= 2
    return chosen


def hostile_report(scenario: Scenario, *, shorten: bool) -> dict[str, Any]:
    """A scenario with a hostile worker: how Jobs must end is known, so it is run once. Memory is measured."""
    _forget_peak()
    before = _memory("VmRSS")
    outcome = simulate(scenario)
    memory = _memory("VmHWM") - before
    outcome.violations += memory_is_bounded(memory)
    answer: dict[str, Any] = {
        "seed": scenario.seed,
        "violations": [str(violation) for violation in outcome.violations],
        "faults": dict(Counter(each.kind for each in scenario.tricks)),
        "planned": len(scenario.tricks),
        "writes": outcome.writes,
        "seconds": outcome.seconds,
        "digest": digest(outcome),
        "links": {},
        "memory": memory,
        "story": [],
    }
    if outcome.violations:
        told = outcome
        if shorten:
            told = simulate(shrink(told.scenario, told.violations, lambda each: simulate(each).violations, tries=30))
        answer["story"] = tell(told)
    return answer


def _memory(what: str) -> int:
    """VmRSS: what this process has; VmHWM: the most that it had. In bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:"))


def _forget_peak() -> None:
    """The most that it had is counted from now on; and what earlier runs left over is given back."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def main() -> None:
    """Until the end of the input."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.freeze()  # what is imported is no garbage: it need not be looked at before each run
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = answer_to(asked)
        except Exception as error:  # noqa: BLE001 - it is told, and the next seed is another one
            answer = {"seed": asked.get("seed"), "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)  # noqa: T201 - this is how it answers


if __name__ == "__main__":
    main()

"""Runs with real processes, in real time: the commands that users start, killed and frozen by signals.

On embedded clusters each run has a fleet of its own, so that many go side by side, each in a process of its own. On
real control planes, of which there is one fleet, runs come one after the other. How long things take is up to the
machine: such a run cannot be repeated exactly, but the checks are the same.
"""

import asyncio
import functools
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

import structlog

from faults.backends import EmbeddedBackend, LocalBackend
from faults.commands import Processes
from faults.processes import end_with_us
from faults.running import Outcome, Pace, run
from faults.scenario import Scenario, crash_points, from_seed, reference
from faults.stage import DISPATCHER
from faults.telling import tell

Answer = dict[str, Any]
REPLICAS: Final = Processes(dispatchers=2)
"""Two dispatchers, of which one leads."""
ONE: Final = Processes(dispatchers=1)
JOB_CONTROLLERS: Final = Processes(dispatchers=0, job_controllers=True)
EMBEDDED_PACE: Final = Pace(factor=0.1, look=0.1, rest=90.0, quiet=1.0)
LOCAL_PACE: Final = Pace(factor=0.15, look=0.1, rest=360.0, quiet=1.5)
"""Rest may take more than the five minutes for which Kubernetes' own Job controller waits for pods of a deleted Job
before it makes those of another with the same name."""


async def on_embedded(scenario: Scenario, processes: Processes, pace: Pace = EMBEDDED_PACE) -> Outcome:
    """One run on clusters of its own."""
    async with EmbeddedBackend(scenario.workers) as backend:
        return await run(scenario, backend, pace, processes=processes)


async def on_local(seeds: Sequence[int], add: Callable[[Answer], None]) -> None:
    """All seeds, one after the other, on one fleet of real control planes."""
    be_quiet()
    async with LocalBackend(2) as backend:
        for seed in seeds:
            scenario = from_seed(seed, real=True)
            try:
                outcome = await run(scenario, backend, LOCAL_PACE, namespace=f"seed-{seed}", processes=REPLICAS)
            except Exception as error:  # noqa: BLE001 - it is told, and the next seed is another one
                add({"seed": seed, "error": "; ".join(_innermost(error))})
            else:
                add(answer(outcome))


async def crashes(
    side_by_side: int, begin: Callable[[Sequence[Scenario]], None], add: Callable[[Answer], None]
) -> None:
    """A real process dies before and after every write of the reference run."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(side_by_side, spawn, initializer=end_with_us) as pool:
        loop = asyncio.get_running_loop()
        first = await loop.run_in_executor(pool, functools.partial(_in_a_process, reference(), ONE))
        points = list(crash_points(reference(), first["links"]))
        begin(points)
        under_way = [
            loop.run_in_executor(
                pool,
                functools.partial(
                    _in_a_process, point, ONE if point.plan[0].link.startswith(DISPATCHER) else JOB_CONTROLLERS
                ),
            )
            for point in points
        ]
        for done in asyncio.as_completed(under_way):
            add(await done)


def _in_a_process(scenario: Scenario, processes: Processes) -> Answer:
    be_quiet()
    return answer(asyncio.run(on_embedded(scenario, processes)))


def _innermost(error: BaseException) -> list[str]:
    """What went wrong, without the groups around it."""
    if isinstance(error, BaseExceptionGroup):
        return [text for each in error.exceptions for text in _innermost(each)]
    return [f"{type(error).__name__}: {error}"]


def be_quiet() -> None:
    """Broken connections are what these runs are about: nobody needs to be told of each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def answer(outcome: Outcome) -> Answer:
    """What a run came to, as the simulation's runs tell it."""
    violations = [str(violation) for violation in outcome.violations]
    return {
        "seed": outcome.scenario.seed,
        "violations": violations,
        "faults": dict(outcome.faults),
        "planned": len(outcome.scenario.plan),
        "writes": outcome.writes,
        "seconds": outcome.seconds,
        "links": dict(Counter(each.link for each in outcome.record.writes())),
        "story": tell(outcome) if violations else [],
    }

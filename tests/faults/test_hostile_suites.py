"""A few seeds of the worker and of the tenant that mean harm; and that what they look for would be found.

All of them: `make faults HOSTILE=worker SEEDS=1000`, `make faults HOSTILE=tenant`.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from faults.hostile.attacks import Attack
from faults.hostile.tricks import MIB, Trick
from faults.scenario import Scenario
from faults.simulator import Simulator
from faults.workload import Step

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("faults")]

JOBS = tuple(Step(number * 1.0, "submit", f"job-{number}", "many", 6.0) for number in range(3))


def kept(report: dict[str, Any]) -> None:
    assert "error" not in report, report["error"]
    assert not report["violations"], "\n".join(report["story"] or report["violations"])


@pytest.mark.parametrize("seed", [10, 12])
async def test_a_hostile_worker_harms_nobody_but_its_own_jobs(simulator: Simulator, seed: int) -> None:
    kept(await simulator.seed(seed, "worker"))


async def test_the_same_seed_is_the_same_lie(simulator: Simulator) -> None:
    """Whatever ran in that process before."""
    async with Simulator(shorten=False) as other:
        assert (await other.seed(1, "worker"))["digest"] == (await simulator.seed(1, "worker"))["digest"]


@pytest.mark.parametrize("seed", [1, 7])
async def test_a_hostile_tenant_harms_nobody(simulator: Simulator, seed: int) -> None:
    kept(await simulator.seed(seed, "tenant"))


@pytest.mark.parametrize(
    ("mutation", "steps", "tricks", "caught"),
    [
        pytest.param(
            "labels_prove_it",
            tuple(Step(4.0, "forge", job.name, value=worker) for job in JOBS for worker in (0, 1)),
            (),
            {"I5", "I9", "end"},
            id="whatever carries our labels is taken for ours",
        ),
        pytest.param(
            "no_budgets",
            (),
            (Trick(kind="huge", on="version", size=80 * MIB),),
            {"I8"},
            id="an answer may be as large as its sender likes",
        ),
    ],
)
async def test_a_dispatcher_that_trusts_its_workers_is_caught(
    simulator: Simulator, mutation: str, steps: Sequence[Step], tricks: Sequence[Trick], caught: set[str]
) -> None:
    scenario = Scenario(seed=3, workers=3, steps=(*JOBS, *steps), hostile="worker-3", tricks=tricks)
    async with Simulator(shorten=False, command=("-m", "tests.faults.broken", mutation)) as other:
        assert broken(await other.run(scenario)) & caught
    kept(await simulator.run(scenario))


async def test_a_dispatcher_that_lets_a_tenant_grow_past_its_quota_is_caught(simulator: Simulator) -> None:
    attacks = [Attack(1.0, "create", "evil-0", 384), Attack(6.0, "resize", "evil-0", 12)]
    async with Simulator(shorten=False, command=("-m", "tests.faults.broken", "growth_not_asked_for")) as other:
        assert broken(await other.attack(5, attacks)) == {"quota"}
    kept(await simulator.attack(5, attacks))


def broken(report: dict[str, Any]) -> set[str]:
    assert "error" not in report, report["error"]
    return {violation.partition(":")[0] for violation in report["violations"]}

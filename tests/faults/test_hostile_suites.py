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

pytestmark = [pytest.mark.xdist_group("faults")]

JOBS = tuple(Step(number * 1.0, "submit", f"job-{number}", "many", 6.0) for number in range(3))


def kept(report: dict[str, Any]) -> None:
    assert "error" not in report, report["error"]
    assert not report["violations"], "\n".join(report["story"] or report["violations"])


async def test_a_hostile_worker_harms_nobody_but_its_own_jobs() -> None:
    async with Simulator(suite="worker") as simulator:
        for seed in (1, 10, 12):
            kept(await simulator.seed(seed))


async def test_the_same_seed_is_the_same_lie() -> None:
    async with Simulator(suite="worker", shorten=False) as one, Simulator(suite="worker", shorten=False) as other:
        assert (await one.seed(1))["digest"] == (await other.seed(1))["digest"]


async def test_a_hostile_tenant_harms_nobody() -> None:
    async with Simulator(suite="tenant") as simulator:
        for seed in (1, 7):
            kept(await simulator.seed(seed))


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
    mutation: str, steps: Sequence[Step], tricks: Sequence[Trick], caught: set[str]
) -> None:
    scenario = Scenario(seed=3, workers=3, steps=(*JOBS, *steps), hostile="worker-3", tricks=tricks)
    assert await broken(scenario, "-m", "tests.faults.broken", mutation) & caught
    assert not await broken(scenario, "-m", "faults.child")


async def broken(scenario: Scenario, *command: str) -> set[str]:
    async with Simulator(shorten=False, command=command) as simulator:
        report = await simulator.run(scenario)
    assert "error" not in report, report["error"]
    return {violation.partition(":")[0] for violation in report["violations"]}


async def test_a_dispatcher_that_lets_a_tenant_grow_past_its_quota_is_caught() -> None:
    attacks = [Attack(1.0, "create", "evil-0", 384), Attack(6.0, "resize", "evil-0", 12)]
    async with Simulator(shorten=False, command=("-m", "tests.faults.broken", "growth_not_asked_for")) as simulator:
        report = await simulator.attack(5, attacks)
    assert "error" not in report, report["error"]
    assert {violation.partition(":")[0] for violation in report["violations"]} == {"quota"}
    async with Simulator(shorten=False) as simulator:
        kept(await simulator.attack(5, attacks))

"""Dispatchers that are broken on purpose are caught, by the check that is there for it."""

import pytest

from faults.plan import Fault
from faults.scenario import Scenario
from faults.simulator import Simulator
from faults.workload import Step

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("faults")]

JOBS = tuple(Step(number * 2.0, "submit", f"job-{number}", "many", 6.0) for number in range(4))
HUB = "dispatcher/management"


@pytest.mark.parametrize(
    ("mutation", "plan", "caught"),
    [
        pytest.param(
            "assignment_not_stored",
            (Fault(kind="crash", link=HUB, verb="patch", resource="jobs", nth=2, seconds=1),),
            {"I1", "I2", "I9", "end"},
            id="the assignment is not stored before the copy",
        ),
        pytest.param(
            "orphans_before_sync",
            (
                Fault(kind="crash_at", link="dispatcher", at=9, seconds=1),
                Fault(kind="delay", link=HUB, at=9, verb="watch", resource="jobs", seconds=5),
            ),
            {"I9"},
            id="orphans are looked for before the caches are filled",
        ),
        pytest.param(
            "status_not_validated",
            (Fault(kind="partition", link="dispatcher/worker-1", at=9, seconds=60),),
            {"I3"},
            id="the status is not validated",
        ),
    ],
)
async def test_a_broken_dispatcher_is_caught(mutation: str, plan: tuple[Fault, ...], caught: set[str]) -> None:
    await is_caught(mutation, Scenario(seed=3, steps=JOBS, plan=plan, lost_after=5.0, placement="Ordered"), caught)


async def test_a_dispatcher_that_does_not_wait_for_the_fence_is_caught() -> None:
    steps = tuple(Step(number, "submit", f"job-{number}", "forever") for number in range(4))
    plan = (Fault(kind="partition", link="dispatcher/worker-1", at=9, seconds=120),)
    fenced = Scenario(seed=3, steps=steps, plan=plan, lost_after=5.0, fence=20.0)
    await is_caught("fence_not_waited_for", fenced, {"I1"})


async def is_caught(mutation: str, scenario: Scenario, caught: set[str]) -> None:
    async with Simulator(shorten=False, command=("-m", "tests.faults.broken", mutation)) as simulator:
        report = await simulator.run(scenario)
    assert "error" not in report
    broken = {violation.partition(":")[0] for violation in report["violations"]}
    assert broken & caught, report
    async with Simulator(shorten=False) as simulator:
        assert not (await simulator.run(scenario))["violations"]

"""Queues that share, under faults, in a simulation: dispatchers that break what they promise there are caught.

Two queues of one cohort with one cpu of their own each, on two workers, and Jobs of one cpu.
"""

from typing import Any

import pytest

from faults.scenario import Scenario, crash_points, sharing_reference
from faults.sharing import EVERYTHING, Sharing
from faults.simulator import Simulator
from faults.workload import Step

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("faults")]


def shared(*steps: Step, capacity: int = 1, **more: Any) -> Scenario:
    queue = {"cohort": "all", "preempts": ["Reclaim", "Priority", "FairShare"]}
    quota = {"resources": {"cpu": 1}, **more.pop("quota", {})}
    queues = {name: {**queue, "quota": quota, **more} for name in ("", "b")}
    sharing = Sharing(queues=queues, capacity={"worker-1": capacity, "worker-2": capacity})
    end = max(step.at for step in steps) + 25.0
    return Scenario(seed=2, steps=(*steps, Step(end, "enlarge", "", value=EVERYTHING)), sharing=sharing)


def forever(at: float, number: int, queue: str, **more: Any) -> Step:
    return Step(at, "submit", f"job-{number}", "forever", queue=queue, cpu=1000, **more)


BORROWS = (forever(0, 0, "b"), forever(1, 1, "b", stops=1.5))
GIVES_BACK = (*BORROWS, forever(2, 2, ""))
AGAIN_AND_AGAIN = (*BORROWS, *(Step(2.0 + 16 * n, "submit", f"job-{2 + n}", "one", 4.0, cpu=1000) for n in range(4)))


@pytest.mark.parametrize(
    ("mutation", "scenario", "caught"),
    [
        pytest.param("borrowing_not_limited", shared(*BORROWS, quota={"borrow": {"cpu": 0}}), "P1", id="borrow"),
        pytest.param("lending_not_limited", shared(*BORROWS, quota={"lend": {"cpu": 0}}), "P2", id="lend"),
        pytest.param(
            "own_quota_not_known", shared(forever(0, 0, "b"), forever(1, 1, ""), forever(2, 2, "")), "P2", id="own"
        ),
        pytest.param("capacity_not_known", shared(*BORROWS, forever(1, 2, ""), capacity=0), "P3", id="capacity"),
        pytest.param("run_times_not_known", shared(*GIVES_BACK, minRuntime="60s"), "P6", id="minRuntime"),
        pytest.param("stops_not_counted", shared(*AGAIN_AND_AGAIN), "P6", id="how often"),
        pytest.param("pods_not_waited_for", shared(*GIVES_BACK), "P11", id="pods first"),
    ],
)
async def test_a_dispatcher_that_breaks_a_promise_to_those_who_share_is_caught(
    simulator: Simulator, mutation: str, scenario: Scenario, caught: str
) -> None:
    async with Simulator(shorten=False, command=("-m", "tests.faults.broken", mutation)) as broken:
        report = await broken.run(scenario)
    assert "error" not in report
    assert caught in {violation.partition(":")[0] for violation in report["violations"]}, report
    assert not (await simulator.run(scenario))["violations"]


async def test_a_controller_that_dies_while_jobs_are_stopped_for_others_changes_nothing(
    simulator: Simulator,
) -> None:
    report = await simulator.run(sharing_reference())
    assert report["sharing"]["Reclaim"]
    assert report["sharing"]["Priority"]
    points = list(crash_points(sharing_reference(), report["links"]))
    assert len(points) > 200
    for point in points[::141]:  # all of them: python -m faults --crash-points
        report = await simulator.run(point)
        assert not report["violations"], "\n".join(report["story"])
        assert sum(report["faults"].values()) == 1

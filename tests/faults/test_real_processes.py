"""The commands as processes of their own, killed and frozen by signals while they work, on every kind of cluster.

All crash points of a reference run: `python -m faults --crash-points --real`. Random ones: `make faults FLEET=local`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio

from faults.backends import LocalBackend
from faults.commands import Processes
from faults.plan import Fault
from faults.real import JOB_CONTROLLERS, LOCAL_PACE, ONE, REPLICAS, on_embedded
from faults.record import MANAGEMENT, holder_of
from faults.running import Outcome, run
from faults.scenario import Scenario
from faults.telling import tell
from faults.workload import Step

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("faults"), pytest.mark.real_server]

Play = Callable[[str, Sequence[Fault], Processes], Awaitable[Outcome]]
STEPS = (
    Step(0, "submit", "job-0", "one", 5.0),
    Step(0, "submit", "job-1", "forever"),
    Step(5, "submit", "job-2", "indexed", 5.0),
    Step(10, "delete", "job-1"),
    Step(25, "submit", "job-3", "many", 5.0),
    Step(45, "submit", "job-4", "one", 1.0),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["embedded", "local"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[LocalBackend | None]:
    """Real control planes serve all tests, each in a namespace of its own; embedded clusters are made for each run."""
    if request.param == "embedded":
        yield None
        return
    async with LocalBackend(2) as backend:
        yield backend


@pytest.fixture
def play(cluster: LocalBackend | None) -> Play:
    """A run whose every promise is kept."""

    async def play(name: str, plan: Sequence[Fault], processes: Processes) -> Outcome:
        scenario = Scenario(seed=1, steps=STEPS, plan=plan)
        if cluster is None:
            return kept(await on_embedded(scenario, processes))
        pace = replace(LOCAL_PACE, factor=0.1)
        return kept(await run(scenario, cluster, pace, namespace=name, processes=processes))

    return play


def kept(outcome: Outcome) -> Outcome:
    assert not outcome.violations, "\n".join(tell(outcome))
    assert sum(outcome.faults.values()) == len(outcome.scenario.plan), "all faults took effect"
    return outcome


def leaders(outcome: Outcome) -> list[str]:
    """Those who led, in order."""
    found = [holder_of(seen.object) for seen in outcome.record.changes("Lease", MANAGEMENT)]
    return [name for number, name in enumerate(found) if name and name not in found[:number]]


def lives(outcome: Outcome, client: str) -> list[str]:
    return [life.what for life in outcome.record.lives if life.client == client]


async def test_a_dispatcher_killed_before_one_write_and_after_another_is_not_missed(play: Play) -> None:
    plan = [
        Fault(kind="crash", link="dispatcher/worker-1", verb="create", resource="jobs", seconds=1),
        Fault(kind="crash_after", link="dispatcher/management", verb="write", resource="jobs/status", nth=2, seconds=1),
    ]
    outcome = await play("killed", plan, ONE)
    assert lives(outcome, "dispatcher") == ["started", "killed", "started", "killed", "started", "killed"]


async def test_when_the_leader_is_killed_the_standby_goes_on(play: Play) -> None:
    outcome = await play("led", [Fault(kind="crash_at", link="leader", at=8, seconds=60)], REPLICAS)
    first, second = leaders(outcome)
    assert {first, second} == {"dispatcher-1", "dispatcher-2"}
    assert any(each.took_effect and each.call.resource == "jobs/status" for each in outcome.record.writes(second))


async def test_a_leader_frozen_for_longer_than_its_lease_writes_nothing_more_when_it_goes_on(play: Play) -> None:
    outcome = await play("frozen", [Fault(kind="pause", link="leader", at=8, seconds=60)], REPLICAS)
    first, second = leaders(outcome)
    assert lives(outcome, first)[:4] == ["started", "paused", "resumed", "ended by itself"]
    (end,) = [life for life in outcome.record.lives if life.what == "ended by itself"]
    assert end.why[0] == "exit code 1"
    assert any("lost lease" in line for line in end.why), end.why
    assert lives(outcome, second) == ["started", "killed"], "that is how the run ended"


@pytest.mark.cluster_kind("embedded")
async def test_a_leader_frozen_for_a_moment_goes_on_leading() -> None:
    plan = [Fault(kind="pause", link="leader", at=8, seconds=5)]
    patient = replace(REPLICAS, lease_seconds=60)  # a busy machine must not make the moment a long one
    outcome = kept(await on_embedded(Scenario(seed=1, steps=STEPS, plan=plan), patient))
    (leader,) = leaders(outcome)
    assert lives(outcome, leader) == ["started", "paused", "resumed", "killed"]


@pytest.mark.cluster_kind("embedded")
async def test_a_job_controller_killed_at_its_writes_neither_loses_pods_nor_makes_too_many() -> None:
    plan = [
        Fault(kind="crash", link="jobs/worker-1", verb="create", resource="pods", seconds=1),
        Fault(kind="crash_after", link="jobs/worker-2", verb="create", resource="pods", seconds=1),
        Fault(kind="crash_after", link="jobs/worker-1", verb="write", resource="jobs/status", nth=2, seconds=1),
    ]
    scenario = Scenario(seed=1, steps=STEPS, plan=plan)
    outcome = kept(await on_embedded(scenario, JOB_CONTROLLERS))
    assert lives(outcome, "jobs/worker-1").count("killed") == 3

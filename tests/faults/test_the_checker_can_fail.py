"""Dispatchers that are broken on purpose are caught, by the check that is there for it."""

from dataclasses import replace
from typing import Any

import pytest

from faults.conduct import controllers_stay_up, leaders_alone_write
from faults.plan import Fault
from faults.real import REPLICAS, on_embedded
from faults.record import MANAGEMENT, Exchange, Life, Record, Seen
from faults.rules import Rules
from faults.scenario import Scenario
from faults.simulator import Simulator
from faults.wire import Call
from faults.workload import Step

pytestmark = [pytest.mark.xdist_group("faults")]

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
    # Just after the first renewal, which comes after half of the fence to three fifths of it: the copies live longest.
    plan = (Fault(kind="partition", link="dispatcher/worker-1", at=13, seconds=120),)
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


@pytest.mark.cluster_kind("embedded")
async def test_a_leader_that_does_not_ask_whether_it_still_leads_is_caught_when_it_was_frozen() -> None:
    late = [Step(62.0 + number, "submit", f"job-{number + 9}", "one", 1.0) for number in range(6)]
    plan = (Fault(kind="pause", link="leader", at=6, seconds=65),)
    scenario = Scenario(seed=3, steps=(*JOBS, *late), plan=plan)
    outcome = await on_embedded(scenario, replace(REPLICAS, program=("-m", "tests.faults.unguarded")))
    assert {violation.invariant for violation in outcome.violations} == {"I9"}


def a_lease(time: float, version: int, holder: str) -> Seen:
    metadata = {"name": "multimirror-dispatcher", "uid": "lease", "resourceVersion": str(version)}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return Seen(time, MANAGEMENT, "MODIFIED", "Lease", {"metadata": metadata, "spec": spec})


def a_write(time: float, client: str, cluster: str, resource: str = "jobs", **more: Any) -> Exchange:
    call = Call("patch", resource, "team", "job-0", "", {})
    return Exchange(time, client, cluster, call, status=200, told=200, answered=time, **more)


TERMS = [a_lease(1.0, 10, "dispatcher-1_1"), a_lease(9.0, 20, "dispatcher-2_1"), a_lease(12.0, 30, "")]
RENEWAL = a_write(8.0, "dispatcher-2", MANAGEMENT, "leases", version="20")
RELEASE = a_write(11.9, "dispatcher-2", MANAGEMENT, "leases", version="30")


@pytest.mark.parametrize(
    ("write", "broken"),
    [
        pytest.param(a_write(8.5, "dispatcher-1", MANAGEMENT, version="19"), False, id="before the other leads"),
        pytest.param(a_write(7.5, "dispatcher-1", MANAGEMENT, version="21"), True, id="the server took it after that"),
        pytest.param(a_write(9.5, "dispatcher-2", MANAGEMENT, version="21"), False, id="by the new leader"),
        pytest.param(a_write(0.5, "dispatcher-1", MANAGEMENT, version="9"), True, id="before anybody leads"),
        pytest.param(a_write(7.9, "dispatcher-1", "worker-1", version="99"), False, id="a worker, in time"),
        pytest.param(a_write(8.1, "dispatcher-1", "worker-1", version="5"), True, id="a worker, too late"),
        pytest.param(
            a_write(7.0, "dispatcher-1", MANAGEMENT, version="25", fault="delay"), False, id="held up on its way"
        ),
        pytest.param(a_write(11.8, "dispatcher-2", MANAGEMENT, version="31"), True, id="on its way at the release"),
        pytest.param(a_write(12.1, "dispatcher-2", MANAGEMENT, version="31"), True, id="after its own release"),
        pytest.param(a_write(11.8, "dispatcher-1", MANAGEMENT, version="31"), True, id="at another's release"),
        pytest.param(a_write(9.5, "jobs", "worker-1", version="5"), False, id="another controller"),
        pytest.param(a_write(0.5, "dispatcher", MANAGEMENT, version="9"), False, id="one that works alone"),
        pytest.param(a_write(9.5, "dispatcher", MANAGEMENT, version="21"), True, id="one that thinks it works alone"),
    ],
)
def test_a_write_by_one_who_does_not_lead_is_caught(write: Exchange, broken: bool) -> None:
    record = Record(exchanges=[RENEWAL, RELEASE, write], seen=list(TERMS))
    assert bool(list(leaders_alone_write(record, Rules()))) is broken


@pytest.mark.parametrize(
    ("client", "ended", "broken"),
    [
        pytest.param("dispatcher-2", 12.0, True, id="although it had just renewed its lease"),
        pytest.param("dispatcher-2", 18.5, False, id="a leader that could not renew its lease"),
        pytest.param("dispatcher-1", 18.5, True, id="one that does not lead any more, and never wrote"),
    ],
)
def test_a_dispatcher_that_ends_by_itself_is_caught_unless_its_lease_ran_out(
    client: str, ended: float, broken: bool
) -> None:
    lives = [Life(0.5, client, "started"), Life(ended, client, "ended by itself", ("exit code 1",))]
    record = Record(exchanges=[RENEWAL], seen=list(TERMS), lives=lives)
    assert bool(list(controllers_stay_up(record, Rules()))) is broken

"""The read model: views of workers, queues and Jobs from what the caches say, and what /explain tells of a Job."""

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from multimirror.api import MirrorQueueSpec, WorkerClusterSpec
from multimirror.batch import Json
from multimirror.observe.explain import explanation
from multimirror.observe.snapshot import (
    DecisionView,
    FleetSnapshot,
    MirrorQueueView,
    Original,
    QueueHead,
    QueueOnWorker,
    WorkerClusterView,
    WorkerFit,
    fleet_snapshot,
    job_view,
)
from multimirror.workers import WorkerState
from tests.unit.observe.fleets import Fleet, Sum

HEAD = QueueHead(job="team/first", since="2027-01-15T08:00:00Z", reason="NoWorkerFits", message="w: is full")


def named(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "generation": 2}, **more}


def test_a_snapshot_of_workers() -> None:
    found, declared = {"cpu": Decimal(8)}, {"cpu": Decimal(4)}
    up = WorkerState(connected=True, capacity=found)
    powerless = WorkerState(connected=True, missing=("create Jobs",))
    fleet = Fleet(
        clusters=[named("found"), named("declared"), named("powerless"), named("new")],
        states={"found": up, "declared": up, "powerless": powerless},
        worker_specs={
            "found": WorkerClusterSpec(path="a", cordoned=True),
            "declared": WorkerClusterSpec(path="b", capacity=declared),
        },
        on_workers={"found": Sum(3, {"cpu": Decimal("1.5")})},
    )
    snapshot = fleet_snapshot(fleet, {"found": {"running": 3}})
    assert snapshot == FleetSnapshot(
        workers=(
            WorkerClusterView(
                name="found",
                generation=2,
                state=up,
                cordoned=True,
                capacity=found,
                jobs=3,
                used={"cpu": Decimal("1.5")},
                kinds=("Job.batch",),
                copies={"running": 3},
            ),
            WorkerClusterView(name="declared", generation=2, state=up, capacity=declared, kinds=("Job.batch",)),
            WorkerClusterView(name="powerless", generation=2, state=powerless),
            WorkerClusterView(name="new", generation=2),
        )
    )
    fleet.on_workers["found"].resources["cpu"] = Decimal(99)
    assert snapshot.workers[0].used == {"cpu": Decimal("1.5")}, "the caches go on, a snapshot does not"


def test_a_snapshot_of_queues() -> None:
    fleet = Fleet(
        queues=[named("busy"), named("idle"), named("broken", spec={"quota": 7}), named("new", spec={})],
        queue_specs={"busy": MirrorQueueSpec(), "idle": MirrorQueueSpec()},
        running={"busy": Counter(b=2, a=1, gone=0)},
        finished={"busy": Counter({"a": 4, "": 2})},
        waiting=Counter(busy=1),
        heads={"busy": HEAD, "idle": HEAD},
    )
    broken = fleet_snapshot(fleet, {}).queues[2]
    assert fleet_snapshot(fleet, {}) == FleetSnapshot(
        queues=(
            MirrorQueueView(
                name="busy",
                generation=2,
                pending=1,
                running=3,
                finished=6,
                workers=(QueueOnWorker("a", 1, 4), QueueOnWorker("b", 2, 0)),
                head=HEAD,
            ),
            MirrorQueueView(name="idle", generation=2),
            MirrorQueueView(name="broken", generation=2, problem=broken.problem),
            MirrorQueueView(name="new", generation=2),
        )
    )
    assert "quota" in broken.problem


DECISION = DecisionView(
    reason="NoWorkerFits",
    message="no worker cluster can take it now (a: cordoned; b: 1 Job there)",
    why="no worker cluster can take it now",
    workers=(WorkerFit("a", fits=False, message="cordoned"), WorkerFit("b", fits=True, message="1 Job there")),
)
JOBS = [
    pytest.param({}, {"state": "Waiting", "attempt": 0}, id="waits, and was not looked at yet"),
    pytest.param({"held": True, "suspended": True}, {"state": "Held", "attempt": 0}, id="held"),
    pytest.param(
        {"cluster": "up", "attempt": 2},
        {"state": "Assigned", "attempt": 2, "cluster": "up", "connected": True},
        id="on its worker",
    ),
    pytest.param(
        {"cluster": "up", "attempt": 1, "suspended": True},
        {"state": "Suspended", "attempt": 1, "cluster": "up", "connected": True},
        id="suspended there",
    ),
    pytest.param(
        {"cluster": "down", "attempt": 1},
        {"state": "Assigned", "attempt": 1, "cluster": "down", "connected": False},
        id="on a worker that is lost",
    ),
    pytest.param(
        {"cluster": "unknown", "attempt": 1, "finished": True},
        {"state": "Finished", "attempt": 1, "cluster": "unknown", "connected": False},
        id="over, on a worker that is none any more",
    ),
]


@pytest.mark.parametrize(("facts", "told"), JOBS)
def test_what_is_told_of_a_job(facts: dict[str, Any], told: Json) -> None:
    fleet = Fleet(
        states={"up": WorkerState(connected=True), "down": WorkerState()},
        originals={"team/job": Original(key="team/job", uid="uid", queue="q", **facts)},
    )
    view = job_view(fleet, "team/job")
    assert view is not None
    assert explanation(view, leads=True) == {"job": "team/job", "uid": "uid", "queue": "q", "leads": True, **told}


def test_a_job_that_waits_is_told_why_and_what_each_worker_says() -> None:
    fleet = Fleet(originals={"team/job": Original(key="team/job", uid="uid", queue="q")}, decisions={"uid": DECISION})
    view = job_view(fleet, "team/job")
    assert view is not None
    assert explanation(view, leads=True) == {
        "job": "team/job",
        "uid": "uid",
        "queue": "q",
        "leads": True,
        "state": "Waiting",
        "attempt": 0,
        "reason": "NoWorkerFits",
        "message": "no worker cluster can take it now (a: cordoned; b: 1 Job there)",
        "why": "no worker cluster can take it now",
        "workers": [
            {"name": "a", "fits": False, "message": "cordoned"},
            {"name": "b", "fits": True, "message": "1 Job there"},
        ],
    }


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ({"job": "team/job", "reason": "NoWorkerFits", "message": "no room"}, "no room"),
        ({"job": "team/first", "reason": "NoWorkerFits", "message": "no room"}, "behind team/first: no room"),
        (None, None),
    ],
)
def test_who_does_not_decide_tells_what_the_queue_says(head: Json | None, told: str | None) -> None:
    queue = {"metadata": {"name": "q"}, "status": {"head": head} if head else {}}
    fleet = Fleet(originals={"team/job": Original(key="team/job", uid="uid", queue="q")}, queues=[queue])
    view = job_view(fleet, "team/job", deciding=False)
    assert view is not None
    answer = explanation(view, leads=False)
    assert (answer["leads"], answer["state"], answer.get("message")) == (False, "Waiting", told)
    assert "workers" not in answer


def test_a_held_job_is_behind_nobody_whoever_is_asked() -> None:
    queue = {"metadata": {"name": "q"}, "status": {"head": {"job": "team/first", "reason": "R", "message": "no room"}}}
    held = Original(key="team/job", uid="uid", queue="q", held=True)
    view = job_view(Fleet(originals={"team/job": held}, queues=[queue]), "team/job", deciding=False)
    assert view is not None
    answer = explanation(view, leads=False)
    assert (answer["state"], answer.get("message")) == ("Held", None)


def test_nothing_is_told_of_a_job_that_is_not_ours() -> None:
    assert job_view(Fleet(), "team/job") is None

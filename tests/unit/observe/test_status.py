"""The whole status of a WorkerCluster or MirrorQueue, for what is known and what was there."""

import copy
from decimal import Decimal

import pytest

from multimirror.batch import Json
from multimirror.batch.times import format_time, utc_datetime
from multimirror.observe.snapshot import MirrorQueueView, QueueHead, QueueOnWorker, WorkerClusterView
from multimirror.observe.status import mirror_queue_status, worker_cluster_status
from multimirror.workers import WorkerState

NOW = 1_800_000_000.0
CONTACT_SECONDS = 60.0


def at(seconds: float) -> str:
    """So many seconds from now."""
    return format_time(utc_datetime(NOW + seconds))


def condition(kind: str, status: str, reason: str, message: str, since: float = 0, *, generation: int = 1) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(since),
        "observedGeneration": generation,
    }


UP = WorkerState(
    connected=True,
    reason="Connected",
    message="Kubernetes v1.36.0",
    last_contact=NOW - 3,
    latency=0.0123,
    version="v1.36.0",
    capacity={"cpu": Decimal(16), "memory": Decimal(2**36), "example.com/gpu": Decimal(0)},
)
CONNECTED = condition("Connected", "True", "Connected", "Kubernetes v1.36.0")
READY = condition("Ready", "True", "Ready", "it takes Jobs")
CAPACITY = {"cpu": "16", "memory": "68719476736"}
OF_SOMEBODY_ELSE = {"type": "Budgeted", "status": "True", "reason": "Paid", "message": "", "lastTransitionTime": at(-9)}


WORKERS = [
    pytest.param(
        WorkerClusterView(
            name="w",
            state=UP,
            capacity=UP.capacity,
            jobs=2,
            used={"cpu": Decimal("1.50"), "memory": Decimal(0)},
            kinds=("Job.batch",),
        ),
        {},
        {
            "observedGeneration": 1,
            "conditions": [CONNECTED, READY],
            "jobs": 2,
            "used": {"cpu": "1500m"},
            "kinds": ["Job.batch"],
            "version": "v1.36.0",
            "capacity": CAPACITY,
            "lastContact": at(-3),
            "latencyMilliseconds": 12,
        },
        id="connected, and never written before",
    ),
    pytest.param(
        WorkerClusterView(name="w", state=UP, capacity=UP.capacity, kinds=("Job.batch",)),
        {
            "conditions": [condition("Ready", "True", "Ready", "it takes Jobs", -600)],
            "lastContact": at(-60),
            "latencyMilliseconds": 99,
        },
        {
            "observedGeneration": 1,
            "conditions": [CONNECTED, condition("Ready", "True", "Ready", "it takes Jobs", -600)],
            "jobs": 0,
            "used": {},
            "kinds": ["Job.batch"],
            "version": "v1.36.0",
            "capacity": CAPACITY,
            "lastContact": at(-60),
            "latencyMilliseconds": 99,
        },
        id="a contact that is written down and not a minute old stays, and so does the time of a transition",
    ),
    pytest.param(
        WorkerClusterView(name="w", generation=4, state=UP, cordoned=True, kinds=("Job.batch",)),
        {"conditions": [OF_SOMEBODY_ELSE], "lastContact": at(-64), "price": "high"},
        {
            "price": "high",
            "observedGeneration": 4,
            "conditions": [
                condition("Connected", "True", "Connected", "Kubernetes v1.36.0", generation=4),
                condition(
                    "Ready", "False", "Cordoned", "it takes no new Jobs; those that run there go on", generation=4
                ),
                OF_SOMEBODY_ELSE,
            ],
            "jobs": 0,
            "used": {},
            "kinds": ["Job.batch"],
            "version": "v1.36.0",
            "lastContact": at(-3),
            "latencyMilliseconds": 12,
        },
        id="cordoned; what others wrote stays; a contact that is too old is brought up to date",
    ),
    pytest.param(
        WorkerClusterView(
            name="w", state=WorkerState(reason="Unreachable", message="no route", last_contact=NOW - 20), jobs=1
        ),
        {
            "conditions": [condition("Connected", "True", "Connected", "Kubernetes v1.36.0", -600)],
            "version": "v1.36.0",
            "capacity": CAPACITY,
            "lastContact": at(-40),
        },
        {
            "observedGeneration": 1,
            "conditions": [
                condition("Connected", "False", "Unreachable", "no route"),
                condition("Ready", "False", "Unreachable", "no route"),
            ],
            "jobs": 1,
            "used": {},
            "kinds": [],
            "version": "v1.36.0",
            "capacity": CAPACITY,
            "lastContact": at(-40),
        },
        id="lost: what was found out before stays",
    ),
    pytest.param(
        WorkerClusterView(name="w", state=WorkerState(reason="Unreachable", message="no route", last_contact=NOW)),
        {},
        {
            "observedGeneration": 1,
            "conditions": [
                condition("Connected", "False", "Unreachable", "no route"),
                condition("Ready", "False", "Unreachable", "no route"),
            ],
            "jobs": 0,
            "used": {},
            "kinds": [],
            "lastContact": at(0),
        },
        id="lost before its contact was ever written",
    ),
    pytest.param(
        WorkerClusterView(name="w"),
        {"version": "v1.36.0"},
        {"version": "v1.36.0"},
        id="nobody has tried it yet: nothing is said",
    ),
]


@pytest.mark.parametrize(("view", "before", "status"), WORKERS)
def test_the_status_of_a_worker_cluster(view: WorkerClusterView, before: Json, status: Json) -> None:
    untouched = copy.deepcopy(before)
    assert worker_cluster_status(view, before, NOW, contact_seconds=CONTACT_SECONDS) == status
    assert before == untouched


TAKEN = condition("Ready", "True", "Ready", "Jobs are taken")
QUEUES = [
    pytest.param(
        MirrorQueueView(name="q"),
        {},
        {
            "observedGeneration": 1,
            "conditions": [TAKEN],
            "pending": 0,
            "running": 0,
            "finished": 0,
            "workers": [],
        },
        id="nothing in it",
    ),
    pytest.param(
        MirrorQueueView(
            name="q",
            generation=2,
            pending=7,
            running=3,
            finished=5,
            workers=(QueueOnWorker("a", 3, 0), QueueOnWorker("b", 0, 4)),
            head=QueueHead(job="team/train", since=at(-30), reason="QuotaExceeded", message="queue q runs 3 Jobs"),
        ),
        {"conditions": [condition("Ready", "True", "Ready", "Jobs are taken", -600)], "pending": 1},
        {
            "observedGeneration": 2,
            "conditions": [condition("Ready", "True", "Ready", "Jobs are taken", -600, generation=2)],
            "pending": 7,
            "running": 3,
            "finished": 5,
            "workers": [
                {"name": "a", "running": 3, "finished": 0},
                {"name": "b", "running": 0, "finished": 4},
            ],
            "head": {
                "job": "team/train",
                "since": at(-30),
                "reason": "QuotaExceeded",
                "message": "queue q runs 3 Jobs",
            },
        },
        id="busy, and the first that waits is named",
    ),
    pytest.param(
        MirrorQueueView(name="q", running=1, workers=(QueueOnWorker("a", 1, 0),)),
        {"conditions": [TAKEN], "head": {"job": "team/train"}, "note": "mine"},
        {
            "note": "mine",
            "observedGeneration": 1,
            "conditions": [TAKEN],
            "pending": 0,
            "running": 1,
            "finished": 0,
            "workers": [{"name": "a", "running": 1, "finished": 0}],
        },
        id="nothing waits any more: the head goes, what others wrote stays",
    ),
    pytest.param(
        MirrorQueueView(name="q", problem="spec.quota: must be an object"),
        {"conditions": [condition("Ready", "True", "Ready", "Jobs are taken", -600)]},
        {
            "observedGeneration": 1,
            "conditions": [condition("Ready", "False", "InvalidSpec", "spec.quota: must be an object")],
            "pending": 0,
            "running": 0,
            "finished": 0,
            "workers": [],
        },
        id="its spec cannot be read",
    ),
]


@pytest.mark.parametrize(("view", "before", "status"), QUEUES)
def test_the_status_of_a_mirror_queue(view: MirrorQueueView, before: Json, status: Json) -> None:
    untouched = copy.deepcopy(before)
    assert mirror_queue_status(view, before, NOW) == status
    assert before == untouched

"""The whole status of a WorkerCluster or MirrorQueue, for what is known and what was there."""

import copy
import re
from decimal import Decimal

import pytest

from multimirror.api import Hold, mirror_queue_status, worker_clusters
from multimirror.batch import Json
from multimirror.batch.times import format_time, utc_datetime
from multimirror.observe.snapshot import MirrorQueueView, QueueHead, QueueOnWorker, WorkerClusterView
from multimirror.observe.status import (
    mirror_queue_conditions,
    mirror_queue_numbers,
    worker_cluster_conditions,
    worker_cluster_numbers,
)
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


def whole(before: Json, *parts: Json) -> Json:
    """The status when all parts are written; no two of them write the same."""
    fields = [field for part in parts for field in part]
    assert len(fields) == len(set(fields))
    written = {field: value for part in parts for field, value in part.items()}
    return {field: value for field, value in {**before, **written}.items() if value is not None}


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
    conditions = worker_cluster_conditions(view, before, NOW, contact_seconds=CONTACT_SECONDS)
    assert whole(before, conditions, worker_cluster_numbers(view)) == status
    assert before == untouched


def test_which_clusters_were_in_its_place_is_written_along_with_which_one_is_there_now() -> None:
    view = WorkerClusterView(name="w", state=WorkerState(connected=True, identity="c", former=("a", "b")))
    found = worker_cluster_conditions(view, {}, NOW, contact_seconds=CONTACT_SECONDS)
    assert (found["identity"], found["formerIdentities"]) == ("c", ["a", "b"])
    unseen = WorkerClusterView(name="w", state=WorkerState())
    assert "formerIdentities" not in worker_cluster_conditions(unseen, {}, NOW, contact_seconds=CONTACT_SECONDS)


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
    pytest.param(
        MirrorQueueView(name="q", hold=Hold.DRAIN),
        {"conditions": [TAKEN, condition("Held", "True", "Hold", "before", -600)]},
        {
            "observedGeneration": 1,
            "conditions": [
                TAKEN,
                condition(
                    "Held",
                    "True",
                    "Drain",
                    "nothing of it is placed, as spec.hold says, and what ran is taken back",
                    -600,
                ),
            ],
            "pending": 0,
            "running": 0,
            "finished": 0,
            "workers": [],
        },
        id="drained after it was held: it is held since then",
    ),
    pytest.param(
        MirrorQueueView(name="q"),
        {"conditions": [TAKEN, condition("Held", "True", "Hold", "before", -600)]},
        {
            "observedGeneration": 1,
            "conditions": [TAKEN],
            "pending": 0,
            "running": 0,
            "finished": 0,
            "workers": [],
        },
        id="held no more",
    ),
]


@pytest.mark.parametrize(("view", "before", "status"), QUEUES)
def test_the_status_of_a_mirror_queue(view: MirrorQueueView, before: Json, status: Json) -> None:
    untouched = copy.deepcopy(before)
    assert whole(before, mirror_queue_conditions(view, before, NOW), mirror_queue_numbers(view, before)) == status
    assert before == untouched


# --- whatever workers, nodes and tenants say --------------------------------------------------------------------------


def complaints(schema: Json, value: object, path: str = "status") -> list[str]:
    """Of an API server that holds a value to a schema of ours, as far as sizes, patterns and numbers go."""
    match value:
        case dict():
            found = [f"{path}: too many"] if len(value) > schema.get("maxProperties", len(value)) else []
            properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
            for key, each in value.items():
                found += complaints(properties.get(key, others), each, f"{path}.{key}")
            return found
        case list():
            found = [f"{path}: too many"] if len(value) > schema.get("maxItems", len(value)) else []
            for each in value:
                found += complaints(schema.get("items", {}), each, f"{path}[]")
            return found
        case str():
            fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9)
            return [] if fits and re.search(schema.get("pattern", ""), value) else [f"{path}: {value[:50]}"]
        case int():
            return [] if schema.get("minimum", 0) <= value < 2**63 else [f"{path}: {value}"]
    return []


HOSTILE = "\x1b]52;c;Zm9v\x07" + "x" * 100_000 + "\n"


def test_the_status_of_a_worker_that_says_anything_is_within_its_schema() -> None:
    state = WorkerState(
        connected=False, reason=HOSTILE, message=HOSTILE, version=HOSTILE, last_contact=NOW, latency=1e12, missing=()
    )
    view = WorkerClusterView(
        name="w",
        state=state,
        capacity={"cpu": Decimal(10) ** 40, "memory": Decimal(-7)},
        jobs=2**40,
        used={"cpu": Decimal("1e-30")},
        kinds=("Job.batch",),
    )
    others = [{**OF_SOMEBODY_ELSE, "type": f"Other{number}"} for number in range(15)]
    before: Json = {"conditions": others}
    status = whole(
        before, worker_cluster_conditions(view, before, NOW, contact_seconds=60), worker_cluster_numbers(view)
    )
    assert complaints(worker_clusters.status_schema(), status) == []
    connected, ready = status["conditions"][:2]
    assert (connected["reason"], len(connected["message"])) == ("BadAnswer", 1024)
    assert ready["type"] == "Ready"
    assert "\x1b" not in str(status)


def test_the_status_of_a_queue_with_very_many_workers_is_within_its_schema() -> None:
    head = QueueHead(job="team/" + "j" * 400, since="", reason="NeverFits", message=HOSTILE)
    workers = tuple(QueueOnWorker(f"w{number}", number, 2**40) for number in range(5000))
    view = MirrorQueueView(name="q", problem=HOSTILE, pending=2**40, workers=workers, head=head)
    status = whole({}, mirror_queue_conditions(view, {}, NOW), mirror_queue_numbers(view, {}))
    assert complaints(mirror_queue_status.status_schema(), status) == []
    assert len(status["workers"]) == 1000
    assert {"name": "w4999", "running": 4999, "finished": 2**31 - 1} in status["workers"], "the busiest"

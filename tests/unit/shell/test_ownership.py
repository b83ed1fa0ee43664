"""What carries our labels and is not ours, on virtual time: it is neither mirrored, deleted nor waited for (I5)."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    COPY_UID_ANNOTATION,
    MIRROR_QUEUES,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    QUEUE_LABEL,
    SIGNATURE_LABEL,
)
from multimirror.batch import is_complete
from multimirror.dispatcher import Dispatcher
from multimirror.kube import Client, Connection
from multimirror.kube.resources import EVENTS, JOBS, SECRETS
from multimirror.workers.copy_key import COPY_KEY_NAME, CopyKeyError
from multimirror.workers.metrics import FOREIGN
from tests.unit.shell.fake_api import Refused, Request
from tests.unit.shell.world import FORGED, OPTIONS, SYSTEM, World

Json = dict[str, Any]
FINALIZERS = ["attacker.io/stays"]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
    assert world.violations == []


def job_of(world: World, name: str) -> Json:
    (job,) = [job for job in world.jobs() if job["metadata"]["name"] == name]
    return job


def annotations_of(world: World, name: str) -> Json:
    found: Json = job_of(world, name)["metadata"].get("annotations") or {}
    return found


def running(world: World) -> tuple[str, str, Json]:
    """A Job that runs: its name, its worker and its copy."""
    name = world.submit("a")
    world.settle()
    ((worker, made),) = world.copies()
    world.start_copy(worker, made)
    world.settle()
    assert job_of(world, name)["status"]["active"] == 1
    return name, worker, made


def other(worker: str) -> str:
    return "w2" if worker == "w1" else "w1"


def forge(world: World, worker: str, labels: Json, name: str, namespace: str, **more: Any) -> Json:
    """A finished Job that says that it is a copy, and does not go when it is deleted."""
    metadata = {"name": name, "namespace": namespace, "labels": {**labels, FORGED: "yes"}, "finalizers": FINALIZERS}
    forged = {"metadata": metadata, "spec": {"parallelism": 1}, "status": {"startTime": world.now()}, **more}
    made = world.workers[worker].put(JOBS, forged)
    if not more:
        world.end_copy(worker, made)
    return world.workers[worker].get(JOBS, name, namespace) or {}


def foreign(worker: str) -> float:
    (family,) = FOREIGN.collect()
    return sum(sample.value for sample in family.samples if sample.labels["worker"] == worker)


@pytest.mark.parametrize("same_worker", [True, False], ids=["on its worker", "on another"])
@pytest.mark.parametrize("namespace", ["elsewhere", "t1"])
def test_a_finished_job_with_the_labels_of_a_copy_is_nothing_to_us(
    world: World, namespace: str, same_worker: bool
) -> None:
    name, worker, made = running(world)
    where = worker if same_worker else other(worker)
    forged = forge(world, where, made["metadata"]["labels"], "innocent", namespace)
    world.settle(30)
    assert job_of(world, name)["status"]["active"] == 1, "nobody said that it has ended"
    assert [each["metadata"]["uid"] for _, each in world.live_copies()] == [made["metadata"]["uid"]]
    assert world.workers[where].get(JOBS, "innocent", namespace) == forged, "and nobody touched it"
    assert foreign(where) == 1
    world.end_copy(worker, made)
    world.settle()
    assert is_complete(job_of(world, name)["status"])
    world.workers[where].remove(JOBS, "innocent", namespace)
    world.settle()
    assert foreign(where) == 0


def test_a_name_that_is_taken_before_us_sends_the_job_to_another_worker_or_says_why_it_waits(world: World) -> None:
    world.set_worker("w2", cordoned=True)
    world.settle()
    world.network.links["hub"].write_seconds = 1.0
    name = world.submit("a")
    uid = job_of(world, name)["metadata"]["uid"]
    assert world.dispatcher is not None
    origin = world.dispatcher.origin
    labels = {ORIGIN_LABEL: origin, ORIGIN_UID_LABEL: uid, ATTEMPT_LABEL: "1", SIGNATURE_LABEL: "0" * 40}
    forged = forge(world, "w1", labels, name, "t1")
    world.settle(20)
    assert world.workers["w1"].get(JOBS, name, "t1") == forged
    assert annotations_of(world, name).get(CLUSTER_ANNOTATION) is None
    assert world.dispatcher is not None
    assert "not ours is there" in str(world.dispatcher.explain("t1", name))
    world.set_worker("w2", cordoned=False)
    world.settle(20)
    assert annotations_of(world, name)[CLUSTER_ANNOTATION] == "w2"
    assert [worker for worker, _ in world.live_copies(uid)] == ["w2"]


def test_a_worker_that_says_a_name_is_taken_by_nothing_is_not_asked_in_a_loop_and_loses_the_job(world: World) -> None:
    asked: list[Request] = []

    def taken(request: Request) -> Refused | None:
        if request.method != "POST" or request.collection != JOBS.path():
            return None
        asked.append(request)
        return Refused(409, "AlreadyExists")

    world.set_worker("w2", cordoned=True)
    world.settle()
    world.workers["w1"].refuse = taken
    name = world.submit("a")
    world.settle(20)
    assert 2 <= len(asked) <= 15
    world.set_worker("w2", cordoned=False)
    world.settle(30)
    assert annotations_of(world, name)[CLUSTER_ANNOTATION] == "w2"


def test_a_worker_that_forgets_what_it_confirms_is_not_asked_in_a_loop(world: World) -> None:
    made: list[Request] = []

    def forget(request: Request, _: Json | None, after: Json | None) -> None:
        if request.method == "POST" and request.collection == JOBS.path() and after is not None:
            made.append(request)
            world.workers["w1"].remove(JOBS, after["metadata"]["name"], "t1")

    world.set_worker("w2", cordoned=True)
    world.settle()
    world.workers["w1"].on_write = forget
    world.submit("a")
    world.settle(20)
    assert 2 <= len(made) <= 15
    world.violations.clear()  # copies that come and go are what this is about


def test_one_that_ends_between_making_a_copy_and_writing_its_uid_down_is_repaired_by_reading(world: World) -> None:
    name = world.submit("a")
    world.settle()
    ((worker, made),) = world.copies()
    assert COPY_UID_ANNOTATION not in annotations_of(world, name)
    world.run(world.restart())
    world.start_copy(worker, made)
    world.settle()
    assert job_of(world, name)["status"]["active"] == 1
    assert annotations_of(world, name)[COPY_UID_ANNOTATION] == made["metadata"]["uid"]
    assert annotations_of(world, name)[ATTEMPT_ANNOTATION] == "1"


def test_an_orphan_that_we_signed_goes_after_a_restart_and_another_one_stays(world: World) -> None:
    name, worker, made = running(world)
    forged = forge(world, worker, made["metadata"]["labels"], "innocent", "t1")
    world.run(world.stop())
    world.hub.remove(JOBS, name, "t1")
    world.run(world.start())
    world.settle(5)
    assert world.workers[worker].all(JOBS) == [forged]


def test_what_takes_the_place_of_our_copy_is_not_mirrored_deleted_or_waited_for(world: World) -> None:
    """Somebody deletes our copy and makes another Job under its name, with all of its labels."""
    name, worker, made = running(world)
    world.network.links[worker].write_seconds = 5.0
    world.workers[worker].remove(JOBS, name, "t1")
    labels = made["metadata"]["labels"]
    forged = forge(world, worker, labels, name, "t1")
    world.settle(1)
    assert not is_complete(job_of(world, name).get("status") or {})
    world.settle(60)
    assert world.workers[worker].get(JOBS, name, "t1") == forged
    annotations = annotations_of(world, name)
    assert annotations[CLUSTER_ANNOTATION] == other(worker)
    assert int(annotations[ATTEMPT_ANNOTATION]) >= 2
    assert [where for where, _ in world.live_copies()] == [other(worker)]
    assert not is_complete(job_of(world, name).get("status") or {})


def test_a_worker_that_a_job_was_moved_away_from_cannot_decide_its_result(world: World) -> None:
    lost = {"action": "Redispatch", "after": "20s"}
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(onWorkerLost=lost))
    name, worker, made = running(world)
    old = copy.deepcopy(world.workers[worker].get(JOBS, name, "t1"))
    assert old is not None
    world.network.links[worker].set_up(up=False)
    world.settle(90)
    assert annotations_of(world, name)[CLUSTER_ANNOTATION] == other(worker)
    world.end_copy(worker, made)
    world.violations.clear()  # the window that the queue's policy names
    world.workers[worker].change(JOBS, name, "t1", lambda obj: obj["metadata"].update(finalizers=FINALIZERS))
    world.network.links[worker].set_up(up=True)
    world.settle(60)
    assert not is_complete(job_of(world, name).get("status") or {})
    ((where, current),) = world.live_copies()
    assert where == other(worker)
    world.end_copy(where, current)
    world.settle(5)
    assert is_complete(job_of(world, name)["status"])


@pytest.mark.parametrize("action", ["Redispatch", "Wait", "Fail"])
def test_an_earlier_copy_that_never_goes_holds_its_job_up_for_as_long_as_the_queue_says_and_in_words(
    world: World, action: str
) -> None:
    rules = {"action": action, "after": "60s"}
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(onWorkerLost=rules))
    name, worker, _ = running(world)
    world.workers[worker].change(JOBS, name, "t1", lambda obj: obj["metadata"].update(finalizers=FINALIZERS))
    world.hub.change(JOBS, name, "t1", lambda obj: obj["metadata"]["annotations"].pop(CLUSTER_ANNOTATION))
    world.settle(40)
    assert annotations_of(world, name).get(CLUSTER_ANNOTATION) is None
    told = [each for each in world.hub.all(EVENTS) if each["reason"] == "EarlierCopyRemains"]
    assert told
    assert worker in told[0]["note" if "note" in told[0] else "message"]
    world.settle(60)
    if action == "Redispatch":
        assert annotations_of(world, name)[CLUSTER_ANNOTATION] == other(worker)
        world.violations.clear()  # the window that the queue's policy names
    elif action == "Wait":
        assert annotations_of(world, name).get(CLUSTER_ANNOTATION) is None
    else:
        conditions = {each["type"] for each in job_of(world, name)["status"]["conditions"]}
        assert "Failed" in conditions


def test_objects_that_no_api_server_sends_are_the_trouble_of_nobody_else(world: World) -> None:
    name, worker, made = running(world)
    labels = made["metadata"]["labels"]
    there = world.workers[other(worker)]
    for number, metadata in enumerate(
        (
            {"uid": None, "namespace": "t1", "labels": labels},
            {"uid": "", "labels": labels},
            {"uid": 7, "namespace": "t1", "labels": labels},
            {"namespace": "t1", "labels": [*labels]},
            {"namespace": "t1", "labels": {**labels, "x": 1}},
        )
    ):
        there.objects[JOBS.path()] = {
            **there.objects.get(JOBS.path(), {}),
            ("t1", f"bad-{number}"): {"metadata": {"name": f"bad-{number}", "resourceVersion": "7", **metadata}},
        }
    there.put(JOBS, {"metadata": {"name": "bad", "namespace": "t1", "labels": labels}, "spec": [], "status": "done"})
    link = world.network.links[other(worker)]
    link.set_up(up=False)
    link.set_up(up=True)
    world.settle(30)
    world.end_copy(worker, made)
    world.settle(5)
    assert is_complete(job_of(world, name)["status"])


def test_a_job_that_no_queue_has_admitted_is_taken_from_its_worker_before_a_copy_is_made(world: World) -> None:
    world.run(world.stop())
    name = world.submit("a")

    def place(obj: Json) -> None:
        obj["metadata"]["annotations"] = {CLUSTER_ANNOTATION: "w2", ATTEMPT_ANNOTATION: "1"}
        obj["spec"]["suspend"] = False

    world.hub.change(JOBS, name, "t1", place)
    world.run(world.start())
    world.settle(5)
    annotations = annotations_of(world, name)
    assert annotations[ATTEMPT_ANNOTATION] == "2"
    assert annotations[ADMITTED_QUEUE_ANNOTATION] == "a"
    assert "NotAdmitted" in {each["reason"] for each in world.hub.all(EVENTS)}


def test_the_queue_that_admitted_a_job_counts_until_it_ends(world: World) -> None:
    name, worker, made = running(world)
    world.hub.change(JOBS, name, "t1", lambda obj: obj["metadata"]["labels"].update({QUEUE_LABEL: "z"}))
    kept = {"onWorkerLost": {"action": "Wait"}, "retention": "1h"}
    world.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(kept))
    world.settle()
    assert world.dispatcher is not None
    assert world.dispatcher._cache.originals.queue_of(job_of(world, name)) == "a"
    world.end_copy(worker, made)
    world.settle(5)
    assert is_complete(job_of(world, name)["status"])
    assert len(world.copies()) == 1, "the retention is that of the queue it ran in"


def test_a_key_that_is_there_is_kept_and_one_that_is_broken_is_not_replaced(world: World) -> None:
    secret = world.hub.get(SECRETS, COPY_KEY_NAME, SYSTEM)
    world.run(world.restart())
    assert world.hub.get(SECRETS, COPY_KEY_NAME, SYSTEM) == secret
    world.run(world.stop())
    world.hub.change(SECRETS, COPY_KEY_NAME, SYSTEM, lambda found: found.update(data={"key": "c2hvcnQ="}))
    with pytest.raises(Exception, match="no key of at least 32 bytes"):
        world.run(_connect(world))


def test_no_new_key_is_made_while_something_runs_whose_copy_it_would_not_know(world: World) -> None:
    """The Secret was lost; or an older version ran, which signed nothing. A second run must not come of it (I1)."""
    name, worker, made = running(world)
    secret = world.hub.get(SECRETS, COPY_KEY_NAME, SYSTEM)
    assert secret is not None
    world.run(world.stop())
    world.hub.remove(SECRETS, COPY_KEY_NAME, SYSTEM)
    with pytest.raises(CopyKeyError, match=f"Job t1/{name} runs on worker {worker}.* run a second time"):
        world.run(_connect(world))
    assert world.hub.get(SECRETS, COPY_KEY_NAME, SYSTEM) is None
    world.hub.put(SECRETS, secret)
    world.run(world.restart())
    world.end_copy(worker, made)
    world.settle(5)
    assert is_complete(job_of(world, name)["status"])
    world.run(world.stop())
    world.hub.remove(SECRETS, COPY_KEY_NAME, SYSTEM)
    world.run(_connect(world))
    assert world.hub.get(SECRETS, COPY_KEY_NAME, SYSTEM) is not None, "nothing runs any more"


async def _connect(world: World) -> None:
    async with Client(Connection.strict(world.network.kubeconfig("hub"), name="management", plain_http=True)) as client:
        await Dispatcher.connect(client, OPTIONS, clock=world.clock)

"""An object is taken back from its worker, in the dispatcher as a whole, on virtual time.

The mark is written through the API, as whoever decides on victims does. Workers have a Job controller that is moved by
hand: it starts what is to run, notices suspensions, and lets pods go.
"""

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from multimirror.api import (
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    HOLD_ANNOTATION,
    MIRROR_QUEUES,
    PREEMPTED_ANNOTATION,
    PREEMPTIONS_ANNOTATION,
)
from multimirror.api.placement import annotations
from multimirror.batch import find_condition, is_complete
from multimirror.batch.labels import CONTROLLER_UID_LABEL
from multimirror.kinds import JOB
from multimirror.kinds.preempted import Preemption, preemption_patch
from multimirror.kube.resources import JOBS, PODS
from multimirror.kube.transport import TransportError
from tests.unit.shell.fake_api import FakeCluster, Refused, Request, merged
from tests.unit.shell.world import World

Json = dict[str, Any]


class Fleet(World):
    """With Job controllers on its workers that do what they are told to, when they are told to."""

    def job(self, name: str) -> Json:
        (job,) = [job for job in self.jobs() if job["metadata"]["name"] == name]
        return job

    def note(self, name: str, key: str) -> str | None:
        found: str | None = annotations(self.job(name)).get(key)
        return found

    def a_victim(self, **options: Any) -> str:
        """A Job that runs."""
        name = self.submit("a", **options)
        self.settle()
        self.start_copies()
        self.settle()
        assert self.job(name)["status"]["active"] == 1
        return name

    def mark(self, name: str, why: Preemption = Preemption.RECLAIM) -> None:
        job = self.job(name)
        body = preemption_patch(JOB, job, why, now=self.clock(), by="somebody")
        path = f"{JOBS.path(job['metadata']['namespace'])}/{name}"
        status, _ = self.hub.answer(Request.read("PATCH", path, orjson.dumps(body)))
        assert status == 200

    def rules(self, **spec: Any) -> None:
        """Of the queue."""
        self.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(spec))
        self.settle(40)  # a worker is recorded as connected before fences are

    # --- what Job controllers do

    def start_copies(self) -> None:
        for worker, copy in self.live_copies():
            if not copy["spec"].get("suspend") and not _status(copy).get("active"):
                self.start_copy(worker, copy)

    def notice(self, pods: int | None = 1) -> None:
        """Copies are suspended, and so many pods are on their way out; None: this controller does not count them."""
        for worker, copy in self.live_copies():
            if copy["spec"].get("suspend") and not _is_suspended(copy):
                self._stop_pods(worker, copy, pods)

    def pods_go(self) -> None:
        for worker, copy in self.live_copies():
            if _is_suspended(copy):
                self._stop_pods(worker, copy, 0)

    def _stop_pods(self, worker: str, copy: Json, pods: int | None) -> None:
        suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
        known = find_condition(_status(copy).get("conditions") or (), "Suspended")
        suspended["lastTransitionTime"] = (known or {}).get("lastTransitionTime", self.now())
        status: Json = {"conditions": [suspended], "active": 0, "ready": 0}
        self._set_status(worker, copy, status | ({} if pods is None else {"terminating": pods}))

    # --- what is told

    def told(self, reason: str) -> list[str]:
        events = self.hub.objects.get("/api/v1/events", {}).values()
        return [event["message"] for event in events if event["reason"] == reason]


def _status(obj: Json) -> Json:
    found: Json = obj.get("status") or {}
    return found


def _is_suspended(copy: Json) -> bool:
    condition = find_condition(_status(copy).get("conditions") or (), "Suspended")
    return condition is not None and condition["status"] == "True"


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.close()
    assert fleet.violations == []


def test_pods_that_are_gone_are_not_waited_for_though_the_status_of_the_copy_still_counts_them(fleet: Fleet) -> None:
    fleet.set_worker("w2", cordoned=True)
    victim = fleet.a_victim()
    other = fleet.submit("a", priority=5)
    ((worker, copy),) = fleet.copies()
    namespace, labels = copy["metadata"]["namespace"], {CONTROLLER_UID_LABEL: copy["metadata"]["uid"]}
    fleet.workers[worker].put(PODS, {"metadata": {"name": "pod", "namespace": namespace, "labels": labels}})
    fleet.mark(victim)
    fleet.settle()
    fleet.notice()
    fleet.settle(2)
    assert fleet.note(other, CLUSTER_ANNOTATION) is None, "the pod of the first one is there still"
    fleet.workers[worker].remove(PODS, "pod", namespace)
    fleet.settle(1)
    assert fleet.note(other, CLUSTER_ANNOTATION) == worker


def test_pods_that_were_never_seen_are_waited_for_until_the_copy_counts_none(fleet: Fleet) -> None:
    """Its account may not list them, or they have another label."""
    fleet.set_worker("w2", cordoned=True)
    victim = fleet.a_victim()
    ((worker, _),) = fleet.copies()
    fleet.workers[worker].refuse = lambda request: Refused(403, "Forbidden") if request.path.endswith("/pods") else None
    fleet.mark(victim)
    fleet.settle()
    fleet.notice()
    fleet.settle(40)
    assert fleet.note(victim, CLUSTER_ANNOTATION) == worker
    fleet.pods_go()
    fleet.settle(5)
    assert fleet.note(victim, CLUSTER_ANNOTATION) != worker or fleet.note(victim, ATTEMPT_ANNOTATION) == "2"


def test_it_stops_and_only_when_its_pods_are_gone_another_one_has_its_place(fleet: Fleet) -> None:
    fleet.set_worker("w2", cordoned=True)
    victim = fleet.a_victim()
    other = fleet.submit("a", priority=5)
    fleet.mark(victim)
    fleet.settle()
    ((worker, copy),) = fleet.copies()
    assert copy["spec"]["suspend"] is True
    fleet.notice(pods=2)
    fleet.settle(20)
    assert fleet.job(victim)["status"]["terminating"] == 2
    assert fleet.note(victim, CLUSTER_ANNOTATION) == worker
    assert fleet.note(other, CLUSTER_ANNOTATION) is None, "pods of the first one are there still"
    fleet.pods_go()
    fleet.settle(5)
    assert fleet.note(other, CLUSTER_ANNOTATION) == worker
    assert fleet.note(victim, CLUSTER_ANNOTATION) is None
    assert [copy["metadata"]["name"] for _, copy in fleet.copies()] == [other]
    assert "no pod of it is left on worker w1: the Job waits in its queue again" in fleet.told("Preempted")


def test_it_is_placed_again_and_how_often_it_was_stopped_stays(fleet: Fleet) -> None:
    victim = fleet.a_victim()
    fleet.mark(victim)
    fleet.settle()
    fleet.notice(pods=0)
    fleet.settle(5)
    fleet.start_copies()
    fleet.settle()
    found = annotations(fleet.job(victim))
    assert found[ATTEMPT_ANNOTATION] == "2"
    assert found[PREEMPTIONS_ANNOTATION] == "1"
    assert PREEMPTED_ANNOTATION not in found
    assert fleet.job(victim)["spec"]["suspend"] is False
    assert fleet.job(victim)["status"]["active"] == 1


def test_one_that_ends_while_it_stops_has_ended(fleet: Fleet) -> None:
    victim = fleet.a_victim()
    fleet.mark(victim)
    fleet.settle()
    ((worker, copy),) = fleet.copies()
    fleet.end_copy(worker, copy)
    fleet.settle(5)
    assert is_complete(fleet.job(victim)["status"])
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "1"
    assert fleet.copies() == []
    assert fleet.told("Preempted") == []


def test_one_whose_copy_somebody_deletes_while_it_stops_waits_again(fleet: Fleet) -> None:
    victim = fleet.a_victim()
    fleet.mark(victim)
    fleet.settle()
    ((worker, copy),) = fleet.copies()
    fleet.workers[worker].remove(JOBS, copy["metadata"]["name"], copy["metadata"]["namespace"])
    fleet.settle(5)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"
    assert any("its copy is gone" in message for message in fleet.told("Preempted"))


def test_one_that_its_user_deletes_while_it_stops_leaves_nothing_behind(fleet: Fleet) -> None:
    victim = fleet.a_victim()
    fleet.mark(victim)
    fleet.settle()
    fleet.hub.remove(JOBS, victim, "t1")
    fleet.settle(5)
    assert fleet.copies() == []


def test_one_whose_copy_is_on_its_way_keeps_its_worker_until_that_has_come_and_stopped(fleet: Fleet) -> None:
    fleet.set_worker("w2", cordoned=True)
    fleet.settle()
    fleet.network.links["w1"].write_seconds = 5.0
    victim = fleet.submit("a")
    fleet.settle(0.5)
    assert fleet.note(victim, CLUSTER_ANNOTATION) == "w1"
    assert fleet.copies() == []
    fleet.set_worker("w1", cordoned=True)
    fleet.mark(victim)
    fleet.settle(20)
    assert fleet.note(victim, CLUSTER_ANNOTATION) == "w1", "its copy may start pods at any time"
    ((_, copy),) = fleet.copies()
    assert copy["spec"]["suspend"] is True
    fleet.notice(pods=0)
    fleet.settle(60)
    assert fleet.note(victim, CLUSTER_ANNOTATION) is None
    assert fleet.copies() == []


def test_a_user_who_resumes_it_hears_that_it_is_moved_and_it_is_not_held(fleet: Fleet) -> None:
    victim = fleet.a_victim()
    fleet.mark(victim)
    fleet.settle()
    fleet.notice()
    fleet.settle()
    fleet.edit(fleet.job(victim), suspend=False)
    fleet.settle(20)
    ((_, copy),) = fleet.copies()
    assert copy["spec"]["suspend"] is True
    assert len([message for message in fleet.told("Preempted") if "it is moved all the same" in message]) == 1
    fleet.pods_go()
    fleet.settle(5)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"


def holds_before(fleet: Fleet, victim: str) -> None:
    fleet.edit(fleet.job(victim), suspend=True)
    fleet.settle()
    fleet.notice(pods=0)
    fleet.settle()
    fleet.mark(victim)


def holds_meanwhile(fleet: Fleet, victim: str) -> None:
    fleet.mark(victim)
    fleet.settle()
    fleet.edit(fleet.job(victim), hold=True)


def changes_mind_twice(fleet: Fleet, victim: str) -> None:
    fleet.mark(victim)
    fleet.settle()
    fleet.edit(fleet.job(victim), suspend=False)
    fleet.settle()
    fleet.edit(fleet.job(victim), suspend=True)


@pytest.mark.parametrize("user", [holds_before, holds_meanwhile, changes_mind_twice], ids=lambda each: each.__name__)
def test_a_user_who_wants_it_to_stand_still_has_it_held_until_he_lets_it_go(
    fleet: Fleet, user: Callable[[Fleet, str], None]
) -> None:
    victim = fleet.a_victim()
    user(fleet, victim)
    fleet.settle()
    fleet.notice()
    fleet.pods_go()
    fleet.settle(30)
    assert fleet.note(victim, CLUSTER_ANNOTATION) is None
    assert fleet.note(victim, HOLD_ANNOTATION) == "true"
    assert fleet.copies() == []
    assert fleet.told("Held")
    fleet.edit(fleet.job(victim), suspend=False)
    fleet.settle(5)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"
    assert len(fleet.copies()) == 1


def test_a_worker_that_does_not_count_pods_on_their_way_out_is_given_their_time(fleet: Fleet) -> None:
    victim = fleet.a_victim()
    fleet.mark(victim)
    fleet.settle()
    fleet.notice(pods=None)
    fleet.settle(33)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "1"
    fleet.settle(5)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"


def test_pods_that_do_not_stop_cost_the_copy_and_nobody_forces_them(fleet: Fleet) -> None:
    victim = fleet.a_victim()
    fleet.mark(victim)
    fleet.settle()
    fleet.notice()
    fleet.settle(85)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "1"
    assert fleet.told("NotStopped") == []
    deleted = deletions(fleet)
    fleet.settle(10)
    assert fleet.told("NotStopped") != []
    assert [(request.collection, request.body["propagationPolicy"]) for request in deleted] == [
        (JOBS.path(), "Background")
    ]
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"


def deletions(fleet: Fleet) -> list[Request]:
    """From now on, on any worker."""
    found: list[Request] = []

    def note(request: Request) -> Refused | None:
        if request.method == "DELETE":
            found.append(request)
        return None

    for worker in fleet.workers.values():
        worker.refuse = note
    return found


def test_a_worker_that_refuses_to_suspend_the_copy_loses_it(fleet: Fleet) -> None:
    victim = fleet.a_victim()
    ((name, _),) = fleet.copies()

    def refuse(request: Request) -> Refused | None:
        is_change = request.method == "PATCH" and request.collection == JOBS.path()
        return Refused(403, "Forbidden", "nothing is suspended here") if is_change else None

    fleet.workers[name].refuse = refuse
    fleet.set_worker(name, cordoned=True)
    fleet.mark(victim)
    fleet.settle(85)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "1"
    fleet.settle(20)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"
    assert fleet.workers[name].all(JOBS) == []


# --- a worker that is lost --------------------------------------------------------------------------------------------


def test_a_worker_that_is_lost_while_it_stops_loses_it_as_its_queue_says(fleet: Fleet) -> None:
    fleet.rules(onWorkerLost={"action": "Redispatch", "after": "60s"})
    victim = fleet.a_victim()
    worker = fleet.note(victim, CLUSTER_ANNOTATION)
    assert worker is not None
    fleet.network.links[worker].set_up(up=False)
    fleet.mark(victim)
    fleet.settle(50)
    assert fleet.note(victim, CLUSTER_ANNOTATION) == worker
    fleet.settle(60)
    assert fleet.note(victim, CLUSTER_ANNOTATION) not in (None, worker)
    assert fleet.note(victim, PREEMPTED_ANNOTATION) is None
    fleet.violations.clear()  # two copies: the window that the queue's policy names
    fleet.network.links[worker].set_up(up=True)
    fleet.settle(60)
    assert [name for name, _ in fleet.copies()] == [fleet.note(victim, CLUSTER_ANNOTATION)]


def test_a_worker_that_comes_back_in_time_goes_on_stopping_it(fleet: Fleet) -> None:
    fleet.rules(onWorkerLost={"action": "Redispatch", "after": "300s"})
    victim = fleet.a_victim()
    worker = fleet.note(victim, CLUSTER_ANNOTATION)
    assert worker is not None
    fleet.network.links[worker].set_up(up=False)
    fleet.mark(victim)
    fleet.settle(200)
    fleet.network.links[worker].set_up(up=True)
    fleet.settle(60)
    ((_, copy),) = fleet.copies()
    assert copy["spec"]["suspend"] is True
    fleet.notice()
    fleet.settle(20)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "1", "its pods have their time, whatever was before"
    fleet.pods_go()
    fleet.settle(5)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"


@pytest.mark.parametrize("noticed", [False, True], ids=["before it was told to stop", "while it stops"])
def test_with_a_fence_no_other_copy_is_made_before_the_one_that_is_cut_off_has_ended(
    fleet: Fleet, noticed: bool
) -> None:
    fleet.rules(fence={"timeout": "60s", "grace": "30s"}, onWorkerLost={"action": "Redispatch", "after": "0s"})
    victim = fleet.a_victim()
    worker = fleet.note(victim, CLUSTER_ANNOTATION)
    assert worker is not None
    if noticed:
        fleet.mark(victim)
        fleet.settle()
        fleet.notice()
        fleet.settle()
    fleet.network.links[worker].set_up(up=False)
    if not noticed:
        fleet.mark(victim)
    ((_, copy),) = fleet.copies()
    fleet.settle(110)
    assert fleet.note(victim, CLUSTER_ANNOTATION) == worker, "60 s, 30 s for a slow controller, 30 s for its pods"
    if not noticed:  # its deadline has passed
        expire(fleet, worker, copy)
    else:
        fleet.workers[worker].remove(JOBS, copy["metadata"]["name"], copy["metadata"]["namespace"])
    fleet.settle(60)
    assert fleet.note(victim, CLUSTER_ANNOTATION) not in (None, worker)


def test_a_copy_that_its_fence_ended_meanwhile_is_no_failure(fleet: Fleet) -> None:
    fleet.rules(fence={"timeout": "60s", "grace": "30s"}, onWorkerLost={"action": "Wait"})
    victim = fleet.a_victim()
    worker = fleet.note(victim, CLUSTER_ANNOTATION)
    assert worker is not None
    fleet.network.links[worker].set_up(up=False)
    fleet.mark(victim)
    fleet.settle(70)
    ((_, copy),) = fleet.copies()
    expire(fleet, worker, copy)
    fleet.network.links[worker].set_up(up=True)
    fleet.settle(60)
    assert fleet.note(victim, ATTEMPT_ANNOTATION) == "2"
    assert len(fleet.live_copies()) == 1


def test_the_fence_of_one_that_stops_is_not_renewed(fleet: Fleet) -> None:
    fleet.rules(fence={"timeout": "60s"})
    victim = fleet.a_victim()
    fleet.mark(victim)
    fleet.settle()
    ((_, before),) = fleet.copies()
    fleet.settle(300)
    ((_, after),) = fleet.copies()
    assert after["spec"] == before["spec"]
    assert any("has not noticed" in message for message in fleet.told("NotStopped"))


def expire(fleet: Fleet, worker: str, copy: Json) -> None:
    """Its deadline has ended it."""
    times = {"lastProbeTime": fleet.now(), "lastTransitionTime": fleet.now()}
    failed = {"status": "True", "reason": "DeadlineExceeded", "message": "it was active for too long", **times}
    conditions = [{"type": each, **failed} for each in ("FailureTarget", "Failed")]
    start = _status(copy)["startTime"]
    status = {"startTime": start, "conditions": conditions, "active": 0, "ready": 0, "terminating": 0, "failed": 1}
    fleet._set_status(worker, copy, status)


# --- a queue that is drained ------------------------------------------------------------------------------------------


def test_a_queue_that_is_drained_takes_back_all_that_it_has_running(fleet: Fleet) -> None:
    fleet.set_nodes("w1", 3)
    fleet.settle(10)
    victims = [fleet.a_victim() for _ in range(3)]
    spared = fleet.submit("z")
    fleet.settle()
    for name in fleet.workers:
        fleet.set_worker(name, cordoned=True)
    fleet.rules(hold="Drain")
    fleet.notice()
    fleet.settle(5)
    assert {fleet.note(name, PREEMPTED_ANNOTATION) for name in victims} == {"Drain"}
    fleet.pods_go()
    fleet.settle(5)
    assert [fleet.note(name, CLUSTER_ANNOTATION) for name in victims] == [None, None, None]
    assert [fleet.note(name, PREEMPTIONS_ANNOTATION) for name in victims] == [None, None, None]
    assert [copy["metadata"]["name"] for _, copy in fleet.copies()] == [spared]
    told = [message for message in fleet.told("Preempted") if message.startswith("queue a is drained")]
    assert len(told) == 3


# --- a dispatcher that ends at any write ------------------------------------------------------------------------------


class Crash:
    """The dispatcher ends with its n-th write to a Job anywhere, which takes effect, and whose answer it never sees."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet, self._left, self.happened = fleet, number, False
        for cluster in (fleet.hub, *fleet.workers.values()):
            self._watch(cluster)

    def _watch(self, cluster: FakeCluster) -> None:
        before = cluster.on_write

        def after(request: Request, old: Json | None, new: Json | None) -> None:
            before(request, old, new)
            if request.collection == JOBS.path() and not self.happened:
                self._left -= 1
                if self._left == 0:
                    self.happened = True
                    self._links(up=False)
                    raise TransportError("the process ended", sent=True)

        cluster.on_write = after

    def _links(self, *, up: bool) -> None:
        for link in self._fleet.network.links.values():
            link.set_up(up=up)

    def begin_again(self) -> None:
        """Somebody starts it anew, once."""
        if self.happened and not self._fleet.network.links["hub"].up:
            self._fleet.run(self._fleet.stop())
            self._links(up=True)
            self._fleet.run(self._fleet.start())


def marked_by_others(fleet: Fleet, victim: str) -> None:
    """By whoever decides on victims, who does not end meanwhile."""
    job = fleet.job(victim)
    if PREEMPTIONS_ANNOTATION not in annotations(job) and _status(job).get("active"):
        body = preemption_patch(JOB, job, Preemption.RECLAIM, now=fleet.clock(), by="somebody")
        fleet.hub.put(JOBS, merged(job, body))


def marked_by_ourselves(fleet: Fleet, victim: str) -> None:
    """Its queue is drained, until the mark is there."""
    job, first = fleet.job(victim), fleet.note(victim, ATTEMPT_ANNOTATION) == "1"
    drains = first and bool(_status(job).get("active")) and PREEMPTED_ANNOTATION not in annotations(job)
    hold = "Drain" if drains else "None"
    fleet.hub.change(MIRROR_QUEUES, "a", "", lambda queue: queue["spec"].update(hold=hold))


WRITES: dict[Callable[[Fleet, str], None], int] = {marked_by_others: 11, marked_by_ourselves: 12}
"""To the original and to its copies, by us, from its creation until it runs again."""


@pytest.mark.parametrize(
    ("mark", "number"),
    [(mark, number) for mark, writes in WRITES.items() for number in range(1, writes + 2)],
    ids=lambda each: each if isinstance(each, int) else each.__name__,
)
def test_a_dispatcher_that_ends_at_any_write_changes_nothing(
    fleet: Fleet, mark: Callable[[Fleet, str], None], number: int
) -> None:
    crash, victim = Crash(fleet, number), fleet.submit("a")
    for _ in range(30):
        fleet.settle(2)
        crash.begin_again()
        # The Job controllers of the workers do one step.
        fleet.pods_go()
        fleet.notice()
        fleet.start_copies()
        mark(fleet, victim)
    assert crash.happened is (number <= WRITES[mark]), "every write is one to end at"
    found = annotations(fleet.job(victim))
    assert found[ATTEMPT_ANNOTATION] == "2"
    assert found.get(PREEMPTIONS_ANNOTATION) == ("1" if mark is marked_by_others else None)
    assert PREEMPTED_ANNOTATION not in found
    assert fleet.job(victim)["status"]["active"] == 1
    assert len(fleet.copies()) == 1

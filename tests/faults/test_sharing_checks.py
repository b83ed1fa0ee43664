"""What the checks of queues that share say of records that are told by hand: what is caught, and where excuses end."""

import json
from typing import Any

import pytest

from faults.charges import Books, Member
from faults.plan import Fault
from faults.preemptions import few_are_stopped, pods_go_first
from faults.quotas import own_quota_is_safe, quota_holds
from faults.record import MANAGEMENT, Exchange, Life, Record, Seen, Struck
from faults.rules import Rules, Violation
from faults.wire import Call
from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    PREEMPTED_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIBLE_LABEL,
    QUEUE_LABEL,
    RESERVED_ANNOTATION,
)

Json = dict[str, Any]


class Story:
    """A record, told from left to right. Jobs are of one pod of one cpu, in queue a unless it is said."""

    def __init__(self, **queues: Json) -> None:
        self.record = Record()
        for name, spec in (queues or {"a": {"quota": {"resources": {"cpu": 1}}}}).items():
            self.queue(0.0, name, spec)

    def queue(self, at: float, name: str, spec: Json) -> "Story":
        return self._see(at, MANAGEMENT, "MirrorQueue", {"metadata": {"name": name, "uid": name}, "spec": spec})

    def cohort(self, at: float, name: str, spec: Json) -> "Story":
        return self._see(at, MANAGEMENT, "Cohort", {"metadata": {"name": name, "uid": name}, "spec": spec})

    def worker(self, at: float, name: str, cpu: int) -> "Story":
        spec = {"capacity": {"mode": "Declared", "resources": {"cpu": cpu}}}
        return self._see(at, MANAGEMENT, "WorkerCluster", {"metadata": {"name": name, "uid": name}, "spec": spec})

    def job(
        self, at: float, uid: str, worker: str | None = None, queue: str = "a", pods: int = 1, **more: Any
    ) -> "Story":
        """An original is written: waiting, or on a worker; `why` and `by`: it is being stopped."""
        annotations: dict[str, Any] = {ATTEMPT_ANNOTATION: str(more.get("attempt", 1))}
        if worker is not None:
            sets = [{"name": "main", "count": pods, "requests": {"cpu": "1"}}]
            annotations |= {CLUSTER_ANNOTATION: worker, ADMITTED_QUEUE_ANNOTATION: queue}
            annotations |= {RESERVED_ANNOTATION: json.dumps({"podSets": sets})}
        if "why" in more:
            annotations |= {PREEMPTED_ANNOTATION: more["why"], PREEMPTED_BY_ANNOTATION: more.get("by", "other")}
        labels = {QUEUE_LABEL: queue} | ({PREEMPTIBLE_LABEL: "false"} if more.get("firm") else {})
        metadata = {**_metadata(uid, f"{at:g}"), "annotations": annotations, "labels": labels}
        job = {"metadata": metadata, "spec": {"managedBy": MANAGED_BY}}
        return self._see(at, MANAGEMENT, "Job", job, more.get("what", "MODIFIED"))

    def copy(self, at: float, uid: str, worker: str, attempt: int = 1, what: str = "ADDED") -> "Story":
        labels = {ORIGIN_LABEL: "here", ORIGIN_UID_LABEL: uid, ATTEMPT_LABEL: str(attempt)}
        metadata = {**_metadata(f"{uid}-{attempt}", "1"), "labels": labels}
        return self._see(at, worker, "Job", {"metadata": metadata, "spec": {}}, what)

    def pod(
        self, at: float, uid: str, worker: str, attempt: int = 1, *, what: str = "ADDED", number: int = 1
    ) -> "Story":
        metadata = {**_metadata(f"{uid}-{attempt}-{number}", "1"), "ownerReferences": [{"uid": f"{uid}-{attempt}"}]}
        return self._see(at, worker, "Pod", {"metadata": metadata, "status": {"phase": "Running"}}, what)

    def sent(self, at: float, version: float, fault: str = "") -> "Story":
        """The write of that version, by the dispatcher."""
        call = Call("patch", "jobs", "team", "job", "", {})
        self.record.exchanges.append(
            Exchange(at, "dispatcher", MANAGEMENT, call, fault=fault, status=200, version=f"{version:g}")
        )
        return self

    def died(self, at: float) -> "Story":
        self.record.lives.append(Life(at, "dispatcher", "killed"))
        return self

    def fault(self, at: float, kind: str, link: str, seconds: float) -> "Story":
        self.record.struck.append(Struck(at, Fault(kind=kind, link=link, seconds=seconds), at + seconds))
        return self

    def _see(self, at: float, cluster: str, kind: str, obj: Json, what: str = "MODIFIED") -> "Story":
        self.record.seen.append(Seen(at, cluster, what, kind, obj))
        return self


def _metadata(uid: str, version: str) -> Json:
    return {"namespace": "team", "name": uid, "uid": uid, "resourceVersion": version}


def own(cpu: int, cohort: str | None = "all", **more: Any) -> Json:
    quota: Json = {"resources": {"cpu": cpu}}
    quota |= {key: more.pop(key) for key in ("borrow", "lend", "jobs") if key in more}
    return {"quota": quota, **({"cohort": cohort} if cohort else {}), **more}


def promises(found: list[Violation]) -> list[str]:
    return [each.invariant for each in found]


PAIR = {"a": own(1), "b": own(1)}


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(Story().job(1, "x", "w1"), [], id="within its quota"),
        pytest.param(Story().job(1, "x", "w1").job(2, "y", "w2"), ["P1"], id="one too many"),
        pytest.param(Story().job(1, "x", "w1").job(2, "x").job(3, "y", "w2"), [], id="when the other one has gone"),
        pytest.param(Story().job(1, "x", "w1").job(2, "x", "w1", pods=2), ["P1"], id="one that grows"),
        pytest.param(Story(a=own(9, None, jobs=1)).job(1, "x", "w1").job(2, "y", "w1"), ["P1"], id="too many Jobs"),
        pytest.param(
            Story(a=own(2, None)).job(1, "x", "w1").queue(2, "a", own(0, None)).job(9, "x", "w1", why="Drain"),
            [],
            id="a quota that was lowered: what runs may go on",
        ),
        pytest.param(
            Story(a=own(2, None)).job(1, "x", "w1").queue(2, "a", own(0, None)).job(9, "y", "w1"),
            ["P1"],
            id="but nothing more is placed",
        ),
        pytest.param(
            Story(a=own(2, None)).job(1, "x", "w1").queue(2, "a", own(0, None)).job(6, "y", "w1"),
            [],
            id="nobody has told the dispatcher yet",
        ),
        pytest.param(
            Story(a=own(2, None))
            .job(1, "x", "w1")
            .queue(9, "a", own(0, None))
            .fault(8, "partition", "dispatcher/management", 20)
            .job(30, "y", "w1"),
            [],
            id="nor could anybody tell it",
        ),
        pytest.param(
            Story().job(1, "x", "w1").sent(1, 3, "delay").died(2).job(3, "y", "w2"),
            [],
            id="held up on its way, and its sender is dead",
        ),
        pytest.param(
            Story().job(1, "x", "w1").sent(1, 3, "delay").job(3, "y", "w2"), ["P1"], id="its sender knows of it"
        ),
        pytest.param(Story().job(1, "x", "w1").sent(1, 3).died(2).job(3, "y", "w2"), ["P1"], id="not held up"),
        pytest.param(Story(**PAIR).job(1, "x", "w1").job(2, "y", "w2"), [], id="borrowed"),
        pytest.param(
            Story(**PAIR).job(1, "x", "w1").job(2, "y", "w2").job(3, "z", "w2", queue="b"), ["P1"], id="all is used"
        ),
        pytest.param(
            Story(a=own(1, borrow={"cpu": 0}), b=own(1)).job(1, "x", "w1").job(2, "y", "w1"), ["P1"], id="no borrower"
        ),
        pytest.param(
            Story(a=own(1), b=own(1, lend={"cpu": 0})).job(1, "x", "w1").job(2, "y", "w1"), ["P2"], id="no lender"
        ),
        pytest.param(
            Story(a=own(1, "left"), b=own(2, "right"))
            .cohort(0, "left", {"parent": "all", "quota": {"borrow": {"cpu": 1}}})
            .cohort(0, "right", {"parent": "all"})
            .job(1, "x", "w1")
            .job(2, "y", "w1")
            .job(3, "z", "w1"),
            ["P1"],
            id="a cohort that borrows too much",
        ),
        pytest.param(
            Story(a=own(9)).worker(0, "w1", 1).job(1, "x", "w1").job(2, "y", "w1"), ["P3"], id="a worker that is full"
        ),
    ],
)
def test_what_is_placed_beyond_what_there_is_is_caught(story: Story, broken: list[str]) -> None:
    assert promises(list(quota_holds(story.record, Rules()))) == broken


def stopped(uid: str = "x", queue: str = "b", **more: Any) -> Story:
    """A Job of queue b is stopped at 10 for one of queue a."""
    story = Story(a=own(1), b=own(1, minRuntime="8s")).job(0, "other").job(1, uid, "w1", queue=queue, **more)
    return story.job(10, uid, "w1", queue=queue, **{"why": "Reclaim", **more})


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(stopped(), ["P2"], id="all that it has is its own"),
        pytest.param(stopped(pods=2), [], id="it has borrowed"),
        pytest.param(stopped(queue="a"), [], id="stopped for its own queue"),
        pytest.param(stopped(why="Drain"), [], id="stopped for nobody"),
        pytest.param(
            Story(**PAIR).job(0, "other").job(1, "x", "w1", "b").job(2, "y", "w1", "b").job(8, "y", queue="b")
            .job(10, "x", "w1", "b", why="Reclaim"),
            [],
            id="it had borrowed a moment before",
        ),
        pytest.param(
            Story(**PAIR).job(0, "other").job(1, "x", "w1", "b").job(2, "y", "w1", "b").job(4, "y", queue="b")
            .job(10, "x", "w1", "b", why="Reclaim"),
            ["P2"],
            id="it has given back long before",
        ),
        pytest.param(
            Story(**PAIR).job(0, "other").job(1, "x", "w1", "b").job(2, "y", "w1", "b")
            .job(3, "y", "w1", "b", why="Drain").job(10, "x", "w1", "b", why="Reclaim"),
            ["P2"],
            id="the other one is leaving already",
        ),
        pytest.param(stopped().job(11, "y", "w1", queue="b"), [], id="its next Job is placed in the same moment"),
        pytest.param(stopped().job(20, "y", "w1", queue="b"), ["P2"], id="its next Job is placed much later"),
    ],
)  # fmt: skip
def test_a_queue_within_its_own_quota_that_loses_a_job_is_caught(story: Story, broken: list[str]) -> None:
    assert promises(list(own_quota_is_safe(story.record, Rules()))) == broken


def often(times: int, why: str) -> Story:
    story = Story(**PAIR)
    for attempt in range(1, times + 1):
        at = attempt * 10.0
        story.job(at, "x", "w1", "b", attempt=attempt).job(at + 5, "x", "w1", "b", attempt=attempt, why=why)
        story.job(at + 7, "x", queue="b", attempt=attempt)
    return story


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(often(3, "FairShare"), [], id="three times"),
        pytest.param(often(4, "FairShare"), ["P6"], id="four times"),
        pytest.param(often(4, "Priority"), [], id="by its own queue's Jobs as often as it takes"),
        pytest.param(stopped(firm=True), ["P6"], id="one that must not be stopped"),
        pytest.param(stopped(firm=True, why="Drain"), [], id="but its queue may be drained"),
        pytest.param(stopped(), [], id="it has run for long enough"),
        pytest.param(
            Story(b=own(1, minRuntime="8s")).job(5, "x", "w1", "b").job(10, "x", "w1", "b", why="FairShare"),
            ["P6"],
            id="it has not",
        ),
        pytest.param(
            Story(b=own(1, minRuntime="8s")).job(5, "x", "w1", "b").job(10, "x", "w1", "b", why="Reclaim"),
            [],
            id="for Reclaim half of it is enough",
        ),
    ],
)
def test_one_that_is_stopped_too_often_or_too_early_is_caught(story: Story, broken: list[str]) -> None:
    assert promises(list(few_are_stopped(story.record, Rules()))) == broken


def draining() -> Story:
    """Its copy has a pod, and it is marked."""
    story = Story(**PAIR).job(0, "other").job(1, "x", "w1", "b").copy(2, "x", "w1").pod(3, "x", "w1")
    return story.job(10, "x", "w1", "b", why="Reclaim")


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(draining().pod(12, "x", "w1", what="DELETED").job(13, "x", queue="b"), [], id="pods first"),
        pytest.param(draining().job(13, "x", queue="b").pod(20, "x", "w1", what="DELETED"), ["P11"], id="too early"),
        pytest.param(
            draining().job(13, "x", queue="b").pod(13.5, "x", "w1", what="DELETED"), [], id="heard a bit late"
        ),
        pytest.param(draining().job(13, "x", queue="b", what="DELETED"), [], id="its user has deleted it"),
        pytest.param(
            draining().copy(12, "x", "w1", what="DELETED").job(13, "x", queue="b"), [], id="somebody deleted its copy"
        ),
        pytest.param(draining().job(13, "other", "w1"), [], id="both have room"),
        pytest.param(
            draining().job(13, "x", queue="b").job(14, "other", "w1"), ["P11", "P11"], id="placed where it still runs"
        ),
        pytest.param(
            draining().job(13, "x", queue="b").job(14, "other", "w2"), ["P11"], id="placed elsewhere"
        ),
        pytest.param(
            draining().job(13, "x", queue="b").copy(14, "x", "w2", 2).pod(15, "x", "w2", 2),
            ["P11", "P11"],
            id="it runs in two places",
        ),
        pytest.param(
            draining().fault(11, "partition", "dispatcher/w1", 60).job(40, "x", queue="b"), [], id="its worker is lost"
        ),
        pytest.param(
            draining().fault(11, "partition", "dispatcher/w1", 60).job(20, "x", queue="b"),
            ["P11"],
            id="it is not lost for as long as the policy says",
        ),
        pytest.param(
            draining().fault(11, "partition", "dispatcher/w2", 60).job(40, "x", queue="b"), ["P11"], id="another one is"
        ),
        pytest.param(draining().pod(11, "x", "w1", number=2), ["P3"], id="more pods than are counted"),
    ],
)  # fmt: skip
def test_pods_that_are_not_waited_for_are_caught(story: Story, broken: list[str]) -> None:
    assert promises(list(pods_go_first(story.record, Rules(lost_after=20.0)))) == broken


def test_what_is_left_over_in_a_tree_is_what_everybody_lends_less_what_everybody_borrows() -> None:
    books = Books(
        queues={"a": Member("left", own=3, lend=1), "b": Member("left", own=1), "c": Member("right", own=2)},
        cohorts={"left": Member("all", own=1), "right": Member("all", lend=1), "all": Member()},
    )
    assert books.net({"a": 0, "b": 2, "c": 0}) == {
        "a": 3, "b": -1, "c": 2, "cohort left": 1, "cohort right": 2, "cohort all": 2
    }  # fmt: skip

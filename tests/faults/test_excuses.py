"""What the checks excuse on a record, and what they do not: excuses are for one copy, one link and one time."""

from typing import Any

import pytest

from faults.copies import finished_jobs_start_nothing, nothing_stays, one_copy_at_a_time
from faults.fencing import never_in_two_places
from faults.plan import Fault
from faults.record import Exchange, Record, Seen, Struck
from faults.rules import Rules
from faults.wire import Call
from multimirror.api import ATTEMPT_LABEL, MANAGED_BY, ORIGIN_LABEL, ORIGIN_UID_LABEL

Json = dict[str, Any]
RULES = Rules(lost_after=20.0)
DONE = {"conditions": [{"type": "Complete", "status": "True"}]}


class Story:
    """A record, told from left to right."""

    def __init__(self) -> None:
        self.record = Record()

    def ended(self, at: float) -> "Story":
        """The original."""
        job = {"metadata": _metadata("original"), "spec": {"managedBy": MANAGED_BY}, "status": DONE}
        self.record.seen.append(Seen(at, "management", "MODIFIED", "Job", job))
        return self

    def copy(
        self, at: float, worker: str, attempt: int = 1, *, held_up_since: float | None = None, uid: str = ""
    ) -> "Story":
        """A copy appears; where it was held up, the request for it was sent then."""
        labels = {ORIGIN_LABEL: "here", ORIGIN_UID_LABEL: "original", ATTEMPT_LABEL: str(attempt)}
        metadata = {**_metadata(uid or f"copy-{attempt}", f"{at:g}"), "labels": labels}
        self.record.seen.append(Seen(at, worker, "ADDED", "Job", {"metadata": metadata, "spec": {}}))
        if held_up_since is not None:
            call = Call("create", "jobs", "team", "", "", {})
            body, fault = {"metadata": {"name": "job"}}, "delay"
            sent = Exchange(held_up_since, "dispatcher", worker, call, body, fault, status=201, version=f"{at:g}")
            self.record.exchanges.append(sent)
        return self

    def removed(self, at: float, worker: str, uid: str = "copy-1") -> "Story":
        """That copy is gone."""
        found = next(seen for seen in self.record.seen if seen.uid == uid)
        self.record.seen.append(Seen(at, worker, "DELETED", "Job", found.object))
        return self

    def pod(self, at: float, worker: str, attempt: int = 1, phase: str = "Running") -> "Story":
        """A pod of that attempt is seen."""
        metadata = {**_metadata(f"pod-{attempt}"), "ownerReferences": [{"uid": f"copy-{attempt}"}]}
        what = "ADDED" if phase == "Running" else "MODIFIED"
        self.record.seen.append(Seen(at, worker, what, "Pod", {"metadata": metadata, "status": {"phase": phase}}))
        return self

    def fault(self, at: float, kind: str, link: str, seconds: float = 0.0) -> "Story":
        """It strikes."""
        self.record.struck.append(Struck(at, Fault(kind=kind, link=link, seconds=seconds), at + seconds))
        return self


def _metadata(uid: str, version: str = "1") -> Json:
    return {"namespace": "team", "name": "job", "uid": uid, "resourceVersion": version}


@pytest.mark.parametrize(
    ("story", "violations"),
    [
        pytest.param(Story().ended(10).copy(11, "w1"), 1, id="a copy of a Job that has ended"),
        pytest.param(
            Story().ended(10).copy(25, "w1", held_up_since=5).pod(26, "w1"), 0, id="it was held up on its way, pods too"
        ),
        pytest.param(
            Story().ended(10).copy(25, "w1", held_up_since=5).pod(31, "w1"), 1, id="but it is to be gone soon after"
        ),
        pytest.param(Story().ended(10).copy(25, "w1", held_up_since=11), 1, id="it was sent after the end"),
        pytest.param(
            Story().copy(6, "w2", 2, held_up_since=5).ended(10).copy(25, "w1"), 1, id="another one was held up"
        ),
        pytest.param(Story().copy(1, "w1").ended(10).pod(11, "w1"), 1, id="a pod of a Job that has ended"),
        pytest.param(
            Story().copy(1, "w1").fault(5, "partition", "dispatcher/w1", 10).ended(10).pod(16, "w1"),
            0,
            id="its worker could not be told",
        ),
        pytest.param(
            Story().copy(1, "w1").fault(5, "partition", "dispatcher/w1", 10).ended(10).pod(30, "w1"),
            1,
            id="its worker has been back for long",
        ),
        pytest.param(
            Story().copy(1, "w1").fault(5, "partition", "dispatcher/w2", 10).ended(10).pod(16, "w1"),
            1,
            id="another worker could not be told",
        ),
        pytest.param(
            Story().copy(1, "w1").fault(5, "partition", "jobs/w1", 10).ended(10).pod(16, "w1"),
            1,
            id="its Job controller was cut off: no reason to start a pod later",
        ),
        pytest.param(
            Story().copy(1, "w1").fault(5, "partition", "jobs/w1", 10).ended(10).removed(11, "w1").pod(16, "w1"),
            0,
            id="its Job controller was cut off and does not know that the copy is gone",
        ),
        pytest.param(
            Story().copy(1, "w1").fault(5, "partition", "jobs/w1", 10).ended(10).removed(11, "w1").pod(30, "w1"),
            1,
            id="it must know by now",
        ),
    ],
)
def test_after_the_end(story: Story, violations: int) -> None:
    assert len(list(finished_jobs_start_nothing(story.record, RULES))) == violations


@pytest.mark.parametrize(
    ("created", "requests", "violations"),
    [
        pytest.param("2026-01-01T00:00:09Z", False, 0, id="the watch of its worker is behind"),
        pytest.param("2026-01-01T00:00:11Z", False, 1, id="it was made after the end"),
        pytest.param("2026-01-01T00:00:09Z", True, 1, id="requests are recorded, and none was held up"),
    ],
)
def test_without_requests_the_clusters_own_times_say_what_came_first(
    created: str, requests: bool, violations: int
) -> None:
    story = Story().ended(10).copy(11, "w1")
    end, copy = (seen.object for seen in story.record.seen)
    end["status"] = {"conditions": [{**DONE["conditions"][0], "lastTransitionTime": "2026-01-01T00:00:10Z"}]}
    copy["metadata"]["creationTimestamp"] = created
    if requests:
        call = Call("patch", "jobs", "team", "other", "", {})
        story.record.exchanges.append(Exchange(1.0, "dispatcher", "management", call, status=200))
    assert len(list(finished_jobs_start_nothing(story.record, RULES))) == violations


@pytest.mark.parametrize(
    ("story", "violations"),
    [
        pytest.param(Story().copy(1, "w1").copy(60, "w2", 2), 1, id="no reason at all"),
        pytest.param(
            Story().copy(1, "w1").fault(35, "partition", "dispatcher/w1", 60).copy(60, "w2", 2), 0, id="lost for long"
        ),
        pytest.param(
            Story().copy(1, "w1").fault(45, "partition", "dispatcher/w1", 60).copy(60, "w2", 2), 1, id="not for long"
        ),
        pytest.param(
            Story().copy(1, "w1").fault(5, "partition", "dispatcher/w1", 10).copy(60, "w2", 2), 1, id="back since long"
        ),
        pytest.param(
            Story().copy(1, "w1").fault(35, "partition", "jobs/w1", 60).copy(60, "w2", 2), 1, id="not lost to us"
        ),
        pytest.param(
            Story().copy(1, "w1").fault(35, "reset", "dispatcher/w1").copy(60, "w2", 2), 1, id="one request failed"
        ),
        pytest.param(
            Story().fault(10, "restart", "w1", 60).copy(40, "w2", 2).copy(71, "w1", 1),
            0,
            id="what was asked of a worker that stood still is done when it goes on",
        ),
        pytest.param(
            Story().fault(10, "restart", "w1", 60).copy(40, "w2", 2).copy(140, "w1", 1),
            1,
            id="an earlier attempt that comes long after its worker was back",
        ),
        pytest.param(
            Story().copy(40, "w2", 2).copy(71, "w1", 1), 1, id="an earlier attempt on a worker that was never lost"
        ),
    ],
)
def test_two_copies(story: Story, violations: int) -> None:
    assert len(list(one_copy_at_a_time(story.record, RULES))) == violations


@pytest.mark.parametrize(
    ("story", "violations"),
    [
        pytest.param(Story().copy(1, "w1").ended(10), 1, id="it stays"),
        pytest.param(Story().copy(1, "w1").ended(10).removed(11, "w1"), 0, id="it goes"),
        pytest.param(
            Story().copy(5, "w1", uid="known").removed(8, "w1", "known").copy(9, "w1", held_up_since=1).ended(10),
            0,
            id="its request was held up, and the copy that was made meanwhile is gone",
        ),
        pytest.param(
            Story().copy(5, "w1", uid="known").removed(8, "w1", "known").copy(9, "w1").ended(10), 1, id="not held up"
        ),
        pytest.param(Story().copy(9, "w1", held_up_since=1).ended(10), 1, id="it is the only one"),
        pytest.param(
            Story().copy(5, "w1", 2).removed(8, "w1", "copy-2").copy(9, "w1", held_up_since=1).ended(10),
            1,
            id="the other one was of another attempt",
        ),
    ],
)
def test_what_stays(story: Story, violations: int) -> None:
    assert len(list(nothing_stays(story.record, RULES))) == violations


CUT_OFF = "partition"


@pytest.mark.parametrize(
    ("story", "violations"),
    [
        pytest.param(
            Story()
            .copy(1, "w1")
            .pod(2, "w1")
            .fault(3, CUT_OFF, "dispatcher/w1", 90)
            .copy(60, "w2", 2)
            .pod(61, "w2", 2),
            1,
            id="cut off for long, and still running",
        ),
        pytest.param(
            Story().copy(1, "w1").pod(2, "w1").pod(40, "w1", phase="Failed").copy(60, "w2", 2).pod(61, "w2", 2),
            0,
            id="it has ended before",
        ),
        pytest.param(
            Story().copy(1, "w1").pod(2, "w1").fault(3, CUT_OFF, "jobs/w1", 90).copy(60, "w2", 2).pod(61, "w2", 2),
            0,
            id="its Job controller could not end it",
        ),
    ],
)
def test_a_fence(story: Story, violations: int) -> None:
    assert len(list(never_in_two_places(story.record, Rules(fence=10.0, grace=10.0)))) == violations

"""The mirror over whole lives of a copy, and over anything at all.

A life is made step by step as the Job controller makes it, and every step of it is first shown to be one that an API
server accepts. The observer sees any subset of the steps; the Job may move to another worker and start again there.
"""

import functools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.jobapi.oracle import read_recording
from multimirror.batch import IndexSet, Json, stored_status, validate_job_status
from multimirror.batch.times import format_time
from multimirror.kinds import Rejection
from multimirror.kinds.job.mirror import mirror_status
from tests.unit.batch.builders import a_stored_job, conditions

DATA = Path(__file__).parents[2] / "data"


def at(second: int) -> str:
    return format_time(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second))


class Copy:
    """A copy that runs under a Job controller: what its status is after each thing that can happen to it."""

    def __init__(self, spec: Json, second: int) -> None:
        self.spec = {**spec, "suspend": False}
        self.second = second
        self.indexed = spec["completionMode"] == "Indexed"
        self.completed: set[int] = set()
        self.failed_indexes: set[int] = set()
        self.status: Json = {}
        self.steps: list[Json] = [{}]
        self.take("start")

    def take(self, event: str) -> None:
        """Let something happen, and show that the outcome is one that the server lets through."""
        before = dict(self.status)
        self.second += 1
        getattr(self, event)()
        self.status = stored_status(self.status)
        assert validate_job_status(self.status, before, self.spec) == [], (event, before, self.status)
        self.steps.append(dict(self.status))

    @property
    def size(self) -> int:
        return int(self.spec.get("completions") or self.spec["parallelism"])

    def start(self) -> None:
        active = min(self.spec["parallelism"], self.size - len(self.completed))
        self.status |= {"startTime": at(self.second), "active": active, "ready": 0, "terminating": 0}
        if self.spec.get("backoffLimitPerIndex") is not None:
            self.status.setdefault("failedIndexes", "")

    def ready(self) -> None:
        self.status["ready"] = self.status.get("active", 0)

    def succeed(self) -> None:
        left = [i for i in range(self.size) if i not in self.completed | self.failed_indexes]
        if not left or not self.status.get("active"):
            return
        self.completed.add(left[0])
        self.status["succeeded"] = self.status.get("succeeded", 0) + 1
        self._count_pods(len(left) - 1)

    def fail(self) -> None:
        if not self.status.get("active"):
            return
        self.status["failed"] = self.status.get("failed", 0) + 1
        left = [i for i in range(self.size) if i not in self.completed | self.failed_indexes]
        if left and self.spec.get("backoffLimitPerIndex") is not None:
            self.failed_indexes.add(left[-1])
            self._count_pods(len(left) - 1)

    def _count_pods(self, left: int) -> None:
        self.status["active"] = min(self.status.get("active", 0), left)
        self.status["ready"] = min(self.status.get("ready", 0), self.status["active"])
        if self.indexed:
            self.status["completedIndexes"] = str(IndexSet.of(self.completed))
        if self.spec.get("backoffLimitPerIndex") is not None:
            self.status["failedIndexes"] = str(IndexSet.of(self.failed_indexes))

    def terminate(self) -> None:
        """A pod is on its way out, not yet counted."""
        if self.status.get("active"):
            self.status |= {"active": self.status["active"] - 1, "terminating": 1}
            self.status["ready"] = min(self.status.get("ready", 0), self.status["active"])
            self.status["uncountedTerminatedPods"] = {"failed": [f"pod-{self.second}"]}

    def settle(self) -> None:
        self.status |= {"terminating": 0, "uncountedTerminatedPods": {}}

    def decide_success(self) -> None:
        self._decide("SuccessCriteriaMet")

    def decide_failure(self) -> None:
        self._decide("FailureTarget")

    def _decide(self, interim: str) -> None:
        self.status["conditions"] = conditions(interim)
        self.status |= {"terminating": self.status.get("active", 0), "active": 0, "ready": 0}

    def finish(self) -> None:
        [interim] = self.status["conditions"]
        self.settle()
        if interim["type"] == "FailureTarget":
            self.status["conditions"] = conditions("FailureTarget", "Failed")
        else:
            self.status["conditions"] = conditions("SuccessCriteriaMet", "Complete")
            self.status["completionTime"] = at(self.second)


specs: st.SearchStrategy[Json] = st.one_of(
    st.fixed_dictionaries({"completionMode": st.just("NonIndexed"), "parallelism": st.integers(1, 3)}),
    st.fixed_dictionaries(
        {
            "completionMode": st.just("Indexed"),
            "completions": st.integers(1, 6),
            "parallelism": st.integers(1, 6),
        },
        optional={
            "backoffLimitPerIndex": st.just(1),
            "successPolicy": st.just({"rules": [{"succeededCount": 1}]}),
        },
    ),
)
events = st.lists(st.sampled_from(["ready", "succeed", "succeed", "fail", "terminate", "settle"]), max_size=12)
ends = st.sampled_from([[], ["decide_success"], ["decide_success", "finish"], ["decide_failure", "finish"]])


@st.composite
def lives(draw: st.DrawFn, spec: Json, second: int, *, to_the_end: bool) -> Copy:
    copy = Copy(spec, second)
    for event in draw(events):
        copy.take(event)
    for event in draw(ends) if to_the_end else []:
        copy.take(event)
    return copy


def show(original: Json, observed: Any) -> None:
    """Mirror once, as a controller would: the status must be accepted and may take nothing back."""
    before = original["status"]
    status = mirror_status(original, observed)
    assert not isinstance(status, Rejection), status
    if status is None:
        return
    assert validate_job_status(status, before, original["spec"]) == []
    for counter in ("succeeded", "failed"):
        assert (status.get(counter) or 0) >= (before.get(counter) or 0)
    original["status"] = stored_status(status)


def seen(draw: st.DataObject, steps: list[Json]) -> list[Json]:
    """Any subset of the steps, in order."""
    flags = draw.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    return [step for step, flag in zip(steps, flags, strict=True) if flag]


@given(st.data())
def test_a_life_of_which_any_steps_were_missed_ends_as_the_copy_did(data: st.DataObject) -> None:
    original = a_stored_job(managedBy="multimirror.dev/dispatcher", **data.draw(specs))
    copy = data.draw(lives(original["spec"], 0, to_the_end=True))

    for observed in [*seen(data, copy.steps), copy.status]:
        show(original, observed)

    assert without_bookkeeping(original["status"]) == without_bookkeeping(copy.status)


def without_bookkeeping(status: Json) -> Json:
    return {key: value for key, value in status.items() if key != "uncountedTerminatedPods"}


@given(st.data())
def test_a_job_that_moves_from_worker_to_worker_takes_nothing_back(data: st.DataObject) -> None:
    original = a_stored_job(managedBy="multimirror.dev/dispatcher", **data.draw(specs))
    moves = data.draw(st.integers(1, 3))

    for attempt in range(moves):
        copy = data.draw(lives(original["spec"], 1000 * attempt, to_the_end=False))
        for observed in seen(data, copy.steps):
            show(original, observed)
        if data.draw(st.booleans(), label="suspended in between"):
            move(original)
    last = data.draw(lives(original["spec"], 1000 * moves, to_the_end=True))
    for observed in [*seen(data, last.steps), last.status]:
        show(original, observed)

    assert [c for c in original["status"].get("conditions", []) if c["type"] != "Suspended"] == last.status.get(
        "conditions", []
    )


def move(original: Json) -> None:
    """What a dispatcher writes before it sends the Job elsewhere: suspended, no start, no pods."""
    status = {
        **original["status"],
        "conditions": conditions("Suspended"),
        "active": 0,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    status.pop("startTime", None)
    suspended = {**original["spec"], "suspend": True}
    assert validate_job_status(status, original["status"], suspended) == []
    original["status"] = stored_status(status)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
times = st.sampled_from([at(0), at(60), "2026-01-01T00:00:30.5+01:00", "2026-99-99T00:00:00Z", "soon", ""])
indexes = st.sampled_from(["", "0", "0-2", "1,3", "2-1", "9", "x", "0,,1", "0-99999999999999999999"])
counts = st.integers(-1, 4) | st.sampled_from([2**31, 2**63, True, 1.5, "1"])
known = {
    "active": counts,
    "ready": counts,
    "terminating": counts,
    "succeeded": counts,
    "failed": counts,
    "startTime": times,
    "completionTime": times,
    "completedIndexes": indexes,
    "failedIndexes": indexes,
    "uncountedTerminatedPods": st.dictionaries(
        st.sampled_from(["succeeded", "failed", "other"]), st.lists(st.sampled_from(["a", "b", "", 1]), max_size=3)
    ),
    "conditions": st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(
                    ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended", "multimirror.dev/x", ""]
                ),
                "status": st.sampled_from(["True", "False", "Unknown", "x"]),
                "lastTransitionTime": times,
                "message": st.text(max_size=5),
                "reason": anything,
            },
        ),
        max_size=4,
    ),
}
# Fields that are right, wrong, of the wrong type, or none that anybody knows.
statuses: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {}, optional={key: value | anything for key, value in known.items()} | {"x": anything}
)
job_specs: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {},
    optional={
        "completionMode": st.just("Indexed"),
        "completions": st.integers(0, 4),
        "parallelism": st.integers(0, 4),
        "backoffLimitPerIndex": st.just(1),
        "suspend": st.booleans(),
        "successPolicy": st.just({"rules": [{"succeededCount": 1}]}),
    },
)


def accepted_or_nothing(original: Json, observed: Any) -> None:
    status = mirror_status(original, observed)
    if isinstance(status, dict):
        assert validate_job_status(status, original["status"], original["spec"]) == []
    elif isinstance(status, Rejection):
        assert status.errors


@settings(max_examples=300)
@given(job_specs, statuses | anything, statuses | anything)
def test_whatever_a_worker_says_is_mirrored_acceptably_or_not_at_all(spec: Json, first: Any, second: Any) -> None:
    original = {"spec": {"completions": 1, "parallelism": 1} | spec, "status": {}}

    for observed in (first, second):
        status = mirror_status(original, observed)
        accepted_or_nothing(original, observed)
        if isinstance(status, dict):
            original["status"] = stored_status(status)


@functools.cache
def recorded_walks(recording: str) -> list[Json]:
    return list(read_recording(DATA / f"{recording}.jsonl.gz"))


@pytest.mark.parametrize("recording", ["job-status", "job-status-legacy"])
def test_from_every_state_that_a_server_had_stored_the_result_is_acceptable(recording: str) -> None:
    for walk in recorded_walks(recording):
        status = walk.get("stored", walk["job"]["status"])
        for step in walk["steps"]:
            accepted_or_nothing({"spec": walk["job"]["spec"], "status": status}, step["put"])
            if step["ok"]:
                status = step.get("got", step["put"])

"""The fence: what a copy's deadline is, whose end it brought about, and that no Job ever runs in two places."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    FENCE_ANNOTATION,
    HOLD_ANNOTATION,
)
from multimirror.api.placement import Copy, attempt_of, cluster_of
from multimirror.batch import is_finished
from multimirror.batch.times import format_time, seconds_of, utc_datetime
from multimirror.kinds.job.fence import fence_expired
from multimirror.reconcile.actions import (
    Action,
    CreateCopy,
    DeleteCopy,
    Enqueue,
    PatchStatus,
    Requeue,
    Show,
    SyncCopy,
    Tell,
    Unassign,
)
from multimirror.reconcile.decide import decide
from multimirror.reconcile.state import ObservedState, Policy
from multimirror.workers.probe import clock_ahead
from multimirror.workers.state import Contact
from tests.unit.reconcile.builders import NOW, Builder, CopyBuilder, a_copy, a_job, copy_of, observed

Json = dict[str, Any]
TIMEOUT, GRACE, STOP = 60, 10.0, 5


def at(seconds: float) -> str:
    return format_time(utc_datetime(seconds))


def fenced(timeout: int = TIMEOUT, **spec: Any) -> Builder:
    """Assigned to w1, with a fence; its pods stop within five seconds."""
    job = a_job().on("w1").spec(**spec)
    job.job["metadata"]["annotations"][FENCE_ANNOTATION] = str(timeout)
    job.job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = STOP
    return job.reserved()


def copy_that_ran(seconds: float, deadline: int | None, ahead: float = 0.0) -> CopyBuilder:
    """For so long, on a clock that is so far ahead of ours."""
    copy = a_copy("w1").started()
    copy.job["status"]["startTime"] = at(NOW + ahead - seconds)
    copy.job["spec"]["activeDeadlineSeconds"] = deadline
    return copy


def decided(job: Builder, *copies: CopyBuilder, contact: Contact | None = None, **policy: Any) -> list[Action]:
    rules = replace(Policy(lost_after=20.0, grace=GRACE), **policy)
    contacts = {"w1": contact or Contact(connected=True), "w2": Contact(connected=True)}
    return decide(observed(job.job, [copy.copy for copy in copies], policy=rules, contacts=contacts))


def first_deadline(job: Builder) -> int | None:
    deadline: int | None = copy_of(job.job, 1)["spec"].get("activeDeadlineSeconds")
    return deadline


def synced(actions: list[Action]) -> Json:
    return next((action.patch["spec"] for action in actions if isinstance(action, SyncCopy)), {})


# --- the deadline of a copy -------------------------------------------------------------------------------------------


def test_a_new_copy_may_run_until_its_fence() -> None:
    assert decided(fenced()) == [CreateCopy("w1", "team", 1)]
    assert first_deadline(fenced()) == TIMEOUT
    assert first_deadline(fenced(activeDeadlineSeconds=7)) == 7
    assert first_deadline(fenced(activeDeadlineSeconds=900)) == TIMEOUT


def test_a_copy_without_a_fence_has_its_users_deadline_and_no_other() -> None:
    job = a_job().on("w1").spec(activeDeadlineSeconds=900)
    assert first_deadline(job) == 900
    assert synced(decided(job, copy_that_ran(5, 60))) == {"activeDeadlineSeconds": 900}


@pytest.mark.parametrize(
    ("ran", "deadline", "users", "wanted"),
    [
        pytest.param(5, 60, None, None, id="enough is left"),
        pytest.param(40, 60, None, 100, id="less than half a timeout is left"),
        pytest.param(7240, 7260, None, 7300, id="however long it has run"),
        pytest.param(100, 60, None, 160, id="late, but not ended yet"),
        pytest.param(5, None, None, 65, id="a fence where there was none"),
        pytest.param(5, 7200, None, 65, id="further away than a timeout"),
        pytest.param(5, 66, None, None, id="about a timeout away: clocks are not that exact"),
        pytest.param(40, 60, 90, 90, id="the user's own deadline is nearer than a timeout"),
        pytest.param(60, 90, 90, None, id="the user's own deadline stands, and nothing is renewed"),
        pytest.param(40, 60, 900, 100, id="the user's own deadline is further away"),
        pytest.param(40, 100, 50, 50, id="a user who wants less gets less"),
    ],
)
def test_a_deadline_is_pushed_forward_and_never_past_the_users(
    ran: float, deadline: int | None, users: int | None, wanted: int | None
) -> None:
    job = fenced(**({"activeDeadlineSeconds": users} if users is not None else {}))
    assert synced(decided(job, copy_that_ran(ran, deadline))) == (
        {"activeDeadlineSeconds": wanted} if wanted is not None else {}
    )


@pytest.mark.parametrize("ahead", [-5000.0, 0.0, 5000.0])
def test_the_workers_own_clock_counts(ahead: float) -> None:
    contact = Contact(connected=True, clock_ahead=ahead)
    assert synced(decided(fenced(), copy_that_ran(40, 60, ahead), contact=contact)) == {"activeDeadlineSeconds": 100}


def test_it_is_looked_at_again_when_half_of_the_timeout_is_over() -> None:
    (again,) = (a for a in decided(fenced(), copy_that_ran(0, 60)) if isinstance(a, Requeue))
    assert TIMEOUT * 0.4 <= again.seconds <= TIMEOUT * 0.5 + 0.2


def test_no_fence_is_renewed_on_a_worker_whose_connection_is_not_on_record() -> None:
    unrecorded = Contact(connected=True, recorded=False)
    assert decided(fenced(), contact=unrecorded) == []
    assert synced(decided(fenced(), copy_that_ran(40, 60), contact=unrecorded)) == {}
    assert decided(a_job().on("w1"), contact=unrecorded) == [CreateCopy("w1", "team", 1)], (
        "without a fence it does not matter"
    )


def test_a_suspended_copy_is_resumed_with_a_fresh_fence_and_only_when_its_worker_has_noticed() -> None:
    copy = copy_that_ran(7240, 7260)
    copy.job["spec"]["suspend"] = True
    assert "suspend" not in synced(decided(fenced(), copy)), "its worker still counts from the old start"
    copy.job["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    assert synced(decided(fenced(), copy)) == {"suspend": False, "activeDeadlineSeconds": TIMEOUT}


@pytest.mark.parametrize("job", [fenced, lambda: a_job().on("w1")], ids=["fenced", "without a fence"])
def test_a_copy_that_was_resumed_is_suspended_again_only_when_its_worker_has_noticed_that(
    job: Callable[[], Builder],
) -> None:
    copy = a_copy("w1").stopping(0).resumed()
    assert "suspend" not in synced(decided(job().suspended(), copy)), "what it says is of the first suspension"
    copy.job["status"]["conditions"][0]["status"] = "False"
    assert synced(decided(job().suspended(), copy.started()))["suspend"] is True


# --- whose end it was -------------------------------------------------------------------------------------------------


def ended(kind: str, ran: int, reason: str = "DeadlineExceeded") -> Json:
    conditions = [{"type": "FailureTarget", "status": "True", "reason": reason, "lastTransitionTime": at(NOW + ran)}]
    if kind == "Failed":
        conditions.append({**conditions[0], "type": "Failed", "lastTransitionTime": at(NOW + ran + 30)})
    return {"startTime": at(NOW), "conditions": conditions, "failed": 1}


@pytest.mark.parametrize(
    ("job", "status", "was_the_fence"),
    [
        pytest.param(fenced(), ended("Failed", 60), True, id="no deadline of the user"),
        pytest.param(fenced(), ended("FailureTarget", 60), True, id="its pods are still stopping"),
        pytest.param(fenced(activeDeadlineSeconds=900), ended("Failed", 60), True, id="before the user's deadline"),
        pytest.param(fenced(activeDeadlineSeconds=900), ended("Failed", 900), False, id="at the user's deadline"),
        pytest.param(fenced(activeDeadlineSeconds=61), ended("Failed", 60), True, id="a second before it"),
        pytest.param(fenced(), ended("Failed", 60, "BackoffLimitExceeded"), False, id="the user's failure"),
        pytest.param(a_job().on("w1"), ended("Failed", 60), False, id="no fence: a worker's own policy, say"),
    ],
)
def test_an_end_by_the_fence_is_told_from_the_users_own(job: Builder, status: Json, was_the_fence: bool) -> None:
    assert fence_expired(job.job, status) is was_the_fence


def test_a_copy_that_its_lease_ended_is_never_mirrored_as_failed_but_started_again() -> None:
    job, copy = fenced().started(), a_copy("w1")
    copy.job["status"] = ended("FailureTarget", 60)
    assert decided(job, copy) == [], "its pods are on their way out"
    copy.job["status"] = ended("Failed", 60)
    (action,) = decided(job, copy)
    assert isinstance(action, Unassign)
    assert action.reason == "FenceExpired"
    (action,) = decided(job, copy, when_lost="Fail")
    assert isinstance(action, PatchStatus)
    assert [c["reason"] for c in action.status["conditions"] if c["type"] == "Failed"] == ["WorkerLost"]


def test_a_job_that_its_user_suspended_is_not_started_again_because_its_lease_ended() -> None:
    copy = a_copy("w1")
    copy.job["status"] = ended("Failed", 60)
    (action,) = decided(fenced().started().suspended(), copy)
    assert isinstance(action, PatchStatus)
    assert [c["type"] for c in action.status["conditions"]] == ["Suspended"]


def test_what_a_fenced_copy_said_last_is_not_the_jobs_failure_either() -> None:
    workers = {"w1": Contact(connected=True)}
    found = observed(fenced().started().job, contacts=workers, last_seen_status=ended("Failed", 60))
    (action,) = decide(found)
    assert isinstance(action, Unassign)


def test_a_copy_that_its_user_limited_fails_as_usual() -> None:
    copy = a_copy("w1")
    copy.job["status"] = ended("Failed", 900)
    (action,) = decided(fenced(activeDeadlineSeconds=900).started(), copy)
    assert isinstance(action, PatchStatus)


@pytest.mark.parametrize(
    ("lost_for", "moves"),
    [(21.0, False), (TIMEOUT + GRACE + STOP - 1, False), (TIMEOUT + GRACE + STOP + 1, True)],
)
@pytest.mark.parametrize("action", ["Redispatch", "Fail"])
def test_a_job_moves_only_after_lease_grace_and_the_pods_time_to_stop(
    lost_for: float, moves: bool, action: Any
) -> None:
    # It was lost before, too: that makes no pod stop sooner.
    contact = Contact(connected=False, lost_since=NOW - lost_for, outages=((NOW - 9000, NOW - lost_for - 1),))
    actions = decided(fenced().started(), contact=contact, when_lost=action)
    assert any(isinstance(a, Unassign | PatchStatus) for a in actions) is moves
    assert any(isinstance(a, Tell) for a in actions) is not moves


def test_a_held_job_is_not_placed_until_it_is_resumed() -> None:
    job = a_job()
    job.job["metadata"]["annotations"][HOLD_ANNOTATION] = "true"
    told, shown = decided(job)
    assert isinstance(told, Tell)
    assert told.reason == "Held"
    assert shown == Show()
    assert decided(job.spec(suspend=False)) == [Enqueue()]
    job.job["metadata"]["annotations"][HOLD_ANNOTATION] = "false"
    assert decided(job.suspended()) == [Enqueue()]


@pytest.mark.parametrize(
    ("date", "ahead"),
    [
        ("Fri, 15 Jan 2027 08:00:10 GMT", 10.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", -3600.0),
        (None, 0.0),
        ("yesterday", 0.0),
    ],
)
def test_a_worker_tells_its_time_with_every_answer(date: str | None, ahead: float) -> None:
    assert clock_ahead(date, NOW) == ahead


# --- any order of events ----------------------------------------------------------------------------------------------


class Fleet:
    """Two workers whose clocks differ, connections that break, a dispatcher that stops and starts, second by second.

    The workers' Job controllers are as slow as half of the grace. Everything that the dispatcher knows after a start is
    what API objects say.
    """

    def __init__(
        self,
        timeout: int,
        users: int | None,
        skews: tuple[float, float],
        error: float,
        slow: tuple[int, int] = (1, 1),
    ) -> None:
        """`slow`: how many seconds the dispatcher's reports and the workers' Job controllers take."""
        self.now = NOW
        self.report_every, self.sync_every = slow
        self.timeout = timeout
        job = a_job()
        job.job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = STOP
        if users is not None:
            job.job["spec"]["activeDeadlineSeconds"] = users
        self.job = job.job
        self.skew = dict(zip(("w1", "w2"), skews, strict=True))
        self.error = error
        self.copies: dict[str, Json] = {}
        self.stopping: dict[str, float] = {}  # pods of an ended copy run until then
        self.up = dict.fromkeys(self.skew, True)
        self.recorded: dict[str, tuple[bool, float]] = dict.fromkeys(self.skew, (True, NOW))
        self.lost: dict[str, float | None] = dict.fromkeys(self.skew)
        self.working = True
        self.made = self.renewals = 0

    def tick(self) -> None:
        self.now += 1
        if self.working:
            if self.now % self.report_every == 0:
                self._report()
            for action in decide(self._state()):
                self._act(action)
        for worker in self.copies:
            if self.now % self.sync_every == 0:
                self._job_controller(worker)
        running = [worker for worker in self.copies if self._runs(worker)] + [
            worker for worker, until in self.stopping.items() if until > self.now
        ]
        assert len(running) < 2, f"it runs on both at {self.now - NOW:g} s"

    def start(self) -> None:
        self.working = True
        for worker, (connected, since) in self.recorded.items():
            self.lost[worker] = None if self.up[worker] else (self.now if connected else since)

    def cut(self, worker: str, up: bool) -> None:
        self.up[worker] = up
        if self.working:
            self.lost[worker] = None if up else (self.lost[worker] or self.now)

    def _report(self) -> None:
        for worker, up in self.up.items():
            if self.recorded[worker][0] != up:
                self.recorded[worker] = (up, self.now)

    def _state(self) -> ObservedState:
        contacts = {
            w: Contact(self.up[w], self.lost[w], recorded=self.recorded[w][0], clock_ahead=self.skew[w] - self.error)
            for w in self.up
        }
        seen = [Copy(w, copy) for w, copy in self.copies.items() if self.up[w]]
        policy = Policy(lost_after=0.0, grace=GRACE)
        return observed(self.job, seen, policy=policy, contacts=contacts, now=self.now)

    def _act(self, action: Action) -> None:
        annotations = self.job["metadata"]["annotations"]
        if isinstance(action, Enqueue):
            free = [w for w in self.up if self.up[w] and self.recorded[w][0]]
            if free:
                annotations |= {CLUSTER_ANNOTATION: free[0], ATTEMPT_ANNOTATION: str(attempt_of(self.job) + 1)}
                annotations |= {FENCE_ANNOTATION: str(self.timeout), ADMITTED_QUEUE_ANNOTATION: "q"}
                self.job["spec"]["suspend"] = False
        elif isinstance(action, Unassign):
            del annotations[CLUSTER_ANNOTATION]
            self.job["spec"]["suspend"] = True
        elif isinstance(action, PatchStatus):
            self.job["status"] = action.status
        elif isinstance(action, CreateCopy) and action.worker not in self.copies:
            self.made += 1
            copy = copy_of(self.job, action.attempt)
            copy["metadata"]["uid"] = f"copy-{self.made}"
            self.copies[action.worker] = {**copy, "status": {}}
        elif isinstance(action, SyncCopy):
            self.renewals += 1
            self.copies[action.worker]["spec"] |= action.patch["spec"]
        elif isinstance(action, DeleteCopy):
            if self._runs(action.worker):
                self.stopping[action.worker] = self.now  # Background: the model's pods go with it
            del self.copies[action.worker]

    def _runs(self, worker: str) -> bool:
        copy = self.copies[worker]
        status = copy["status"]
        return bool(status.get("active")) and not is_finished(status)

    def _job_controller(self, worker: str) -> None:
        copy, now = self.copies[worker], int(self.now + self.skew[worker])
        status, spec = copy["status"], copy["spec"]
        if is_finished(status):
            return
        suspended = any(c["type"] == "Suspended" and c["status"] == "True" for c in status.get("conditions") or ())
        if spec.get("suspend"):
            status |= {"active": 0, "conditions": [_condition("Suspended", "True", at(now), "JobSuspended")]}
            return
        if not status.get("startTime") or suspended:
            status |= {"startTime": at(now), "active": 1}
            if suspended:
                status["conditions"] = [_condition("Suspended", "False", at(now), "JobResumed")]
        if now - seconds_of(status["startTime"], now) >= spec["activeDeadlineSeconds"]:
            self.stopping[worker] = self.now + STOP
            others = status.get("conditions") or []
            ends = [_condition(kind, "True", at(now), "DeadlineExceeded") for kind in ("FailureTarget", "Failed")]
            status |= {"active": 0, "failed": 1, "terminating": 0, "ready": 0, "conditions": [*others, *ends]}


def _condition(kind: str, status: str, when: str, reason: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "m",
        "lastProbeTime": when,
        "lastTransitionTime": when,
    }


STEPS = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 120)),
    st.tuples(st.sampled_from(["cut", "heal"]), st.sampled_from(["w1", "w2"])),
    st.tuples(st.sampled_from(["stop", "start", "suspend", "resume"]), st.none()),
)
A_MOMENT_OF_CONTACT = [
    ("wait", 1),
    ("cut", "w1"),
    ("wait", 18),
    ("heal", "w1"),
    ("cut", "w1"),
    ("stop", None),
    ("start", None),
    ("wait", 50),
]
"""Too short to be reported, before the dispatcher stops: a timeout given then would be known to nobody."""
CLOCKS = st.integers(-5000, 5000).map(float)


@given(
    timeout=st.integers(10, 90),
    skews=st.tuples(CLOCKS, CLOCKS),
    error=st.floats(0.0, 1.5),
    slow=st.tuples(st.integers(1, 7), st.integers(1, 4)),
    steps=st.lists(STEPS, max_size=25),
)
@example(timeout=40, skews=(0.0, 0.0), error=0.5, slow=(7, 1), steps=A_MOMENT_OF_CONTACT)
@settings(max_examples=150, deadline=None)
def test_a_fenced_job_never_runs_in_two_places(
    timeout: int,
    skews: tuple[float, float],
    error: float,
    slow: tuple[int, int],
    steps: list[tuple[str, Any]],
) -> None:
    fleet = Fleet(timeout, None, skews, error, slow)
    for what, argument in steps:
        if what == "wait":
            for _ in range(argument):
                fleet.tick()
        elif what in {"cut", "heal"}:
            fleet.cut(argument, up=what == "heal")
        elif what == "stop":
            fleet.working = False
        elif what == "start" and not fleet.working:
            fleet.start()
        elif what in {"suspend", "resume"} and cluster_of(fleet.job) is not None:
            fleet.job["spec"]["suspend"] = what == "suspend"
        fleet.tick()
    for worker in fleet.up:
        fleet.cut(worker, up=True)
    fleet.start()
    if cluster_of(fleet.job) is not None:
        fleet.job["spec"]["suspend"] = False
    for _ in range(30):
        fleet.tick()
    assert not is_finished(fleet.job["status"]), "the fence is never the Job's failure"
    assert fleet.job["status"].get("active"), "and the Job goes on"


@given(timeout=st.integers(10, 600), skews=st.tuples(CLOCKS, CLOCKS), error=st.floats(0.0, 1.5))
@settings(max_examples=25, deadline=None)
def test_while_there_is_contact_a_copy_goes_on_for_two_or_three_writes_in_a_lease(
    timeout: int, skews: tuple[float, float], error: float
) -> None:
    fleet = Fleet(timeout, None, skews, error)
    for _ in range(10 * timeout):
        fleet.tick()
    assert fleet.made == 1
    assert fleet.renewals <= 10 * timeout / max(1.0, timeout * 0.4 - 3) + 2


@given(users=st.integers(5, 300), skews=st.tuples(CLOCKS, CLOCKS))
@settings(max_examples=25, deadline=None)
def test_the_users_deadline_ends_the_job_as_without_a_fence(users: int, skews: tuple[float, float]) -> None:
    fleet = Fleet(60, users, skews, 0.5)
    for _ in range(users + 10):
        fleet.tick()
    assert is_finished(fleet.job["status"])
    assert fleet.made == 1

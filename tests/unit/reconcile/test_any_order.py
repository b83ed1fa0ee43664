"""Any order of events: a world of one Job and two workers in which anything may happen at any time, and decide is asked
again and again, sometimes late, sometimes by a controller that has forgotten everything.

The world applies actions as the API servers would. After each step the invariants are looked at: at most one copy lives
where it can be reached (I1), a finished Job has no live copy for long and its end is never taken back (I2, I3), nothing
but copies is deleted (I5), and when all is quiet original and copy agree or the Job waits for a reason (I4, I7).
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    COPY_UID_ANNOTATION,
    HOLD_ANNOTATION,
    RESERVED_ANNOTATION,
)
from multimirror.api.placement import Copy, attempt_of, cluster_of, preempted_of
from multimirror.batch import is_finished, stored_status, validate_job_status
from multimirror.kinds import JOB
from multimirror.kinds.preempted import Preemption, preemption_patch, resumption_patch, unassignment_patch
from multimirror.kinds.reserved import reserved_for
from multimirror.reconcile.actions import (
    Action,
    CreateCopy,
    DeleteCopy,
    Enqueue,
    NoteResumed,
    PatchStatus,
    SyncCopy,
    Unassign,
)
from multimirror.reconcile.decide import decide
from multimirror.reconcile.state import ObservedState
from multimirror.workers.state import Contact
from tests.unit.reconcile.builders import NOW, TIME, a_job, copy_of, observed
from tests.unit.shell.fake_api import merged

Json = dict[str, Any]
WORKERS = ("w1", "w2")


class World(RuleBasedStateMachine):
    """One Job, two workers, and everything that can happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.job: Json | None = a_job().job
        self.copies: dict[str, Json] = {}
        self.connected = dict.fromkeys(WORKERS, True)
        self.refusals: dict[str, str] = {}
        self.now = NOW
        self.lost_since: dict[str, float] = {}
        self.made = 0
        self.queued: list[Action] = []
        self.user_suspended = False

    # --- what others do

    @precondition(lambda self: any(self.running()))
    @rule(data=st.data())
    def a_copy_goes_on(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.running())))
        copy = self.copies[worker]
        status = copy.setdefault("status", {})
        if copy["spec"].get("suspend"):
            suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": TIME}
            copy["status"] = {"conditions": [suspended], "active": 0, "ready": 0, "terminating": 0}
        elif not status.get("startTime"):
            copy["status"] = {"startTime": TIME, "active": 1, "ready": 0, "terminating": 0}
        else:
            ending = data.draw(st.sampled_from(["ready", "Complete", "Failed", "interim"]))
            if ending == "ready":
                status["ready"] = 1
            elif ending == "interim":
                status |= {"conditions": [_true("SuccessCriteriaMet")]} if not status.get("conditions") else {}
            elif _may_end(status, ending):
                interim = "SuccessCriteriaMet" if ending == "Complete" else "FailureTarget"
                copy["status"] = {
                    "startTime": TIME,
                    "active": 0,
                    "ready": 0,
                    "terminating": 0,
                    "conditions": [_true(interim), _true(ending)],
                    **({"completionTime": TIME, "succeeded": 1} if ending == "Complete" else {"failed": 1}),
                }

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def somebody_deletes_a_copy(self, data: st.DataObject) -> None:
        del self.copies[data.draw(st.sampled_from(sorted(self.copies)))]

    @rule(worker=st.sampled_from(WORKERS))
    def a_worker_is_lost_or_comes_back(self, worker: str) -> None:
        self.connected[worker] = not self.connected[worker]
        self.lost_since[worker] = self.now

    @rule(seconds=st.sampled_from([1.0, 100.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(
        lambda self: self.job is not None and bool(cluster_of(self.job)) and not is_finished(self.job["status"])
    )
    @rule()
    def the_user_suspends_or_resumes(self) -> None:
        assert self.job is not None
        self.job["spec"]["suspend"] = not self.job["spec"]["suspend"]

    @precondition(
        lambda self: (
            self.job is not None
            and bool(cluster_of(self.job))
            and preempted_of(self.job) is None
            and not is_finished(self.job["status"])
        )
    )
    @rule()
    def it_is_to_make_room(self) -> None:
        assert self.job is not None
        self.job = merged(self.job, preemption_patch(JOB, self.job, Preemption.RECLAIM, now=self.now))

    @precondition(lambda self: self.job is not None)
    @rule(chance=st.integers(0, 9))
    def the_user_deletes_the_job(self, chance: int) -> None:
        if chance == 0:
            self.job = None

    @precondition(lambda self: self.job is not None and self.job["status"].get("startTime") is None)
    @rule(worker=st.sampled_from(WORKERS))
    def a_worker_refuses(self, worker: str) -> None:
        if worker not in self.copies:
            self.refusals = {worker: "no"}

    @rule()
    def a_controller_starts_afresh(self) -> None:
        self.refusals = {}
        self.queued = []

    # --- what we do

    @rule()
    def decide_now(self) -> None:
        self.queued = decide(self.state())

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def one_action_takes_effect(self, data: st.DataObject) -> None:
        """Any of them first, the others perhaps never; the caches have seen it before anything else is decided."""
        action = data.draw(st.sampled_from(self.queued))
        self.queued = []
        self.act(action)

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        for _ in range(12):
            actions = decide(self.state())
            if not [
                a
                for a in actions
                if isinstance(a, Enqueue | CreateCopy | DeleteCopy | NoteResumed | PatchStatus | Unassign | SyncCopy)
            ]:
                break
            for action in actions:
                self.act(action)
        self.queued = []  # what was decided before is about versions that are gone
        self.check_quiet()

    @precondition(lambda self: self.job is not None and cluster_of(self.job) is not None)
    @rule()
    def its_worker_is_lost_for_long(self) -> None:
        assert self.job is not None
        worker = cluster_of(self.job)
        assert worker is not None
        self.connected[worker] = False
        self.lost_since[worker] = self.now
        self.now += 400
        self.all_goes_well_for_a_while()

    @rule()
    def all_workers_come_back(self) -> None:
        self.connected = dict.fromkeys(WORKERS, True)
        self.all_goes_well_for_a_while()

    # --- the servers

    def act(self, action: Action) -> None:
        if isinstance(action, DeleteCopy):
            if (
                self.connected[action.worker]
                and self.copies.get(action.worker, {}).get("metadata", {}).get("uid") == action.uid
            ):
                del self.copies[action.worker]
        elif isinstance(action, CreateCopy):
            if self.connected[action.worker] and action.worker not in self.copies and self.job is not None:
                self.made += 1
                copy = copy_of(self.job, action.attempt)
                copy["metadata"]["uid"] = f"copy-{self.made}"
                self.copies[action.worker] = {**copy, "status": {}}
        elif isinstance(action, SyncCopy):
            self.copies[action.worker]["spec"] |= action.patch["spec"]
        elif self.job is not None:
            self.on_management(action)

    def on_management(self, action: Action) -> None:
        assert self.job is not None
        annotations = self.job["metadata"]["annotations"]
        if isinstance(action, PatchStatus):
            before = self.job["status"]
            errors = validate_job_status(action.status, before, self.job["spec"])
            assert not errors, f"I3: {errors}"
            for kind in ("Complete", "Failed"):
                assert not _is(before, kind) or _is(action.status, kind), "I3: an end was taken back"
            self.job["status"] = stored_status(action.status)
            if action.copy_uid is not None:
                annotations[COPY_UID_ANNOTATION] = action.copy_uid
        elif isinstance(action, Unassign):
            if preempted_of(self.job) is not None and action.reason == "Preempted":
                self.check_stopped()
            self.job = merged(self.job, unassignment_patch(JOB, self.job))
            self.job["metadata"]["annotations"].pop(HOLD_ANNOTATION, None)  # its user lets it go
        elif isinstance(action, NoteResumed):
            self.job = merged(self.job, resumption_patch(self.job))
        elif isinstance(action, Enqueue):
            avoided = {name for name, _ in action.avoid}
            worker = next((w for w in WORKERS if self.connected[w] and w not in avoided), None)
            if worker is not None:
                annotations |= {CLUSTER_ANNOTATION: worker, ATTEMPT_ANNOTATION: str(attempt_of(self.job) + 1)}
                annotations[ADMITTED_QUEUE_ANNOTATION] = "q"
                annotations.pop(COPY_UID_ANNOTATION, None)
                annotations[RESERVED_ANNOTATION] = str(reserved_for(JOB, self.job))
                self.job["spec"]["suspend"] = False

    def state(self) -> ObservedState:
        contacts = {w: Contact(self.connected[w], self.lost_since.get(w)) for w in WORKERS}
        seen = [Copy(w, copy) for w, copy in self.copies.items() if self.connected[w]]
        return observed(self.job, seen, contacts=contacts, refusals=self.refusals, now=self.now)

    def running(self) -> list[str]:
        return [w for w, copy in self.copies.items() if not is_finished(copy.get("status") or {})]

    # --- what must hold

    @invariant()
    def at_most_one_copy_can_start_pods_where_we_can_reach(self) -> None:
        """An older one may still be there after its worker came back: it was out of reach, and goes at once."""
        live = [w for w in self.running() if self.connected[w] and not self.copies[w]["spec"].get("suspend")]
        if len(live) > 1:
            assert self.job is None or any(isinstance(a, DeleteCopy) for a in decide(self.state())), "I1"

    def check_stopped(self) -> None:
        """What makes room has no pods where it was."""
        assert self.job is not None
        copy = self.copies.get(cluster_of(self.job) or "")
        assert copy is None or not (copy["status"].get("active") or copy["status"].get("terminating")), "P3"

    def check_quiet(self) -> None:
        """After everything was carried out."""
        reachable = {w: c for w, c in self.copies.items() if self.connected[w]}
        if self.job is None:
            assert not reachable, "I6"
            return
        if is_finished(self.job["status"]):
            assert not reachable, "I2: a finished Job keeps a copy"
            return
        assert len(reachable) <= 1, "I1"
        cluster = cluster_of(self.job)
        for worker, copy in reachable.items():
            assert worker == cluster, "I1: a copy of an earlier attempt stays"
            if copy["status"].get("startTime"):
                assert self.job["status"].get("active", 0) == copy["status"].get("active", 0), "I4"
        if cluster is None:
            reasons = not any(self.connected.values()) or self.refusals
            assert reasons, "I7: it waits, and nothing says why"
        elif self.connected[cluster] and not reachable:
            assert self.job["spec"]["suspend"], "I7: it was assigned, has no copy, and nothing is done"


def _true(kind: str) -> Json:
    return {"type": kind, "status": "True", "lastProbeTime": TIME, "lastTransitionTime": TIME}


def _is(status: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or ())


def _may_end(status: Json, ending: str) -> bool:
    return not (_is(status, "SuccessCriteriaMet") and ending == "Failed")


World.TestCase.settings = settings(max_examples=100, stateful_step_count=30)
TestAnyOrder = World.TestCase

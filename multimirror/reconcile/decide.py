"""What to do about one object: a pure function of what the caches hold and of the time.

    gone, or being deleted  -> its copies go
    finished                -> copies that did not bring it about go now, the one that did after the queue's retention
    run by somebody else    -> it is taken from its worker, suspended, and not placed
    not assigned            -> copies of earlier attempts go first, then it shows that it waits, then it is placed
    assigned                -> one copy on that worker: made, kept in step, mirrored; lost or vanished: another attempt
                               (how large it may be, and what is counted for it: see counting.py; whether its pods are
                               ready in time: starting.py; how it is taken back from there: eviction.py)

The order of the rules is the proof of the invariants: nothing is placed while a copy of it can still be seen (I1), a
finished object keeps no copy that could start a pod (I2), only copies that are ours by proof come in here at all (I5,
see observer.py), and every branch that does nothing for long says why (I7). Copies of earlier attempts say nothing
about the object any more; while pods of theirs may run they are waited for, as long as a lost worker is, and in words.
A copy has vanished only where its namespace is followed and it is not there: what is not followed is not known. Nothing
is remembered between calls except what the caller passes in: refusals by workers, and the status of copies that were
finished when they vanished.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal

from multimirror.api import HOLD_ANNOTATION
from multimirror.api.not_started import was_given_up
from multimirror.api.placement import (
    Copy,
    admitted_queue_of,
    attempt_of,
    cluster_of,
    copy_uid_of,
    fence_of,
    preempted_of,
)
from multimirror.batch import Json
from multimirror.batch.times import format_time, seconds_of, utc_datetime
from multimirror.kinds.kind import Rejection, is_held
from multimirror.reconcile.actions import (
    Action,
    Annotate,
    CreateCopy,
    DeleteCopy,
    Enqueue,
    PatchStatus,
    Preempt,
    RejectStatus,
    Requeue,
    Reserve,
    Show,
    SyncCopy,
    Tell,
    Unassign,
)
from multimirror.reconcile.counting import another_template, reservation, template_changed
from multimirror.reconcile.eviction import drain, take_back, taken_away
from multimirror.reconcile.later_deadlines import later_deadline
from multimirror.reconcile.starting import avoided, awaited, next_avoided_end
from multimirror.reconcile.state import ObservedState
from multimirror.workers.state import Contact, out_of_reach

_QUIET_SECONDS: Final = 10.0
"""For so long the copy of an earlier attempt may take to go before anybody is told."""


def decide(state: ObservedState) -> list[Action]:
    """What to do now. Actions on different clusters may be carried out side by side."""
    kind, obj = state.kind, state.original
    if obj is None or "deletionTimestamp" in obj["metadata"]:
        return _deletions(state.copies, "orphan")
    if kind.outcome(obj).finished:
        return _after_the_end(obj, state)
    cluster, attempt = cluster_of(obj), attempt_of(obj)
    if kind.run_by_others(obj, attempt=attempt):
        return _run_by_others(state, cluster)
    # An attempt is made on one worker only: its copy is the copy, even if its cluster has got another name since.
    # Somebody may have made it a second time elsewhere (a backup that was restored there): that one goes.
    of_attempt = [c for c in state.copies if c.attempt == attempt and cluster is not None]
    current = next((c for c in of_attempt if c.worker == cluster), of_attempt[0] if of_attempt else None)
    stale = [c for c in state.copies if current is None or c.uid != current.uid]
    actions = _deletions(_within_reach(stale, state), "stale")
    if cluster is None:
        return actions + _unassigned(obj, state)
    return actions + _assigned(obj, state, cluster, current)


def _run_by_others(state: ObservedState, cluster: str | None) -> list[Action]:
    """Somebody else runs it, here: it is in two places, or would be. Suspended it is in none."""
    name = state.kind.resource.kind
    if cluster is not None:
        message = f"another controller runs this {name}, although spec.managedBy names this one; it is suspended"
        return [Unassign("ManagedByIgnored", message)]
    message = (
        f"another controller writes to this {name}, although spec.managedBy names this one; it is not placed. Does the "
        f"cluster's own {name} controller know spec.managedBy (Kubernetes 1.32 and later)?"
    )
    return [*_deletions(_within_reach(state.copies, state), "stale"), Tell("ManagedByIgnored", message)]


# --- not assigned -----------------------------------------------------------------------------------------------------


def _unassigned(obj: Json, state: ObservedState) -> list[Action]:
    waiting = _show_suspended(obj, state)
    if waiting:
        return waiting
    blocked = _blocked(obj, state)
    if blocked:
        return blocked
    if is_held(state.kind, obj):
        why = "because it did not start" if was_given_up(obj) else "as its user asked"
        message = (
            f"it is held, {why}, and not placed; set spec.suspend to false, or remove the annotation "
            f"{HOLD_ANNOTATION}, to let it go"
        )
        held: list[Action] = [Tell("Held", message, "Normal")]
        return held if state.kind.shows_that_it_waits(obj) else [*held, Show()]
    # Where an earlier copy keeps its name, or may still run after all, there is no place for another.
    kept = {copy.worker: "an earlier copy of it is still there" for copy in _within_reach(state.copies, state)}
    avoid = {**kept, **avoided(obj, state.now), **state.refusals}
    again = next_avoided_end(obj, state.now)
    return [Enqueue(tuple(sorted(avoid.items()))), *([Requeue(again + 0.1)] if again is not None else [])]


def decide_shown(state: ObservedState) -> list[Action]:
    """What one writes about itself that is held, or has waited visibly long: asked apart, for it has time."""
    kind, obj = state.kind, state.original
    if obj is None or "deletionTimestamp" in obj["metadata"] or kind.outcome(obj).finished:
        return []
    attempt = attempt_of(obj)
    if cluster_of(obj) is not None or kind.run_by_others(obj, attempt=attempt):
        return []
    if not is_held(kind, obj) and not state.waits:
        return []  # it goes, or nobody has looked yet whether it does
    return _mirrored(obj, state, kind.waiting_status(obj, _now(state), reword=True), None)


def _show_suspended(obj: Json, state: ObservedState) -> list[Action]:
    """What ran before shows that it does not run now: a Job's startTime may only be reset while it is suspended."""
    if attempt_of(obj) == 0 or not state.kind.is_suspended(obj):
        return []
    return _mirrored(obj, state, state.kind.waiting_status(obj, _now(state)), None)


# --- assigned ---------------------------------------------------------------------------------------------------------


def _assigned(obj: Json, state: ObservedState, cluster: str, copy: Copy | None) -> list[Action]:
    contact = state.contact if copy is None else _contact(copy, state)
    marked = preempted_of(obj) is not None
    if state.policy.drains and not marked and not _ends(obj, state, copy):
        return [drain(obj, cluster)]
    if not contact.connected:
        return _lost(obj, state, cluster, contact)
    if copy is None:
        return _without_copy(obj, state, cluster)
    kind, status = state.kind, copy.object.get("status") or {}
    finished = kind.outcome(copy.object).finished
    if kind.fence_expired(obj, status):
        return _fence_expired(obj, state, cluster) if finished else []  # its end will be observed
    mirrored = _mirrored(obj, state, status, cluster, copy)
    if finished:
        return mirrored
    if marked:
        return take_back(obj, state, copy, contact, mirrored)
    if copy.terminating:
        name = kind.resource.kind
        message = f"somebody deleted the {name} on worker {copy.worker}; when it is gone there, it is started again"
        return [Tell("CopyTerminating", message), *mirrored]  # finalizers may keep it for ever
    if template_changed(kind, obj) and not kind.outcome(obj).ending:
        return mirrored or another_template(kind, obj, copy)
    starts = awaited(obj, state, copy, contact)
    if any(isinstance(action, Preempt) for action in starts):
        return starts
    reserved = reservation(kind, obj, copy) + later_deadline(obj, state)
    written = _in_one_write(mirrored, reserved + starts)
    return _in_step(obj, state, copy, contact) + written


def _in_one_write(mirrored: list[Action], others: list[Action]) -> list[Action]:
    """One write to the original at a time: what is written down about it goes along with its status. Where that breaks
    a rule nothing is written: whoever says such things gives nothing back."""
    notes = [action for action in others if isinstance(action, Reserve | Annotate)]
    rest = [action for action in others if not isinstance(action, Reserve | Annotate)]
    if not mirrored:
        return rest + notes[:1]  # the next one when that is observed
    for note in notes:
        mirrored = [_along(action, note) if isinstance(action, PatchStatus) else action for action in mirrored]
    return rest + mirrored


def _along(status: PatchStatus, note: Reserve | Annotate) -> PatchStatus:
    if isinstance(note, Reserve):
        return replace(status, reserved=note.reserved)
    return replace(status, annotations=note.annotations)


def _ends(obj: Json, state: ObservedState, copy: Copy | None) -> bool:
    """By itself: its end is announced, or there, if only on its worker."""
    kind, last_seen = state.kind, state.last_seen_status
    return kind.outcome(obj).ending or (last_seen is not None if copy is None else kind.outcome(copy.object).ending)


def _stopped_by_its_user(obj: Json, state: ObservedState) -> bool:
    """While it has a worker, its suspension is its user's; unless it is taken back from there."""
    return state.kind.is_suspended(obj) and preempted_of(obj) is None


def _in_step(obj: Json, state: ObservedState, copy: Copy, contact: Contact) -> list[Action]:
    clock = state.now + contact.clock_ahead
    step = state.kind.in_step(obj, copy, clock=clock, may_renew=contact.recorded)
    actions: list[Action] = []
    if step.patch:
        actions.append(SyncCopy(copy.worker, copy.namespace, copy.name, copy.uid, step.patch, step.renews))
    if step.again_in is not None:
        actions.append(Requeue(step.again_in))
    return actions


def _fence_expired(obj: Json, state: ObservedState, cluster: str) -> list[Action]:
    """The worker ended the copy because it did not hear from us: that is not the user's failure."""
    if _stopped_by_its_user(obj, state):
        return _show_suspended(obj, state)
    name = state.kind.resource.kind
    problem = f"worker {cluster} had no contact for {fence_of(obj)} s and ended the {name} there, as the fence says"
    if state.policy.when_lost == "Fail":
        return _end(obj, state, cluster, reason="WorkerLost", message=problem)
    return [Unassign("FenceExpired", f"{problem}; it is started again")]


def _without_copy(obj: Json, state: ObservedState, cluster: str) -> list[Action]:
    kind, last_seen = state.kind, state.last_seen_status
    if last_seen is not None:
        if kind.fence_expired(obj, last_seen):
            return _fence_expired(obj, state, cluster)
        mirrored = _mirrored(obj, state, last_seen, cluster)
        if mirrored:
            return mirrored
    if kind.outcome(obj).ending:
        # Its end had been announced; an announcement cannot be taken back, and must not be, or it would run again.
        return _end(obj, state, cluster)
    if preempted_of(obj) is not None:
        if state.asked and copy_uid_of(obj) is None and not kind.has_started(obj) and cluster not in state.refusals:
            # It may come at any time, and only one that is seen can be stopped: so it is made, as any other is.
            return _blocked(obj, state, (cluster, state.namespace)) or _to_be_made(obj, state, cluster)
        return taken_away(kind, cluster, "nothing of it is there" if copy_uid_of(obj) is None else "its copy is gone")
    if _stopped_by_its_user(obj, state):
        return _show_suspended(obj, state)  # another attempt would start it again
    if kind.has_started(obj) or copy_uid_of(obj) is not None:
        message = f"the {kind.resource.kind} was deleted on worker {cluster}; it is started again"
        return [Unassign("CopyVanished", message)]
    if cluster in state.refusals:
        return [Unassign("Refused", f"worker {cluster} did not take it: {state.refusals[cluster]}")]
    return _blocked(obj, state, (cluster, state.namespace)) or _to_be_made(obj, state, cluster)


def _to_be_made(obj: Json, state: ObservedState, cluster: str) -> list[Action]:
    """There was no copy yet, and nothing is in its way: whether there is to be one there."""
    kind = state.kind
    if admitted_queue_of(obj) is None:
        message = f"no queue has admitted it to worker {cluster}: it is not sent there, and waits in its queue"
        return [Unassign("NotAdmitted", message)]
    if state.namespace is None:
        message = (
            f"worker {cluster} takes no {kind.resource.kind}s from namespace {obj['metadata']['namespace']} any more"
        )
        return [Unassign("Refused", f"{message}, or into another namespace of its own")]
    if template_changed(kind, obj):
        return another_template(kind, obj, None)
    if fence_of(obj) is not None and not state.contact.recorded:
        return []  # that it is will be observed
    return [CreateCopy(cluster, state.namespace, attempt_of(obj))]


def _lost(obj: Json, state: ObservedState, cluster: str, contact: Contact) -> list[Action]:
    kind, policy = state.kind, state.policy
    if _stopped_by_its_user(obj, state):
        return []  # there is nothing to start elsewhere before it is resumed
    if contact.lost_since is None:
        return []  # it is being tried right now, and will be there or lost: a new connection must move nothing
    # What it was lost before counts; but a fence is safe only so long after the last contact.
    wait = max(policy.lost_after - _lost_before(obj, contact), kind.safe_after(obj, policy.grace))
    due = contact.lost_since + wait - state.now
    problem = out_of_reach(cluster, contact.reason, contact.why)
    if policy.when_lost == "Wait":
        return [Tell("WorkerLost", f"{problem}; the queue says to wait for it")]
    if due > 0:
        then = "started elsewhere" if policy.when_lost == "Redispatch" else "failed"
        # A time, and not how long that is: whenever it is told again, it says the same.
        until = f"{utc_datetime(contact.lost_since + wait):%H:%M:%S} UTC"
        message = f"{problem}; unless it is back by {until} the {kind.resource.kind} is {then}"
        return [Tell("WorkerLost", message), Requeue(due)]
    problem = f"{problem} for more than {max(wait, policy.lost_after):g} s"
    if policy.when_lost == "Fail" or kind.outcome(obj).ending:
        return _end(obj, state, cluster, reason="WorkerLost", message=problem)
    return [Unassign("WorkerLost", f"{problem}; the {kind.resource.kind} is started elsewhere")]


def _lost_before(obj: Json, contact: Contact) -> float:
    """How many seconds its worker was lost already since the object started there, less what it was there meanwhile.

    One that is back for a moment, again and again, would have to be waited for for ever; one that has been there for
    as long as it was lost has made up for it.
    """
    started = seconds_of((obj.get("status") or {}).get("startTime"), contact.lost_since or 0.0)
    lost, back = 0.0, started
    for since, until in (*contact.outages, (contact.lost_since or 0.0, contact.lost_since or 0.0)):
        begin = max(since, started)
        lost = max(0.0, lost - max(0.0, begin - back)) + max(0.0, until - begin)
        back = max(back, until)
    return lost


# --- copies of earlier attempts ---------------------------------------------------------------------------------------


def _blocked(obj: Json, state: ObservedState, but: tuple[str, str | None] | None = None) -> list[Action]:
    """What to do instead of going on, while copies of earlier attempts may still run pods; nothing: go on.

    They are being deleted, and mostly gone in a moment. One that stays (somebody's finalizers, a worker that does not
    do what it says) is waited for as a lost worker is, and no longer: it holds up nobody for ever, and not silently.
    `but`: the worker and namespace where the next copy goes, under the same name: whoever makes it finds out there.
    """
    there = [
        copy
        for copy in _within_reach(state.copies, state)
        if (copy.worker, copy.namespace) != but and state.kind.may_run(copy.object)
    ]
    if not there:
        return []
    kind, policy = state.kind, state.policy
    waited = state.now - (state.blocked_since if state.blocked_since is not None else state.now)
    if waited < _QUIET_SECONDS:
        return [Requeue(_QUIET_SECONDS - waited)]  # mostly their deletion is observed before that
    wait = max(policy.lost_after, kind.safe_after(obj, policy.grace))
    where = ", ".join(sorted({copy.worker for copy in there}))
    problem = f"an earlier copy of it is still there on worker {where}, although it was deleted, and may still run"
    if policy.when_lost == "Wait":
        return [Tell("EarlierCopyRemains", f"{problem}; the queue says to wait for it")]
    if waited < wait:
        then = "started elsewhere" if policy.when_lost == "Redispatch" else "failed"
        message = f"{problem}; unless it goes within {wait:g} s the {kind.resource.kind} is {then}"
        return [Tell("EarlierCopyRemains", message), Requeue(wait - waited)]
    if policy.when_lost == "Fail":
        return _end(obj, state, where, reason="EarlierCopyRemains", message=problem)
    return []


# --- the end ----------------------------------------------------------------------------------------------------------


def _after_the_end(obj: Json, state: ObservedState) -> list[Action]:
    attempt = attempt_of(obj)
    ended = min(seconds_of(state.kind.outcome(obj).finished_at, state.now), state.now)  # a worker's clock said so
    left = ended + state.policy.retention - state.now
    actions: list[Action] = []
    for copy in state.copies:
        if left > 0 and copy.attempt == attempt and state.kind.outcome(copy.object).finished:
            actions.append(Requeue(left))
        else:
            actions += _deletions(_within_reach([copy], state), "finished")
    return actions


def _end(obj: Json, state: ObservedState, cluster: str, *, reason: str = "", message: str = "") -> list[Action]:
    ended = state.kind.ended_status(obj, _now(state), reason=reason, message=message)
    return _mirrored(obj, state, ended, cluster)


# --- common -----------------------------------------------------------------------------------------------------------


def _mirrored(
    obj: Json, state: ObservedState, observed: Json, worker: str | None, copy: Copy | None = None
) -> list[Action]:
    result = state.kind.mirror(obj, observed)
    if result is None:
        return []
    if isinstance(result, Rejection):
        return [RejectStatus(worker or "", result)]
    uid = copy.uid if copy is not None and copy.uid != copy_uid_of(obj) else None
    return [PatchStatus(result, worker, uid)]


def _deletions(copies: Iterable[Copy], why: Literal["orphan", "finished", "stale"]) -> list[Action]:
    return [DeleteCopy(c.worker, c.namespace, c.name, c.uid, why) for c in copies if not c.terminating]


def _within_reach(copies: Iterable[Copy], state: ObservedState) -> list[Copy]:
    return [copy for copy in copies if _contact(copy, state).connected]


def _contact(copy: Copy, state: ObservedState) -> Contact:
    return state.contacts.get((copy.worker, copy.namespace), Contact(connected=False))


def _now(state: ObservedState) -> str:
    return format_time(utc_datetime(state.now))

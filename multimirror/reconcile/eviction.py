"""How an object that carries the mark `preempted` is taken back from its worker: pure, and from what is seen alone.

    copy runs               it is suspended; its fence is not renewed any more. One that was just resumed, and still
                            says that it is suspended, has to notice that first: else nobody could tell what it says of
                            the time before from what it says of this suspension, and its pods may be starting
    copy is stopping        its status is mirrored, and it is left alone. It has stopped when it shows that it was
                            suspended and that no pod is left: none active, none terminating. A worker too old to count
                            those that are terminating is given their own time to stop, and a little more. Its pods
                            are also asked for, where we may: its status is a second late (stopping.py)
    copy has stopped        the object loses its worker and the mark in one write. It waits again; the copy is stale
    copy ends, or is gone   its end is mirrored, as ever; without one the object loses its worker, too

Until then the object has its worker, and is counted there and in its queue: what it frees is free when its pods are
gone, and not before. The mark is stronger than its user's `suspend: false`.

Pods that stay longer than their own time to stop and a minute: the copy is deleted, and its going waited for. No pod is
ever forced. It is deleted only where its Job controller has noticed the suspension (one that is down would not remove
the pods either, and they would run on unseen), or where the worker refuses the suspension.

Which clock: the mark says since when, by our own; what the worker says of times only makes us wait longer. Nothing is
remembered, so a restart changes nothing. Since when a worker is back after an outage is remembered, and forgotten by a
restart: then one that refused to suspend a copy has less time to think better of it.
"""

from typing import Final

from multimirror.api.placement import Copy, admitted_queue_of, preempted_at_of, preempted_of, was_resumed
from multimirror.batch import Json
from multimirror.kinds.kind import Kind
from multimirror.kinds.preempted import Preemption
from multimirror.reconcile import stopping
from multimirror.reconcile.actions import (
    Action,
    DeleteCopy,
    NoteResumed,
    PatchStatus,
    Preempt,
    Requeue,
    SyncCopy,
    Tell,
    Unassign,
)
from multimirror.reconcile.state import ObservedState
from multimirror.workers.state import Contact

_UNCOUNTED_SECONDS: Final = 5.0
"""Longer than their own time to stop is waited for pods that nobody counts."""
_STUCK_SECONDS: Final = 60.0
"""So much longer than their own time to stop pods may take before their copy is deleted."""
_LOOK_SECONDS: Final = 10.0
"""After which it is looked at again whether a worker has taken a suspension."""


def drain(obj: Json, cluster: str) -> Preempt:
    """The queue of an object is drained: it is to be taken back."""
    queue = admitted_queue_of(obj)
    message = (
        f"queue {queue} is drained (spec.hold is Drain): stopped on worker {cluster}; it waits until the queue is "
        "released"
    )
    return Preempt(Preemption.DRAIN, message)


def taken_away(kind: Kind, cluster: str, gone: str = "no pod of it is left") -> list[Action]:
    """Nothing of it is left on its worker."""
    message = f"{gone} on worker {cluster}: the {kind.resource.kind} waits in its queue again"
    return [Unassign("Preempted", message, "Normal")]


def take_back(obj: Json, state: ObservedState, copy: Copy, contact: Contact, mirrored: list[Action]) -> list[Action]:
    """The next step, while a copy that has not ended can be seen. `mirrored`: what is to be done about its status."""
    kind = state.kind
    if kind.outcome(obj).ending or kind.outcome(copy.object).ending:
        return mirrored  # its end will be observed
    writes = any(isinstance(action, PatchStatus) for action in mirrored)  # one write to the original at a time
    since = _since(obj, state, copy, contact)
    stops = 0.0 if stopping.are_gone(state, copy) else _stops_in(obj, state, copy, since)
    late = _left(since, kind.stop_seconds(obj) + _STUCK_SECONDS, state.now)
    if stops == 0 and not writes:
        return mirrored + taken_away(kind, copy.worker)
    if stops == 0:
        # What the copy said last is written down before, unless the API server would not have it for so long.
        return taken_away(kind, copy.worker) if late == 0 else mirrored + _again(late)
    resumed = _user_resumed(obj, kind, copy, may_write=not writes)
    if copy.terminating:
        return [*resumed, _is_going(kind, copy), *mirrored]
    asks = stopping.asked(state, copy, since, kind.stop_seconds(obj)) if contact.connected else []
    return [*resumed, *_stop(obj, state, copy, late), *_again(stops), *asks, *mirrored]


def _stop(obj: Json, state: ObservedState, copy: Copy, late: float | None) -> list[Action]:
    """Whatever makes the copy stop."""
    kind, patch = state.kind, state.kind.suspension(suspend=True)
    told = kind.is_suspended(copy.object)
    refused = not told and state.rejected_patch == {"of": copy.uid, **patch}
    allowed = kind.stop_seconds(obj) + _STUCK_SECONDS
    if kind.is_resuming(copy.object) and not refused:
        return [_is_unnoticed(kind, copy, allowed)] if late == 0 else _again(late)
    if late == 0 and (refused or kind.suspended_at(copy.object) is not None):
        return [_is_stuck(kind, copy, allowed), DeleteCopy(copy.worker, copy.namespace, copy.name, copy.uid, "stuck")]
    if not told and not refused:
        # Whether it is refused is not observed: somebody has to look.
        return [SyncCopy(copy.worker, copy.namespace, copy.name, copy.uid, patch), *_again(late or _LOOK_SECONDS)]
    return [_is_unnoticed(kind, copy, allowed)] if late == 0 else _again(late)


def _again(seconds: float | None) -> list[Action]:
    return [Requeue(seconds)] if seconds else []


def _stops_in(obj: Json, state: ObservedState, copy: Copy, since: float | None) -> float | None:
    """0: no pod of the copy is left. Else in how many seconds that is so; None: it will be observed."""
    kind = state.kind
    if copy.terminating:
        return None if kind.may_run(copy.object) else 0.0
    if not kind.is_suspended(copy.object) or not kind.has_stopped(copy.object):
        return None
    if kind.counts_stopping(copy.object):
        return 0.0
    return _left(since, kind.stop_seconds(obj) + _UNCOUNTED_SECONDS, state.now)


def _left(since: float | None, seconds: float, now: float) -> float | None:
    """Of so many seconds; None: nobody knows since when they count."""
    return None if since is None else max(0.0, since + seconds - now)


def _since(obj: Json, state: ObservedState, copy: Copy, contact: Contact) -> float | None:
    """Since when its pods have been stopping, by our clock. Not before the mark, nor while its worker was away."""
    noticed = state.kind.suspended_at(copy.object)
    known = [
        preempted_at_of(obj),
        noticed - contact.clock_ahead if noticed else None,
        *(until for _, until in contact.outages[-1:]),
    ]
    since = max((each for each in known if each is not None), default=None)
    return None if since is None else min(since, state.now)


# --- in words ---------------------------------------------------------------------------------------------------------


def _user_resumed(obj: Json, kind: Kind, copy: Copy, *, may_write: bool) -> list[Action]:
    if kind.is_suspended(obj) or was_resumed(obj):
        return []
    message = (
        f"it was resumed while it is being stopped on worker {copy.worker} ({preempted_of(obj)}): it is moved all the "
        f"same. When its pods are gone it waits in its queue, and is not held"
    )
    told: list[Action] = [Tell("Preempted", message, "Normal")]
    return [*told, NoteResumed()] if may_write else told


def _is_going(kind: Kind, copy: Copy) -> Tell:
    message = (
        f"the {kind.resource.kind} was deleted on worker {copy.worker} while it was being stopped there; when it is "
        "gone, it waits in its queue again"
    )
    return Tell("CopyTerminating", message)


def _is_stuck(kind: Kind, copy: Copy, allowed: float) -> Tell:
    message = (
        f"pods of it did not stop on worker {copy.worker} within {allowed:g} s; the {kind.resource.kind} is deleted "
        "there, and its pods are left to end by themselves"
    )
    return Tell("NotStopped", message)


def _is_unnoticed(kind: Kind, copy: Copy, allowed: float) -> Tell:
    name = kind.resource.kind
    message = (
        f"worker {copy.worker} has not noticed within {allowed:g} s that the {name} is to stop there: does its {name} "
        "controller run? Until it does, nothing is moved"
    )
    return Tell("NotStopped", message)

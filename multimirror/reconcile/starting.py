"""Whether a copy starts, and what becomes of its object if it does not: pure (docs/decisions/0206).

A queue may say within which time all pods of a Job have to be ready, or to have succeeded (`start`). Its Jobs carry
the annotation `starting` from their assignment until that was so once; a pod that is lost later is the Job's own
matter. The clock runs from the copy's creation, or from its being resumed, on the worker's own clock, and not while it
is suspended.

    in time         the annotation goes, written along with the status that shows it
    too late        the worker is asked what the pods say, if it tells (once, for a few seconds); then the object is
                    marked as one that is taken back (eviction.py). With the mark is written where and when it did not
                    start, so that it goes elsewhere for a while (api/not_started.py); after so many attempts it is held

What a worker says of times and pods can only keep the object there, or send it away: both it could have without lying.
It is never sent away before the object has existed for that long.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from multimirror.api import HOLD_ANNOTATION, NOT_STARTED_ANNOTATION, STARTING_ANNOTATION, Start
from multimirror.api.not_started import is_starting, not_started_of
from multimirror.api.placement import Copy, attempt_of
from multimirror.batch import Json
from multimirror.batch.times import seconds_of, utc_datetime
from multimirror.kinds.kind import Kind
from multimirror.kinds.preempted import Preemption
from multimirror.kinds.reserved import reserved_for, reserved_of
from multimirror.reconcile.actions import Action, Annotate, Annotations, AskPods, Preempt, Requeue
from multimirror.reconcile.state import ObservedState
from multimirror.workers.state import Contact

_ASKING_SECONDS: Final = 10.0
"""For so long a worker may take to say what its pods say."""
_SHAPE_DIGITS: Final = 8
_LONGEST_WORDS: Final = 300
_LONGEST_WORD: Final = 64
_LONGEST_MESSAGE: Final = 120
_MOST_REASONS: Final = 3


def awaited(obj: Json, state: ObservedState, copy: Copy, contact: Contact) -> list[Action]:
    """What is to be done about an object whose pods are waited for. A mark stands alone: it is a write of its own."""
    start, kind = state.policy.start, state.kind
    if not is_starting(obj) or kind.is_suspended(obj) or kind.outcome(copy.object).ending:
        return []
    up, pods = kind.pods_up(copy.object)
    if up >= pods:
        return [Annotate(_has_started(obj))]
    since = kind.awaited_since(copy.object)
    if start is None or since is None:
        return []
    created = seconds_of(obj["metadata"].get("creationTimestamp"), 0.0)
    late = min(state.now + contact.clock_ahead - since, state.now - created) - start.within
    if late < 0:
        return [Requeue(-late + 0.1)]
    if state.pods_said is None and late < _ASKING_SECONDS:
        return [AskPods(copy.worker, copy.namespace, copy.uid, copy.attempt), Requeue(_ASKING_SECONDS - late)]
    return [_mark(obj, state, copy, start, pods - up)]


def _has_started(obj: Json) -> Annotations:
    before = not_started_of(obj)
    if not before.total:
        return {STARTING_ANNOTATION: None}
    return {STARTING_ANNOTATION: None, NOT_STARTED_ANNOTATION: str(before.started())}


def _mark(obj: Json, state: ObservedState, copy: Copy, start: Start, missing: int) -> Preempt:
    kind, worker = state.kind, copy.worker
    failed = not_started_of(obj).failed(worker, at=state.now, shape=shape_of(kind, obj))
    _, pods = kind.pods_up(copy.object)
    said = f" ({state.pods_said})" if state.pods_said else ""
    message = f"on worker {worker} {missing} of {pods} pods were not ready within {start.within:g} s{said}; "
    annotations: dict[str, str | None] = {STARTING_ANNOTATION: None, NOT_STARTED_ANNOTATION: str(failed)}
    if failed.total >= start.attempts:
        annotations |= {HOLD_ANNOTATION: "true", NOT_STARTED_ANNOTATION: str(failed.given_up(attempt_of(obj)))}
        message += (
            f"that was attempt {failed.total} of {start.attempts}, and it is held. Set spec.suspend to false, or "
            f"remove the annotation {HOLD_ANNOTATION}, to have it tried again"
        )
    else:
        message += (
            f"attempt {failed.total} of {start.attempts}. It is tried elsewhere, and there not before "
            f"{_clock_time(failed.workers[worker].avoided_until)}"
        )
    return Preempt(Preemption.NOT_STARTED, message, annotations)


def avoided(obj: Json, now: float) -> Mapping[str, str]:
    """Workers where it did not start not long ago, and that in words."""
    found = not_started_of(obj)
    return {
        worker: f"the Job did not start there; it is tried there again from {_clock_time(until)} on"
        for worker, until in found.avoided(now).items()
    }


def next_avoided_end(obj: Json, now: float) -> float | None:
    """In how many seconds one of them may be tried again."""
    return min((until - now for until in not_started_of(obj).avoided(now).values()), default=None)


def shape_of(kind: Kind, obj: Json) -> str:
    """The same for all that ask for the same: so many pods, each for so much."""
    reserved = reserved_of(obj) or reserved_for(kind, obj)
    asked = [[each.name, reserved.granted[each.name], sorted(each.requests.items())] for each in reserved.pod_sets]
    return hashlib.sha256(orjson.dumps(asked)).hexdigest()[:_SHAPE_DIGITS]


def _clock_time(when: float) -> str:
    return f"{utc_datetime(when):%H:%M:%S} UTC"


# --- what pods say: whatever a worker sent ----------------------------------------------------------------------------


def words_of(pods: Iterable[object]) -> str:
    """Why they are not ready: the most frequent reasons, with what one of them says about each. Empty: they do not say.

    For people to read: short, on one line, and of nothing that a terminal would obey.
    """
    reasons: Counter[str] = Counter()
    messages: dict[str, str] = {}
    for pod in pods:
        reason, message = _reason_of(_part(pod, "status"))
        if reason:
            reasons[reason] += 1
            messages.setdefault(reason, message)
    told = []
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]:
        number = f"{count} pods " if count > 1 else ""
        told.append(f"{number}{reason}: {messages[reason]}" if messages[reason] else f"{number}{reason}")
    return _clean("; ".join(told), _LONGEST_WORDS)


def _reason_of(status: Mapping[str, Any]) -> tuple[str, str]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in _list(status.get(key)):
            waiting = _part(_part(container, "state"), "waiting")
            reason = _text(waiting.get("reason"), _LONGEST_WORD)
            if reason and reason not in {"ContainerCreating", "PodInitializing"}:
                return reason, _text(waiting.get("message"), _LONGEST_MESSAGE)
    for condition in _list(status.get("conditions")):
        if _part_of(condition).get("type") == "PodScheduled" and _part_of(condition).get("status") == "False":
            found = _part_of(condition)
            return _text(found.get("reason"), _LONGEST_WORD), _text(found.get("message"), _LONGEST_MESSAGE)
    return "", ""


def _part(value: object, key: str) -> Mapping[str, Any]:
    return _part_of(_part_of(value).get(key))


def _part_of(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value[:64] if isinstance(value, list) else []


def _text(value: object, longest: int) -> str:
    return _clean(value, longest) if isinstance(value, str) else ""


def _clean(text: str, longest: int) -> str:
    cut = text if len(text) <= longest else text[:longest] + "..."
    return cut if cut.isprintable() else "".join(each if each.isprintable() else " " for each in cut)

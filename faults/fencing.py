"""I1 with a fence: a Job never runs in two places, whatever the network does. What runs is its pods.

The fence is the worker's own Job controller, so it does not hold where that one could not work for longer than the
queue's grace. It counts from the loss of contact, so it does not hold where another cluster answers in the place of the
worker: a copy that is not there has vanished. Nor does it speak of the pods of a copy that somebody deleted, which are
stopped by the cluster.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from faults import contact
from faults.record import MANAGEMENT, Record, Seen
from faults.rules import Rules, Violation
from faults.strays import known
from multimirror.api import QUEUE_LABEL


@dataclass(slots=True)
class _Copy:
    cluster: str
    original: str
    attempt: str
    name: str
    deleted: bool = False


def never_in_two_places(record: Record, rules: Rules) -> Iterator[Violation]:
    """No pod of a copy starts while one of another copy of the same Job runs, or stops."""
    if not rules.fence:
        return
    fenced = fences(record, rules)
    copies: dict[str, _Copy] = {}
    pods: dict[str, dict[str, tuple[_Copy, float]]] = {}
    for seen in known(record, rules):
        if seen.kind == "Job" and seen.cluster != MANAGEMENT and (original := rules.labels.original_of(seen.object)):
            attempt = rules.labels.attempt_of(seen.object)
            copy = copies.setdefault(seen.uid, _Copy(seen.cluster, original, attempt, seen.name))
            copy.deleted = seen.type == "DELETED" or "deletionTimestamp" in seen.object["metadata"]
        elif seen.kind == "Pod" and (owner := _owner(seen, copies)) is not None and fenced(owner.original):
            alive = pods.setdefault(owner.original, {})
            if seen.type == "DELETED" or seen.status.get("phase") in ("Succeeded", "Failed"):
                alive.pop(seen.uid, None)
            elif seen.uid not in alive and not (owner.deleted and controller_is_behind(record, rules, seen)):
                for other, since in alive.values():
                    if other is not owner and not other.deleted:
                        if not does_not_hold(record, rules, other.cluster, seen.time):
                            yield _violation(other, since, owner, seen.time)
                alive[seen.uid] = owner, seen.time


def fences(record: Record, rules: Rules) -> Callable[[str], bool]:
    """Whether an original has a fence, by its uid: all have, or those of queues that have one."""
    if not rules.fence or rules.fenced is None:
        return lambda _: bool(rules.fence)
    queues = rules.fenced
    return {
        seen.uid for seen in record.changes("Job", MANAGEMENT) if seen.labels.get(QUEUE_LABEL) in queues
    }.__contains__


def controller_is_behind(record: Record, rules: Rules, pod: Seen) -> bool:
    """A worker's own Job controller that was cut off may not know yet that a copy is gone. Nobody can tell it sooner,
    and its pods go with the copy."""
    return contact.spell_at(contact.no_contact(record, rules.job_controller, pod.cluster), pod.time) is not None


def does_not_hold(record: Record, rules: Rules, cluster: str, moment: float) -> bool:
    """Two workers had changed places; or the Job controller there could not work for longer than the grace."""
    if contact.spell_at(contact.swapped(record), moment) is not None:
        return True
    spell = contact.spell_at(contact.no_contact(record, rules.job_controller, cluster), moment)
    return spell is not None and spell[1] - spell[0] > rules.grace


def _owner(pod: Seen, copies: dict[str, _Copy]) -> _Copy | None:
    references = pod.object["metadata"].get("ownerReferences") or ()
    return next((copies[each["uid"]] for each in references if each["uid"] in copies), None)


def _violation(old: _Copy, since: float, new: _Copy, now: float) -> Violation:
    evidence = tuple(
        f"{time:8.3f}  a pod of attempt {copy.attempt} on {copy.cluster}" for copy, time in ((old, since), (new, now))
    )
    return Violation("I1", f"{old.name} has a fence, and runs in two places", evidence)

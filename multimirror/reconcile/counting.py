"""What is reserved for an object, beside what it asks for now and what its copy has: pure.

    another template            its copy is stopped; when no pod of it is left, it is given up: another attempt, counted
                                anew. While its user has suspended it, nothing runs, and nothing is done
    asks for more pods          the scheduler looks for room, for as long as it takes; the copy keeps what is reserved
    asks for fewer              the copy follows first; when its pods are gone, that much less is reserved
    the same, written otherwise its new digest is written down (an API server that knows a new default)
    nothing written down        what the copy has is (an object that was assigned by an older version)

So what is counted is never less than what a copy has.
"""

from dataclasses import replace

from multimirror.api.placement import Copy
from multimirror.batch import Json
from multimirror.kinds.kind import Kind
from multimirror.kinds.reserved import Reserved, reserved_for, reserved_of
from multimirror.reconcile.actions import Action, Grow, Reserve, SyncCopy, Unassign


def template_changed(kind: Kind, obj: Json) -> bool:
    """It is to run, and from another template than was counted."""
    reserved = reserved_of(obj)
    return (
        reserved is not None
        and reserved.template != kind.template_of(obj)
        and not _is_untouched(reserved, obj)
        and not kind.is_suspended(obj)
    )


def _is_untouched(reserved: Reserved, obj: Json) -> bool:
    """Nobody has changed its spec since it was assigned: its template is the same, whatever its digest is."""
    return bool(reserved.generation and reserved.generation == obj["metadata"].get("generation"))


def another_template(kind: Kind, obj: Json, copy: Copy | None) -> list[Action]:
    """Its copy cannot follow: a new one is made, once the old one has no pods any more."""
    if copy is not None and not kind.is_suspended(copy.object):
        patch = kind.suspension(suspend=True)
        return [SyncCopy(copy.worker, copy.namespace, copy.name, copy.uid, patch)]
    if copy is not None and not kind.has_stopped(copy.object):
        return []  # that it has will be observed
    message = (
        f"the pod template of this {kind.resource.kind} was changed after it had been given to a worker; it is "
        "counted anew, and started again"
    )
    return [Unassign("TemplateChanged", message)]


def reservation(kind: Kind, obj: Json, copy: Copy, *, may_write: bool) -> list[Action]:
    """What has to become of the reservation of an object whose copy is there and has not ended."""
    reserved, held = reserved_of(obj), kind.pods_held(copy.object)
    if reserved is None:
        return [Reserve(reserved_for(kind, obj).resized(held))] if may_write else []
    template = kind.template_of(obj)
    if reserved.template != template and _is_untouched(reserved, obj):
        return [Reserve(replace(reserved, template=template))] if may_write else []
    asked, counted = kind.pod_counts(obj), reserved.counts
    more = {name: count for name, count in asked.items() if count > counted.get(name, 0)}
    if more:
        return [] if kind.is_suspended(obj) else [Grow(reserved.resized(more))]
    fewer = {name: count for name, count in asked.items() if count < counted[name]}
    if may_write and fewer and all(held.get(name, 0) <= count for name, count in fewer.items()):
        return [Reserve(reserved.resized(fewer))]
    return []

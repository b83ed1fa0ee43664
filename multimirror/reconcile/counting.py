"""What is reserved for an object, beside what it asks for now and what its copy has: pure.

    another template            its copy is stopped; when no pod of it is left, it is given up: another attempt, counted
                                anew. While its user has suspended it, nothing runs, and nothing is done
    asks for more pods          the scheduler looks for room, for as long as it takes; the copy keeps what is reserved
    asks for fewer              the copy follows first; when its pods are gone, that much less is reserved
    needs fewer                 completions that it has need no pods any more: when these are gone, they are given back
    the same, written otherwise its new digest is written down (an API server that knows a new default)
    nothing written down        what the copy has is (an object that was assigned by an older version)

So what is counted is never less than what a copy has. A worker that says otherwise has its own room used by more than
is counted; and since nothing that was given back is counted again, it brings about no writes by taking its word back.

Giving back (docs/decisions/0205) is written along with the status that tells of it, and not for every pod: an eighth
of what is counted is worth it. So a Job of 10,000 pods gives back in 57 steps at most, one of 100 in 23, one of 8 in 7,
and less than an eighth of what it has is counted in vain. The last pod is given back with the end.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from multimirror.api.placement import Copy
from multimirror.batch import Json
from multimirror.kinds.kind import Kind
from multimirror.kinds.reserved import Reserved, reserved_for, reserved_of
from multimirror.reconcile.actions import Action, Grow, Reserve, SyncCopy, Unassign

_WORTH_IT: Final = 8
"""Of what is counted, one part in so many is given back at a time."""


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
    if copy is not None and kind.is_resuming(copy.object):
        return []  # what it says is of the time before; that it has noticed will be observed
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


def reservation(kind: Kind, obj: Json, copy: Copy) -> list[Action]:
    """What has to become of the reservation of an object whose copy is there and has not ended."""
    reserved, asked, held = reserved_of(obj), kind.pod_counts(obj), kind.pods_held(copy.object)
    if reserved is None or reserved.counts.keys() != asked.keys():
        there = {name: max(count, held[name]) for name, count in kind.pod_counts(copy.object).items()}
        return [Reserve(reserved_for(kind, obj).resized(there))]
    template = kind.template_of(obj)
    if reserved.template != template and _is_untouched(reserved, obj):
        return [Reserve(replace(reserved, template=template))]
    needed, granted = kind.pods_needed(obj, copy.object), reserved.granted
    more = [name for name, count in asked.items() if count > granted[name] and needed[name] > reserved.counts[name]]
    if more:
        grown = reserved.resized({name: asked[name] for name in more}).giving_back(needed)
        return [] if kind.is_suspended(obj) else [Grow(grown)]
    after = _smaller(reserved, asked, needed, held)
    return [Reserve(after)] if after != reserved else []


def _smaller(
    reserved: Reserved, asked: Mapping[str, int], needed: Mapping[str, int], held: Mapping[str, int]
) -> Reserved:
    """What is left of it: its user asks for fewer pods, or some have nothing left to do."""
    fewer = {name: count for name, count in asked.items() if held[name] <= count < reserved.granted[name]}
    counts: dict[str, int] = {}
    for name, counted in reserved.counts.items():
        least = max(needed[name], held[name], min(asked[name], 1))
        if name in fewer or (counted - least) * _WORTH_IT >= counted:
            counts[name] = min(counted, least)
    return reserved.resized(fewer).giving_back(counts)

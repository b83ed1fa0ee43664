"""An object that runs is to run for longer than it said when it was placed. Pure.

Others are let pass a claim because they surely end before it is served, and when that is follows from the deadlines of
what runs. So a later deadline, or none, is granted only where nothing is kept that the object uses; until then its copy
keeps the one that it has, and its user is told (docs/decisions/0226).
"""

from dataclasses import replace
from typing import Final

from multimirror.batch import Json
from multimirror.kinds.kind import Kind
from multimirror.kinds.reserved import reserved_of
from multimirror.reconcile.actions import Action, Requeue, Reserve, Tell
from multimirror.reconcile.state import ObservedState

_AGAIN_SECONDS: Final = 30.0


def wants_later(kind: Kind, obj: Json) -> bool:
    """Its user wants it to end later than was granted."""
    reserved, wanted = reserved_of(obj), kind.deadline_of(obj)
    if reserved is None or reserved.deadline is None:
        return False
    return wanted is None or wanted > reserved.deadline


def later_deadline(obj: Json, state: ObservedState) -> list[Action]:
    """What becomes of that."""
    reserved, wanted = reserved_of(obj), state.kind.deadline_of(obj)
    if reserved is None or not wants_later(state.kind, obj):
        return []
    if state.kept_for is None:
        return [Reserve(replace(reserved, deadline=wanted))]
    asked = f"a deadline of {wanted} s" if wanted is not None else "no deadline any more"
    message = (
        f"it asks for {asked}, and keeps the {reserved.deadline} s that it was placed with: what it uses is kept for "
        f"{state.kept_for}, which has waited long. It is granted when that one has been placed"
    )
    return [Tell("DeadlineKept", message), Requeue(_AGAIN_SECONDS)]

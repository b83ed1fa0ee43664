"""What the users of our objects are told, as events: once, and not again after a restart.

A dispatcher that begins (after a restart, or because it leads now) reads what was told off the events themselves, and
then says nothing a second time: with thousands of objects in a queue that would be thousands of writes. It is a help:
events that are gone are told again.
"""

from typing import Final, Literal

import structlog

from multimirror.api import WAITS_FOR_ANNOTATION
from multimirror.batch import Json
from multimirror.kinds import Kind, Kinds, Ref, ref_of
from multimirror.kube import Client, EventRecorder, KubeError
from multimirror.kube.resources import EVENTS
from multimirror.scheduling.decisions import PlacementDecision

_log = structlog.get_logger(__name__)
_PAGE: Final = 1000
_TIMEOUT_SECONDS: Final = 5.0
_WARNINGS: Final = frozenset({"NeverFits", "Invalid", "QueueMissing", "Cycle", "GrowthNeverFits"})
"""Reasons for waiting that somebody has to do something about."""
_PASSING: Final = frozenset({"OthersFirst", "NobodyToStop"})
"""Reasons that come and go with each pass: they are told to who was told nothing yet."""
EventType = Literal["Normal", "Warning"]


class Announcements:
    """Events on our objects, and what each user heard last."""

    def __init__(self, events: EventRecorder, kinds: Kinds) -> None:
        self._events, self._kinds = events, kinds
        self._told: dict[Ref, str] = {}

    def room(self, namespace: str) -> int:
        """How many more events about objects of a namespace can be taken right now."""
        return self._events.room(namespace)

    def forget(self, ref: Ref) -> None:
        self._told.pop(ref, None)

    def tell(self, kind: Kind, obj: Json, reason: str, message: str, type: EventType = "Warning") -> None:  # noqa: A002
        self._events.event(_about(kind, obj), reason, message, type=type)

    def tell_once(self, kind: Kind, obj: Json, reason: str, message: str, type: EventType = "Warning") -> None:  # noqa: A002
        """Unless it was the last thing that was told."""
        ref = ref_of(kind, obj)
        if self._told.get(ref) != message:
            self._told[ref] = message
            self.tell(kind, obj, reason, message, type)

    def knows_why_it_waits(self, ref: Ref, reason: str) -> bool:
        told = self._told.get(ref)
        return told == reason or (told is not None and reason in _PASSING)

    def tell_why_it_waits(self, kind: Kind, obj: Json, decision: PlacementDecision) -> None:
        """When the reason is a new one, for numbers change all the time."""
        self._told[ref_of(kind, obj)] = decision.reason
        type_: EventType = "Warning" if decision.reason in _WARNINGS else "Normal"
        waits_for = {WAITS_FOR_ANNOTATION: decision.reason}
        self._events.event(_about(kind, obj), "Waiting", str(decision), type=type_, annotations=waits_for)

    async def recall(self, client: Client, component: str) -> None:
        """Note the newest reason that each object's user was told by `component`."""
        chosen = f"reason=Waiting,reportingComponent={component}"
        try:
            found = await client.list(EVENTS, field_selector=chosen, limit=_PAGE, timeout=_TIMEOUT_SECONDS)
        except KubeError as error:
            _log.warning("what was told before could not be read, and is told again", error=str(error))
            return
        names = {(kind.resource.api_version, kind.resource.kind): kind.resource.name for kind in self._kinds}
        for event in sorted(found.items, key=lambda each: each.get("lastTimestamp") or ""):
            about = event["involvedObject"]
            kind = names.get((about.get("apiVersion", ""), about.get("kind", "")))
            reason = (event["metadata"].get("annotations") or {}).get(WAITS_FOR_ANNOTATION)
            if kind is not None and reason is not None:
                self._told[Ref(kind, about.get("uid", ""))] = reason


def _about(kind: Kind, obj: Json) -> Json:
    return {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, **obj}

"""What can be asked about what waits, answered from the caches as plain JSON: one Job, or a whole queue.

    explain     where a Job is, why it is not further, which position it has, and when it may start
    queue       who waits in a queue, in order, with the same
    what_if     what would be decided about a Job if it were another

Only who leads decides, and has started Jobs itself: others tell what it has reported (see explain.py), and no order.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from multimirror.batch import Json
from multimirror.observe.explain import explanation
from multimirror.observe.line import Place, estimate, place_of, places
from multimirror.observe.snapshot import FleetState, job_view
from multimirror.observe.what_if import Changes, NotPlanned, WhatIf

_MOST_LISTED: Final = 1000
DEFAULT_LISTED: Final = 20


class Questions:
    def __init__(self, state: FleetState, leads: Callable[[], bool], what_if: WhatIf | None = None) -> None:
        self._state, self._leads, self._what_if = state, leads, what_if

    async def explain(self, key: str) -> Json | None:
        """About the Job `namespace/name`. None where we know no such Job."""
        leads = self._leads()
        view = job_view(self._state, key, deciding=leads)
        if view is None:
            return None
        answer = explanation(view, leads=leads)
        if leads and view.state == "Waiting":
            place = await place_of(self._state, view.queue, view.uid)
            reason = view.decision.reason if view.decision is not None else ""
            if place is not None:
                answer |= {"pending": self._state.pending(view.queue), **self._place(view.queue, place, reason)}
        return answer

    async def queue(self, name: str, listed: int = DEFAULT_LISTED) -> Json | None:
        """The first so many of a queue that wait. None where there is no such queue."""
        if self._state.queue_spec(name) is None and not self._state.pending(name):
            return None
        leads, order = self._leads(), []
        if leads and listed > 0:
            async with aclosing(places(self._state, name)) as found:
                async for place in found:
                    order.append(self._listed(name, place))
                    if len(order) >= min(listed, _MOST_LISTED):
                        break
        answer: Json = {"queue": name, "leads": leads, "pending": self._state.pending(name)}
        return answer | ({"order": order} if leads else {})

    async def what_if(self, key: str, changes: Changes) -> Json | None:
        """About the Job `namespace/name`. None where we know no such Job. Raises NotPlanned."""
        original = self._state.original(key)
        if original is None:
            return None
        if not self._leads() or self._what_if is None:
            raise NotPlanned("who was asked does not lead, and plans nothing")
        return {"job": key, **await self._what_if.plan(original.uid, changes)}

    def _listed(self, queue: str, place: Place) -> Json:
        job, decision = place.job, self._state.decision(place.job.uid, workers=False)
        reason, why = (decision.reason, decision.why) if decision is not None else ("", "")
        told: Json = {"job": job.key, "priority": job.priority, "since": job.since}
        return {**told, "reason": reason, "why": why, **self._place(queue, place, reason)}

    def _place(self, queue: str, place: Place, reason: str) -> Json:
        starts = self._state.recent_starts(queue)
        found: Json = {"position": place.position, "startsPerHour": starts.jobs if starts is not None else 0}
        seconds = estimate(self._state, queue, place, reason)
        return found | ({"estimateSeconds": seconds} if seconds is not None else {})

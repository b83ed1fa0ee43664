"""Whether one that waits can go somewhere now, as quota and workers are at this moment; or why not."""

from collections.abc import Mapping
from typing import Final

from multimirror.api import Hold
from multimirror.scheduling.candidates import Candidate, Growth
from multimirror.scheduling.claiming import Claiming
from multimirror.scheduling.decisions import Comparison, PlacementDecision, Rest, cut
from multimirror.scheduling.filters import NO_ROOM, AboveQuota, is_too_large, lacked_by_all, no_room
from multimirror.scheduling.growth import GrowthWaits, objection
from multimirror.scheduling.pass_view import PassQueue, PassView
from multimirror.scheduling.refusals import Objection, QueueHeld
from multimirror.scheduling.shared_quota import SharedQuota
from multimirror.scheduling.waiting import Waiter, WaitingSnapshot

_MOST_RESOURCES: Final = 64
"""Different ones that an object may ask for: usage is counted for each, over all objects."""


class Placing:
    """Changes nothing: whoever carries a decision out says so to `view` and `shared`."""

    def __init__(
        self,
        waiting: WaitingSnapshot,
        view: PassView,
        shared: SharedQuota,
        claiming: Claiming,
        held_since: Mapping[str, float],
    ) -> None:
        self._waiting, self._view, self._shared, self._claiming = waiting, view, shared, claiming
        self._held_since = held_since

    def place(self, waiter: Waiter, name: str, queue: PassQueue) -> PlacementDecision:
        candidate = waiter.candidate
        if candidate.problem:
            return PlacementDecision(None, reason="Invalid", why=candidate.problem)
        if queue.spec.hold is not Hold.NONE:
            return self._held(candidate, name, queue.spec.hold)
        if candidate.growth is not None:
            return self._grow(waiter, candidate.growth, name, queue)
        if len(candidate.requests) > _MOST_RESOURCES:
            why = (
                f"it asks for {len(candidate.requests)} different resources, more than the {_MOST_RESOURCES} that count"
            )
            return PlacementDecision(None, reason="NeverFits", why=why)
        if candidate.clusters is not None and queue.names and candidate.clusters.isdisjoint(queue.names):
            why = f"none of its multimirror.dev/clusters ({_some(candidate.clusters)}) is a worker of queue {name}"
            return PlacementDecision(None, reason="NeverFits", why=why)
        exceeded = queue.limits.exceeded(candidate.requests, self._claiming.used(name))
        if isinstance(exceeded, AboveQuota):
            return PlacementDecision(None, reason="NeverFits", why=exceeded)
        if exceeded is not None:
            holds_up = queue.strict and self._view.waits_in_line(waiter, queue)
            return PlacementDecision(None, reason="QuotaExceeded", why=exceeded, holds_up=holds_up)
        found = self._shared.objection(candidate) if queue.shares else None
        if found is not None:
            return self._without_quota(waiter, queue, found)
        if not queue.names:
            return PlacementDecision(None, reason="NoWorkers", why=f"queue {name} has no worker clusters")
        workers = self._view.workers
        compared = Comparison(waiter, queue.names, workers, fenced=queue.spec.fence is not None)
        chosen = self._view.best(waiter, queue)
        if chosen is not None:
            return PlacementDecision(chosen.name, compared=compared)
        places = self._view.infos(queue)
        if len(places) == len(queue.names) and all(is_too_large(waiter, info) for info in places):
            resource = lacked_by_all(waiter.asked, places)
            lack = f"has {resource}" if resource is not None else "is large enough"
            why = f"no worker cluster of its queue {lack}"
            return PlacementDecision(None, reason="NeverFits", why=why, compared=compared)
        why = no_room(waiter, places) if self._view.knows_nodes else NO_ROOM
        view = self._view
        holds_up = queue.strict and view.waits_in_line(waiter, queue) and not view.stands_aside(waiter, queue)
        return PlacementDecision(
            None, reason="NoWorkerFits", why=why, compared=compared, holds_up=holds_up, for_room=True
        )

    def _held(self, candidate: Candidate, name: str, hold: Hold) -> PlacementDecision:
        why = QueueHeld(name, hold, self._waiting.queues[name].count, self._held_since.get(name))
        if candidate.growth is not None:
            return PlacementDecision(None, reason="GrowthWaits", why=GrowthWaits(candidate.growth, why))
        if hold is Hold.HOLD:
            return PlacementDecision(None, reason="Held", why=why)
        return PlacementDecision(None, reason="Draining", why=why)

    def _without_quota(self, waiter: Waiter, queue: PassQueue, found: Objection) -> PlacementDecision:
        candidate = waiter.candidate
        if self._shared.never_fits(candidate, found):
            return PlacementDecision(None, reason=found.reason, why=found.why)
        holds_up = queue.strict and self._view.waits_in_line(waiter, queue)
        return PlacementDecision(None, reason=found.reason, why=found.why, holds_up=holds_up, for_room=True)

    def _grow(self, waiter: Waiter, growth: Growth, name: str, queue: PassQueue) -> PlacementDecision:
        found = self._objection_to_growth(waiter.candidate, growth, name, queue)
        if found is None:
            return PlacementDecision(growth.worker)
        return PlacementDecision(None, reason=found.reason, why=found.why, rest=Rest.WITH_ALL)

    def _objection_to_growth(
        self, candidate: Candidate, growth: Growth, name: str, queue: PassQueue
    ) -> Objection | None:
        worker = self._view.workers.get(growth.worker)
        found = objection(candidate, growth, queue.limits, self._claiming.used(name), worker)
        if found is None and queue.shares:
            found = self._shared.objection_to_growth(candidate, growth)
        return found


def _some(names: frozenset[str]) -> str:
    """No more of them than fit into a sentence."""
    shown, more = cut(sorted(names))
    return " ".join((", ".join(shown), *more))

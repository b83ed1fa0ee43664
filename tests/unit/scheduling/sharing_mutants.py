"""Dispatchers that are broken on purpose, at least one for each property of sharing: the checks have to find them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Final
from unittest import mock

from multimirror.api import CohortSpec, MirrorQueueSpec
from multimirror.reconcile import decide, eviction
from multimirror.scheduling import (
    keeping,
    placing,
    preempting,
    preemption,
    refusals,
    running_cache,
    scheduler,
    shared_quota,
    slot_words,
    waiting,
)
from multimirror.scheduling import plan as planning
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.free_room import FreeRoom
from multimirror.scheduling.givers import Borrowers, Givers
from multimirror.scheduling.preempting import Preempting
from multimirror.scheduling.preemption import _Search
from multimirror.scheduling.preemption_words import Nobody
from multimirror.scheduling.quota import Node, QuotaTree, QuotaUsage, Short
from multimirror.scheduling.refusals import Border
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.running_cache import RunningCache
from multimirror.scheduling.scheduler import Scheduler
from multimirror.scheduling.shared_quota import SharedQuota
from multimirror.scheduling.shares import Share
from multimirror.scheduling.sharing import PassQuota, QueueRoom
from multimirror.scheduling.trial import Trial
from multimirror.scheduling.usage import Usage
from multimirror.scheduling.victims import Plan, Preemptor
from multimirror.scheduling.waiting import Position

Mutant = Callable[[], AbstractContextManager[Any]]


def _patched(*patches: tuple[object, str, object]) -> Mutant:
    @contextmanager
    def patched() -> Iterator[None]:
        with ExitStack() as stack:
            for where, name, value in patches:
                stack.enter_context(mock.patch.object(where, name, value))
            yield

    return patched


_border, _has, _places = refusals.border, Nobody._has, slot_words._places
_available, _short, _asks = QuotaUsage._available, QueueRoom.short, SharedQuota.asks
_plans, _share, _quota_tree, _position_of = (
    preemption._plans,
    Share.__init__,
    shared_quota.quota_tree,
    waiting.position_of,
)


def _two_more(self: QuotaUsage, node: Node, resource: str) -> int:
    return _available(self, node, resource) + 2 * 10**9


def _everything_is_lent(
    queues: Mapping[str, MirrorQueueSpec], cohorts: Mapping[str, CohortSpec] | None = None
) -> QuotaTree:
    lent = {name: replace(spec, quota=replace(spec.quota, lend={})) for name, spec in queues.items()}
    return _quota_tree(lent, cohorts or {})


def _whoever_is_there(self: Givers, child: Node) -> RunningJob | None:
    """Of a side of a fork, whether it borrows or not."""
    if not child.is_queue:
        return self.next(child)
    job = self._peek(child)
    del self._next[child.index]
    return job


def _who_leaves_is_gone(self: Preempting, worker: str) -> Usage:
    """What victims have on their worker is free when they are told, not when their pods are gone."""
    kept = Usage()
    for job in self._leaving.values():
        if job.worker == worker:
            kept = kept.plus(job.requests, -1)
    return kept


def _a_little_more_important(self: SharedQuota, candidate: Candidate) -> Preemptor:
    asks = _asks(self, candidate)
    return replace(asks, priority=asks.priority + 1)


def _without_reclaim(preempts: Any) -> Iterator[Plan]:
    return (plan for plan in _plans(preempts) if plan not in (Plan.RECLAIM, Plan.BOTH))


def _the_youngest_first(candidate: Candidate) -> Position:
    rank, (created, *rest) = _position_of(candidate)
    return rank, ("".join(chr(200 - ord(letter)) for letter in created), *rest)  # type: ignore[return-value]


def _priorities_do_not_count(candidate: Candidate) -> Position:
    return 0, _position_of(candidate)[1]


def _more_at_the_border(usage: QuotaUsage, queue: Node, short: Short) -> Border:
    found = _border(usage, queue, short)
    return found._replace(left=found.left + 10**9)


def _unweighted(self: Share, *amounts: Any, **more: Any) -> None:
    _share(self, *amounts[:2], **more)


def _one_more(self: QueueRoom, requests: Any, charged: QuotaUsage) -> Short | None:
    short = _short(self, requests, charged)
    return replace(short, available=short.available + 10**9) if short is not None else None


@contextmanager
def _now_here_now_there() -> Iterator[None]:
    """Every other plan does not see the first worker."""
    asked, plan = count(), planning.plan

    def planned(waiting: Any, queues: Any, workers: Mapping[str, Any], usage: Any, **more: Any) -> Any:
        seen = dict(list(workers.items())[next(asked) % 2 :])
        return plan(waiting, queues, seen, usage, **more)

    with mock.patch.object(planning, "plan", planned):
        yield


_NOTHING_IS_KEPT: Final[tuple[tuple[object, str, object], ...]] = (
    (Preempting, "kept_on", lambda *_: Usage()),
    (PassQuota, "wait", lambda *_: None),
    (planning, "_ahead", lambda *_: {}),
)

MUTANTS: Final[dict[str, Mutant]] = {
    "P1: limits do not count": _patched((QuotaUsage, "_available", _two_more)),
    "P2: queues lend all that they have": _patched((scheduler, "quota_tree", _everything_is_lent)),
    "P2: queues lose what is their own": _patched(
        (Trial, "is_over", lambda *_: True),
        (Borrowers, "at", lambda _, fork, __: fork.children),
        (Givers, "_of", _whoever_is_there),
        (_Search, "_compared", lambda *_: None),
    ),
    "P3: victims are not charged while they stop": _patched((Preempting, "kept_on", _who_leaves_is_gone)),
    "P3: places on nodes do not count": _patched((FreeRoom, "fits", lambda *_: True)),
    "P4: equals stop each other": _patched((SharedQuota, "asks", _a_little_more_important)),
    "P5: nothing is kept for who waits": _patched(*_NOTHING_IS_KEPT),
    "P5: nobody remembers who was stopped for whom": _patched((RunningCache, "_mark", lambda *_: False)),
    "P6: there is no shortest run time": _patched((_Search, "protected_until", lambda *_: 0.0)),
    "P6: all may be stopped": _patched(
        (_Search, "_may_stop", lambda self, job, *_: job.uid not in self._around.leaving)
    ),
    "P7: those who are not needed are stopped too": _patched((_Search, "_send_back", lambda *_: None)),
    "P8: nobody takes its own quota back": _patched((preemption, "_plans", _without_reclaim)),
    "P9: nobody looks when something becomes free": _patched((Scheduler, "wake", lambda _: None)),
    "P10: the youngest goes first": _patched((waiting, "position_of", _the_youngest_first)),
    "P10: priorities do not count": _patched((waiting, "position_of", _priorities_do_not_count)),
    "P11: nobody waits for pods to go": _patched((eviction, "_stops_in", lambda *_: 0.0)),
    "P11: who is out of reach for a moment is taken for lost": _patched((decide, "_lost_before", lambda *_: 1000.0)),
    "P13: the same caches, another worker": _now_here_now_there,
    "P14: more is said to be left than is": _patched((QueueRoom, "short", _one_more)),
    "P14: cohorts are said to have more left": _patched((refusals, "border", _more_at_the_border)),
    "P14: more places are told than there are": _patched((slot_words, "_places", lambda number: _places(number + 1))),
    "P14: who has to wait is told that it never fits": _patched((placing, "is_too_large", lambda *_: True)),
    "P14: who has it is told wrongly": _patched((Nobody, "_has", lambda self, node: _has(self, node) + 10**9)),
}
"""Found by stories. The others are found by tests of their own."""
NO_CLAIMS: Final = _patched((keeping.Keeping, "claim", lambda _self, _waiter, _queue, decision: decision))
UNWEIGHTED: Final = _patched((Share, "__init__", _unweighted))
TOO_OFTEN: Final = _patched((shared_quota, "MOST_STOPS", 10**6), (running_cache, "MOST_STOPS", 10**6))
TOO_PATIENT: Final = _patched((preempting, "WAIT_SECONDS", 60.0))

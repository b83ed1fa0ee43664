"""Marks that are decided and not observed yet: who is to be stopped for whom. And what runs, for the next pass.

A mark is written onto the victim as it is then, if it is still the Job that was decided on: same worker, not finished,
no mark, and the one that it makes room for still waits. From the decision on it counts as leaving, so that nobody is
chosen twice; it is forgotten when the cache shows what became of it. What was written is known from the victims
themselves (`running_cache`), so nothing here has to survive a restart. Where the one that they are stopped for is to go
is remembered as a help: without it, that is where its victims are.
"""

from collections import Counter
from dataclasses import dataclass

from multimirror.api import Preempts
from multimirror.api.placement import cluster_of, preempted_of
from multimirror.batch import Json
from multimirror.kinds import Kind, Kinds, Ref
from multimirror.kinds.preempted import Preemption as Why
from multimirror.kube.informer import is_older
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.decisions import Preempts as PreemptsStep
from multimirror.scheduling.preempting import GIVE_UP_SECONDS, Awaited, RunningState
from multimirror.scheduling.preemption_words import Stopped
from multimirror.scheduling.running import RunningJob
from multimirror.scheduling.running_cache import RunningCache
from multimirror.scheduling.waiting import Waiting

_WHY = {
    Preempts.RECLAIM: Why.RECLAIM,
    Preempts.PRIORITY: Why.PRIORITY,
    Preempts.FAIR_SHARE: Why.FAIR_SHARE,
}


@dataclass(slots=True)
class PendingMark:
    """One that is to be stopped."""

    job: RunningJob
    by: Candidate
    why: Why
    words: Stopped
    since: float
    written: str | None = None
    """The resourceVersion that it has since."""

    def is_wanted(self, kind: Kind, obj: Json | None) -> bool:
        """It is still the Job that was decided on."""
        if obj is None or cluster_of(obj) != self.job.worker or preempted_of(obj) is not None:
            return False
        outcome = kind.outcome(obj)
        return not (outcome.finished or outcome.ending)


class Marks:
    """Those on their way, and the state that a pass begins with."""

    def __init__(self, running: RunningCache, kinds: Kinds, waiting: Waiting) -> None:
        self._running, self._kinds, self._waiting = running, kinds, waiting
        self._pending: dict[Ref, PendingMark] = {}
        self._rooms: dict[Ref, str] = {}
        """By the one that others are stopped for: where it is to go."""

    def decide(self, step: PreemptsStep, candidate: Candidate, now: float) -> list[Ref]:
        """Gives those that are to be marked."""
        self.remember(candidate.ref, step.worker)
        found = []
        for victim in step.preemption.victims:
            ref = self._running.ref(victim.job.uid)
            if ref is None or ref in self._pending:
                continue
            words = Stopped(victim, f"{candidate.namespace}/{candidate.name}", candidate.priority)
            self._pending[ref] = PendingMark(victim.job, candidate, _WHY[victim.reason], words, now)
            found.append(ref)
        return found

    def remember(self, ref: Ref, worker: str | None) -> None:
        """Where one is to go that others are stopped for."""
        if worker is not None:
            self._rooms[ref] = worker

    def get(self, ref: Ref) -> PendingMark | None:
        """The mark that has to be written."""
        mark = self._pending.get(ref)
        return mark if mark is not None and mark.written is None else None

    def written(self, ref: Ref, version: str) -> None:
        """The API server has it, from this resourceVersion on."""
        if ref in self._pending:
            self._pending[ref].written = version

    def drop(self, ref: Ref) -> None:
        self._pending.pop(ref, None)

    def observe(self, ref: Ref, obj: Json | None) -> None:
        """The cache shows this object now."""
        mark = self._pending.get(ref)
        if mark is None:
            return
        version = obj["metadata"]["resourceVersion"] if obj is not None else ""
        if not mark.is_wanted(self._kinds.of(ref), obj) or (
            mark.written is not None and not is_older(version, mark.written)
        ):
            del self._pending[ref]

    def state(self, now: float) -> RunningState:
        """What runs now, who is leaving, and who waits for them."""
        leaving = dict(self._running.leaving)
        leaving |= {mark.job.uid: mark.job for mark in self._pending.values()}
        awaited = {ref: found for ref in self._preemptors() if (found := self._awaited(ref, now)) is not None}
        for ref in self._rooms.keys() - awaited.keys():
            del self._rooms[ref]
        return RunningState(
            running=self._running.jobs.snapshot(), leaving=tuple(leaving.values()), awaited=awaited, now=now
        )

    def _preemptors(self) -> set[Ref]:
        named = {Ref(kind.resource.name, uid) for uid, _ in self._running.marks() for kind in self._kinds}
        return named | {mark.by.ref for mark in self._pending.values()}

    def _awaited(self, ref: Ref, now: float) -> Awaited | None:
        candidate = self._waiting.get(ref)
        if candidate is None or candidate.growth is not None:
            return None
        marks = dict(self._running.marks_for(ref.uid))
        pending = {each: mark for each, mark in self._pending.items() if mark.by.ref == ref and each not in marks}
        since = max([mark.since for mark in marks.values()] + [mark.since for mark in pending.values()], default=0.0)
        if now - since >= GIVE_UP_SECONDS or (candidate.stopped is not None and candidate.stopped > since):
            return None
        held = [self._running.leaving.get(each.uid) for each in marks]
        leaving = [job for job in held if job is not None] + [mark.job for mark in pending.values()]
        gone = tuple(mark.name for each, mark in marks.items() if each.uid not in self._running.leaving)
        return Awaited(candidate, self._room(ref, leaving), since, tuple(leaving), gone)

    def _room(self, ref: Ref, leaving: list[RunningJob]) -> str | None:
        if ref in self._rooms:
            return self._rooms[ref]
        workers = Counter(job.worker for job in leaving)
        return min(workers, key=lambda worker: (-workers[worker], worker)) if workers else None

"""What would become of a Job that waits if it were another: the next pass, planned on a fork, carried out by nobody.

The pass is the scheduler's own, over everything that waits, with this one Job changed: so what is told is what would
be decided now, turns and shares of others included. It is gone through in slices, and given up after three seconds:
then nothing is told, rather than something that may be wrong.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, Self

from multimirror.batch import Json
from multimirror.batch.quantities import QuantityError, quantity
from multimirror.kinds import JOB, Ref
from multimirror.kinds.pod_sets import Amounts, nanos
from multimirror.kinds.pod_shapes import ONE_POD, Gang, PodShape
from multimirror.observe.slices import Slices, TooLong
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.decisions import Placed, Preempts, Step
from multimirror.scheduling.waiting import Waiting, WaitingSnapshot

_REQUEST: Final = "request."
_MOST_PRIORITY: Final = 999_999_999
_MOST_PODS: Final = 100_000


class Planner(Protocol):
    """The scheduler, as far as it can be asked."""

    def waiting(self) -> list[Candidate]: ...
    def rehearse(self, waiting: WaitingSnapshot) -> Iterator[Step | None]: ...


class NotPlanned(Exception):  # noqa: N818 - an answer, in words
    """Why nothing can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """In what the Job would be another."""

    priority: int | None = None
    queue: str | None = None
    pods: int | None = None
    """At once; all else that it asks for changes in proportion."""
    requests: Amounts = field(default_factory=dict)
    """What all its pods together ask for, of these resources."""

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> Self:
        """`priority`, `queue`, `pods`, and `request.NAME` for an amount. Raises NotPlanned."""
        requests: dict[str, int] = {}
        for name, text in parameters.items():
            if name.startswith(_REQUEST):
                try:
                    amount = nanos(quantity(text))
                except QuantityError as error:
                    raise NotPlanned(f"{name.removeprefix(_REQUEST)}: {error}") from error
                if amount < 0:
                    raise NotPlanned(f"{name.removeprefix(_REQUEST)}: must not be negative")
                requests[name.removeprefix(_REQUEST)] = amount
        return cls(
            priority=_number(parameters, "priority", _MOST_PRIORITY),
            queue=parameters.get("queue") or None,
            pods=_number(parameters, "pods", _MOST_PODS),
            requests=requests,
        )

    def made_to(self, candidate: Candidate) -> Candidate:
        """Its queue aside."""
        asked = dict(candidate.requests)
        before = asked.get("pods", 0)
        if self.pods is not None and before:
            asked = {name: amount * nanos(self.pods) // before for name, amount in asked.items()}
        priority = self.priority if self.priority is not None else candidate.priority
        made = replace(candidate, priority=priority, requests=asked | dict(self.requests))
        return replace(made, gang=_gang_of(made)) if made.requests != candidate.requests else made


def _gang_of(candidate: Candidate) -> Gang:
    """Its pods, when what it asks for has changed: as many as it asks for, each with its part. Pods of several shapes
    have no such parts: where they go is decided by sums alone."""
    pods = candidate.requests.get("pods", 0) // ONE_POD
    if len(candidate.gang) != 1 or pods < 1:
        return ()
    ((shape, _),) = candidate.gang
    parts = {name: -(-amount // pods) for name, amount in candidate.requests.items()}
    asked = tuple(sorted((name, amount) for name, amount in parts.items() if amount > 0))
    return ((PodShape(asked, shape.selector, shape.terms, shape.tolerations), pods),)


def _number(parameters: Mapping[str, str], name: str, most: int) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(most)) or int(text) > most:
        raise NotPlanned(f"{name}: must be a whole number from 0 to {most}")
    return int(text)


class WhatIf:
    """`in_queue`: a candidate as it would be in another queue, with what the queue objects to; None: it is gone."""

    def __init__(self, planner: Planner, in_queue: Callable[[Ref, Mapping[str, str], str], Candidate | None]) -> None:
        self._planner, self._in_queue = planner, in_queue

    async def plan(self, uid: str, changes: Changes) -> Json:
        """What would be decided about a Job. Raises NotPlanned."""
        try:
            return await self._plan(uid, changes)
        except TooLong:
            message = "so much waits that planning it takes too long; nothing is said rather than half of it"
            raise NotPlanned(message) from None

    async def _plan(self, uid: str, changes: Changes) -> Json:
        work = Slices()
        ref = Ref(JOB.resource.name, uid)
        waiting, changed = Waiting(), None
        for each in self._planner.waiting():
            candidate = each
            if each.ref == ref and each.growth is None:
                candidate = changed = self._changed(each, changes)
            waiting.put(candidate)
            await work.pause()
        if changed is None:
            raise NotPlanned("it does not wait for a worker: what-if is about Jobs that do")
        position = 0
        for step in self._planner.rehearse(waiting.snapshot()):
            await work.pause()
            if step is None:
                continue
            if step.candidate.queue == changed.queue and step.candidate.growth is None:
                position += 1
            if step.candidate.ref == ref:
                return _answer(step, position)
        raise NotPlanned("the pass did not come to it")

    def _changed(self, candidate: Candidate, changes: Changes) -> Candidate:
        if changes.queue is not None and changes.queue != candidate.queue:
            moved = self._in_queue(candidate.ref, candidate.avoid, changes.queue)
            if moved is None:
                raise NotPlanned("it is gone")
            candidate = moved
        return changes.made_to(candidate)


def _answer(step: Step, position: int) -> Json:
    decision = step.decision
    answer: Json = {
        "queue": step.candidate.queue,
        "priority": step.candidate.priority,
        "placed": isinstance(step, Placed),
        "cluster": decision.chosen,
        "position": position,
        "workers": [{"name": each.worker, "fits": each.fits, "message": each.why} for each in decision.results],
    }
    if isinstance(step, Preempts):
        answer["stops"] = [
            {"job": each.job.name, "worker": each.job.worker, "reason": each.reason.value}
            for each in step.preemption.victims
        ]
    return answer if isinstance(step, Placed) else answer | {"reason": decision.reason, "why": str(decision.why)}

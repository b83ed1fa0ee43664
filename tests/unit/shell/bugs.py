"""Dispatchers that are broken on purpose, to show that the tests of the shell can fail."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from multimirror.api import CLUSTER_ANNOTATION
from multimirror.kinds import Ref
from multimirror.scheduling import plan as planning
from multimirror.scheduling.assignments import Assignments
from multimirror.scheduling.order import in_order
from multimirror.scheduling.waiting import Waiter, WaitingSnapshot
from multimirror.scheduling.writers import Writers
from multimirror.workers import Contact, Workers
from multimirror.workers.session import Session

Bug = Callable[[], AbstractContextManager[None]]


@contextmanager
def queues_by_the_alphabet() -> Iterator[None]:
    """Each queue to its end, one after the other."""

    def alphabetical(waiting: WaitingSnapshot, *others: Any) -> Iterator[Waiter | None]:
        for name in sorted(waiting.queues):
            yield from in_order(WaitingSnapshot({name: waiting.queues[name]}), *others)

    with mock.patch.object(planning, "in_order", alphabetical):
        yield


@contextmanager
def not_followed_is_not_there() -> Iterator[None]:
    """A namespace that its WorkerCluster no longer allows is not followed, and taken for empty."""
    contact = Workers.contact

    def of_the_whole_worker(self: Workers, worker: str, *_: object) -> Contact:
        return contact(self, worker)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Workers, "follow"))
        stack.enter_context(mock.patch.object(Session, "occupied", return_value=set()))
        stack.enter_context(mock.patch.object(Workers, "contact", of_the_whole_worker))
        yield


@contextmanager
def the_newest_version_is_written() -> Iterator[None]:
    """An assignment is written over whatever the object has become meanwhile."""
    assign, observe = Writers._assign, Assignments.observe

    async def over_the_newest(self: Writers, ref: Ref) -> None:
        assignment, obj = self._assignments.get(ref), self._objects.get(ref)
        if assignment is not None and obj is not None:
            candidate = replace(assignment.candidate, version=obj["metadata"]["resourceVersion"])
            self._assignments._pending[ref] = replace(assignment, candidate=candidate)
        await assign(self, ref)

    def until_it_is_assigned(self: Assignments, ref: Ref, obj: Any) -> None:
        if self.get(ref) is None or obj is None or CLUSTER_ANNOTATION in (obj["metadata"].get("annotations") or {}):
            observe(self, ref, obj)

    with (
        mock.patch.object(Writers, "_assign", over_the_newest),
        mock.patch.object(Assignments, "observe", until_it_is_assigned),
    ):
        yield


BUGS: tuple[Bug, ...] = (queues_by_the_alphabet, not_followed_is_not_there, the_newest_version_is_written)

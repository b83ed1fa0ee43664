"""The simulation with a dispatcher that is broken on purpose: `python -m tests.faults.broken NAME`.

The one place where our own code is patched: to show that the checker can fail.
"""

import sys
from typing import Any

from faults import child  # first: it replaces the clocks


def assignment_not_stored() -> None:
    """The copy is made before the assignment is written down: a crash in between loses it."""
    from multimirror import dispatcher  # noqa: PLC0415
    from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL  # noqa: PLC0415
    from multimirror.kinds import JOB, CopyOptions, Ref  # noqa: PLC0415
    from multimirror.kube.resources import JOBS  # noqa: PLC0415
    from multimirror.scheduling import scheduler  # noqa: PLC0415
    from multimirror.scheduling.assignments import Assignment  # noqa: PLC0415

    write = scheduler.Scheduler._write
    made: list[dispatcher.Dispatcher] = []
    begin = dispatcher.Dispatcher.__init__

    def remember(self: dispatcher.Dispatcher, *args: object, **more: object) -> None:
        begin(self, *args, **more)  # type: ignore[arg-type]
        made.append(self)

    async def copy_first(self: scheduler.Scheduler, ref: Ref, job: dict[str, Any], assignment: Assignment) -> None:
        connection = made[-1].worker(assignment.worker)
        assert connection is not None
        if connection.session is not None:
            name, namespace = job["metadata"]["name"], assignment.namespace
            options = CopyOptions(origin=made[-1].origin, attempt=1, name=name, namespace=namespace)
            copy = JOB.make_copy(job, options)
            assert {ORIGIN_LABEL, ORIGIN_UID_LABEL} <= copy["metadata"]["labels"].keys()
            await connection.session.writer.create(JOBS, copy, namespace)
        await write(self, ref, job, assignment)

    dispatcher.Dispatcher.__init__ = remember  # type: ignore[method-assign]
    scheduler.Scheduler._write = copy_first  # type: ignore[method-assign]


def orphans_before_sync() -> None:
    """Decisions are made before the caches are filled: every copy looks like an orphan."""
    from multimirror import dispatcher  # noqa: PLC0415

    async def at_once(self: dispatcher.Dispatcher) -> None:
        await self._cache.clusters.synced()
        await self._workers.settled()

    dispatcher.Dispatcher.synced = at_once  # type: ignore[method-assign]


def status_not_validated() -> None:
    """What the worker says is written as it is."""
    from multimirror.batch import stored_status  # noqa: PLC0415
    from multimirror.kinds.job.kind import JobKind  # noqa: PLC0415

    def as_it_is(_: JobKind, original: dict[str, Any], observed: object) -> Any:
        status = stored_status(observed if isinstance(observed, dict) else {})
        return status if status != stored_status(original.get("status") or {}) else None

    JobKind.mirror = as_it_is  # type: ignore[method-assign]


def fence_not_waited_for() -> None:
    """A Job with a fence moves as if it had none."""
    from multimirror.kinds.job.kind import JobKind  # noqa: PLC0415

    JobKind.safe_after = lambda *_: 0.0  # type: ignore[method-assign]


_MUTATIONS = (assignment_not_stored, orphans_before_sync, status_not_validated, fence_not_waited_for)

if __name__ == "__main__":
    {each.__name__: each for each in _MUTATIONS}[sys.argv[1]]()
    child.main()

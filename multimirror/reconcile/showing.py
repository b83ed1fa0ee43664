"""That an object waits, on its own status: what Kubernetes shows of a suspended Job, in a lane that has time.

A Job that is placed at once is not written to. One that the scheduler has looked at and that still waits two
seconds after its creation says so once, and one that its user holds at once: one write each, in words that stay true
for as long as it waits. That it goes is written with the first status of its copy, which is written anyway.

Twenty thousand that wait are twenty thousand writes, and none of them is urgent. So they have a lane of their own, in
which namespaces take turns, with one write at a time and no more than `PER_SECOND`: nothing that places an object, or
tells how it runs, ever waits for one. Whether there is anything to write is read off the object: whoever starts anew
writes to none that shows it already.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from multimirror.kinds import Ref
from multimirror.kube import Controller, RequeueAfter, WorkQueue, key_of
from multimirror.kube.controller import NotYet
from multimirror.kube.errors import Conflict, NotFound
from multimirror.reconcile.actions import PatchStatus
from multimirror.reconcile.decide import decide_shown
from multimirror.reconcile.execute import ManagementExecutor
from multimirror.reconcile.observer import Observer
from multimirror.reconcile.originals import Originals

PER_SECOND: Final = 25.0
"""A write costs an API server about 3.4 ms: a twelfth of a core, for as long as there is anything to write."""
_YIELD_EVERY: Final = 20


class Showing:
    """The lane of those that are to show that they wait."""

    def __init__(
        self,
        queue: WorkQueue[Ref],
        originals: Originals,
        observer: Observer,
        executor: ManagementExecutor,
        waits: Callable[[Ref], bool],
    ) -> None:
        """`waits`: whether the scheduler has looked at it, and not placed it."""
        self._originals, self._observer, self._executor, self._waits = originals, observer, executor, waits
        self._lane = Controller[Ref]("waiting", self._show, queue=queue, concurrency=1)
        self._looked = 0

    def add(self, ref: Ref) -> None:
        self._lane.queue.add(ref)

    async def run(self) -> None:
        """Until stopped, or cancelled."""
        await self._lane.run()

    def stop(self) -> None:
        self._lane.stop()

    async def idle(self) -> None:
        await self._lane.queue.idle()

    async def _show(self, ref: Ref) -> RequeueAfter | None:
        self._looked += 1
        if self._looked % _YIELD_EVERY == 0:
            await asyncio.sleep(0)  # most may have gone meanwhile
        obj = self._originals.get(ref)
        if obj is None:
            return None
        await self._originals.writes(ref).seen(key_of(obj))
        state = self._observer.observe(ref, waits=self._waits(ref))
        result: RequeueAfter | None = None
        for action in decide_shown(state):
            if isinstance(action, PatchStatus) and state.original is not None:
                try:
                    result = await self._executor.patch_status(state.kind, state.original, action)
                except (Conflict, NotFound) as error:
                    raise NotYet(f"{key_of(obj)} was changed meanwhile") from error
                await asyncio.sleep(1 / PER_SECOND)
        return result

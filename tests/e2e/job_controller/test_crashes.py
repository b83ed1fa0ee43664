"""The process dies at every API call of a Job's life, before and after the call took effect; the next one finishes the
Job, and nothing is lost or counted twice.
"""

import asyncio
import copy
from typing import Any, Literal

import pytest

from builtin_controller import JobController
from multimirror.batch import Json
from multimirror.kube import Client
from multimirror.kube.resources import JOBS
from tests.e2e.job_controller.world import World

When = Literal["before", "after"]


class Mortal(Client):
    """A client whose process dies at its nth write: nothing is sent any more, and nothing returns."""

    dies_at: int
    when: When
    writes: int
    dead: asyncio.Event

    @classmethod
    def of(cls, client: Client, dies_at: int, when: When) -> "Mortal":
        mortal = copy.copy(client)
        mortal.__class__ = cls
        assert isinstance(mortal, Mortal)
        mortal.dies_at, mortal.when, mortal.writes, mortal.dead = dies_at, when, 0, asyncio.Event()
        return mortal

    async def _send(self, request: Any) -> Any:
        if request.method == "GET" or "/events" in request.path:
            return await super()._send(request)
        self.writes += 1
        mine = self.writes
        if mine > self.dies_at or (mine == self.dies_at and self.when == "before"):
            await self._die()
        answer = await super()._send(request)
        if mine == self.dies_at:
            await self._die()
        return answer

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


async def crash_once(world: World, dies_at: int, when: When, **options: Any) -> bool:
    """Run a controller until it dies at that call; False when the Job ended before."""
    client = Mortal.of(world.client, dies_at, when)
    controller = JobController(client, world.options(**options))
    async with controller.following():
        working = asyncio.ensure_future(controller.work())
        done = asyncio.ensure_future(world.finished())
        died = asyncio.ensure_future(client.dead.wait())
        await asyncio.wait([done, died], return_when=asyncio.FIRST_COMPLETED)
        for task in (working, done, died):
            task.cancel()
        await asyncio.wait([working, done, died])
        return client.dead.is_set()


LIVES: dict[str, tuple[Json, Json]] = {
    "one pod succeeds": ({}, {"succeeded": 1}),
    "two of an Indexed Job succeed": (
        {"completions": 2, "parallelism": 2, "completionMode": "Indexed"},
        {"succeeded": 2, "completedIndexes": "0,1"},
    ),
    "a failure, and another": ({"backoffLimit": 1, "node": {"exit-code": "1"}}, {"failed": 2}),
    "each index fails twice": (
        {
            "parallelism": 2,
            "completions": 2,
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 1,
            "node": {"exit-code": "1"},
        },
        {"failed": 4, "failedIndexes": "0,1"},
    ),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("spec", "end"), LIVES.values(), ids=LIVES)
async def test_a_crash_at_any_call_changes_nothing(world: World, spec: Json, end: Json, when: When) -> None:
    calls = 0
    crashed = True
    while crashed:
        calls += 1
        await world.create(**spec)
        crashed = await crash_once(world, calls, when)
        async with world.controller():
            status = await world.finished()
        assert {key: status.get(key, 0) for key in ("succeeded", "failed")} == {
            key: end.get(key, 0) for key in ("succeeded", "failed")
        }, f"after a crash {when} call {calls}: {world.story()}"
        for key in ("completedIndexes", "failedIndexes"):
            assert status.get(key) == end.get(key)
        assert status["uncountedTerminatedPods"] == {}
        assert world.tracked() == []
        await world.client.delete(JOBS, "j", world.namespace, propagation="Background")
        await world.until(lambda: not world.job() and not world.pods())
    assert calls > 3, "a Job takes several calls"

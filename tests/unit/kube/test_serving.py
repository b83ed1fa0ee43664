"""A controller as a process: it follows, works while it leads, and comes to an orderly end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from multimirror.kube.health import HealthServer
from multimirror.kube.serving import serve
from tests.unit.kube.test_process import fetch


class Clerk:
    """A service that finishes what it began before it stops."""

    def __init__(self, *, filled: bool = True) -> None:
        self.story: list[str] = []
        self.filled = asyncio.Event()
        if filled:
            self.filled.set()
        self.working = False
        self._enough = asyncio.Event()

    @property
    def has_synced(self) -> bool:
        return self.filled.is_set()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        self.story.append("follows")
        yield
        self.story.append("follows no more")

    async def work(self) -> None:
        await self.filled.wait()
        self.working = True
        self.story.append("works")
        await self._enough.wait()
        await asyncio.sleep(0)
        self.story.append("finished")
        self.working = False

    def stop(self) -> None:
        self._enough.set()


async def test_what_runs_comes_to_its_end_before_the_caches_go() -> None:
    clerk, stop = Clerk(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(clerk, stop))
        while not clerk.working:
            await asyncio.sleep(0)
        stop.set()
    assert clerk.story == ["follows", "works", "finished", "follows no more"]


async def test_who_still_waits_for_its_caches_ends_at_once() -> None:
    clerk, stop = Clerk(filled=False), asyncio.Event()
    health = HealthServer("127.0.0.1", 0)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(serve(clerk, stop, health=health))
        while not health.port:
            await asyncio.sleep(0.001)
        assert (await fetch(health, "/readyz"))[0] == 503
        stop.set()
    assert clerk.story == ["follows", "follows no more"]


async def test_what_is_served_beside_is_open_all_the_while() -> None:
    clerk, stop = Clerk(), asyncio.Event()

    @asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        clerk.story.append("opened")
        yield
        clerk.story.append("closed")

    stop.set()
    await serve(clerk, stop, beside=beside())
    assert (clerk.story[0], clerk.story[-1]) == ("opened", "closed")

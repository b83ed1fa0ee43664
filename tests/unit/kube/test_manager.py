"""A controller as a process: it follows, works while it leads, and comes to an orderly end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from multimirror.kube import Connection
from multimirror.kube.errors import LeadershipLost
from multimirror.kube.health import HealthServer
from multimirror.kube.manager import Election, Manager, background
from multimirror.kube.supervise import Supervisor, TaskEnded
from tests.unit.kube.servers import THINGS, Seen, Things, Wire, running
from tests.unit.kube.test_health import fetch
from tests.unit.kube.virtual_time import virtual_time

NOWHERE = Connection(name="nowhere", server="http://127.0.0.1:1")


class Clerk:
    """A service that finishes what it began before it stops."""

    def __init__(self, *, filled: bool = True) -> None:
        self.story: list[str] = []
        self.filled = asyncio.Event()
        if filled:
            self.filled.set()
        self.at_work = asyncio.Event()
        self.enough = asyncio.Event()
        self.cache_breaks = asyncio.Event()

    @property
    def has_synced(self) -> bool:
        return self.filled.is_set()

    @property
    def working(self) -> bool:
        return self.at_work.is_set()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        self.story.append("follows")
        async with Supervisor() as tasks:
            tasks.start("cache", self._cache())
            yield
        self.story.append("follows no more")

    async def work(self) -> None:
        await self.filled.wait()
        self.at_work.set()
        self.story.append("works")
        try:
            await self.enough.wait()
            await asyncio.sleep(0)
            self.story.append("finished")
        except asyncio.CancelledError:
            self.story.append("breaks off")
            raise
        finally:
            self.at_work.clear()

    def stop(self) -> None:
        self.enough.set()

    async def _cache(self) -> None:
        await self.cache_breaks.wait()
        raise ZeroDivisionError("a bug")


async def run(clerk: Clerk, stop: asyncio.Event, health: HealthServer | None = None, **options: Any) -> None:
    async with Manager(NOWHERE, "clerk", health=health) as manager:
        await manager.run(clerk, stop, **options)


async def test_what_runs_comes_to_its_end_before_the_caches_go() -> None:
    clerk, stop = Clerk(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(run(clerk, stop))
        await clerk.at_work.wait()
        stop.set()
    assert clerk.story == ["follows", "works", "finished", "follows no more"]


async def test_who_still_waits_for_its_caches_ends_at_once() -> None:
    clerk, stop = Clerk(filled=False), asyncio.Event()
    health = HealthServer("127.0.0.1", 0)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(run(clerk, stop, health))
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
    await run(clerk, stop, beside=beside())
    assert (clerk.story[0], clerk.story[-1]) == ("opened", "closed")


async def test_health_names_the_task_that_died_while_the_process_comes_to_its_end() -> None:
    health = HealthServer("127.0.0.1", 0)
    seen: list[tuple[int, str]] = []

    class SlowToEnd(Clerk):
        @asynccontextmanager
        async def following(self) -> AsyncIterator[None]:
            async with super().following():
                seen.append(await fetch(health, "/healthz"))
                self.cache_breaks.set()
                try:
                    yield
                finally:
                    seen.append(await fetch(health, "/healthz"))

    clerk = SlowToEnd()
    with pytest.raises(TaskEnded, match=r"^cache ended unexpectedly: ZeroDivisionError: a bug$"):
        await run(clerk, asyncio.Event(), health)
    assert seen[0] == (200, "[+]tasks ok\nok\n")
    assert seen[1][0] == 503
    assert "[-]tasks failed: cache ended unexpectedly: ZeroDivisionError: a bug" in seen[1][1]
    assert clerk.story == ["follows", "works", "breaks off"]


@virtual_time
async def test_work_that_ends_without_being_told_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    clerk = Clerk()
    clerk.enough.set()
    with pytest.raises(TaskEnded, match=r"^work ended unexpectedly: .* before it was told to stop$"):
        await run(clerk, asyncio.Event())
    assert clerk.story == ["follows", "works", "finished"]
    assert "task ended unexpectedly" in capsys.readouterr().out


@virtual_time
async def test_who_does_not_come_to_an_end_in_time_is_cancelled_and_waited_for() -> None:
    class Hangs(Clerk):
        def stop(self) -> None:
            """Goes on."""

    clerk, stop = Hangs(), asyncio.Event()
    task = asyncio.create_task(run(clerk, stop))
    await clerk.at_work.wait()
    stop.set()
    await asyncio.sleep(25)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert clerk.story == ["follows", "works", "breaks off"]


@virtual_time
async def test_a_standby_follows_and_works_when_the_lease_is_released_and_ends_when_it_loses_it() -> None:
    async with running() as server:
        leases = Things(server, plural="leases")
        one, two, stop = Clerk(), Clerk(), asyncio.Event()

        async def candidate(clerk: Clerk, name: str, stop: asyncio.Event) -> None:
            async with Manager(server.connection(), "clerk", election=Election("it", "default", name)) as manager:
                assert manager.guard is not None
                with pytest.raises(LeadershipLost):
                    await manager.writer.create(THINGS, {"metadata": {"name": "too-early"}})
                await manager.run(clerk, stop)

        first = asyncio.create_task(candidate(one, "one", stop))
        await one.at_work.wait()
        second = asyncio.create_task(candidate(two, "two", asyncio.Event()))
        await asyncio.sleep(30)
        assert (one.story, two.story) == (["follows", "works"], ["follows"])
        stop.set()
        await first
        assert one.story[2:] == ["finished", "follows no more"]
        await two.at_work.wait()
        await leases.put("it", spec={"holderIdentity": "usurper", "leaseDurationSeconds": 15})
        with pytest.raises(LeadershipLost, match="to usurper"):
            await second
        assert two.story == ["follows", "works", "breaks off"]


class Writes(Clerk):
    """A service with a write on its way when it ends."""

    def __init__(self, *, cancels: bool = False) -> None:
        super().__init__()
        self.manager: Manager | None = None
        self.cancels = cancels
        self.writing: asyncio.Task[Any] | None = None

    async def work(self) -> None:
        assert self.manager is not None
        self.writing = asyncio.ensure_future(self.manager.writer.create(THINGS, {"metadata": {"name": "it"}}))
        await super().work()
        if self.cancels:
            self.writing.cancel()


@pytest.mark.parametrize(
    ("answer_takes", "cancels", "told"),
    [
        pytest.param(2.0, False, ["written", "released"], id="what is on its way is waited for"),
        pytest.param(40.0, False, ["written"], id="not for ever: then the lease is left to run out"),
        pytest.param(2.0, True, ["written"], id="the same for what was given up on: it arrives all the same"),
    ],
)
def test_the_lease_is_not_released_while_a_write_may_still_arrive(
    answer_takes: float, cancels: bool, told: list[str]
) -> None:
    @virtual_time
    async def story() -> None:
        async with running() as server:
            leases, happened = Things(server, plural="leases"), list[str]()
            arrived = asyncio.Event()

            async def answer(seen: Seen, wire: Wire) -> None:
                if "/leases" in seen.target:
                    if seen.method == "PUT" and not seen.json["spec"]["holderIdentity"]:
                        happened.append("released")
                    await leases.handle(seen, wire)
                    return
                arrived.set()
                await asyncio.sleep(answer_takes)
                happened.append("written")
                await wire.answer(201, seen.json)

            server.scripts.clear()
            server.then(answer)
            clerk, stop = Writes(cancels=cancels), asyncio.Event()
            async with Manager(server.connection(), "clerk", election=Election("it", "default", "one")) as manager:
                clerk.manager = manager
                ending = asyncio.ensure_future(manager.run(clerk, stop))
                await clerk.at_work.wait()
                await arrived.wait()
                stop.set()
                await ending
                assert clerk.writing is not None
                await asyncio.gather(clerk.writing, return_exceptions=True)
                await asyncio.sleep(60)
            assert happened == told

    story()


async def test_in_the_background_it_works_inside_and_has_finished_outside() -> None:
    clerk = Clerk()
    async with background(clerk, clerk.at_work.wait):
        assert clerk.story == ["follows", "works"]
    assert clerk.story == ["follows", "works", "finished", "follows no more"]


@virtual_time
async def test_in_the_background_the_end_of_a_cache_ends_the_body() -> None:
    clerk = Clerk()

    async def body() -> None:
        async with background(clerk, clerk.at_work.wait):
            clerk.cache_breaks.set()
            await asyncio.Event().wait()

    with pytest.raises(TaskEnded, match=r"^cache ended unexpectedly: ZeroDivisionError: a bug$"):
        await body()


@virtual_time
async def test_in_the_background_nobody_waits_for_work_that_was_told_to_stop_before_it_began() -> None:
    clerk = Clerk()
    clerk.enough.set()
    async with asyncio.timeout(10), background(clerk, asyncio.Event().wait):
        pass
    assert clerk.story == ["follows", "works", "finished", "follows no more"]

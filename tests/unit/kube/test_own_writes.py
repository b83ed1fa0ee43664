"""Reading your own writes: a reconciler waits for its cache instead of acting on the past."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from multimirror.kube import Client, Informer
from multimirror.kube.own_writes import OwnWrites
from tests.unit.kube.servers import THINGS, Things, running
from tests.unit.kube.virtual_time import virtual_time


@asynccontextmanager
async def writing() -> AsyncIterator[tuple[Things, Client, OwnWrites]]:
    async with running() as server, Client(server.connection()) as client:
        things = Things(server)
        await things.put("a")
        async with Informer(client, THINGS) as informer:
            await informer.synced()
            yield things, client, OwnWrites(informer, patience=15)


async def speak(things: Things) -> None:
    things.deaf = False
    async with things.changed:
        things.changed.notify_all()


@virtual_time
async def test_a_write_is_waited_for_until_the_cache_has_seen_it() -> None:
    async with writing() as (things, client, writes):
        things.deaf = True
        writes.wrote(await client.create(THINGS, {"metadata": {"name": "b"}}))
        assert not writes.settled("default/b")
        assert writes.settled("default/a")
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(writes.seen("default/b"))
            await asyncio.sleep(5)
            assert not waiting.done()
            await speak(things)
        assert waiting.result()
        assert writes.settled("default/b")


@virtual_time
async def test_a_watch_that_is_faster_than_the_answer_is_not_waited_for() -> None:
    async with writing() as (things, client, writes):
        written = await client.create(THINGS, {"metadata": {"name": "b"}})
        await asyncio.sleep(1)
        writes.wrote(written)
        assert writes.settled("default/b")
        await things.remove("b")
        await asyncio.sleep(1)
        writes.wrote(written)
        assert writes.settled("default/b")


@virtual_time
async def test_a_delete_is_waited_for_until_the_object_is_gone_from_the_cache() -> None:
    async with writing() as (things, client, writes):
        things.deaf = True
        old = things.objects["a"]
        await client.delete(THINGS, "a", "default")
        writes.deleted(old)
        assert not writes.settled("default/a")
        await speak(things)
        assert await writes.seen("default/a")
        writes.deleted(old)
        assert writes.settled("default/a")


@virtual_time
async def test_a_write_to_what_was_deleted_since_is_not_waited_for() -> None:
    async with writing() as (things, _, writes):
        things.deaf = True
        written = await things.put("a", spec={"x": 1})
        writes.wrote(written)
        await things.remove("a")
        things.compact()
        await speak(things)
        assert await writes.seen("default/a")


@virtual_time
async def test_patience_ends() -> None:
    async with writing() as (things, client, writes):
        things.deaf = True
        writes.wrote(await client.create(THINGS, {"metadata": {"name": "b"}}))
        assert not await writes.seen("default/b")
        assert asyncio.get_running_loop().time() == pytest.approx(15, abs=1)
        assert writes.settled("default/b")

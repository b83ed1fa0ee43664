"""A server that is about to stop: whoever still comes is answered, and sent elsewhere for the next time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from multimirror.admission.https import Answer, HttpsServer
from tests.unit.admission.test_https import LIMITS, context, opened, serving

REQUEST = b"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz"
FOR_EVER = 3600.0


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """One request over an open connection; the head of its answer."""
    writer.write(REQUEST)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert await reader.readexactly(1) == b"3"
    return head


@contextlib.asynccontextmanager
async def draining(server: HttpsServer, quiet: float, most: float) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(server.drain(quiet, most))
    await asyncio.sleep(0)  # it has begun
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_open_connections_and_new_ones_are_answered_once_more_and_then_closed() -> None:
    async with serving() as server:
        kept = await opened(server)
        assert b"Connection: keep-alive\r\n" in await ask(*kept)
        async with draining(server, FOR_EVER, FOR_EVER) as task:
            for reader, writer in (kept, await opened(server)):
                assert b"Connection: close\r\n" in await ask(reader, writer)
                assert await reader.read() == b"", "closed in an orderly way"
                writer.close()
            assert not task.done()


async def test_a_connection_that_waits_is_left_open_until_nobody_asks_and_is_closed_in_an_orderly_way() -> None:
    async with serving() as server:
        idle, idle_writer = await opened(server)
        await ask(idle, idle_writer)
        async with draining(server, 2.0, FOR_EVER) as task:
            for _ in range(5):
                reader, writer = await opened(server)
                await ask(reader, writer)
                writer.close()
                assert not idle.at_eof()
                assert not task.done()
            assert await idle.read() == b"", "no reset"
            idle_writer.close()
            await task


async def test_it_ends_when_nobody_has_asked_for_so_long_and_each_question_begins_that_anew() -> None:
    loop = asyncio.get_running_loop()
    async with serving() as server, draining(server, 2.0, FOR_EVER) as task:
        for _ in range(3):  # in all longer than it waits for one
            await asyncio.sleep(0.8)
            reader, writer = await opened(server)
            await ask(reader, writer)
            asked = loop.time()
            writer.close()
        await task
        assert loop.time() - asked >= 1.9


async def test_who_asks_all_the_time_is_not_waited_for_without_end() -> None:
    async with serving() as server, draining(server, FOR_EVER, 0.3) as task:
        while not task.done():
            reader, writer = await opened(server)
            await ask(reader, writer)
            writer.close()


async def test_who_is_being_answered_when_the_time_is_up_gets_the_answer() -> None:
    asked, time_is_up = asyncio.Event(), asyncio.Event()

    async def slow(_: Mapping[str, str], body: bytes) -> Answer:
        asked.set()
        await time_is_up.wait()
        return Answer(200, str(len(body)).encode())

    async with asyncio.timeout(60):
        async with HttpsServer("127.0.0.1", 0, "/x", slow, tls=context(), limits=LIMITS) as server:
            reader, writer = await opened(server)
            asking = asyncio.create_task(ask(reader, writer))
            await asked.wait()
            asyncio.get_running_loop().call_later(0.3, time_is_up.set)
            await server.drain(FOR_EVER, 0.1)
        assert b"Connection: close\r\n" in await asking
        writer.close()

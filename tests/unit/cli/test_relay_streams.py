"""The streams of the relay, with somebody at the other end who means harm, or is gone."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from multimirror.cli.relay.streams import Frame, Kind, Stream, Streams
from multimirror.kube.supervise import Supervisor


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.CLOSE])
async def test_frames_that_hold_nothing_fill_no_memory(kind: Kind) -> None:
    async def nobody_reads(_: Frame) -> None:
        await asyncio.Event().wait()

    stream = Stream(1, nobody_reads)
    for _ in range(1000):
        stream.received(Frame(kind, 1))
    assert stream._arrived.qsize() <= 1


async def test_what_the_other_side_says_is_cut_and_harmless() -> None:
    async def send(_: Frame) -> None: ...

    stream = Stream(1, send)
    stream.received(Frame(Kind.CLOSE, 1, b"no\n\x1b[31m" + b"x" * 60_000))
    with pytest.raises(OSError, match=r"^\[Errno None\] no  \[31mx{900,1000}$"):
        await stream.opened


@pytest.mark.parametrize("who", ["we send", "they have sent"])
async def test_a_pipe_that_breaks_ends_its_connections_and_nothing_else(who: str) -> None:
    async def write(data: bytes) -> None:
        if data[0] != Kind.OPEN:
            raise OSError(None, "the pipe broke")

    async def incoming() -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        yield Frame(Kind.OPENED, 1).encoded()
        if who == "they have sent":
            yield Frame(Kind.DATA, 1, b"hello").encoded()

    ours, theirs = socket.socketpair()
    with ours:
        theirs.setblocking(False)
        async with asyncio.timeout(10), Supervisor() as tasks:
            streams = Streams(write, tasks)
            tasks.start("pipe", streams.follow(incoming()), may_return=True)
            stream = await streams.open("worker-east/kubeconfig")
            reader, writer = await asyncio.open_connection(sock=theirs)
            if who == "we send":
                ours.sendall(b"hello")
            await tasks.start("connection", streams.carry(stream, reader, writer), may_return=True)

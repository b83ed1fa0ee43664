"""The webhook's server, done to what anybody may do who reaches its port."""

import asyncio
import contextlib
import gc
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from multimirror.admission.certificates import KeyPair, issue, new_authority
from multimirror.admission.https import Answer, HttpsServer, Limits
from multimirror.admission.server import _file
from multimirror.admission.stream import Stream

NOW = datetime.now(UTC)
AUTHORITY = new_authority(NOW)
LIMITS = Limits(
    connections=6,
    of_a_peer=6,
    small_bytes=1024,
    largest_bytes=64 * 1024,
    large_bodies=2,
    large_bodies_of_a_peer=1,
    handshake_seconds=0.5,
    head_seconds=0.2,
    body_seconds=0.2,
    idle_seconds=30.0,
    goodbye_seconds=0.2,
)


async def echo(_: Mapping[str, str], body: bytes) -> Answer:
    return Answer(200, str(len(body)).encode())


def context() -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown = issue(AUTHORITY, ("127.0.0.1",), NOW)
    with _file(shown.key + shown.certificate) as path:
        tls.load_cert_chain(path)
    return tls


@contextlib.asynccontextmanager
async def serving(limits: Limits = LIMITS, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpsServer]:
    async with asyncio.timeout(60), HttpsServer("127.0.0.1", 0, "/x", echo, tls=tls or context(), limits=limits) as it:
        yield it


async def opened(server: HttpsServer, own: KeyPair | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    if own is not None:
        with _file(own.key + own.certificate) as path:
            tls.load_cert_chain(path)
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)


async def post(server: HttpsServer, body: bytes = b"", head: str | None = None, own: KeyPair | None = None) -> bytes:
    """What is answered until we are hung up on: b"" for nothing."""
    reader, writer = await opened(server, own)
    head = head or f"POST /x HTTP/1.1\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    answer = b""
    with contextlib.suppress(OSError):
        writer.write(head.encode() + body)
        answer = await reader.read()
    writer.transport.abort()
    return answer


async def test_requests_are_answered_one_after_another_over_one_connection() -> None:
    async with serving() as server:
        reader, writer = await opened(server)
        for size in (3, 0, 5000):
            writer.write(b"POST /x?timeout=2s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(len(str(size))) == str(size).encode()
        writer.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST /x HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", b"413"),
        ("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        ("POST /x HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        ("POST /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        ("POST /y HTTP/1.1\r\nContent-Length: 1\r\n\r\n", b"404"),
        ("GET /x HTTP/1.1\r\n\r\n", b"405"),
    ],
)
async def test_what_is_no_short_post_is_refused_before_its_body_is_read(head: str, status: bytes) -> None:
    async with serving() as server:
        assert (await post(server, head=head)).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "head",
    ["nonsense\r\n\r\n", "POST /x HTTP/1.1\r\nX: " + "x" * 100_000, "POST /x HTTP/1.1\r\nX: half"],
    ids=["no HTTP", "endless", "half"],
)
async def test_who_sends_no_head_is_hung_up_on(head: str) -> None:
    async with serving() as server:
        assert await post(server, head=head) == b""
        assert (await post(server, b"xyz")).endswith(b"3")


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with serving() as server:
        assert await post(server, b"x", "POST /x HTTP/1.1\r\nContent-Length: 1000\r\n\r\n") == b""


async def test_large_bodies_are_few_at_a_time_and_do_not_keep_small_ones_waiting() -> None:
    patient = replace(LIMITS, body_seconds=30.0)
    async with serving(patient) as server:
        _, slow = await opened(server)
        slow.write(b"POST /x HTTP/1.1\r\nContent-Length: 60000\r\n\r\nx")
        await slow.drain()
        while not server._large:
            await asyncio.sleep(0.01)
        assert (await post(server, b"x" * 60_000)).startswith(b"HTTP/1.1 503")
        assert (await post(server, b"xyz")).endswith(b"3")
        slow.transport.abort()
        while server._large:
            await asyncio.sleep(0.01)
        assert (await post(server, b"x" * 60_000)).endswith(b"60000")


async def test_connections_that_only_wait_make_room_for_others() -> None:
    async with serving(replace(LIMITS, head_seconds=30.0, handshake_seconds=30.0)) as server:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]  # not even a handshake
        assert (await post(server, b"xyz")).endswith(b"3")
        assert len(server._connections) <= LIMITS.connections
        for _, writer in held:
            writer.close()


async def test_what_is_over_leaves_nothing_for_the_garbage_collector_to_find() -> None:
    """It runs seldom in our processes: what only it can free stays, with all its buffers."""
    async with serving() as server:
        gc.collect()
        gc.disable()
        try:
            for body, head in ((b"xyz", None), (b"", "POST /x HTTP/1.1\r\nContent-Length: 65537\r\n\r\n"), (b"", "?")):
                await post(server, body, head)
            while server._connections:
                await asyncio.sleep(0.01)
            assert not [each for each in gc.get_objects() if isinstance(each, Stream)]
        finally:
            gc.enable()


async def test_who_shakes_no_hands_is_hung_up_on() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        writer.close()


async def test_where_client_certificates_are_asked_for_nobody_else_gets_to_send_a_body(tmp_path: Path) -> None:
    api_servers, tls = trustme.CA(), context()
    api_servers.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    tls.load_verify_locations(tmp_path / "ca.crt")
    tls.verify_mode = ssl.CERT_REQUIRED
    async with serving(tls=tls) as server:
        for stranger in (None, issue(AUTHORITY, ("127.0.0.1",), NOW)):
            with contextlib.suppress(OSError):
                assert await post(server, b"xyz", own=stranger) == b""
        known = api_servers.issue_cert("api-server")
        own = KeyPair(known.cert_chain_pems[0].bytes(), known.private_key_pem.bytes())
        assert (await post(server, b"xyz", own=own)).endswith(b"3")

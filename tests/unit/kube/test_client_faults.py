"""The client against servers that misbehave: one clear error each, and no write repeated that may have worked."""

import asyncio
import base64
import json
import re
import ssl
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import trustme
import uvloop

from multimirror.kube import ApiError, Client, Connection
from multimirror.kube.connection import tls_context
from multimirror.kube.credentials import Static, TokenFile
from multimirror.kube.errors import (
    AlreadyExists,
    BadAnswer,
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from tests.unit.kube.servers import THINGS, Seen, Server, Wire, a_list, a_thing, running, status
from tests.unit.kube.virtual_time import virtual_time

Call = Callable[[Client], Awaitable[object]]


async def read(client: Client) -> object:
    return await client.get(THINGS, "a", "default")


async def write(client: Client) -> object:
    return await client.patch(THINGS, "a", {"spec": {"x": 1}}, "default")


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


CALLS = pytest.mark.parametrize("call", [pytest.param(read, id="a read"), pytest.param(write, id="a write")])


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (501, "NotImplemented", ServerError),
    ],
)
async def test_each_refusal_is_an_error_of_its_own_kind_that_names_the_cluster(
    server: Server, client: Client, code: int, reason: str, kind: type[ApiError]
) -> None:
    server.then_answer(code, status(code, reason, "because"))
    with pytest.raises(ApiError) as caught:
        await read(client)
    assert type(caught.value) is kind
    assert str(caught.value) == "cluster worker-1: because"
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert len(server.seen) == 1


async def test_an_invalid_object_is_refused_field_by_field(server: Server, client: Client) -> None:
    cause = {"reason": "FieldValueRequired", "field": "spec.template", "message": "Required value"}
    server.then_answer(422, status(422, "Invalid", causes=[cause]))
    with pytest.raises(Invalid) as caught:
        await client.create(THINGS, a_thing("a"))
    assert caught.value.causes == [Cause("FieldValueRequired", "spec.template", "Required value")]
    assert not caught.value.outcome_unknown


@CALLS
@virtual_time
async def test_a_server_that_asks_for_patience_gets_it(call: Call) -> None:
    async with running() as server, Client(server.connection()) as client:
        server.then_answer(429, status(429, "TooManyRequests"), {"Retry-After": "7"})
        server.then_answer(200, a_thing("a"))
        await call(client)
        assert asyncio.get_running_loop().time() == pytest.approx(7, abs=0.5)
        assert len(server.seen) == 2


@virtual_time
async def test_a_server_that_asks_for_more_patience_than_there_is_time_ends_the_call_at_once() -> None:
    async with running() as server, Client(server.connection(), timeout=5) as client:
        server.then_answer(429, status(429, "TooManyRequests"), {"Retry-After": "60"})
        with pytest.raises(TooManyRequests) as caught:
            await write(client)
        assert caught.value.retry_after == 60
        assert asyncio.get_running_loop().time() < 1


@virtual_time
async def test_a_read_survives_a_server_that_fails_for_a_moment() -> None:
    async with running() as server, Client(server.connection()) as client:
        server.then_answer(500, status(500, "InternalError"))
        server.then_answer(503, b"upstream connect error")
        server.then_answer(200, a_thing("a"))
        assert await read(client) == a_thing("a")
        assert asyncio.get_running_loop().time() > 0.1


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_a_write_that_took_effect_before_the_server_failed_is_not_repeated(
    server: Server, client: Client, code: int
) -> None:
    server.then_answer(code, status(code, "InternalError", "etcdserver: request timed out"))
    with pytest.raises(ServerError) as caught:
        await write(client)
    assert caught.value.outcome_unknown
    assert len(server.seen) == 1


@CALLS
async def test_a_connection_reset_in_mid_request_is_unknown_for_a_write_and_harmless_for_a_read(
    server: Server, client: Client, call: Call
) -> None:
    async def reset(_: Seen, wire: Wire) -> None:
        wire.reset()

    server.then(reset)
    server.then(reset)
    server.then_answer(200, a_thing("a"))
    if call is read:
        await call(client)
    else:
        with pytest.raises(Unreachable) as caught:
            await call(client)
        assert caught.value.outcome_unknown
        assert len(server.seen) == 1


async def test_a_kept_connection_that_the_server_closes_under_a_write_never_looks_like_success(
    server: Server, client: Client
) -> None:
    async def hang_up(_: Seen, wire: Wire) -> None:
        wire.hang_up()

    server.then_answer(200, a_thing("a"))
    server.then(hang_up)
    await read(client)
    with pytest.raises(Unreachable, match="broke before an answer came") as caught:
        await write(client)
    assert caught.value.outcome_unknown
    assert server.connections == 1


async def test_an_answer_that_ends_with_the_connection_is_read_to_its_end(server: Server, client: Client) -> None:
    async def old_style(_: Seen, wire: Wire) -> None:
        await wire.send(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(a_thing("a")).encode())
        wire.hang_up()

    server.then(old_style)
    assert await read(client) == a_thing("a")


@CALLS
@virtual_time
async def test_slow_headers_end_with_the_deadline(call: Call) -> None:
    async with running() as server, Client(server.connection(), timeout=30) as client:

        async def drip(_: Seen, wire: Wire) -> None:
            for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n":
                await wire.send(bytes([byte]))
                await asyncio.sleep(10)

        server.then(drip)
        with pytest.raises(TimedOut, match=r"no answer to .* in 30 s") as caught:
            await call(client)
        assert caught.value.outcome_unknown == (call is write)
        assert asyncio.get_running_loop().time() == pytest.approx(30, abs=1)


async def test_an_answer_cut_short_is_never_taken_for_a_whole_one(server: Server, client: Client) -> None:
    async def cut(_: Seen, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{}")
        wire.hang_up()

    server.then(cut)
    with pytest.raises(Unreachable) as caught:
        await write(client)
    assert caught.value.outcome_unknown


@CALLS
async def test_a_login_page_instead_of_the_api_is_told_from_the_api(server: Server, client: Client, call: Call) -> None:
    page = b"<html><body>Please log in</body></html>"

    async def html(_: Seen, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page) + page)

    server.then(html)
    with pytest.raises(BadAnswer, match=r"cluster worker-1: .*answered text/html instead of JSON; is that an API"):
        await call(client)


async def test_a_redirect_is_not_followed_with_our_credentials(server: Server, client: Client) -> None:
    server.then_answer(302, b"", {"Location": "http://127.0.0.1:1/"})
    with pytest.raises(BadAnswer, match="302"):
        await read(client)
    assert len(server.seen) == 1


async def test_an_answer_that_wants_another_protocol_is_refused_at_once(server: Server, client: Client) -> None:
    async def upgrade(_: Seen, wire: Wire) -> None:
        await wire.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nPRI * HTTP/2.0"
        )
        await wire.silence()

    server.then(upgrade)
    with pytest.raises(Unreachable, match="something else"):
        await write(client)


async def test_garbage_instead_of_http_is_told_as_such(server: Server, client: Client) -> None:
    async def garbage(_: Seen, wire: Wire) -> None:
        await wire.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        wire.hang_up()

    server.then(garbage)
    with pytest.raises(Unreachable, match="does not answer in HTTP"):
        await write(client)


@CALLS
@virtual_time
async def test_a_server_that_is_not_there_is_tried_again_with_growing_waits_and_then_told(call: Call) -> None:
    async with running() as server:
        port = server.port
    async with Client(Connection(name="worker-1", server=f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(Unreachable, match=r"cluster worker-1: no connection to http://127\.0\.0\.1:") as caught:
            await call(client)
    assert not caught.value.outcome_unknown
    assert 1.5 < asyncio.get_running_loop().time() < 30


@virtual_time
async def test_a_call_that_waits_for_our_own_limits_too_long_was_certainly_not_sent() -> None:
    async with running() as server, Client(server.connection(), concurrency=1, timeout=10) as client:

        async def stuck(_: Seen, wire: Wire) -> None:
            await wire.silence()

        server.then(stuck)
        first = asyncio.create_task(client.request("GET", "/slow", timeout=60))
        await server.until_seen(1)
        with pytest.raises(TimedOut, match="was not sent") as caught:
            await write(client)
        assert not caught.value.outcome_unknown
        first.cancel()
        await asyncio.wait([first])


async def test_a_page_token_that_expired_means_one_list_without_pages(server: Server, client: Client) -> None:
    server.then_answer(200, a_list(7, a_thing("a"), **{"continue": "old"}))
    server.then_answer(410, status(410, "Expired"))
    server.then_answer(200, a_list(9, a_thing("b"), a_thing("c")))
    found = await client.list(THINGS, limit=1)
    assert [item["metadata"]["name"] for item in found.items] == ["b", "c"]
    assert found.resource_version == "9"
    assert "limit" not in server.seen[2].target


class TestWatch:
    async def test_a_version_that_is_too_old_is_gone_at_once_or_in_the_stream(
        self, server: Server, client: Client
    ) -> None:
        async def in_stream(_: Seen, wire: Wire) -> None:
            await wire.start_chunks()
            await wire.event("ADDED", a_thing("a"))
            await wire.event("ERROR", status(410, "Expired", "too old resource version: 1 (5)"))
            await wire.end_chunks()

        server.then_answer(410, status(410, "Gone"))
        server.then(in_stream)
        with pytest.raises(Gone):
            await anext(client.watch(THINGS, resource_version="1"))
        events = client.watch(THINGS, resource_version="1")
        assert (await anext(events)).object == a_thing("a")
        with pytest.raises(Gone, match="too old"):
            await anext(events)

    async def test_a_chunk_cut_short_gives_the_whole_events_and_then_the_break(
        self, server: Server, client: Client
    ) -> None:
        async def cut(_: Seen, wire: Wire) -> None:
            await wire.start_chunks()
            await wire.event("ADDED", a_thing("a"))
            await wire.send(b'ff\r\n{"type": "ADD')
            wire.hang_up()

        server.then(cut)
        events = client.watch(THINGS)
        assert (await anext(events)).object == a_thing("a")
        with pytest.raises(Unreachable, match="broke in mid-stream"):
            await anext(events)

    async def test_something_that_is_not_an_event_is_told(self, server: Server, client: Client) -> None:
        async def html(_: Seen, wire: Wire) -> None:
            await wire.start_chunks()
            await wire.chunk(b"<html>\n")
            await wire.end_chunks()

        server.then(html)
        with pytest.raises(BadAnswer, match="not an event"):
            await anext(client.watch(THINGS))

    @virtual_time
    async def test_a_watch_that_the_server_forgets_to_end_is_ended(self) -> None:
        async with running() as server, Client(server.connection()) as client:

            async def silent(_: Seen, wire: Wire) -> None:
                await wire.start_chunks()
                await wire.silence()

            server.then(silent)
            with pytest.raises(TimedOut, match="silent"):
                await anext(client.watch(THINGS, timeout=60))
            assert asyncio.get_running_loop().time() == pytest.approx(70, abs=1)

    @virtual_time
    async def test_a_watch_whose_headers_never_come_is_given_up(self) -> None:
        async with running() as server, Client(server.connection(), timeout=20) as client:

            async def silent(_: Seen, wire: Wire) -> None:
                await wire.silence()

            server.then(silent)
            with pytest.raises(TimedOut, match="no answer to a watch"):
                await anext(client.watch(THINGS))
            assert asyncio.get_running_loop().time() == pytest.approx(20, abs=1)


async def test_a_reader_that_is_slow_stops_the_server_from_filling_our_memory(server: Server, client: Client) -> None:
    sent = 0
    big = a_thing("a", data="x" * 100_000)

    async def flood(_: Seen, wire: Wire) -> None:
        nonlocal sent
        await wire.start_chunks()
        while True:
            await wire.event("ADDED", big)
            sent += 1

    server.then(flood)
    async with aclosing(client.watch(THINGS)) as events:
        await anext(events)
        before = -1
        while sent != before:  # until the server is stuck in its write: what it sends has nowhere to go
            before = sent
            for _ in range(50):
                await asyncio.sleep(0.001)
        assert sent < 1000  # what fits into the system's own buffers, and one megabyte of ours
        for _ in range(before + 100):
            await anext(events)


class TestTrust:
    async def test_a_server_with_a_certificate_of_another_ca_is_not_talked_to(self) -> None:
        ours, theirs = trustme.CA(), trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        theirs.issue_cert("127.0.0.1").configure_cert(context)
        tls = tls_context(ours.cert_pem.bytes())
        async with (
            running(context) as server,
            Client(server.connection(tls=tls, credentials=Static("Bearer secret")), timeout=20) as client,
        ):
            server.then_answer(200, a_thing("a"))
            with pytest.raises(Unreachable, match=r"cluster worker-1: the certificate of .* is not to be trusted") as e:
                await write(client)
        assert server.seen == []
        assert not e.value.outcome_unknown

    @pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    def test_a_server_of_our_ca_is(self, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        ca = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert("kubernetes.default").configure_cert(context)
        tls = tls_context(ca.cert_pem.bytes())

        async def talk() -> None:
            async with (
                running(context) as server,
                Client(server.connection(tls=tls, tls_server_name="kubernetes.default")) as client,
            ):
                server.then_answer(200, a_thing("a"))
                assert await asyncio.gather(*(read(client) for _ in range(5))) == [a_thing("a")] * 5
                assert await client.request("GET", "/big" * 1000) is not None

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(talk())

    @pytest.mark.parametrize("let_in", [True, False])
    async def test_a_proxy_carries_the_connection_and_sees_none_of_it(self, server: Server, let_in: bool) -> None:
        ca = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert("127.0.0.1").configure_cert(context)

        async def proxy(seen: Seen, wire: Wire) -> None:
            if not let_in:
                await wire.send(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                wire.hang_up()
                return
            assert seen.headers["proxy-authorization"] == "basic " + base64.b64encode(b"me:pw").decode().lower()
            back_reader, back = await asyncio.open_connection("127.0.0.1", hidden.port)
            await wire.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_carry(wire.reader, back), _carry(back_reader, wire.writer))

        server.then(proxy)
        tls = tls_context(ca.cert_pem.bytes())
        async with running(context) as hidden:
            hidden.then_answer(200, a_thing("a"))
            by = f"http://me:pw@127.0.0.1:{server.port}"
            async with Client(hidden.connection(tls=tls, proxy=by), timeout=20) as client:
                if let_in:
                    assert await read(client) == a_thing("a")
                else:
                    with pytest.raises(Unreachable, match=r"the proxy 127\.0\.0\.1 answered 407"):
                        await read(client)
        assert server.seen[0].target == f"127.0.0.1:{hidden.port}"

    async def test_an_expired_token_is_told_and_one_that_was_renewed_is_used(
        self, server: Server, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("old\n")

        async def check(seen: Seen, wire: Wire) -> None:
            if seen.headers["authorization"] == "bearer new":
                await wire.answer(200, a_thing("a"))
            else:
                await wire.answer(401, status(401, "Unauthorized", "token expired"))

        server.then(check)
        async with Client(server.connection(credentials=TokenFile(file))) as client:
            with pytest.raises(Unauthorized, match="cluster worker-1: token expired"):
                await write(client)
            assert len(server.seen) == 1
            file.write_text("new\n")
            await write(client)

    async def test_a_token_file_that_is_not_there_is_told(self, server: Server, tmp_path: Path) -> None:
        async with Client(server.connection(credentials=TokenFile(tmp_path / "token"))) as client:
            with pytest.raises(Unauthorized, match=re.escape(f"{tmp_path}/token cannot be read")):
                await read(client)
        assert server.seen == []


async def test_what_was_given_up_does_not_arrive_later() -> None:
    """A network that is whole again delivers what a system still holds, minutes after whoever sent it has gone on."""
    gave_up, over = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def listen_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gave_up.wait()
        try:
            while await reader.read(65536):  # what had arrived before
                pass
            over.set_result("all of it came")
        except ConnectionResetError:
            over.set_result("no more of it comes")
        writer.close()

    server = await asyncio.start_server(listen_late, "127.0.0.1", 0, limit=1024)
    async with server, Client(Connection(name="worker-1", server=_url(server)), timeout=1.0) as client:
        with pytest.raises(TimedOut):
            await client.patch(THINGS, "a", {"spec": {"x": "y" * 2**24}}, "default")
        gave_up.set()
        assert await over == "no more of it comes"


def _url(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

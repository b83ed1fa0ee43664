"""Servers that want to fill our memory, or take our time: refused by purpose, before it costs much."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from multimirror.kube import ApiError, Client, Informer, Object
from multimirror.kube.budget import KIB, MIB, UNTRUSTED, Allowance, Budget, CacheBudget, CacheLimits, values_in
from multimirror.kube.errors import BadAnswer, OverBudget, TimedOut, Unreachable, error_from_status, printable
from multimirror.kube.trimming import weight
from multimirror.kube.watch import decode, watch_params
from tests.unit.kube.servers import THINGS, Seen, Server, Wire, a_list, a_thing, running
from tests.unit.kube.virtual_time import virtual_time

PLENTY = Allowance(1024 * MIB, 1024 * MIB)


class Told:
    """Who is told of breaches."""

    def __init__(self, allowance: Allowance = PLENTY) -> None:
        self.errors: list[OverBudget] = []
        self.budget = Budget("worker-1", lambda: allowance, self.errors.append)

    def client(self, server: Server, **options: Any) -> Client:
        return Client(server.connection(), limits=UNTRUSTED, budget=self.budget, **options)

    def cache(self, objects: int = 1000, size: int = 100 * MIB) -> CacheBudget:
        return CacheBudget("things", lambda: CacheLimits(objects, size), self.budget.breach)


async def announce(_: Seen, wire: Wire) -> None:
    """Says how much it will send, and begins."""
    await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 400000000\r\n\r\n" + b"x" * 1000)
    await wire.silence()


async def pour(_: Seen, wire: Wire) -> None:
    """Sends for as long as somebody listens."""
    await wire.start_chunks()
    for _number in range(400):
        await wire.chunk(b"x" * MIB)


async def refuse_at_length(_: Seen, wire: Wire) -> None:
    await wire.send(b"HTTP/1.1 403 No\r\ntransfer-encoding: chunked\r\n\r\n")
    for _number in range(400):
        await wire.chunk(b"x" * MIB)


Call = Callable[[Client], Awaitable[object]]


@pytest.mark.parametrize("script", [announce, pour, refuse_at_length])
@pytest.mark.parametrize(
    ("call", "limit"),
    [
        pytest.param(lambda client: client.request("GET", "/version"), MIB, id="a version"),
        pytest.param(lambda client: client.get(THINGS, "a", "default"), 4 * MIB, id="one object"),
        pytest.param(lambda client: client.patch(THINGS, "a", {}, "default"), 4 * MIB, id="a write"),
        pytest.param(lambda client: client.list(THINGS), 4 * MIB, id="a list"),
    ],
)
async def test_an_answer_that_is_too_large_is_refused_and_told(script: Any, call: Call, limit: int) -> None:
    told = Told()
    async with running() as server, told.client(server) as client:
        server.then(script)
        with pytest.raises(OverBudget, match="is larger than") as caught:
            await call(client)
        assert told.errors == [caught.value]
        assert str(limit if script is not refuse_at_length else MIB) in str(caught.value)


async def test_what_is_refused_is_not_asked_for_again_and_its_connection_is_gone() -> None:
    async with running() as server, Told().client(server) as client:
        server.then(announce)
        with pytest.raises(OverBudget) as caught:
            await client.patch(THINGS, "a", {}, "default")
        assert caught.value.outcome_unknown
        assert len(server.seen) == 1
        server.scripts.clear()
        server.then_answer(200, a_thing("a"))
        assert await client.get(THINGS, "a", "default") == a_thing("a")
        assert server.connections == 2


async def test_pages_that_are_too_large_are_made_smaller_until_they_fit() -> None:
    told = Told()
    things = [a_thing(f"t-{number:03}", 1, pad="x" * 100 * KIB) for number in range(60)]

    async def page(seen: Seen, wire: Wire) -> None:
        query = dict(pair.split("=") for pair in seen.target.split("?")[1].split("&"))
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        following = {"continue": str(start + limit)} if start + limit < len(things) else {}
        await wire.answer(200, a_list(7, *things[start : start + limit], **following))

    async with running() as server, told.client(server) as client:
        server.then(page)
        found = await client.list(THINGS)
        assert [item["metadata"]["name"] for item in found.items] == [thing["metadata"]["name"] for thing in things]
        assert told.errors == []


async def test_an_answer_of_brackets_is_not_even_parsed() -> None:
    told = Told()
    async with running() as server, told.client(server) as client:
        server.then_answer(200, a_thing("a", pad=[[]] * 250_000))
        with pytest.raises(OverBudget, match="has more than 400000 values"):
            await client.get(THINGS, "a", "default")
        server.scripts.clear()
        server.then_answer(200, a_list(7, a_thing("a", pad=[[]] * 250_000)))
        with pytest.raises(OverBudget, match="has more than 400000 values"):
            await client.list(THINGS)
        assert len(told.errors) == 2


async def test_a_cache_of_a_trusted_server_holds_no_more_than_a_page_whole() -> None:
    things = [a_thing(f"t-{number:03}", 1, pad="x" * 1024 * KIB) for number in range(40)]
    asked: list[int] = []

    async def page(seen: Seen, wire: Wire) -> None:
        query = dict(pair.split("=") for pair in seen.target.split("?")[1].split("&"))
        if "watch" in query:
            await wire.answer(400, {"kind": "Status", "status": "Failure", "reason": "BadRequest", "code": 400})
            return
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        asked.append(limit)
        following = {"continue": str(start + limit)} if start + limit < len(things) else {}
        await wire.answer(200, a_list(7, *things[start : start + limit], **following))

    def trim(obj: Object) -> Object:
        return {"metadata": obj["metadata"]}

    async with running() as server, Client(server.connection()) as client:
        server.then(page)
        async with Informer(client, THINGS, trim=trim) as informer:
            await informer.synced()
            assert len(informer) == 40
            assert all("pad" not in obj for obj in informer.list())
    assert asked[0] == 500
    assert asked[-1] <= 16


@virtual_time
async def test_pages_without_end_come_to_an_end() -> None:
    async def page(_: Seen, wire: Wire) -> None:
        await asyncio.sleep(1)
        await wire.answer(200, a_list(7, a_thing("a"), **{"continue": "more"}))

    async with running() as server, Told().client(server) as client:
        server.then(page)
        with pytest.raises(TimedOut):
            await client.list(THINGS)
        assert asyncio.get_running_loop().time() == pytest.approx(UNTRUSTED.list_seconds, abs=2)


async def test_empty_pages_without_end_are_no_list() -> None:
    async with running() as server, Told().client(server) as client:
        server.then_answer(200, a_list(7, **{"continue": "more"}))
        with pytest.raises(BadAnswer, match="no list"):
            await client.list(THINGS)
        assert len(server.seen) < 30


@virtual_time
async def test_a_streamed_list_that_trickles_has_one_deadline() -> None:
    async def trickle(seen: Seen, wire: Wire) -> None:
        if "watch=true" not in seen.target:
            await wire.silence()
        await wire.start_chunks()
        for number in range(10_000):
            await wire.event("ADDED", a_thing(f"t-{number}"))
            await asyncio.sleep(5)

    async with running() as server, Told().client(server) as client:
        server.then(trickle)
        async with Informer(client, THINGS) as informer:
            await server.until_seen(2)
            assert asyncio.get_running_loop().time() == pytest.approx(UNTRUSTED.list_seconds, abs=10)
            assert not informer.has_synced


def an_event(name: str, **extra: Any) -> bytes:
    return json.dumps({"type": "ADDED", "object": a_thing(name, **extra)}).encode() + b"\n"


async def follow(client: Client) -> int:
    params = watch_params(resource_version="1")
    count = 0
    async with aclosing(client.watch_batches(THINGS.path(), params, silence=lambda: 60.0)) as batches:
        async for batch in batches:
            count += len(batch)
    return count


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        pytest.param(b"x" * MIB, "an event of more than 4194304 bytes", id="a line without end"),
        pytest.param(an_event("a", pad="x" * 100 * KIB), "nothing that we have there explains", id="large events"),
        pytest.param(an_event("a") * 100, "nothing that we have there explains", id="small events"),
        pytest.param(an_event("a", pad=[[]] * 450_000), "an event of more than 400000 values", id="brackets"),
        pytest.param(b"\n" * MIB, "lines that are no events", id="empty lines"),
    ],
)
async def test_a_watch_that_floods_is_refused_and_told(chunk: bytes, message: str) -> None:
    async def flood(_: Seen, wire: Wire) -> None:
        await wire.start_chunks()
        while not wire.writer.is_closing():
            await wire.chunk(chunk)

    told = Told(Allowance(32 * MIB, MIB))
    async with running() as server, told.client(server) as client:
        server.then(flood)
        with pytest.raises(OverBudget, match=message):
            await follow(client)
        assert len(told.errors) == 1


@pytest.mark.parametrize(
    "text", ["," * 250_000, "[{" * 120_000, '\\",' * 60_000, "\\"], ids=["commas", "brackets", "quotes", "\\"]
)
def test_marks_in_a_text_are_no_values(text: str) -> None:
    """A tenant writes a text of commas into a Job: its worker, which shows the copy, did not."""
    assert values_in(json.dumps({"args": [text, *["," * 20_000] * 2]}).encode()) < 10
    assert values_in(json.dumps({"args": [text, *[[]] * 30_000]}).encode()) > 30_000
    assert values_in(json.dumps({"args": [""] * 1_100_000}).encode()) > (UNTRUSTED.values or 0)


@virtual_time
async def test_what_we_wrote_explains_what_comes_back_however_much_it_is() -> None:
    told = Told(Allowance(10 * MIB, MIB))
    for _ in range(20):
        told.budget.earn(256 * KIB, values=80_000)
    for _ in range(20 * 7):
        told.budget.spend(256 * KIB, values=80_000)
    assert told.errors == []
    await asyncio.sleep(3600)
    with pytest.raises(OverBudget):
        told.budget.spend(600 * MIB)


@virtual_time
async def test_a_budget_fills_up_with_time_and_with_our_own_writes() -> None:
    told = Told(Allowance(10 * MIB, 6 * MIB))
    told.budget.spend(9 * MIB)
    await asyncio.sleep(10)
    told.budget.spend(2 * MIB)
    told.budget.earn(MIB)
    told.budget.spend(9 * MIB)
    assert told.errors == []
    with pytest.raises(OverBudget):
        told.budget.spend(9 * MIB)
    await asyncio.sleep(3600)
    told.budget.spend(10 * MIB)
    with pytest.raises(OverBudget):
        told.budget.spend(MIB)


async def test_events_that_come_all_at_once_leave_room_for_others() -> None:
    turns = 0
    done = False

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    async def chunks() -> Any:
        yield b"".join(an_event(f"t-{number}") for number in range(10_000))

    task = asyncio.get_running_loop().create_task(others())
    count = 0
    async for batch in decode(chunks(), "worker-1"):
        count += len(batch)
    done = True
    await task
    assert count == 10_000
    assert turns > 100


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([b"HTTP/1.1 200 OK\r\nx: ", b"y" * MIB, b"y" * MIB], id="a header without end"),
        pytest.param([b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 300], id="headers without end"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n" * 50], id="never the answer proper"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"e" * MIB, b"e" * MIB],
            id="a chunk extension without end",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nt: ", b"e" * MIB, b"e" * MIB],
            id="a trailer without end",
        ),
    ],
)
async def test_what_frames_an_answer_has_an_end_too(script: Sequence[bytes]) -> None:
    async def send(_: Seen, wire: Wire) -> None:
        for piece in script:
            await wire.send(piece)
        await wire.silence()

    async with running() as server, Told().client(server, timeout=20) as client:
        server.then(send)
        with pytest.raises(Unreachable, match="does not answer in HTTP"):
            await client.patch(THINGS, "a", {}, "default")


async def test_an_answer_in_pieces_of_one_byte_is_put_together() -> None:
    async def dribble(_: Seen, wire: Wire) -> None:
        body = json.dumps(a_thing("a")).encode()
        await wire.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await wire.send(b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body) + b"0\r\n\r\n")

    async with running() as server, Told().client(server) as client:
        server.then(dribble)
        assert await client.get(THINGS, "a", "default") == a_thing("a")


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("objects", "size", "message"),
    [(50, 100 * MIB, "more than 50 things"), (10_000, 300 * KIB, "the things that it shows take more than 0.293 MiB")],
)
async def test_a_cache_takes_no_more_than_it_may(streaming: bool, objects: int, size: int, message: str) -> None:
    told = Told()

    async def show(seen: Seen, wire: Wire) -> None:
        things = [a_thing(f"t-{number}", pad=["x" * 60] * 50) for number in range(100)]
        if "watch=true" not in seen.target:
            return await wire.answer(200, a_list(7, *things))
        await wire.start_chunks()
        for thing in things:
            await wire.event("ADDED", thing)
        return await wire.silence()

    async with running() as server, told.client(server) as client:
        server.then(show)
        budget = told.cache(objects, size)
        async with Informer(client, THINGS, budget=budget, streaming=streaming) as informer:
            async with asyncio.timeout(10):
                while not told.errors:
                    await asyncio.sleep(0)
            assert not informer.has_synced
            assert message in told.errors[0].message
        assert (budget.objects, budget.weight) == (0, 0)


async def test_a_cache_that_is_full_takes_nothing_new_and_forgets_what_is_gone() -> None:
    told = Told()
    mark = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}

    async def show(_: Seen, wire: Wire) -> None:
        await wire.start_chunks()
        await wire.event("ADDED", a_thing("a", 1))
        await wire.event("BOOKMARK", mark)
        for number in range(10, 1000, 2):  # one comes, one goes: that is no breach
            await wire.event("ADDED", a_thing(f"t-{number}", number))
            await wire.event("DELETED", a_thing(f"t-{number}", number + 1))
        for number in range(1000, 1010):
            await wire.event("ADDED", a_thing(f"t-{number}", number))
        await wire.silence()

    async with running() as server, told.client(server) as client:
        server.then(show)
        budget = told.cache(objects=5)
        async with Informer(client, THINGS, budget=budget) as informer:
            async with asyncio.timeout(10):
                while not told.errors:
                    await asyncio.sleep(0)
            assert len(informer) == budget.objects == 5


async def test_what_is_made_anew_under_its_name_still_counts() -> None:
    told = Told()
    mark = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}

    async def show(_: Seen, wire: Wire) -> None:
        await wire.start_chunks()
        await wire.event("BOOKMARK", mark)
        for number in range(10, 100, 2):
            await wire.event("ADDED", a_thing(f"t-{number}", number))
            await wire.event("ADDED", a_thing(f"t-{number}", number + 1, metadata={"uid": f"another-{number}"}))
        await wire.silence()

    async with running() as server, told.client(server) as client:
        server.then(show)
        budget = told.cache(objects=5)
        async with Informer(client, THINGS, budget=budget) as informer:
            async with asyncio.timeout(10):
                while not told.errors and len(informer) < 45:
                    await asyncio.sleep(0)
            assert told.errors
            assert len(informer) == budget.objects == 5
        assert (budget.objects, budget.weight) == (0, 0)


def test_weight_is_what_python_makes_of_it_not_what_is_on_the_wire() -> None:
    brackets = json.loads("[" + ",".join(["[]"] * 10_000) + "]")
    assert weight(brackets) > 600_000


@pytest.mark.parametrize(
    "status",
    [
        {"code": "many", "reason": ["x"], "message": {"a": 1}, "details": "none"},
        {"code": 10**30, "reason": None, "details": {"causes": {"a": 1}, "retryAfterSeconds": [1]}},
        {
            "code": 429,
            "details": {"causes": ["x", {"reason": 1, "field": [], "message": {}}], "retryAfterSeconds": 1e12},
        },
    ],
)
def test_whatever_a_status_holds_it_is_an_error_with_short_words(status: dict[str, Any]) -> None:
    error = error_from_status(status, cluster="worker-1")
    assert isinstance(error, ApiError)
    assert all(isinstance(cause.message, str) for cause in error.causes)
    assert error.retry_after is None or error.retry_after <= 300


def test_what_a_server_says_moves_no_cursor_and_breaks_no_line() -> None:
    said = ApiError("a\x1b]52;c;ZXZpbA==\x07b\r\nc\u202e", cluster="worker-1")
    assert str(said).isprintable()
    assert len(printable("x" * 5000)) < 1100


@pytest.mark.parametrize(
    "line",
    [
        {"type": "BOOKMARK", "object": {}},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": 7}}},
        {"type": "BOOKMARK", "object": []},
        {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "9" * 1000}}},
        {"type": "ADDED", "object": {"metadata": {"name": "a" * 1000, "resourceVersion": "9"}}},
        {"type": "ADDED", "object": {"metadata": {"name": "", "resourceVersion": "9"}}},
        {"type": "RENAMED", "object": a_thing("a")},
        {"type": ["ADDED"], "object": a_thing("a")},
    ],
)
async def test_what_is_no_event_is_no_event(line: Any) -> None:
    async def chunks() -> Any:
        yield json.dumps(line).encode() + b"\n"

    with pytest.raises(BadAnswer, match="not an event"):
        _ = [batch async for batch in decode(chunks(), "worker-1")]

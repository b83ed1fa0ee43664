"""By which way a command reaches a worker, and that its token goes to nobody else on the way."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from multimirror.cli.background import background
from multimirror.cli.relay.calling import Relay
from multimirror.cli.relay.streams import Stream, Streams
from multimirror.cli.workers import WorkerConnection, worker_connection
from multimirror.kube.errors import Unreachable
from multimirror.kube.supervise import Supervisor
from multimirror.workers import identity_of
from tests.unit.cli.workers_api import (
    INTERNAL,
    KUBE_SYSTEM,
    Management,
    a_closed_port,
    api_server,
    authority,
    blackhole,
    management,
)
from tests.unit.kube.servers import Seen as Request
from tests.unit.kube.servers import Server, Wire

SYSTEM = "multimirror-system"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Management]:
    async with management(tmp_path) as found:
        yield found


@pytest.fixture
def ca() -> trustme.CA:
    return authority()


@pytest.fixture
async def worker(ca: trustme.CA) -> AsyncIterator[Server]:
    async with api_server(ca) as server:
        yield server


def url(server: Server, host: str = "127.0.0.1") -> str:
    return f"https://{host}:{server.port}"


async def reached(hub: Management) -> WorkerConnection:
    """As a command does it; the worker must have answered."""
    async with background(), hub.client() as client:
        east = await worker_connection(client, "east", SYSTEM)
        async with east.client() as there:
            assert await identity_of(there) == "the-worker"
    return east


async def failure(hub: Management) -> str:
    with pytest.raises(Unreachable) as error:
        await reached(hub)
    return error.value.message


async def test_the_stored_address_is_used_where_it_answers(hub: Management, ca: trustme.CA, worker: Server) -> None:
    async with api_server(ca) as other:
        hub.stores(url(worker), ca, joined_by=url(other))
        east = await reached(hub)
        assert east.way == f"at {url(worker)}, as the dispatcher does"
        assert [request.headers["authorization"] for request in worker.seen] == ["bearer the-token"]
        assert other.seen == []


@pytest.mark.parametrize("dead", ["a name that nobody knows", "a closed port", "a black hole"])
async def test_where_the_stored_address_is_dead_the_one_of_join_is_used_at_once(
    hub: Management, ca: trustme.CA, worker: Server, dead: str
) -> None:
    with blackhole() as nowhere:
        stored = {"a closed port": a_closed_port(), "a black hole": nowhere}.get(dead, f"https://{INTERNAL}:6443")
        hub.stores(stored, ca, joined_by=url(worker))
        started = time.monotonic()
        east = await reached(hub)
        assert time.monotonic() - started < 2.5, "the dead address was not waited for"
    assert east.way == f"at {url(worker)}, by which it was joined"
    assert hub.executed == []


async def test_an_address_that_is_somebody_elses_now_gets_no_token(hub: Management, ca: trustme.CA) -> None:
    async with api_server(authority()) as stranger, api_server(authority()) as another:
        hub.stores(url(another), ca, joined_by=url(stranger))
        message = await failure(hub)
        assert (stranger.seen, another.seen) == ([], [])
    assert f"{url(stranger)}, by which it was joined: its certificate is not to be trusted" in message
    assert f"{url(another)}, as the dispatcher does: its certificate is not to be trusted" in message


@pytest.mark.parametrize(
    "address",
    [
        *("http://127.0.0.1:1", "https://user:secret@example.org", "nonsense", "x" * 5000),
        *(f"https://{'a' * 64}.example", "https://a..b", "https://a\0b"),
    ],
)
async def test_an_address_that_is_none_is_not_tried(hub: Management, ca: trustme.CA, address: str) -> None:
    hub.stores(a_closed_port(), ca, joined_by=address)
    assert "by which it was joined" not in await failure(hub)


async def test_without_a_ca_of_the_cluster_no_other_address_is_tried(hub: Management, worker: Server) -> None:
    hub.stores(a_closed_port(), None, joined_by=url(worker))
    assert "by which it was joined" not in await failure(hub)
    assert worker.connections == 0


async def test_a_worker_that_cannot_be_reached_by_any_way_says_what_was_tried(hub: Management, ca: trustme.CA) -> None:
    stored, joined = a_closed_port(), a_closed_port()
    hub.stores(stored, ca, joined_by=joined)
    message = await failure(hub)
    assert message == (
        f"it cannot be reached from here: {stored}, as the dispatcher does: Connection refused; {joined}, by which it "
        "was joined: Connection refused; through the management cluster: no pod of the dispatcher runs in namespace "
        "multimirror-system"
    )


async def test_a_black_hole_costs_a_few_seconds_and_only_once(hub: Management, ca: trustme.CA) -> None:
    with blackhole() as nowhere:
        hub.stores(nowhere, ca)
        started = time.monotonic()
        assert "no answer in 2.5 s" in await failure(hub)
        assert time.monotonic() - started < 8.0, "however often the request was repeated"


@pytest.mark.parametrize("subprotocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_a_worker_that_only_the_dispatchers_pod_reaches_is_reached_through_it(
    hub: Management, ca: trustme.CA, worker: Server, subprotocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.subprotocol = subprotocol
    hub.stores(url(worker, INTERNAL), ca, joined_by=a_closed_port())
    hub.has_dispatcher()
    async with background(), hub.client() as client:
        east = await worker_connection(client, "east", SYSTEM)
        async with east.client() as there, east.client() as another:
            for asked in (there, another, there):
                assert await identity_of(asked) == "the-worker"
    assert east.way == "through the management cluster"
    assert {request.headers["authorization"] for request in worker.seen} == {"bearer the-token"}
    assert {request.headers["host"] for request in worker.seen} == {f"{INTERNAL}:{worker.port}"}
    assert hub.executed == [["dispatcher", "multimirror", "relay", "--system-namespace", SYSTEM]], "one for everything"
    async with asyncio.timeout(20):
        assert await hub.ended.get() == 0, "and it ends with the command"
    told = capsys.readouterr()
    assert told.err == "note: worker east cannot be reached from here; this goes through the management cluster\n"
    assert told.out == ""


async def test_through_the_pod_too_a_stranger_gets_no_token(hub: Management, ca: trustme.CA) -> None:
    async with api_server(authority()) as stranger:
        hub.stores(url(stranger, INTERNAL), ca)
        hub.has_dispatcher()
        assert "through the management cluster: its certificate is not to be trusted" in await failure(hub)
        assert stranger.seen == []


async def test_much_is_carried_both_ways_and_one_slow_reader_holds_up_nobody(
    hub: Management, ca: trustme.CA, worker: Server
) -> None:
    size = 4 * 1024 * 1024
    received: list[int] = []

    async def flood(_: Request, wire: Wire) -> None:
        await wire.start_chunks()
        for _piece in range(size // 65536):
            await wire.chunk(b"x" * 65536)
        await wire.end_chunks()

    async def swallow(request: Request, wire: Wire) -> None:
        received.append(len(request.body))
        await wire.answer(200, {})

    worker.scripts.clear()
    for script in (flood, swallow):
        worker.then(script)
    worker.then_answer(200, KUBE_SYSTEM)
    hub.stores(url(worker, INTERNAL), ca)
    hub.has_dispatcher()
    async with background(), hub.client() as client:
        east = await worker_connection(client, "east", SYSTEM)
        async with east.client(timeout=60) as there, asyncio.timeout(60):
            log = there.stream("/log")
            first = await anext(log)  # and nobody reads on
            await there.request("POST", "/large", body=b"y" * size)
            assert await identity_of(there) == "the-worker"
            rest = [len(piece) async for piece in log]
    assert len(first) + sum(rest) == size
    assert received == [size]


async def test_without_the_right_to_exec_it_is_said_which_right_is_missing(hub: Management, ca: trustme.CA) -> None:
    hub.stores(a_closed_port(), ca)
    hub.has_dispatcher()
    hub.exec_refused = (403, 'pods "dispatcher-1" is forbidden: User "x" cannot get resource "pods/exec"')
    message = await failure(hub)
    assert 'cannot get resource "pods/exec"' in message
    assert "it needs `list pods`, and `get` and `create` on pods/exec, in namespace multimirror-system" in message


async def test_the_pods_own_error_is_told(hub: Management, ca: trustme.CA) -> None:
    stored = a_closed_port().replace("127.0.0.1", INTERNAL)
    hub.stores(stored, ca)
    hub.has_dispatcher()
    assert f"through the management cluster: no connection to {stored} (" in await failure(hub)


@pytest.mark.parametrize("name", ["127.0.0.1:{port}", "worker-east/other", "worker-west/kubeconfig", "", "../x/y"])
async def test_the_relay_connects_to_nothing_but_what_is_stored(
    hub: Management, ca: trustme.CA, worker: Server, name: str
) -> None:
    hub.stores(url(worker, INTERNAL), ca)
    hub.has_dispatcher()
    async with background() as here, hub.client() as client:
        with pytest.raises(OSError, match="there is no kubeconfig of a worker in Secret multimirror-system/"):
            await Relay(client.connection, SYSTEM, here).connect(name.format(port=worker.port))
    assert worker.connections == 0


async def test_a_dispatchers_pod_that_goes_away_breaks_what_it_carries_and_nothing_else(
    hub: Management, ca: trustme.CA, worker: Server
) -> None:
    """As in any network: whoever reads is told, whoever asks again gets there through another pod."""

    async def without_end(_: Request, wire: Wire) -> None:
        await wire.start_chunks()
        while True:
            await wire.chunk(b"x" * 65536)

    worker.scripts.clear()
    worker.then(without_end)
    worker.then_answer(200, KUBE_SYSTEM)
    hub.stores(url(worker, INTERNAL), ca)
    hub.has_dispatcher()
    async with background(), hub.client() as client:
        east = await worker_connection(client, "east", SYSTEM)
        async with east.client(timeout=60) as there, asyncio.timeout(60):
            log = there.stream("/log")
            await anext(log)
            hub.cut_off()
            with pytest.raises(Unreachable):
                _ = [len(piece) async for piece in log]
            assert await identity_of(there) == "the-worker"
    assert len(hub.executed) == 2


async def test_a_connection_ends_when_the_pipe_breaks_as_it_is_written_to() -> None:
    async def broken(_: bytes) -> None:
        raise OSError(None, "the connection broke")

    async with asyncio.timeout(10), Supervisor() as tasks:
        streams = Streams(broken, tasks)
        stream = Stream(1, streams._send)
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=theirs)
        ours.sendall(b"a question")
        await streams.carry(stream, reader, writer)
        ours.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(ours, 100) == b""
        ours.close()

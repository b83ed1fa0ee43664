"""What an account may do, and where a process may listen."""

import asyncio

import pytest

from multimirror.kube import Client
from multimirror.kube.access import Permission, denied
from multimirror.kube.addresses import parse_address
from tests.unit.kube.servers import Seen, Server, Wire, running, status
from tests.unit.kube.virtual_time import virtual_time


async def test_permissions_are_asked_for_in_full_and_those_that_are_missing_named(
    server: Server, client: Client
) -> None:
    async def review(request: Seen, wire: Wire) -> None:
        attributes = request.json["spec"]["resourceAttributes"]
        await wire.answer(201, {**request.json, "status": {"allowed": attributes["verb"] == "list"}})

    server.then(review)
    wanted = [Permission("list", "pods"), Permission("patch", "jobs/status", "batch", "team", "train")]
    assert await denied(client, wanted) == wanted[1:]
    assert str(wanted[1]) == "patch jobs/status.batch in namespace team"
    asked = [request.json["spec"]["resourceAttributes"] for request in server.seen]
    status = {"group": "batch", "resource": "jobs", "subresource": "status", "namespace": "team", "name": "train"}
    assert sorted(asked, key=lambda each: str(each["verb"])) == [
        {"verb": "list", "resource": "pods"},
        {"verb": "patch", **status},
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":8080", ("0.0.0.0", 8080)),
        ("[::1]:8080", ("::1", 8080)),
        ("host", None),
        ("host:", None),
        (":65536", None),
        (":٣", None),
    ],
)
def test_addresses(text: str, address: tuple[str, int] | None) -> None:
    if address is not None:
        assert parse_address(text) == address
        return
    with pytest.raises(ValueError, match="is no address"):
        parse_address(text)


async def test_a_question_that_a_busy_server_fails_to_answer_is_asked_again(server: Server, client: Client) -> None:
    async def hung_up(_: Seen, wire: Wire) -> None:
        wire.hang_up()

    server.then_answer(503, status(503, "ServiceUnavailable"))
    server.then(hung_up)
    server.then_answer(201, {"status": {"allowed": True}})
    assert await denied(client, [Permission("list", "pods")]) == []
    assert len(server.seen) == 3


@virtual_time
async def test_the_time_for_a_question_begins_when_it_is_asked_however_many_there_are() -> None:
    async def slowly(request: Seen, wire: Wire) -> None:
        await asyncio.sleep(4.0)
        await wire.answer(201, {**request.json, "status": {"allowed": True}})

    async with running() as server, Client(server.connection(), timeout=15.0) as client:
        server.then(slowly)
        assert await denied(client, [Permission("list", "pods", "", f"team-{n}") for n in range(100)]) == []

"""What an account may do, and where a process may listen."""

import pytest

from multimirror.kube import Client
from multimirror.kube.access import Permission, denied
from multimirror.kube.addresses import parse_address
from tests.unit.kube.servers import Seen, Server, Wire


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

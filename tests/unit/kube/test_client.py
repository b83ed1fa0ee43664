"""The client against servers that do what they should."""

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from multimirror.kube import Client, Resource
from multimirror.kube.resources import NODES
from tests.unit.kube.servers import THINGS, Seen, Server, Wire, a_list, a_thing, running
from tests.unit.kube.virtual_time import virtual_time


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "subresource", "path"),
    [
        pytest.param(THINGS, "a", "b", None, "/apis/example.dev/v1/namespaces/a/things/b", id="an object"),
        pytest.param(THINGS, "a", "b", "status", "/apis/example.dev/v1/namespaces/a/things/b/status", id="its status"),
        pytest.param(THINGS, None, None, None, "/apis/example.dev/v1/things", id="all namespaces"),
        pytest.param(NODES, None, "n", None, "/api/v1/nodes/n", id="cluster-scoped, core group"),
        pytest.param(THINGS, "a", "../x?y", None, "/apis/example.dev/v1/namespaces/a/things/..%2Fx%3Fy", id="hostile"),
    ],
)
def test_an_object_is_found_where_the_api_serves_it(
    resource: Resource, namespace: str | None, name: str | None, subresource: str | None, path: str
) -> None:
    assert resource.path(namespace, name, subresource) == path


def test_an_object_without_a_name_or_namespace_is_never_mistaken_for_the_collection() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        THINGS.path("a", "")
    with pytest.raises(ValueError, match="needs a namespace"):
        THINGS.path(None, "b")


async def test_objects_keep_the_fields_that_we_do_not_know(server: Server, client: Client) -> None:
    thing = a_thing("a", fieldFromTheFuture={"deep": [1, 2.5, None]})
    server.then_answer(200, thing)
    assert await client.get(THINGS, "a", "default") == thing
    assert await client.replace(THINGS, thing) == thing
    assert server.seen[1].json == thing


async def test_a_list_follows_its_pages_and_says_what_its_items_are(server: Server, client: Client) -> None:
    bare = {k: v for k, v in a_thing("a").items() if k not in {"kind", "apiVersion"}}
    server.then_answer(200, a_list(7, bare, **{"continue": "more"}))
    server.then_answer(200, a_list(7, a_thing("b")))
    found = await client.list(THINGS, label_selector="x in (y,z)", limit=1)
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert found.items[0] == a_thing("a")
    assert found.resource_version == "7"
    queries = [parse_qs(urlsplit(seen.target).query) for seen in server.seen]
    assert queries == [
        {"labelSelector": ["x in (y,z)"], "limit": ["1"]},
        {"labelSelector": ["x in (y,z)"], "limit": ["1"], "continue": ["more"]},
    ]


async def test_each_kind_of_patch_says_what_it_is(server: Server, client: Client) -> None:
    server.then_answer(200, a_thing("a"))
    await client.patch(THINGS, "a", {"spec": {}}, "default", subresource="status")
    await client.patch(THINGS, "a", [{"op": "remove", "path": "/x"}], "default", patch_type="json")
    await client.patch(THINGS, "a", a_thing("a"), "default", patch_type="apply", field_manager="me", force=True)
    assert [(s.method, s.headers["content-type"]) for s in server.seen] == [
        ("PATCH", "application/merge-patch+json"),
        ("PATCH", "application/json-patch+json"),
        ("PATCH", "application/apply-patch+yaml"),
    ]
    assert server.seen[0].target.endswith("/things/a/status")
    assert parse_qs(urlsplit(server.seen[2].target).query) == {"fieldManager": ["me"], "force": ["true"]}


async def test_a_delete_carries_its_preconditions(server: Server, client: Client) -> None:
    server.then_answer(200, {"kind": "Status", "status": "Success"})
    await client.delete(THINGS, "a", "default", propagation="Foreground", uid="u", resource_version="4", grace_period=0)
    assert server.seen[0].json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u", "resourceVersion": "4"},
        "gracePeriodSeconds": 0,
    }


async def test_an_object_is_created_in_its_own_namespace_before_the_contexts(server: Server) -> None:
    server.then_answer(201, a_thing("a"))
    async with Client(server.connection(namespace="mine")) as client:
        await client.create(THINGS, a_thing("a"), dry_run=True)
        await client.create(THINGS, {"metadata": {"name": "a"}})
    assert [seen.target for seen in server.seen] == [
        "/apis/example.dev/v1/namespaces/default/things?dryRun=All",
        "/apis/example.dev/v1/namespaces/mine/things",
    ]


async def test_watch_events_arrive_whole_however_the_network_cuts_them(server: Server, client: Client) -> None:
    lines = b"".join(
        json.dumps({"type": "ADDED", "object": a_thing(f"thing-{n}", n)}).encode() + b"\n" for n in range(20)
    )

    async def script(_: Seen, wire: Wire) -> None:
        await wire.start_chunks()
        for start in range(0, len(lines), 37):
            await wire.chunk(lines[start : start + 37])
        await wire.end_chunks()

    server.then(script)
    events = [event async for event in client.watch(THINGS, resource_version="3", timeout=60)]
    assert [event.object for event in events] == [a_thing(f"thing-{n}", n) for n in range(20)]
    assert parse_qs(urlsplit(server.seen[0].target).query) == {
        "watch": ["true"],
        "allowWatchBookmarks": ["true"],
        "resourceVersion": ["3"],
        "timeoutSeconds": ["60"],
    }


async def test_no_more_requests_are_in_flight_than_the_limit_allows(server: Server) -> None:
    now = most = 0

    async def script(_: Seen, wire: Wire) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        await wire.answer(200, a_thing("a"))

    server.then(script)
    async with Client(server.connection(), concurrency=3) as client:
        await asyncio.gather(*(client.get(THINGS, "a", "default") for _ in range(12)))
    assert most == 3
    assert server.connections == 3


@virtual_time
async def test_a_rate_limit_holds_in_the_long_run_and_allows_a_burst() -> None:
    async with running() as server, Client(server.connection(), qps=10) as client:
        server.then_answer(200, a_thing("a"))
        loop = asyncio.get_running_loop()
        started = loop.time()
        for _ in range(20):
            await client.get(THINGS, "a", "default")
        burst = loop.time() - started
        for _ in range(20):
            await client.get(THINGS, "a", "default")
    assert burst < 0.2
    assert loop.time() - started == pytest.approx(2.0, abs=0.15)


async def test_a_client_that_was_not_opened_says_so(server: Server) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client(server.connection()).get(THINGS, "a", "default")

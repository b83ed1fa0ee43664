"""Our own client and informer, on every kind of API server."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from multimirror.kube import Client, Connection, EventRecorder, Informer, LeaderElector
from multimirror.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from multimirror.kube.own_writes import OwnWrites
from multimirror.kube.resources import CONFIG_MAPS, EVENTS, JOBS, NAMESPACES
from tests.contract.conftest import Server
from tests.contract.objects import configmap, job
from tests.waiting import DEADLINE


@pytest_asyncio.fixture(loop_scope="session")
async def client(cluster: Server) -> AsyncIterator[Client]:
    """Connected as a worker's Secret would, with a namespace of its own as its default."""
    namespace = f"kube-{secrets.token_hex(4)}"
    connection = replace(Connection.strict(cluster.kubeconfig, name=cluster.kind), namespace=namespace)
    async with Client(connection) as client:
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield client


@dataclass
class Relay:
    """A wire between us and the server that can be cut."""

    port: int = 0
    cut: bool = False
    pipes: set[asyncio.StreamWriter] = field(default_factory=set)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def snap(self) -> None:
        for pipe in self.pipes:
            pipe.transport.abort()


@asynccontextmanager
async def relayed(client: Client) -> AsyncIterator[tuple[Relay, Connection]]:
    target = urlsplit(client.connection.server)
    relay = Relay()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if relay.cut:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(target.hostname, target.port)
        relay.pipes |= {writer, back}
        await asyncio.gather(relay.carry(reader, back), relay.carry(there, writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay.port = listener.sockets[0].getsockname()[1]
    try:
        yield relay, replace(client.connection, server=f"{target.scheme}://127.0.0.1:{relay.port}")
    finally:
        listener.close()
        relay.snap()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(informer: Informer, holds: Callable[[], bool]) -> None:
    """Wait, without polling, until the cache is as it should be."""
    news = asyncio.Event()

    def notice(_: object) -> None:
        news.set()

    informer.add_handler(notice)
    try:
        async with asyncio.timeout(DEADLINE):
            while not holds():
                news.clear()
                await news.wait()
    finally:
        informer.remove_handler(notice)


def names(informer: Informer) -> set[str]:
    return {obj["metadata"]["name"] for obj in informer.list()} - {"kube-root-ca.crt"}


async def test_an_object_lives_its_life_through_the_client(client: Client) -> None:
    made = await client.create(JOBS, job("a"))
    uid = made["metadata"]["uid"]
    namespace = client.connection.namespace
    assert await client.get(JOBS, "a", namespace) == made
    with pytest.raises(AlreadyExists):
        await client.create(JOBS, job("a"))
    changed = await client.patch(JOBS, "a", {"spec": {"suspend": True}}, namespace)
    with pytest.raises(Conflict):
        await client.replace(JOBS, made)
    changed["metadata"]["annotations"] = {"x": "y"}
    replaced = await client.replace(JOBS, changed)
    assert replaced["metadata"]["annotations"] == {"x": "y"}
    json_patch = [
        {"op": "test", "path": "/spec/suspend", "value": True},
        {"op": "remove", "path": "/metadata/annotations"},
    ]
    assert "annotations" not in (await client.patch(JOBS, "a", json_patch, namespace, patch_type="json"))["metadata"]
    status = {"status": {"conditions": [{"type": "X", "status": "True"}]}}
    patched = await client.patch(JOBS, "a", status, namespace, subresource="status")
    assert patched["status"]["conditions"][0]["type"] == "X"
    with pytest.raises(Conflict):
        await client.delete(JOBS, "a", namespace, uid="another")
    await client.delete(JOBS, "a", namespace, uid=uid, propagation="Background")
    with pytest.raises(NotFound):
        await client.get(JOBS, "a", namespace)


async def test_a_bad_object_is_refused_field_by_field_and_a_dry_run_leaves_nothing(client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        await client.create(JOBS, job("a", parallelism=-1))
    assert "spec.parallelism" in {cause.field for cause in caught.value.causes}
    await client.create(JOBS, job("a"), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(JOBS, "a", client.connection.namespace)


async def test_apply_makes_and_changes_an_object(client: Client) -> None:
    namespace = client.connection.namespace
    for value in ("1", "2"):
        applied = await client.patch(
            CONFIG_MAPS, "a", configmap("a", {"x": value}), namespace, patch_type="apply", field_manager="contract"
        )
        assert applied["data"] == {"x": value}


async def test_a_list_is_the_same_in_pages_and_in_one(client: Client) -> None:
    namespace = client.connection.namespace
    await asyncio.gather(*(client.create(CONFIG_MAPS, configmap(f"c-{n}", labels={"x": "y"})) for n in range(11)))
    paged = await client.list(CONFIG_MAPS, namespace, label_selector="x=y", limit=3)
    whole = await client.list(CONFIG_MAPS, namespace, label_selector="x=y")
    assert paged.items == whole.items
    assert len(whole.items) == 11
    assert {(item["kind"], item["apiVersion"]) for item in whole.items} == {("ConfigMap", "v1")}


async def test_a_watch_starts_where_the_list_ended(client: Client) -> None:
    namespace = client.connection.namespace
    listed = await client.list(CONFIG_MAPS, namespace, label_selector="x=y")
    await client.create(CONFIG_MAPS, configmap("a", labels={"x": "y"}))
    await client.delete(CONFIG_MAPS, "a", namespace)
    kinds = [
        event.type
        async for event in client.watch(
            CONFIG_MAPS, namespace, label_selector="x=y", resource_version=listed.resource_version, timeout=1
        )
        if event.type != "BOOKMARK"
    ]
    assert kinds == ["ADDED", "DELETED"]


@pytest.mark.parametrize("streaming", [pytest.param(True, id="streamed"), pytest.param(False, id="listed")])
async def test_an_informer_follows_every_change_whatever_happens_to_its_connection(
    client: Client, streaming: bool
) -> None:
    namespace = client.connection.namespace
    await client.create(CONFIG_MAPS, configmap("a"))
    async with (
        relayed(client) as (relay, connection),
        Client(connection) as own,
        Informer(own, CONFIG_MAPS, namespace, streaming=streaming) as informer,
    ):
        await informer.synced()
        assert "a" in names(informer)
        assert informer._streaming == streaming
        await client.create(CONFIG_MAPS, configmap("b"))
        await until(informer, lambda: names(informer) == {"a", "b"})

        relay.cut = True  # the connection breaks, and the world goes on
        relay.snap()
        await client.create(CONFIG_MAPS, configmap("c"))
        await client.delete(CONFIG_MAPS, "a", namespace)
        relay.cut = False
        await until(informer, lambda: names(informer) == {"b", "c"})

        relay.cut = True  # and once more, as if for so long that the server has forgotten (410)
        relay.snap()
        await client.delete(CONFIG_MAPS, "b", namespace)
        await client.patch(CONFIG_MAPS, "c", {"data": {"k": "new"}}, namespace)
        informer.resource_version = None
        relay.cut = False
        await until(informer, lambda: names(informer) == {"c"})
        changed = informer.get(f"{namespace}/c")
        assert changed is not None
        assert changed["data"] == {"k": "new"}
        assert "managedFields" not in changed["metadata"]


async def test_an_informer_sees_only_what_its_selectors_choose(client: Client) -> None:
    namespace = client.connection.namespace
    await client.create(CONFIG_MAPS, configmap("a", labels={"x": "y"}))
    await client.create(CONFIG_MAPS, configmap("b"))
    async with (
        Informer(client, CONFIG_MAPS, namespace, label_selector="x=y") as labelled,
        Informer(client, CONFIG_MAPS, field_selector=f"metadata.namespace={namespace},metadata.name=b") as named,
    ):
        await labelled.synced()
        await named.synced()
        assert (names(labelled), names(named)) == ({"a"}, {"b"})
        await client.patch(CONFIG_MAPS, "b", {"metadata": {"labels": {"x": "y"}}}, namespace)
        await until(labelled, lambda: names(labelled) == {"a", "b"})
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": None}}, namespace)
        await until(labelled, lambda: names(labelled) == {"b"})


async def test_our_own_writes_are_seen(client: Client) -> None:
    namespace = client.connection.namespace
    async with Informer(client, CONFIG_MAPS, namespace) as informer:
        await informer.synced()
        writes = OwnWrites(informer)
        for number in range(20):
            made = await client.create(CONFIG_MAPS, configmap(f"c-{number}"))
            writes.wrote(made)
            assert await writes.seen(f"{namespace}/c-{number}")
            assert informer.get(f"{namespace}/c-{number}") is not None
            await client.delete(CONFIG_MAPS, f"c-{number}", namespace)
            writes.deleted(made)
            assert await writes.seen(f"{namespace}/c-{number}")
            assert informer.get(f"{namespace}/c-{number}") is None


async def test_leadership_passes_from_one_process_to_the_next(client: Client) -> None:
    order: list[str] = []
    enough = {"one": asyncio.Event(), "two": asyncio.Event()}
    leads = {"one": asyncio.Event(), "two": asyncio.Event()}

    async def candidate(name: str) -> None:
        async def lead() -> None:
            order.append(name)
            leads[name].set()
            await enough[name].wait()

        await LeaderElector(client, "it", client.connection.namespace, identity=name, retry_period=0.2).run(lead)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(candidate("one"))
        await leads["one"].wait()
        tasks.create_task(candidate("two"))
        await asyncio.sleep(1)  # several renewals, and several tries of the other
        assert order == ["one"]
        enough["one"].set()
        await leads["two"].wait()
        enough["two"].set()
    assert order == ["one", "two"]


async def test_events_are_written_once_and_counted(client: Client) -> None:
    namespace = client.connection.namespace
    made = await client.create(CONFIG_MAPS, configmap("a"))
    async with EventRecorder(client, "contract") as events:
        events.event(made, "Looked", "Somebody looked at it")
        await events.flush()
        events.event(made, "Looked", "Somebody looked at it")
    found = await client.list(EVENTS, namespace, field_selector="involvedObject.name=a")
    assert [(event["reason"], event["count"], event["involvedObject"]["uid"]) for event in found.items] == [
        ("Looked", 2, made["metadata"]["uid"])
    ]

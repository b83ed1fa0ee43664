"""Events for people: few, deduplicated, and never in anybody's way."""

import asyncio
import gc
import weakref
from datetime import UTC, datetime
from typing import Any

import pytest

from multimirror.kube import Client, EventRecorder, KubeError, metrics
from multimirror.kube.supervise import TaskEnded
from multimirror.kube.write_guard import WriteGuard
from tests.unit.kube.servers import Seen, Server, Wire, a_thing, running, status
from tests.unit.kube.virtual_time import virtual_time

NOON = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def writes(server: Server) -> list[tuple[str, Any]]:
    return [(seen.method, seen.json) for seen in server.seen]


def recorder(client: Client, **options: Any) -> EventRecorder:
    return EventRecorder(client, "multimirror", wall_clock=lambda: NOON, **options)


async def test_an_event_says_what_happened_to_whom(server: Server, client: Client) -> None:
    server.then_answer(201, {})
    async with recorder(client, instance="pod-1") as events:
        events.event(a_thing("a"), "Dispatched", "Runs on worker-1", type="Normal")
    method, event = writes(server)[0]
    name = event["metadata"].pop("name")
    assert name.startswith("a.")
    assert method == "POST"
    assert server.seen[0].target == "/api/v1/namespaces/default/events"
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "involvedObject": {
            "apiVersion": "example.dev/v1",
            "kind": "Thing",
            "namespace": "default",
            "name": "a",
            "uid": "uid-a",
            "resourceVersion": "1",
        },
        "reason": "Dispatched",
        "message": "Runs on worker-1",
        "type": "Normal",
        "source": {"component": "multimirror"},
        "reportingComponent": "multimirror",
        "reportingInstance": "pod-1",
        "firstTimestamp": "2026-11-16T12:00:00Z",
        "lastTimestamp": "2026-11-16T12:00:00Z",
        "count": 1,
    }


async def test_the_same_event_again_only_counts_up(server: Server, client: Client) -> None:
    server.then_answer(201, {})
    async with recorder(client) as events:
        events.event(a_thing("a"), "Waits", "No room")
        events.event(a_thing("a"), "Waits", "No room")
        await events.flush()
        events.event(a_thing("a"), "Waits", "No room")
        events.event(a_thing("b"), "Waits", "No room")
    assert [(method, body["count"]) for method, body in writes(server)] == [("POST", 2), ("PATCH", 3), ("POST", 1)]
    assert server.seen[1].target.endswith("/events/" + server.seen[0].json["metadata"]["name"])


async def test_an_event_that_the_server_has_forgotten_is_written_anew(server: Server, client: Client) -> None:
    server.then_answer(201, {})
    server.then_answer(404, status(404, "NotFound"))
    server.then_answer(201, {})
    async with recorder(client) as events:
        events.event(a_thing("a"), "Waits", "No room")
        await events.flush()
        events.event(a_thing("a"), "Waits", "No room")
    assert [(method, body["count"]) for method, body in writes(server)] == [("POST", 1), ("PATCH", 2), ("POST", 1)]


@virtual_time
async def test_one_noisy_object_does_not_drown_the_others() -> None:
    async with running() as server, Client(server.connection()) as client:
        server.then_answer(201, {})
        async with recorder(client) as events:
            for number in range(100):
                events.event(a_thing("noisy"), "Waits", f"Attempt {number}")
            events.event(a_thing("quiet"), "Waits", "No room")
            await events.flush()
            assert len(server.seen) == 26
            await asyncio.sleep(301)
            events.event(a_thing("noisy"), "Waits", "Much later")
        assert len(server.seen) == 27


@virtual_time
async def test_a_server_that_does_not_answer_costs_the_reconciler_nothing_and_no_memory() -> None:
    async with running() as server, Client(server.connection()) as client:

        async def stuck(_: Seen, wire: Wire) -> None:
            await wire.silence()

        server.then(stuck)
        async with recorder(client, capacity=10) as events:
            for number in range(1000):
                events.event(a_thing(f"thing-{number}"), "Waits", "No room")
            assert asyncio.get_running_loop().time() == 0
            assert len(events._pending) == 10
        assert asyncio.get_running_loop().time() < 10


async def test_an_event_that_was_refused_does_not_stop_the_next(server: Server, client: Client) -> None:
    server.then_answer(403, status(403, "Forbidden", "namespace is being terminated"))
    server.then_answer(201, {})
    async with recorder(client) as events:
        events.event(a_thing("a"), "Waits", "No room")
        events.event(a_thing("b"), "Waits", "x" * 5000)
    assert [body["involvedObject"]["name"] for _, body in writes(server)] == ["a", "b"]
    assert len(server.seen[1].json["message"]) == 1024


@pytest.mark.parametrize("code", [429, 500, 503])
@virtual_time
async def test_an_event_that_a_busy_server_does_not_take_is_sent_again_and_others_meanwhile(code: int) -> None:
    async with running() as server, Client(server.connection()) as client:
        is_busy = True

        async def answer(seen: Seen, wire: Wire) -> None:
            refused = is_busy and seen.json["involvedObject"]["name"] == "a"
            await wire.answer(code, status(code, "Busy", "later")) if refused else await wire.answer(201, {})
            taken.extend([] if refused else [seen.json["involvedObject"]["name"]])

        taken: list[str] = []
        server.then(answer)
        async with recorder(client) as events:
            events.event(a_thing("a"), "Waits", "No room")
            events.event(a_thing("b"), "Waits", "No room")
            await asyncio.sleep(20)
            assert taken == ["b"]
            is_busy = False
            await asyncio.sleep(60)
        assert taken == ["b", "a"]


@virtual_time
async def test_what_is_told_again_while_a_busy_server_is_asked_is_one_event_with_all_counts() -> None:
    async with running() as server, Client(server.connection()) as client:
        is_busy, faults = True, []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

        async def answer(seen: Seen, wire: Wire) -> None:
            if is_busy:
                events.event(a_thing("a"), "Waits", "No room")  # while the first is on its way
            await wire.answer(429, status(429, "Busy", "later")) if is_busy else await wire.answer(201, {})

        server.then(answer)
        async with recorder(client) as events:
            events.event(a_thing("a"), "Waits", "No room")
            await asyncio.sleep(5)
            told = len(server.seen) + 1
            is_busy = False
            await asyncio.sleep(300)
        assert faults == []
        assert [body["count"] for _, body in writes(server)[told - 1 :]] == [told]
        assert len({body["metadata"]["name"] for _, body in writes(server)}) == 1


@virtual_time
async def test_an_event_that_nobody_takes_for_long_is_given_up() -> None:
    async with running() as server, Client(server.connection()) as client:
        server.then_answer(503, status(503, "ServiceUnavailable", "later"))
        before = metrics.EVENTS_DROPPED.labels("worker-1", "error")._value.get()
        async with recorder(client) as events:
            events.event(a_thing("a"), "Waits", "No room")
            await asyncio.sleep(3600)
            tried = len(server.seen)
            await asyncio.sleep(3600)
            assert len(server.seen) == tried
        assert metrics.EVENTS_DROPPED.labels("worker-1", "error")._value.get() == before + 1


@virtual_time
async def test_an_event_that_was_written_although_nobody_heard_of_it_is_not_written_twice() -> None:
    async with running() as server, Client(server.connection()) as client:
        server.then_answer(500, status(500, "InternalError", "written, perhaps"))
        server.then_answer(409, status(409, "AlreadyExists", "it is there"))
        async with recorder(client) as events:
            events.event(a_thing("a"), "Waits", "No room")
            await asyncio.sleep(600)
        assert len({body["metadata"]["name"] for _, body in writes(server)}) == 1
        assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("about", "annotations"),
    [
        pytest.param(a_thing("broken"), {"program": object()}, id="an annotation that is no text"),
        pytest.param({"metadata": {"uid": "uid-broken"}}, {}, id="an object without a name"),
        pytest.param({"metadata": None}, {}, id="an object without metadata"),
    ],
)
@virtual_time
async def test_a_fault_with_one_event_costs_that_event_alone(
    about: Any, annotations: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running() as server, Client(server.connection(), timeout=5) as client:
        server.then_answer(201, {})
        before = metrics.EVENTS_DROPPED.labels("worker-1", "error")._value.get()
        async with recorder(client) as events:
            events.event(about, "Waits", "No room", annotations=annotations)
            events.event(a_thing("next"), "Waits", "No room")
            await events.flush()
            events.event(a_thing("last"), "Waits", "No room")
            await events.flush()
        assert [body["involvedObject"]["name"] for _, body in writes(server)] == ["next", "last"]
        assert metrics.EVENTS_DROPPED.labels("worker-1", "error")._value.get() == before + 1
    assert capsys.readouterr().out.count("an event was not written") == 1


class Whole(dict[str, Any]):
    """An object whose end can be seen."""


async def test_what_is_remembered_of_an_event_does_not_keep_the_object_alive(server: Server, client: Client) -> None:
    server.then_answer(201, {})
    thing = Whole(a_thing("a", spec={"huge": "x" * 1000}))
    gone = weakref.ref(thing)
    async with recorder(client) as events:
        events.event(thing, "Waits", "No room")
        del thing
        gc.collect()
        assert gone() is None, "while it waits to be sent"
        await events.flush()
        events.event(a_thing("a"), "Waits", "No room")
    assert [(method, body["count"]) for method, body in writes(server)] == [("POST", 1), ("PATCH", 2)]


@virtual_time
async def test_a_recorder_that_cannot_go_on_ends_whoever_relies_on_it() -> None:
    class Unspeakable(KubeError):  # noqa: N818
        def __str__(self) -> str:
            raise ZeroDivisionError("a bug")

    def guard() -> None:
        raise Unspeakable

    async def rely(client: Client) -> None:
        async with recorder(client.guarded(WriteGuard(guard))) as events:
            events.event(a_thing("a"), "Waits", "No room")
            await asyncio.Event().wait()

    async with running() as server, Client(server.connection()) as client:
        server.then_answer(201, {})
        with pytest.raises(TaskEnded, match=r"^events of multimirror ended unexpectedly: ZeroDivisionError"):
            await rely(client)
        assert asyncio.get_running_loop().time() < 1, "there is nobody left who could send what waits"


def a_thing_of(namespace: str, name: str) -> dict[str, Any]:
    thing = a_thing(name)
    return {**thing, "metadata": {**thing["metadata"], "namespace": namespace, "uid": f"{namespace}-{name}"}}


@virtual_time
async def test_a_flood_of_one_namespace_delays_the_events_of_another_by_one() -> None:
    async with running() as server, Client(server.connection()) as client:
        server.then_answer(201, {})
        async with recorder(client) as events:
            for number in range(500):
                events.event(a_thing_of("crowd", f"thing-{number}"), "Waits", "No room")
            events.event(a_thing_of("quiet", "a"), "Waits", "No room")
            await events.flush()
    told = [body["metadata"]["namespace"] for _, body in writes(server)]
    assert told.index("quiet") <= 2
    assert len(told) == 501


@virtual_time
async def test_where_there_is_no_more_room_the_namespace_with_most_events_gives_way() -> None:
    async with running() as server, Client(server.connection()) as client:
        server.then_answer(201, {})
        async with recorder(client, capacity=100) as events:
            for number in range(1000):
                events.event(a_thing_of("crowd", f"thing-{number}"), "Waits", "No room")
            assert events.room("crowd") == 0
            for number in range(60):
                events.event(a_thing_of("quiet", f"thing-{number}"), "Waits", "No room")
            assert events.room("quiet") == 0
            assert len(events._pending) == 100
    told = [body["metadata"]["namespace"] for _, body in writes(server)]
    assert (told.count("crowd"), told.count("quiet")) == (50, 50)

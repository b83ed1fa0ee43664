"""The informer: what its users see, whatever happens to its watch."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from multimirror.kube import Change, Client, Informer
from multimirror.kube.informers import Informers
from multimirror.kube.supervise import TaskEnded
from multimirror.kube.trimming import compact
from tests.unit.kube.servers import THINGS, Seen, Server, Things, Wire, a_list, a_thing, running, status
from tests.unit.kube.virtual_time import virtual_time


class Witness:
    """A handler that remembers, and can be waited for."""

    def __init__(self, informer: Informer) -> None:
        self.changes: list[tuple[str, str, bool]] = []
        self.condition = asyncio.Event()
        informer.add_handler(self)

    def __call__(self, change: Change) -> None:
        kind = "deleted" if change.new is None else "added" if change.old is None else "changed"
        self.changes.append((kind, change.object["metadata"]["name"], change.initial))
        self.condition.set()

    async def until(self, *expected: tuple[str, str]) -> None:
        async with asyncio.timeout(60):
            while [change[:2] for change in self.changes] != list(expected):
                self.condition.clear()
                await self.condition.wait()


@asynccontextmanager
async def watching(streaming: bool = True, **options: Any) -> AsyncIterator[tuple[Things, Informer, Witness]]:
    async with running() as server, Client(server.connection()) as client:
        things = Things(server, streaming=streaming)
        await things.put("a")
        await things.put("b")
        informer = Informer(client, THINGS, **options)
        witness = Witness(informer)
        async with informer:
            await informer.synced()
            yield things, informer, witness


BOTH = pytest.mark.parametrize("streaming", [pytest.param(True, id="streamed"), pytest.param(False, id="listed")])


@BOTH
async def test_the_cache_is_filled_and_follows_every_change(streaming: bool) -> None:
    async with watching(streaming) as (things, informer, witness):
        assert witness.changes == [("added", "a", True), ("added", "b", True)]
        await things.put("c")
        changed = await things.put("a", spec={"x": 1})
        await things.remove("b")
        await witness.until(("added", "a"), ("added", "b"), ("added", "c"), ("changed", "a"), ("deleted", "b"))
        assert not any(initial for _, _, initial in witness.changes[2:])
        assert informer.get("default/a") == changed
        assert informer.get("default/b") is None
        assert {obj["metadata"]["name"] for obj in informer.list()} == {"a", "c"}
        assert things.lists == (0 if streaming else 1)


@BOTH
async def test_a_watch_that_broke_is_resumed_without_a_list(streaming: bool) -> None:
    async with watching(streaming) as (things, _, witness):
        lists = things.lists
        things.break_watches()
        await things.put("c")
        await witness.until(("added", "a"), ("added", "b"), ("added", "c"))
        assert things.lists == lists


@BOTH
async def test_deletes_that_were_missed_are_told_after_the_server_forgot_the_past(streaming: bool) -> None:
    async with watching(streaming) as (things, informer, witness):
        things.deaf = True
        await things.remove("a")
        await things.put("b", spec={"x": 2})
        await things.put("c")
        things.compact()
        things.deaf = False
        things.break_watches()
        await witness.until(("added", "a"), ("added", "b"), ("deleted", "a"), ("changed", "b"), ("added", "c"))
        assert informer.get("default/a") is None
        assert informer.error is None


TOO_LARGE = status(504, "Timeout", "Too large resource version", causes=[{"reason": "ResourceVersionTooLarge"}])


@pytest.mark.parametrize(
    ("code", "body", "headers", "relists"),
    [
        pytest.param(429, status(429, "TooManyRequests"), {"retry-after": "7"}, False, id="429: too many requests"),
        pytest.param(429, b"slow down", {}, False, id="429 of a load balancer"),
        pytest.param(401, status(401, "Unauthorized"), {}, False, id="401: a token that ran out"),
        pytest.param(403, status(403, "Forbidden"), {}, False, id="403: rights that were taken away"),
        pytest.param(404, status(404, "NotFound"), {}, False, id="404: a kind that is being replaced"),
        pytest.param(500, status(500, "InternalError"), {}, False, id="500: a server in trouble"),
        pytest.param(410, status(410, "Expired"), {}, True, id="410: the version is too old"),
        pytest.param(400, status(400, "BadRequest"), {}, True, id="400: the version makes no sense"),
        pytest.param(504, TOO_LARGE, {}, True, id="the version is of the future: an older backup was restored"),
    ],
)
@virtual_time
async def test_a_watch_that_was_refused_goes_on_from_its_version_unless_the_server_forgot_that(
    code: int, body: Any, headers: dict[str, str], relists: bool
) -> None:
    async with watching(streaming=False) as (things, informer, witness):
        seen = things.server.seen
        refused_at = 0.0

        async def refuse(_: Seen, wire: Wire) -> None:
            nonlocal refused_at
            refused_at = asyncio.get_running_loop().time()
            await wire.answer(code, body, headers)

        await things.server.until_seen(3)  # a list that is to be streamed (refused), a list, a watch
        things.server.scripts.appendleft(refuse)
        things.break_watches()
        await things.server.until_seen(5)
        assert asyncio.get_running_loop().time() - refused_at >= float(headers.get("retry-after", 0))
        assert ("watch=true" not in seen[4].target) == relists
        assert relists or "resourceVersion=12&" in seen[4].target
        assert things.lists == (2 if relists else 1)
        await things.put("c")
        await witness.until(("added", "a"), ("added", "b"), ("added", "c"))
        assert informer.error is None


async def test_an_object_made_anew_under_the_same_name_is_told_as_another_object() -> None:
    async with watching() as (things, _, witness):
        things.deaf = True
        await things.remove("a")
        await things.put("a", metadata={"uid": "another"})
        things.compact()
        things.deaf = False
        things.break_watches()
        await witness.until(("added", "a"), ("added", "b"), ("deleted", "a"), ("added", "a"))


@virtual_time
async def test_a_watch_that_went_silent_is_replaced() -> None:
    async with watching(silence=100) as (things, _, witness):
        things.deaf = True
        await things.put("c")
        await asyncio.sleep(99)
        assert len(things.server.seen) == 1
        things.deaf = False  # nobody tells the old watch
        await witness.until(("added", "a"), ("added", "b"), ("added", "c"))
        assert len(things.server.seen) == 2
        assert "resourceVersion=12&" in things.server.seen[1].target


async def test_a_replayed_or_older_event_is_no_news(server: Server, client: Client) -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        if "watch=true" not in seen.target:
            await wire.answer(200, a_list(20, a_thing("a", 15)))
            return
        await wire.start_chunks()
        await wire.event("MODIFIED", a_thing("a", 15))
        await wire.event("MODIFIED", a_thing("a", 9))
        await wire.event("DELETED", a_thing("a", 9))
        await wire.event("MODIFIED", a_thing("a", 21))
        await wire.silence()

    server.then(script)
    informer = Informer(client, THINGS, streaming=False)
    witness = Witness(informer)
    async with informer:
        await witness.until(("added", "a"), ("changed", "a"))
        assert informer.resource_version == "21"


async def test_bookmarks_move_the_point_of_resumption(server: Server, client: Client) -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        if "watch=true" not in seen.target:
            await wire.answer(200, a_list(20))
            return
        await wire.start_chunks()
        if "resourceVersion=20" in seen.target:
            await wire.event("BOOKMARK", {"metadata": {"resourceVersion": "35"}})
            await wire.end_chunks()
            return
        await wire.silence()

    server.then(script)
    async with Informer(client, THINGS, streaming=False):
        await server.until_seen(3)
    assert "resourceVersion=35" in server.seen[2].target


@virtual_time
async def test_a_server_that_passes_over_what_it_does_not_know_is_listed_instead() -> None:
    async with running() as server, Client(server.connection()) as client:

        async def script(seen: Seen, wire: Wire) -> None:
            if "watch=true" not in seen.target:
                await wire.answer(200, a_list(20, a_thing("a")))
                return
            await wire.start_chunks()
            if "sendInitialEvents" in seen.target:
                await wire.event("ADDED", a_thing("a"))
            await wire.silence()

        server.then(script)
        async with Informer(client, THINGS) as informer:
            async with asyncio.timeout(60):
                await informer.synced()
            assert len(informer) == 1


@virtual_time
async def test_an_outage_is_told_once_retried_with_growing_waits_and_survived(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with running() as server, Client(server.connection()) as client:
        times: list[float] = []

        async def down(_: Seen, wire: Wire) -> None:
            times.append(asyncio.get_running_loop().time())
            await wire.answer(403, status(403, "Forbidden", "you may not"))

        for _ in range(9):
            server.then(down)
        things = Things(server)
        await things.put("a")
        async with Informer(client, THINGS) as informer:
            await server.until_seen(5)
            assert str(informer.error) == "cluster worker-1: you may not"
            await informer.synced()
            assert informer.error is None
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(gap >= 0.09 for gap in gaps)
        assert gaps[-1] > 8 * gaps[0]
    assert capsys.readouterr().out.count("list failed") == 1


NONSENSE = [
    pytest.param({"kind": "ThingList"}, id="a list without metadata"),
    pytest.param({"metadata": {"resourceVersion": "1"}, "items": {"a": 1}}, id="items that are no list"),
    pytest.param(a_list(1, {"metadata": None}), id="an item without metadata"),
    pytest.param(a_list(1, {"metadata": {"name": ["a"], "resourceVersion": "1"}}), id="a name that is a list"),
    pytest.param(a_list(1, {"metadata": {"name": "a", "resourceVersion": 1}}), id="a version that is a number"),
    pytest.param([1, 2], id="a list of numbers"),
]


@pytest.mark.parametrize("nonsense", NONSENSE)
@virtual_time
async def test_a_hostile_server_ends_no_cache(nonsense: Any) -> None:
    async with running() as server, Client(server.connection()) as client:
        for _ in range(3):
            server.then_answer(200, nonsense)
        things = Things(server)
        await things.put("a")
        async with Informer(client, THINGS, streaming=False) as informer:
            await server.until_seen(2)
            await asyncio.sleep(0.01)
            assert str(informer.error).startswith("cluster worker-1: ")
            await informer.synced()
            assert len(informer) == 1


def without_the_kind(server: Server, code: int) -> None:
    """It says no with this code, and does not list the kind among those that it has."""

    async def script(seen: Seen, wire: Wire) -> None:
        if seen.target == "/apis/example.dev/v1":
            await wire.answer(200, {"kind": "APIResourceList", "resources": [{"name": "others"}]})
        else:
            await wire.answer(code, status(code, "no"))

    for _ in range(8):
        server.then(script)


@pytest.mark.parametrize("code", [pytest.param(404, id="not found"), pytest.param(403, id="rights come first")])
@virtual_time
async def test_a_kind_that_a_server_need_not_have_is_empty_until_it_has_it(
    capsys: pytest.CaptureFixture[str], code: int
) -> None:
    async with running() as server, Client(server.connection()) as client:
        without_the_kind(server, code)
        things = Things(server)
        await things.put("a")
        informer = Informer(client, THINGS, optional=True)
        witness = Witness(informer)
        async with informer:
            await informer.synced()
            assert len(informer) == 0
            assert len(server.seen) == 2
            await witness.until(("added", "a"))
            assert witness.changes == [("added", "a", False)], "that is news"
            await things.remove("a")
            await witness.until(("added", "a"), ("deleted", "a"))
    assert capsys.readouterr().out.count("does not have this kind") == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((200, {"resources": [{"name": "things"}]}), id="it is there"),
        pytest.param((500, {}), id="nobody can tell"),
        pytest.param((200, {"resources": 1}), id="nonsense"),
        pytest.param((200, b"<html>"), id="another page"),
    ],
)
@virtual_time
async def test_a_kind_that_is_there_and_may_not_be_read_is_waited_for(answer: tuple[int, Any]) -> None:
    async with running() as server, Client(server.connection()) as client:

        async def script(seen: Seen, wire: Wire) -> None:
            if seen.target == "/apis/example.dev/v1":
                await wire.answer(*answer)
            else:
                await wire.answer(403, status(403, "Forbidden", "you may not"))

        server.then(script)
        async with Informer(client, THINGS, optional=True) as informer:
            await asyncio.sleep(60)
            assert not informer.has_synced
            assert str(informer.error) == "cluster worker-1: you may not"


@virtual_time
async def test_a_kind_that_went_away_takes_its_objects_along() -> None:
    async with running() as server, Client(server.connection()) as client:
        things = Things(server)
        await things.put("a")
        informer = Informer(client, THINGS, optional=True)
        witness = Witness(informer)
        async with informer:
            await informer.synced()
            server.scripts.clear()
            without_the_kind(server, 404)
            things.break_watches()
            await witness.until(("added", "a"), ("deleted", "a"))


@virtual_time
async def test_a_trim_that_raises_is_told_and_does_not_end_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    async with running() as server, Client(server.connection()) as client:
        things = Things(server)
        await things.put("a")
        tries = 0

        def trim(obj: dict[str, Any]) -> dict[str, Any]:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise KeyError("spec")
            return obj

        async with Informer(client, THINGS, trim=trim) as informer:
            await informer.synced()
    assert capsys.readouterr().out.count("a fault in following the server") == 2


@virtual_time
async def test_a_server_that_always_says_gone_is_not_listed_in_a_busy_loop() -> None:
    async with running() as server, Client(server.connection()) as client:
        lists = 0

        async def script(seen: Seen, wire: Wire) -> None:
            nonlocal lists
            if "watch=true" in seen.target:
                await wire.answer(410, status(410, "Gone"))
                return
            lists += 1
            await wire.answer(200, a_list(20))

        server.then(script)
        async with Informer(client, THINGS, streaming=False):
            await asyncio.sleep(60)
        assert 5 < lists < 15


async def test_objects_are_trimmed_before_they_are_kept(server: Server, client: Client) -> None:
    things = Things(server)
    await things.put("a", metadata={"managedFields": [{"manager": "x"}]}, status={"huge": 1})

    def trim(obj: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in obj.items() if k != "status"}

    async with Informer(client, THINGS) as informer, Informer(client, THINGS, trim=trim) as custom:
        await informer.synced()
        await custom.synced()
        kept, trimmed = informer.get("default/a"), custom.get("default/a")
        assert kept is not None
        assert trimmed is not None
        assert "managedFields" not in kept["metadata"]
        assert kept == things.objects["a"] | {"metadata": kept["metadata"]}
        assert kept["status"] == {"huge": 1}
        assert "status" not in trimmed


def test_what_is_alike_in_many_objects_is_kept_once() -> None:
    text = json.dumps(
        a_thing("a", spec={"image": "example.dev/image:1", "args": ["--verbose", ["nested"], 1, None, 2.5]})
    )
    one, two = compact(json.loads(text)), compact(json.loads(text))
    assert one == two == json.loads(text)
    assert one["spec"]["image"] is two["spec"]["image"]
    assert one["spec"]["args"][0] is two["spec"]["args"][0]


async def test_objects_are_found_by_what_an_index_files_them_under(server: Server, client: Client) -> None:
    things = Things(server)
    await things.put("a", spec={"color": "red"})
    await things.put("b", spec={"color": "red"})
    informer = Informer(client, THINGS)
    informer.add_index("color", lambda obj: [obj["spec"]["color"]])
    witness = Witness(informer)
    async with informer:
        await informer.synced()
        informer.add_index("name", lambda obj: [obj["metadata"]["name"]])

        def names(index: str, value: str) -> list[str]:
            return [obj["metadata"]["name"] for obj in informer.by_index(index, value)]

        assert names("color", "red") == ["a", "b"]
        assert names("name", "b") == ["b"]
        await things.put("a", spec={"color": "blue"})
        await things.remove("b")
        await witness.until(("added", "a"), ("added", "b"), ("changed", "a"), ("deleted", "b"))
        assert names("color", "red") == []
        assert names("color", "blue") == ["a"]
        with pytest.raises(ValueError, match="already"):
            informer.add_index("color", lambda _: ())


async def test_a_handler_that_raises_spoils_nothing_for_the_others() -> None:
    async with watching() as (things, informer, witness):

        def broken(_: Change) -> None:
            raise RuntimeError("a bug")

        informer.add_handler(broken)
        late = Witness(informer)
        assert late.changes == [("added", "a", True), ("added", "b", True)]
        await things.put("c")
        await witness.until(("added", "a"), ("added", "b"), ("added", "c"))
        assert late.changes == witness.changes


async def test_one_informer_is_shared_by_all_who_ask_for_the_same(server: Server, client: Client) -> None:
    things = Things(server)
    await things.put("a")
    async with Informers(client) as informers:
        one, same = informers.of(THINGS), informers.of(THINGS)
        other = informers.of(THINGS, label_selector="x=y")
        await informers.synced()
        assert one is same
        assert one is not other
        assert len(things.watches) == 2
    assert [task for task in asyncio.all_tasks() if "informer" in task.get_name()] == []


class Unspeakable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ZeroDivisionError("a bug")


def unspeakable(_: Any) -> list[str]:
    raise Unspeakable


async def rely_on_one(client: Client) -> None:
    informer = Informer(client, THINGS)
    informer.add_index("broken", unspeakable)
    async with informer:
        await informer.synced()


async def rely_on_many(client: Client) -> None:
    informers = Informers(client)
    informers.of(THINGS).add_index("broken", unspeakable)
    async with informers:
        await informers.synced()


@pytest.mark.parametrize("rely", [rely_on_one, rely_on_many])
@virtual_time
async def test_a_cache_that_cannot_go_on_ends_whoever_relies_on_it(rely: Callable[[Client], Awaitable[None]]) -> None:
    """Nothing that a server does ends an informer. A bug of ours may; here, of somebody's error that has no text."""
    async with running() as server, Client(server.connection()) as client:
        await Things(server).put("a")
        with pytest.raises(
            TaskEnded, match=r"^informer worker-1/things.example.dev ended .*: ZeroDivisionError: a bug$"
        ):
            await rely(client)


@pytest.mark.parametrize("whole", [True, False])
def test_a_list_that_replaces_a_large_cache_lets_others_have_their_turns_where_nobody_needs_it_whole(
    whole: bool,
) -> None:
    @virtual_time
    async def story() -> None:
        async with running() as server, Client(server.connection()) as client:
            things = Things(server)
            for number in range(1000):
                await things.put(f"thing-{number}")
            told, seen = list[str](), list[int]()

            def note(change: Change) -> None:
                told.append(change.key)
                if len(told) == 1001:
                    asyncio.get_running_loop().call_soon(lambda: seen.append(len(told)))

            informer = Informer(client, THINGS, whole=whole)
            informer.add_handler(note)
            async with informer:
                await informer.synced()
                things.deaf = True
                for number in range(600):
                    await things.remove(f"thing-{number}")
                    await things.put(f"other-{number}")
                things.compact()
                things.deaf = False
                things.break_watches()
                async with asyncio.timeout(60):
                    while len(told) < 2200:
                        await asyncio.sleep(0.01)
            assert seen == [2200] if whole else seen[0] < 1500

    story()

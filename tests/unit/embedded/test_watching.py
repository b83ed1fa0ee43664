"""Watches whose clients read slowly: nothing is buffered for them, nothing is lost in silence."""

import asyncio
import random
from typing import Any

import orjson
import pytest

from clusters.embedded.context import Context
from clusters.embedded.http import Request
from clusters.embedded.kinds import Kind, Kinds
from clusters.embedded.selecting import Selection
from clusters.embedded.store import Store
from clusters.embedded.strategies import builtin_kinds
from clusters.embedded.watching import Watch, Watches, WatchOptions


class Reader:
    """A client's end: takes chunks while it has room for them."""

    def __init__(self) -> None:
        self.ready = True
        self.room: int | None = None
        self.finished = False
        self.events: list[dict[str, Any]] = []

    def send(self, chunk: bytes) -> None:
        self.events += [orjson.loads(line) for line in chunk.splitlines()]
        if self.room is not None:
            self.room -= 1
            self.ready = self.room > 0

    def finish(self) -> None:
        self.finished = True

    def seen(self) -> list[tuple[str, str, str]]:
        return [
            (event["type"], event["object"]["metadata"]["name"], event["object"]["metadata"]["resourceVersion"])
            for event in self.events
        ]


def configmaps(window: int = 100) -> Kind:
    kinds = Kinds(Store(window=window))
    kinds.add(builtin_kinds(kinds.store, lambda: "2026-11-16T00:00:00Z"))
    kind = kinds.find("", "v1", "configmaps")
    assert kind is not None
    return kind


def write(kind: Kind, name: str, **labels: str) -> int:
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}
    return kind.table.put(f"default/{name}", obj).version


def watch(kind: Kind, reader: Reader, selector: str = "", **options: Any) -> Watch:
    request = Request("GET", "", {"labelSelector": selector} if selector else {}, {})
    selection = Selection.parse(Context(request, kind, "default"))
    made = Watch(Watches(), kind, selection, WatchOptions(**options))
    made.start(reader)
    return made


async def test_a_slow_client_gets_everything_once_it_has_caught_up() -> None:
    kind, reader = configmaps(), Reader()
    going = watch(kind, reader, version=kind.table.version)
    reader.ready = False
    versions = [write(kind, "a"), write(kind, "b"), write(kind, "a")]
    assert reader.events == []
    reader.ready = True
    going.resume()
    versions.append(write(kind, "c"))
    assert [int(version) for _, _, version in reader.seen()] == versions
    going.stop()
    assert kind.table.subscribers == []


async def test_a_client_that_is_slower_than_history_is_told_to_list_again() -> None:
    kind, reader = configmaps(window=2), Reader()
    going = watch(kind, reader, version=kind.table.version)
    reader.ready = False
    for _ in range(5):
        write(kind, "a")
    reader.ready = True
    going.resume()
    assert [event["type"] for event in reader.events] == ["ERROR"]
    assert (reader.events[0]["object"]["code"], reader.events[0]["object"]["reason"]) == (410, "Expired")
    assert reader.finished


async def test_an_object_that_leaves_a_selector_is_shown_as_deleted_as_it_was_seen_last() -> None:
    kind, reader = configmaps(), Reader()
    watch(kind, reader, "colour=red", version=kind.table.version)
    write(kind, "a", colour="red")
    left = write(kind, "a", colour="blue")
    write(kind, "a", colour="green")
    assert [event["type"] for event in reader.events] == ["ADDED", "DELETED"]
    last = reader.events[-1]["object"]["metadata"]
    assert (last["labels"], last["resourceVersion"]) == ({"colour": "red"}, str(left))


@pytest.mark.parametrize("seed", range(20))
async def test_however_a_client_stops_and_goes_it_sees_every_change_in_order(seed: int) -> None:
    rng = random.Random(seed)
    kind, reader = configmaps(window=1000), Reader()
    going = watch(kind, reader, version=kind.table.version)
    versions = []
    for _ in range(200):
        if rng.random() < 0.3:
            reader.room = rng.choice([None, 1, 2, 5])
            reader.ready = True
            going.resume()
        versions.append(write(kind, rng.choice("abc")))
    reader.room, reader.ready = None, True
    going.resume()
    assert [int(version) for _, _, version in reader.seen()] == versions


async def test_a_watch_ends_after_its_time_with_a_bookmark() -> None:
    kind, reader = configmaps(), Reader()
    watch(kind, reader, version=kind.table.version, bookmarks=True, timeout=1)
    last = write(kind, "a")
    async with asyncio.timeout(30):
        while not reader.finished:
            await asyncio.sleep(0.05)
    assert [event["type"] for event in reader.events] == ["ADDED", "BOOKMARK"]
    assert reader.events[-1]["object"]["metadata"]["resourceVersion"] == str(last)

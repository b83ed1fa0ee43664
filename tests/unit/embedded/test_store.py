"""Versions, history and lists of the past."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clusters.embedded.errors import StatusError
from clusters.embedded.store import Event, Store, Table


def obj(name: str, number: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": name}, "number": number}


def table(window: int = 100) -> Table:
    return Store(window=window).table("things", lambda _: {})


def test_every_write_has_the_next_version_whatever_the_resource() -> None:
    store = Store()
    one, other = store.table("one", lambda _: {}), store.table("other", lambda _: {})
    versions = [one.put("a", obj("a")).version, other.put("a", obj("a")).version, one.remove("a").version]
    assert versions == [2, 3, 4]


def test_the_version_is_in_the_stored_object() -> None:
    item = table().put("a", obj("a"))
    assert item.decode()["metadata"]["resourceVersion"] == str(item.version)


def test_objects_of_a_namespace_are_found_without_those_of_its_neighbours() -> None:
    things = table()
    for key in ("a/x", "a-b/x", "a/y", "ab/x", "a0/x"):
        things.put(key, obj(key))
    assert [item.key for item in things.scan("a/")] == ["a/x", "a/y"]
    assert [item.key for item in things.scan("a/", after="a/x")] == ["a/y"]


def test_subscribers_hear_of_writes_in_order_with_what_they_replaced() -> None:
    things = table()
    heard: list[Event] = []
    things.subscribers.append(heard.append)
    things.put("a", obj("a", 1))
    things.put("a", obj("a", 2))
    things.remove("a")
    assert [(event.before is not None, event.deleted) for event in heard] == [
        (False, False),
        (True, False),
        (True, True),
    ]
    assert [event.version for event in heard] == sorted(event.version for event in heard)


def test_history_ends_with_the_window() -> None:
    things = table(window=3)
    versions = [things.put("a", obj("a", number)).version for number in range(6)]
    after = things.events_after(versions[2])
    assert after is not None
    assert [event.version for event in after] == versions[3:]
    assert things.events_after(versions[1]) is None
    with pytest.raises(StatusError, match="too old"):
        things.scan_at(versions[1])


class Past(RuleBasedStateMachine):
    """A list as of a version is what a list at that version was."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table(window=5)
        self.seen: dict[int, list[tuple[str, int]]] = {}

    @rule(name=st.sampled_from("abcd"), number=st.integers(0, 9))
    def write(self, name: str, number: int) -> None:
        self.table.put(f"ns/{name}", obj(name, number))

    @rule(name=st.sampled_from("abcd"))
    def delete(self, name: str) -> None:
        if f"ns/{name}" in self.table.items:
            self.table.remove(f"ns/{name}")

    @invariant()
    def the_past_is_as_it_was(self) -> None:
        self.seen[self.table.version] = [(item.key, item.version) for item in self.table.scan("ns/")]
        for version, listed in self.seen.items():
            if version >= self.table.compacted:
                assert [(item.key, item.version) for item in self.table.scan_at(version, "ns/")] == listed


TestPast = Past.TestCase
TestPast.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)

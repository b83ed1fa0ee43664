"""Watches: where they start, what turns into which event, and how they end."""

import asyncio
from typing import Any

import pytest

from tests.contract.objects import configmap, job, pod, widgets
from tests.contract.wire import Api


async def version_of(api: Api, plural: str) -> str:
    version: str = (await api.get(api.at(plural))).ok()["metadata"]["resourceVersion"]
    return version


async def test_a_watch_from_a_list_sees_every_write_after_it_in_order(api: Api) -> None:
    await api.made("jobs", job("before"))
    async with api.watch(api.at("jobs"), resourceVersion=await version_of(api, "jobs")) as stream:
        made = await api.made("jobs", job("a"))
        changed = (await api.patch(api.at("jobs", "a"), {"metadata": {"labels": {"x": "y"}}})).ok()
        (await api.delete(api.at("jobs", "a"), propagationPolicy="Background")).ok()
        assert await stream.event() == ("ADDED", made)
        assert await stream.event() == ("MODIFIED", changed)
        kind, last = await stream.event()
    assert kind == "DELETED"
    assert int(last["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])
    assert last["metadata"]["labels"] == changed["metadata"]["labels"]
    assert last["kind"] == "Job"


async def test_a_watch_can_start_in_the_past(api: Api) -> None:
    start = await version_of(api, "jobs")
    await api.made("jobs", job("a"))
    (await api.delete(api.at("jobs", "a"), propagationPolicy="Background")).ok()
    async with api.watch(api.at("jobs"), resourceVersion=start) as stream:
        assert await stream.take(2) == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_watch_from_an_object_begins_after_it(api: Api) -> None:
    made = await api.made("jobs", job("a"))
    async with api.watch(api.at("jobs"), resourceVersion=made["metadata"]["resourceVersion"]) as stream:
        await api.made("jobs", job("b"))
        assert await stream.take(1) == [("ADDED", "b")]


@pytest.mark.parametrize("params", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}], ids=str)
async def test_a_watch_from_nowhere_begins_with_what_is_there(api: Api, params: dict[str, str]) -> None:
    for name in ("b", "a"):
        await api.made("jobs", job(name))
    async with api.watch(api.at("jobs"), **params) as stream:
        assert sorted(await stream.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.made("jobs", job("later"))
        assert await stream.take(1) == [("ADDED", "later")]


async def test_a_watch_ends_at_its_timeout_without_an_error(api: Api) -> None:
    async with api.watch(api.at("jobs"), resourceVersion=await version_of(api, "jobs"), timeoutSeconds=1) as stream:
        assert await stream.rest() == []


async def test_a_watch_of_one_name_sees_only_that(api: Api) -> None:
    start = await version_of(api, "jobs")
    await api.made("jobs", job("other"))
    await api.made("jobs", job("mine"))
    async with api.watch(api.at("jobs"), resourceVersion=start, fieldSelector="metadata.name=mine") as stream:
        assert await stream.take(1) == [("ADDED", "mine")]


async def test_the_old_path_for_watches_still_works(api: Api) -> None:
    await api.made("jobs", job("a"))
    path = api.at("jobs").replace("/apis/batch/v1/", "/apis/batch/v1/watch/")
    async with api.watch(path) as stream:
        assert await stream.take(1) == [("ADDED", "a")]


async def test_a_change_of_labels_moves_an_object_into_and_out_of_a_watch(api: Api) -> None:
    await api.made("configmaps", configmap("a", labels={"colour": "blue"}))
    path = api.at("configmaps", "a")
    start = await version_of(api, "configmaps")
    async with api.watch(api.at("configmaps"), resourceVersion=start, labelSelector="colour=red") as stream:
        (await api.patch(path, {"data": {"unseen": "1"}})).ok()
        (await api.patch(path, {"metadata": {"labels": {"colour": "red"}}})).ok()
        (await api.patch(path, {"data": {"seen": "1"}})).ok()
        left = (await api.patch(path, {"metadata": {"labels": {"colour": "green"}}})).ok()
        kinds = [await stream.event() for _ in range(3)]
    assert [kind for kind, _ in kinds] == ["ADDED", "MODIFIED", "DELETED"]
    last = kinds[-1][1]
    assert last["metadata"]["labels"] == {"colour": "red"}, "the state that was last inside the selection"
    assert last["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_a_change_of_fields_moves_a_pod_out_of_a_watch(api: Api) -> None:
    await api.made("pods", pod("a"))
    start = await version_of(api, "pods")
    async with api.watch(api.at("pods"), resourceVersion=start, fieldSelector="status.phase=Pending") as stream:
        (await api.patch(api.at("pods", "a", "status"), {"status": {"phase": "Running"}})).ok()
        assert await stream.take(1) == [("DELETED", "a")]


@pytest.mark.usefixtures("widget_crd")
async def test_a_version_too_old_to_watch_from_is_gone(api: Api) -> None:
    async with api.watch(widgets(api.namespace), resourceVersion="1") as stream:
        kind, status = await stream.event()
        assert kind == "ERROR"
        assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
        assert status["message"].startswith("too old resource version: 1 (")
        assert await stream.rest() == []


async def test_a_version_that_cannot_be_watched_from_is_refused(api: Api) -> None:
    status = (await api.get(api.at("configmaps"), watch="true", resourceVersion="abc")).refused(500, None)
    assert status["message"].startswith('resourceVersion: Invalid value: "abc"')


async def test_the_initial_state_can_be_streamed_and_its_end_is_marked(api: Api) -> None:
    for name in ("a", "b"):
        await api.made("jobs", job(name))
    async with api.watch(
        api.at("jobs"),
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as stream:
        assert sorted(await stream.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        kind, mark = await stream.event()
        assert kind == "BOOKMARK"
        assert mark["kind"] == "Job"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(mark["metadata"]["resourceVersion"]) > 0
        await api.made("jobs", job("c"))
        assert await stream.take(1) == [("ADDED", "c")]


async def test_streaming_the_initial_state_needs_its_match(api: Api) -> None:
    answer = await api.get(api.at("jobs"), watch="true", sendInitialEvents="true", allowWatchBookmarks="true")
    status = answer.refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"resourceVersionMatch"}


async def test_a_match_needs_the_initial_state_to_be_asked_for(api: Api) -> None:
    answer = await api.get(api.at("jobs"), watch="true", resourceVersion="0", resourceVersionMatch="NotOlderThan")
    status = answer.refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"resourceVersionMatch"}


async def test_a_watch_is_told_how_far_it_has_come_if_it_asked(api: Api) -> None:
    start = await version_of(api, "jobs")
    params: dict[str, Any] = {"resourceVersion": start, "labelSelector": "never=there", "timeoutSeconds": 4}
    async with (
        api.watch(api.at("jobs"), allowWatchBookmarks="true", **params) as asked,
        api.watch(api.at("jobs"), **params) as silent,
    ):
        unseen = await api.made("jobs", job("unseen"))
        events, nothing = await asyncio.gather(asked.rest(), silent.rest())
    assert nothing == []
    assert {event["type"] for event in events} == {"BOOKMARK"}
    mark = events[-1]["object"]
    assert mark["kind"] == "Job"
    assert mark["metadata"].keys() == {"resourceVersion"}
    assert int(mark["metadata"]["resourceVersion"]) >= int(unseen["metadata"]["resourceVersion"])


async def test_two_watches_see_the_same_events(api: Api) -> None:
    start = await version_of(api, "configmaps")
    async with (
        api.watch(api.at("configmaps"), resourceVersion=start, labelSelector="mine") as one,
        api.watch(api.at("configmaps"), resourceVersion=start, labelSelector="mine") as two,
    ):
        for number in range(10):
            await api.made("configmaps", configmap(f"m{number}", labels={"mine": ""}))
        seen = await asyncio.gather(one.take(10), two.take(10))
    assert seen[0] == seen[1] == [("ADDED", f"m{number}") for number in range(10)]

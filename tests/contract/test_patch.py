"""JSON, merge and strategic merge patches."""

from typing import Any

import pytest

from tests.contract.objects import configmap, job, owner, pod, widget, widgets
from tests.contract.wire import Api


async def test_a_merge_patch_merges_maps_and_null_removes(api: Api) -> None:
    await api.made("configmaps", configmap("a", {"x": "1", "y": "2"}))
    changed = (await api.patch(api.at("configmaps", "a"), {"data": {"x": None, "z": "3"}})).ok()
    assert changed["data"] == {"y": "2", "z": "3"}


async def test_a_merge_patch_replaces_lists(api: Api) -> None:
    await api.made("configmaps", configmap("a", finalizers=["example.com/a", "example.com/b"]))
    changed = (await api.patch(api.at("configmaps", "a"), {"metadata": {"finalizers": ["example.com/c"]}})).ok()
    assert changed["metadata"]["finalizers"] == ["example.com/c"]


async def test_a_merge_patch_with_an_older_version_conflicts(api: Api) -> None:
    made = await api.made("configmaps", configmap("a"))
    (await api.patch(api.at("configmaps", "a"), {"data": {"x": "1"}})).ok()
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
    (await api.patch(api.at("configmaps", "a"), stale)).refused(409, "Conflict")


async def test_a_patch_without_a_version_never_conflicts(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    for number in range(5):
        changed = (await api.patch(api.at("configmaps", "a"), {"data": {f"k{number}": "v"}})).ok()
    assert len(changed["data"]) == 6


@pytest.mark.parametrize("kind", ["json", "merge", "strategic"])
async def test_a_patch_that_changes_nothing_writes_nothing(api: Api, kind: str) -> None:
    made = await api.made("configmaps", configmap("a", {"x": "1"}))
    body: Any = {"data": {"x": "1"}}
    if kind == "json":
        body = [{"op": "replace", "path": "/data/x", "value": "1"}]
    same = (await api.patch(api.at("configmaps", "a"), body, kind)).ok()
    assert same == made


async def test_json_patch_operations_are_done_in_order(api: Api) -> None:
    await api.made("configmaps", configmap("a", {"x": "1", "y": "2"}, annotations={"a/b": "1"}))
    operations = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "add", "path": "/data/z", "value": "3"},
        {"op": "replace", "path": "/data/x", "value": "9"},
        {"op": "copy", "from": "/data/z", "path": "/data/copy"},
        {"op": "move", "from": "/data/y", "path": "/data/moved"},
        {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "4"},
    ]
    changed = (await api.patch(api.at("configmaps", "a"), operations, "json")).ok()
    assert changed["data"] == {"x": "9", "z": "3", "copy": "3", "moved": "2"}
    assert changed["metadata"]["annotations"] == {"a/b": "4"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/x", "value": "other"},
        {"op": "remove", "path": "/data/nothing"},
        {"op": "replace", "path": "/metadata/nothing/x", "value": "x"},
        {"op": "add", "path": "/no/such/parent", "value": "x"},
        {"op": "add", "path": "/metadata/finalizers/7", "value": "example.com/x"},
        {"op": "jump", "path": "/data/x"},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
async def test_a_json_patch_that_cannot_be_done_is_refused_and_does_nothing(
    api: Api, operation: dict[str, str]
) -> None:
    made = await api.made("configmaps", configmap("a", {"x": "1"}, finalizers=["example.com/a"]))
    operations = [{"op": "add", "path": "/data/z", "value": "3"}, operation]
    (await api.patch(api.at("configmaps", "a"), operations, "json")).refused(422, "Invalid")
    assert await api.read("configmaps", "a") == made


async def test_a_list_grows_in_place_by_json_patch(api: Api) -> None:
    await api.made("configmaps", configmap("a", finalizers=["example.com/b"]))
    operations = [
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/c"},
        {"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/a"},
    ]
    changed = (await api.patch(api.at("configmaps", "a"), operations, "json")).ok()
    assert changed["metadata"]["finalizers"] == ["example.com/a", "example.com/b", "example.com/c"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("json", {"not": "a list"}),
        ("merge", "[1, 2"),
        ("strategic", "nonsense"),
    ],
)
async def test_a_body_that_is_no_patch_is_refused(api: Api, kind: str, body: Any) -> None:
    await api.made("configmaps", configmap("a"))
    (await api.patch(api.at("configmaps", "a"), body, kind)).refused(400, "BadRequest")


async def test_a_patch_that_breaks_a_rule_is_refused(api: Api) -> None:
    await api.made("jobs", job("a"))
    status = (await api.patch(api.at("jobs", "a"), {"spec": {"parallelism": -1}})).refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"spec.parallelism"}


async def test_a_strategic_patch_merges_containers_by_name(api: Api) -> None:
    containers = [{"name": name, "image": f"example.com/{name}:1"} for name in ("one", "two")]
    await api.made("pods", pod("a", containers=containers))
    change = {"spec": {"containers": [{"name": "two", "image": "example.com/two:2"}]}}
    changed = (await api.patch(api.at("pods", "a"), change, "strategic")).ok()
    assert [each["image"] for each in changed["spec"]["containers"]] == ["example.com/one:1", "example.com/two:2"]


async def test_a_strategic_patch_adds_to_and_takes_from_lists_of_plain_values(api: Api) -> None:
    await api.made("pods", pod("a", metadata={"finalizers": ["example.com/a", "example.com/b"]}))
    change = {
        "metadata": {
            "finalizers": ["example.com/c"],
            "$deleteFromPrimitiveList/finalizers": ["example.com/a"],
        }
    }
    changed = (await api.patch(api.at("pods", "a"), change, "strategic")).ok()
    assert sorted(changed["metadata"]["finalizers"]) == ["example.com/b", "example.com/c"]


async def test_a_strategic_patch_deletes_an_item_by_its_key(api: Api) -> None:
    refs = [owner(await api.made("configmaps", configmap(name))) for name in ("o", "p")]
    await api.made("jobs", job("a", metadata={"ownerReferences": refs}))
    change = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": refs[0]["uid"]}]}}
    changed = (await api.patch(api.at("jobs", "a"), change, "strategic")).ok()
    assert changed["metadata"]["ownerReferences"] == [refs[1]]


async def test_a_strategic_patch_can_replace_a_map(api: Api) -> None:
    await api.made("configmaps", configmap("a", {"x": "1"}))
    change = {"data": {"$patch": "replace", "y": "2"}}
    changed = (await api.patch(api.at("configmaps", "a"), change, "strategic")).ok()
    assert changed["data"] == {"y": "2"}


async def test_conditions_are_merged_by_type(api: Api) -> None:
    await api.made("jobs", job("a"))
    path = api.at("jobs", "a", "status")
    for number, kind in enumerate(("Mine", "Yours", "Mine")):
        condition = {"type": kind, "status": "True", "message": str(number)}
        changed = (await api.patch(path, {"status": {"conditions": [condition]}}, "strategic")).ok()
    found = {each["type"]: each["message"] for each in changed["status"]["conditions"]}
    assert found == {"Mine": "2", "Yours": "1"}


@pytest.mark.usefixtures("widget_crd")
async def test_custom_resources_take_no_strategic_patch(api: Api) -> None:
    (await api.post(widgets(api.namespace), widget("a"))).ok(201)
    answer = await api.patch(widgets(api.namespace, "a"), {"spec": {"size": 2}}, "strategic")
    status = answer.refused(415, "UnsupportedMediaType")
    assert status["message"] == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    (await api.patch(widgets(api.namespace, "a"), {"spec": {"size": 2}}, "merge")).ok()


async def test_the_status_is_patched_through_its_own_path(api: Api) -> None:
    await api.made("jobs", job("a"))
    both = {"spec": {"parallelism": 4}, "status": {"active": 2}}
    through_object = (await api.patch(api.at("jobs", "a"), both)).ok()
    assert (through_object["spec"]["parallelism"], through_object["status"]) == (4, {})
    both["spec"]["parallelism"] = 5
    through_status = (await api.patch(api.at("jobs", "a", "status"), both)).ok()
    assert (through_status["spec"]["parallelism"], through_status["status"]) == (4, {"active": 2})

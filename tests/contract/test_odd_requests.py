"""Requests that nobody should send, and that somebody does: what each of them gets."""

from typing import Any

import pytest

from tests.contract.objects import configmap, job, pod
from tests.contract.wire import Api


async def test_nothing_is_deleted_in_all_namespaces_at_once(api: Api) -> None:
    await api.made("configmaps", configmap("a", labels={"only": api.namespace}))
    answer = await api.delete("/api/v1/configmaps", labelSelector=f"only={api.namespace}")
    answer.refused(405, "MethodNotAllowed")
    await api.read("configmaps", "a")


async def test_a_head_is_answered_without_a_body(api: Api) -> None:
    answer = await api.call("HEAD", api.at("configmaps"))
    assert (answer.status, answer.content) == (405, b"")
    assert (await api.get(api.at("configmaps"))).ok()["kind"] == "ConfigMapList"


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_an_object_is_not_changed_into_one_without_a_name(api: Api, method: str) -> None:
    await api.made("configmaps", configmap("a"))
    if method == "PUT":
        answer = await api.put(api.at("configmaps", "a"), {"data": {"x": "y"}})
    else:
        answer = await api.patch(api.at("configmaps", "a"), {"metadata": None})
    status = answer.refused(400, "BadRequest")
    assert status["message"] == ("the name of the object (a based on URL) was undeterminable: name must be provided")


@pytest.mark.parametrize("body", ["null", "{}", '{"metadata": null}'])
async def test_an_object_of_nothing_lacks_a_name(api: Api, body: str) -> None:
    status = (await api.post(api.at("configmaps"), body)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


async def test_an_empty_policy_is_no_policy(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    status = (await api.delete(api.at("configmaps", "a"), propagationPolicy="")).refused(422, "Invalid")
    assert status["details"]["causes"][0]["message"] == (
        'Unsupported value: "": supported values: "Foreground", "Background", "Orphan", "nil"'
    )


async def test_a_list_has_no_initial_events(api: Api) -> None:
    status = (await api.get(api.at("configmaps"), sendInitialEvents="true")).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "sendInitialEvents"


@pytest.mark.parametrize(
    ("metadata", "field"),
    [({"labels": []}, "labels"), ({"finalizers": {}}, "finalizers"), ({"ownerReferences": "x"}, "ownerReferences")],
    ids=str,
)
async def test_an_empty_value_of_the_wrong_type_is_refused(api: Api, metadata: dict[str, Any], field: str) -> None:
    status = (await api.post(api.at("configmaps"), configmap("a", **metadata))).refused(400, "BadRequest")
    assert f"Go struct field ObjectMeta.metadata.{field} of type" in status["message"]


async def test_a_null_among_texts_is_an_empty_text(api: Api) -> None:
    made = await api.made("configmaps", {"metadata": {"name": "a", "labels": {"l": None}}, "data": {"x": None}})
    assert (made["metadata"]["labels"], made["data"]) == ({"l": ""}, {"x": ""})


async def test_the_version_nought_means_none(api: Api) -> None:
    made = await api.made("configmaps", configmap("a", resourceVersion="0"))
    assert int(made["metadata"]["resourceVersion"]) > 0


async def test_an_add_without_a_value_adds_null(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    changed = (await api.patch(api.at("configmaps", "a"), [{"op": "add", "path": "/data/x"}], "json")).ok()
    assert changed["data"]["x"] == ""


@pytest.mark.parametrize(
    "change",
    [{"data": {"x": 5}}, {"data": []}, {"kind": "Pod"}, {"apiVersion": "v2"}],
    ids=str,
)
async def test_a_patch_into_something_else_is_refused(api: Api, change: dict[str, Any]) -> None:
    made = await api.made("configmaps", configmap("a"))
    status = (await api.patch(api.at("configmaps", "a"), change)).refused(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["patch"]
    assert await api.read("configmaps", "a") == made


async def test_an_unknown_field_cannot_be_applied(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "nope": 1}
    status = (await api.apply(api.at("configmaps", "a"), body, "alice")).refused(500, None)
    assert status["message"] == (
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .nope: field not declared in schema"
    )


@pytest.mark.parametrize("manager", ["x" * 129, "a\tb"], ids=["long", "unprintable"])
async def test_the_name_of_a_manager_is_short_and_printable(api: Api, manager: str) -> None:
    answer = await api.post(api.at("configmaps"), configmap("a"), fieldManager=manager)
    status = answer.refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"fieldManager"}


@pytest.mark.parametrize("what", ["eviction", "binding"])
async def test_what_is_done_to_a_pod_must_name_it(api: Api, what: str) -> None:
    await api.made("pods", pod("a"))
    body = {"metadata": {"name": "b"}, "target": {"kind": "Node", "name": "n1"}}
    if what == "eviction":
        del body["target"]
    status = (await api.post(api.at("pods", "a", what), body)).refused(400, "BadRequest")
    assert status["message"] == f"name in URL does not match name in {what.capitalize()} object"


async def test_a_number_that_is_none_is_refused(api: Api) -> None:
    for params in ({"limit": "x"}, {"timeoutSeconds": "x", "watch": "true"}):
        status = (await api.get(api.at("configmaps"), accept=None, **params)).refused(400, "BadRequest")
        assert status["message"] == 'strconv.ParseInt: parsing "x": invalid syntax'


async def test_a_comma_in_a_field_selector_can_be_escaped(api: Api) -> None:
    listed = (await api.get(api.at("configmaps"), fieldSelector="metadata.name=a\\,b")).ok()
    assert listed["items"] == []


async def test_the_root_tells_the_paths(api: Api) -> None:
    paths = (await api.get("/")).ok()["paths"]
    assert {"/api", "/api/v1", "/apis", "/apis/batch", "/apis/batch/v1", "/healthz", "/version"} <= set(paths)


async def test_a_fraction_of_a_pod_is_refused(api: Api) -> None:
    status = (await api.post(api.at("jobs"), job("a", parallelism=1.5))).refused(400, "BadRequest")
    assert (
        "cannot unmarshal number 1.5 into Go struct field JobSpec.spec.parallelism of type int32" in status["message"]
    )

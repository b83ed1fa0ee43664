"""Create, read, update, delete: status codes, bodies, and who wins when two write."""

import pytest

from tests.contract.objects import configmap, job, lease, pod
from tests.contract.wire import Api


async def test_a_created_object_comes_back_with_what_the_server_filled_in(api: Api) -> None:
    made = await api.made("configmaps", configmap("a", {"x": "1"}))
    assert (made["kind"], made["apiVersion"], made["data"]) == ("ConfigMap", "v1", {"x": "1"})
    meta = made["metadata"]
    assert meta["namespace"] == api.namespace
    assert len(meta["uid"]) == 36
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"].endswith("Z")
    assert "generation" not in meta
    assert await api.read("configmaps", "a") == made


async def test_creating_what_exists_is_refused(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    status = (await api.post(api.at("configmaps"), configmap("a"))).refused(409, "AlreadyExists")
    assert status["message"] == 'configmaps "a" already exists'
    assert status["details"] == {"name": "a", "kind": "configmaps"}


@pytest.mark.parametrize(
    ("plural", "message", "details"),
    [
        ("configmaps", 'configmaps "nope" not found', {"name": "nope", "kind": "configmaps"}),
        ("jobs", 'jobs.batch "nope" not found', {"name": "nope", "group": "batch", "kind": "jobs"}),
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
async def test_what_is_not_there_is_not_found(
    api: Api, method: str, plural: str, message: str, details: dict[str, str]
) -> None:
    path = api.at(plural, "nope")
    thing = configmap("nope") if plural == "configmaps" else job("nope")
    match method:
        case "PUT":
            answer = await api.put(path, thing)
        case "PATCH":
            answer = await api.patch(path, {"metadata": {"labels": {"a": "b"}}})
        case _:
            answer = await api.call(method, path)
    status = answer.refused(404, "NotFound")
    assert status["message"] == message
    assert status["details"] == details
    assert status["metadata"] == {}


async def test_a_put_replaces_the_whole_object(api: Api) -> None:
    made = await api.made("configmaps", configmap("a", {"x": "1", "y": "2"}, labels={"l": "1"}))
    put = (await api.put(api.at("configmaps", "a"), configmap("a", {"x": "3"}))).ok()
    assert put["data"] == {"x": "3"}
    assert "labels" not in put["metadata"]
    for kept in ("uid", "creationTimestamp", "namespace", "name"):
        assert put["metadata"][kept] == made["metadata"][kept]
    assert int(put["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_a_put_that_read_an_older_version_conflicts(api: Api) -> None:
    made = await api.made("configmaps", configmap("a"))
    (await api.put(api.at("configmaps", "a"), configmap("a", {"x": "1"}))).ok()
    status = (await api.put(api.at("configmaps", "a"), made)).refused(409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert status["details"] == {"name": "a", "kind": "configmaps"}
    assert (await api.read("configmaps", "a"))["data"] == {"x": "1"}


async def test_a_put_that_changes_nothing_writes_nothing(api: Api) -> None:
    made = await api.made("configmaps", configmap("a"))
    put = (await api.put(api.at("configmaps", "a"), made)).ok()
    assert put["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_update_of_a_lease_must_say_which_version_it_read(api: Api) -> None:
    await api.made("leases", lease("a"))
    status = (await api.put(api.at("leases", "a"), lease("a", holderIdentity="x"))).refused(422, "Invalid")
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": "Invalid value: 0: must be specified for an update",
            "field": "metadata.resourceVersion",
        }
    ]


async def test_a_put_creates_a_lease_that_is_not_there(api: Api) -> None:
    made = (await api.put(api.at("leases", "a"), lease("a", holderIdentity="x"))).ok(201)
    assert made["spec"]["holderIdentity"] == "x"


async def test_the_name_in_the_body_must_be_the_one_in_the_path(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    status = (await api.put(api.at("configmaps", "a"), configmap("b"))).refused(400, "BadRequest")
    assert status["message"] == "the name of the object (b) does not match the name on the URL (a)"


async def test_the_namespace_in_the_body_must_be_the_one_in_the_path(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), configmap("a", namespace="elsewhere"))).refused(400, "BadRequest")
    assert status["message"] == "the namespace of the provided object does not match the namespace sent on the request"


async def test_a_put_with_the_uid_of_another_life_conflicts(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    other = configmap("a", uid="11111111-2222-3333-4444-555555555555")
    status = (await api.put(api.at("configmaps", "a"), other)).refused(409, "Conflict")
    assert "Precondition failed: UID in precondition: 11111111-2222-3333-4444-555555555555" in status["message"]


async def test_a_delete_of_a_plain_object_answers_with_its_uid(api: Api) -> None:
    made = await api.made("configmaps", configmap("a"))
    gone = (await api.delete(api.at("configmaps", "a"))).ok()
    assert gone == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    (await api.get(api.at("configmaps", "a"))).refused(404, "NotFound")


async def test_a_name_can_be_used_again_and_gets_another_uid(api: Api) -> None:
    first = await api.made("configmaps", configmap("a"))
    (await api.delete(api.at("configmaps", "a"))).ok()
    second = await api.made("configmaps", configmap("a"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_an_object_to_be_created_must_not_have_a_version(api: Api) -> None:
    answer = await api.post(api.at("configmaps"), configmap("a", resourceVersion="5"))
    status = answer.refused(500, None)
    assert status["message"] == "resourceVersion should not be set on objects to be created"


async def test_kind_and_api_version_may_be_left_out_of_a_body(api: Api) -> None:
    made = await api.made("configmaps", {"metadata": {"name": "a"}, "data": {"x": "y"}})
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


async def test_a_body_of_another_kind_is_refused(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), pod("a"))).refused(400, "BadRequest")
    assert status["message"].startswith('Pod in version "v1" cannot be handled as a ConfigMap')


async def test_the_server_fills_in_what_only_it_may_say(api: Api) -> None:
    mine = configmap("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=9, selfLink="/x")
    made = await api.made("configmaps", mine)
    assert made["metadata"]["uid"] != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("2001")


async def test_versions_of_a_cluster_grow_from_write_to_write(api: Api) -> None:
    versions = [
        int((await api.made("configmaps", configmap("a")))["metadata"]["resourceVersion"]),
        int((await api.made("jobs", job("b")))["metadata"]["resourceVersion"]),
        int((await api.patch(api.at("configmaps", "a"), {"data": {"z": "1"}})).ok()["metadata"]["resourceVersion"]),
    ]
    assert versions == sorted(set(versions))


async def test_a_get_can_ask_for_no_older_than_a_version(api: Api) -> None:
    made = await api.made("configmaps", configmap("a"))
    version = made["metadata"]["resourceVersion"]
    assert (await api.get(api.at("configmaps", "a"), resourceVersion=version)).ok() == made
    assert (await api.get(api.at("configmaps", "a"), resourceVersion="0")).status in (200, 404)

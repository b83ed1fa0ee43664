"""Namespaces: what must be there first, and how they end."""

import secrets

from tests.contract.objects import configmap, job
from tests.contract.wire import Api, Object


def fresh() -> str:
    return f"contract-ns-{secrets.token_hex(4)}"


async def test_a_new_namespace_is_active_and_labelled_with_its_name(api: Api) -> None:
    name = fresh()
    made = (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok(201)
    assert made["status"] == {"phase": "Active"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}


async def test_the_first_namespaces_are_there(api: Api) -> None:
    listed = (await api.get("/api/v1/namespaces")).ok()
    names = {item["metadata"]["name"] for item in listed["items"]}
    assert names >= {"default", "kube-system", "kube-public", "kube-node-lease"}


async def test_nothing_is_created_in_a_namespace_that_is_not_there(api: Api) -> None:
    status = (await api.post("/api/v1/namespaces/nowhere/configmaps", configmap("a"))).refused(404, "NotFound")
    assert status["message"] == 'namespaces "nowhere" not found'
    assert status["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_a_list_in_a_namespace_that_is_not_there_is_empty(api: Api) -> None:
    assert (await api.get("/api/v1/namespaces/nowhere/configmaps")).ok()["items"] == []


async def test_a_namespaces_name_is_a_label(api: Api) -> None:
    status = (await api.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}})).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


async def test_a_deleted_namespace_takes_its_contents_along(api: Api) -> None:
    name = fresh()
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok(201)
    maps = f"/api/v1/namespaces/{name}/configmaps"
    (await api.post(maps, configmap("plain"))).ok(201)
    (await api.post(maps, configmap("held", finalizers=["example.com/hold"]))).ok(201)
    (await api.post(f"/apis/batch/v1/namespaces/{name}/jobs", job("a"))).ok(201)

    deleted = (await api.delete(f"/api/v1/namespaces/{name}")).ok()
    assert deleted["kind"] == "Namespace"
    assert deleted["status"]["phase"] == "Terminating"
    assert deleted["spec"]["finalizers"] == ["kubernetes"]

    status = (await api.post(maps, configmap("late"))).refused(403, "Forbidden")
    assert status["message"] == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {name} '
        "because it is being terminated"
    )
    assert status["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
    ]

    def deleted_but_held(_: str, thing: Object) -> bool:
        return thing["metadata"]["name"] == "held" and "deletionTimestamp" in thing["metadata"]

    await api.watched(maps, deleted_but_held)
    (await api.patch(f"{maps}/held", {"metadata": {"finalizers": None}})).ok()
    await api.watched(
        "/api/v1/namespaces",
        lambda kind, _: kind == "DELETED",
        fieldSelector=f"metadata.name={name}",
        resourceVersion=deleted["metadata"]["resourceVersion"],
    )
    assert (await api.get(maps)).ok()["items"] == []
    assert (await api.get(f"/apis/batch/v1/namespaces/{name}/jobs")).ok()["items"] == []
    (await api.get(f"/api/v1/namespaces/{name}")).refused(404, "NotFound")


async def test_a_namespace_that_is_ending_can_still_be_changed(api: Api) -> None:
    name = fresh()
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok(201)
    maps = f"/api/v1/namespaces/{name}/configmaps"
    (await api.post(maps, configmap("held", finalizers=["example.com/hold"]))).ok(201)
    (await api.delete(f"/api/v1/namespaces/{name}")).ok()
    (await api.patch(f"{maps}/held", {"data": {"x": "late"}})).ok()
    (await api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"x": "late"}}})).ok()
    (await api.patch(f"{maps}/held", {"metadata": {"finalizers": None}})).ok()


async def test_a_namespace_gets_its_default_service_account(api: Api) -> None:
    name = fresh()
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok(201)
    made = await api.watched(f"/api/v1/namespaces/{name}/serviceaccounts", lambda kind, _: kind == "ADDED")
    assert made["metadata"]["name"] == "default"


async def test_a_namespace_that_is_always_there_cannot_be_deleted(api: Api) -> None:
    status = (await api.delete("/api/v1/namespaces/default")).refused(403, "Forbidden")
    assert status["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'

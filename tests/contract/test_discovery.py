"""Discovery: how a client learns what a server has."""

import pytest

from tests.contract.objects import WIDGETS
from tests.contract.wire import Api, Object

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def resources(api: Api, path: str) -> dict[str, Object]:
    listed = (await api.get(path)).ok()
    assert listed["kind"] == "APIResourceList"
    return {each["name"]: each for each in listed["resources"]}


async def test_the_version_of_the_server_is_told(api: Api) -> None:
    version = (await api.get("/version")).ok()
    assert version["major"] == "1"
    assert version["minor"] == "36"
    assert version["gitVersion"].startswith("v1.36.")


async def test_the_core_group_has_one_version(api: Api) -> None:
    versions = (await api.get("/api")).ok()
    assert versions["kind"] == "APIVersions"
    assert versions["versions"] == ["v1"]


async def test_groups_name_their_preferred_versions(api: Api) -> None:
    groups = (await api.get("/apis")).ok()
    assert (groups["kind"], groups["apiVersion"]) == ("APIGroupList", "v1")
    found = {each["name"]: each["preferredVersion"]["groupVersion"] for each in groups["groups"]}
    wanted = {
        "apps": None,
        "batch": "batch/v1",
        "coordination.k8s.io": "coordination.k8s.io/v1",
        "apiextensions.k8s.io": "apiextensions.k8s.io/v1",
        "admissionregistration.k8s.io": "admissionregistration.k8s.io/v1",
        "rbac.authorization.k8s.io": "rbac.authorization.k8s.io/v1",
        "events.k8s.io": "events.k8s.io/v1",
    }
    assert found.items() >= {key: value for key, value in wanted.items() if value}.items()
    batch = (await api.get("/apis/batch")).ok()
    assert (batch["kind"], batch["name"]) == ("APIGroup", "batch")
    assert batch["versions"][0] == {"groupVersion": "batch/v1", "version": "v1"}


async def test_the_resources_of_batch(api: Api) -> None:
    found = await resources(api, "/apis/batch/v1")
    jobs = found["jobs"]
    assert (jobs["kind"], jobs["singularName"], jobs["namespaced"]) == ("Job", "job", True)
    assert jobs["categories"] == ["all"]
    assert set(jobs["verbs"]) == {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert set(found["jobs/status"]["verbs"]) == {"get", "patch", "update"}
    assert found["cronjobs"]["shortNames"] == ["cj"]


@pytest.mark.parametrize(
    ("name", "kind", "namespaced", "short"),
    [
        ("pods", "Pod", True, ["po"]),
        ("nodes", "Node", False, ["no"]),
        ("namespaces", "Namespace", False, ["ns"]),
        ("configmaps", "ConfigMap", True, ["cm"]),
        ("secrets", "Secret", True, None),
        ("events", "Event", True, ["ev"]),
        ("serviceaccounts", "ServiceAccount", True, ["sa"]),
    ],
)
async def test_the_resources_of_the_core(
    api: Api, name: str, kind: str, namespaced: bool, short: list[str] | None
) -> None:
    found = (await resources(api, "/api/v1"))[name]
    assert (found["kind"], found["namespaced"], found.get("shortNames")) == (kind, namespaced, short)


async def test_the_subresources_of_pods(api: Api) -> None:
    found = await resources(api, "/api/v1")
    assert found["pods/binding"]["verbs"] == ["create"]
    assert (found["pods/eviction"]["group"], found["pods/eviction"]["kind"]) == ("policy", "Eviction")
    assert found["pods/log"]["verbs"] == ["get"]
    assert found["serviceaccounts/token"]["kind"] == "TokenRequest"


async def test_all_groups_are_told_at_once_to_who_asks(api: Api) -> None:
    for path in ("/api", "/apis"):
        answer = await api.get(path, accept=AGGREGATED)
        listed = answer.ok()
        assert answer.headers["content-type"] == AGGREGATED
        assert (listed["kind"], listed["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    batch = next(each for each in listed["items"] if each["metadata"]["name"] == "batch")
    jobs = next(each for each in batch["versions"][0]["resources"] if each["resource"] == "jobs")
    assert jobs["responseKind"]["kind"] == "Job"
    assert (jobs["scope"], jobs["singularResource"]) == ("Namespaced", "job")
    assert [each["subresource"] for each in jobs["subresources"]] == ["status"]


@pytest.mark.usefixtures("widget_crd")
async def test_custom_resources_are_discovered(api: Api) -> None:
    # Discovery of a new definition lags behind the path that serves it.
    while (await api.get(f"/apis/{WIDGETS}/v1")).status == 404:
        pass
    found = await resources(api, f"/apis/{WIDGETS}/v1")
    assert (found["widgets"]["kind"], found["widgets"]["namespaced"]) == ("Widget", True)
    assert set(found["widgets/status"]["verbs"]) == {"get", "patch", "update"}
    while WIDGETS not in {each["name"] for each in (await api.get("/apis")).ok()["groups"]}:
        pass


async def test_the_schemas_are_published_by_group(api: Api) -> None:
    index = (await api.get("/openapi/v3")).ok()
    assert {"api/v1", "apis/batch/v1"} <= index["paths"].keys()
    url = index["paths"]["apis/batch/v1"]["serverRelativeURL"]
    path, _, query = url.partition("?")
    document = (await api.get(path, **dict(part.split("=", 1) for part in query.split("&") if part))).ok()
    job = document["components"]["schemas"]["io.k8s.api.batch.v1.Job"]
    assert job["x-kubernetes-group-version-kind"] == [{"group": "batch", "kind": "Job", "version": "v1"}]
    assert document["components"]["schemas"]["io.k8s.api.batch.v1.JobSpec"]["properties"]["managedBy"]["description"]

"""Secrets, ConfigMaps, Events, Leases, ServiceAccounts and Nodes."""

import asyncio
import base64
import json
import secrets as random
from typing import Any

import pytest

from tests.contract.objects import configmap, job, lease, secret
from tests.contract.wire import Api


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_the_text_of_a_secret_is_stored_encoded_and_wins(api: Api) -> None:
    body = secret("a", data={"x": encoded("one"), "y": encoded("two")}, stringData={"x": "three"})
    made = await api.made("secrets", body)
    assert made["data"] == {"x": encoded("three"), "y": encoded("two")}
    assert "stringData" not in made
    assert made["type"] == "Opaque"


async def test_the_data_of_a_secret_must_be_base64(api: Api) -> None:
    status = (await api.post(api.at("secrets"), secret("a", data={"x": "%%%"}))).refused(400, "BadRequest")
    assert status["message"].startswith('Secret in version "v1" cannot be handled as a Secret: ')
    assert "illegal base64 data" in status["message"]


async def test_the_type_of_a_secret_never_changes(api: Api) -> None:
    await api.made("secrets", secret("a"))
    status = (await api.patch(api.at("secrets", "a"), {"type": "other"})).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "type"
    assert status["details"]["causes"][0]["message"] == 'Invalid value: "other": field is immutable'


async def test_secrets_are_selected_by_type(api: Api) -> None:
    await api.made("secrets", secret("a"))
    await api.made("secrets", secret("b", type="example.com/key"))
    listed = (await api.get(api.at("secrets"), fieldSelector="type=example.com/key")).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["b"]


@pytest.mark.parametrize("kind", ["secrets", "configmaps"])
async def test_a_key_of_data_must_be_a_file_name(api: Api, kind: str) -> None:
    body = secret("a", stringData={"no/slash": "x"}) if kind == "secrets" else configmap("a", {"no/slash": "x"})
    status = (await api.post(api.at(kind), body)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "data[no/slash]"
    assert "a valid config key must consist of alphanumeric characters" in status["message"]


async def test_a_configmap_holds_text_and_bytes_under_different_keys(api: Api) -> None:
    made = await api.made("configmaps", {**configmap("a", {"t": "x"}), "binaryData": {"b": encoded("y")}})
    assert made["binaryData"] == {"b": encoded("y")}
    both = {**configmap("b", {"t": "x"}), "binaryData": {"t": encoded("y")}}
    status = (await api.post(api.at("configmaps"), both)).refused(422, "Invalid")
    assert status["message"] == (
        'ConfigMap "b" is invalid: data[t]: Invalid value: "t": duplicate of key present in binaryData'
    )


async def test_a_configmap_larger_than_a_megabyte_is_refused(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), configmap("a", {"x": "y" * 1_100_000}))).refused(422, "Invalid")
    assert status["details"]["causes"][0] == {
        "reason": "FieldValueTooLong",
        "message": "Too long: may not be more than 1048576 bytes",
        "field": "[]",
    }


async def test_an_event_is_stored_and_found_by_its_object(api: Api) -> None:
    made = await api.made("jobs", job("a"))
    event = {
        "metadata": {"name": "a.1"},
        "involvedObject": {
            "kind": "Job",
            "apiVersion": "batch/v1",
            "namespace": api.namespace,
            "name": "a",
            "uid": made["metadata"]["uid"],
        },
        "reason": "Tested",
        "message": "was tested",
        "type": "Normal",
        "count": 1,
        "source": {"component": "contract"},
        "firstTimestamp": "2026-11-01T10:00:00Z",
        "lastTimestamp": "2026-11-01T10:00:00Z",
    }
    assert (await api.made("events", event))["source"] == {"component": "contract"}
    for selector in (
        "involvedObject.name=a,involvedObject.kind=Job",
        f"involvedObject.uid={made['metadata']['uid']}",
        "reason=Tested,type=Normal",
    ):
        listed = (await api.get(api.at("events"), fieldSelector=selector)).ok()
        assert [item["metadata"]["name"] for item in listed["items"]] == ["a.1"], selector
    listed = (await api.get(api.at("events"), fieldSelector="reason=Other")).ok()
    assert listed["items"] == []
    again = (await api.get(f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events/a.1")).ok()
    assert (again["note"], again["regarding"]["name"]) == ("was tested", "a")


async def test_an_event_belongs_to_the_namespace_of_its_object(api: Api) -> None:
    event = {"metadata": {"name": "a"}, "involvedObject": {"kind": "Job", "namespace": "elsewhere", "name": "a"}}
    status = (await api.post(api.at("events"), event)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "involvedObject.namespace"


async def test_a_lease_keeps_microseconds(api: Api) -> None:
    spec: dict[str, Any] = {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-01T10:00:00.123456Z",
        "renewTime": "2026-11-01T10:00:01.000000Z",
        "leaseTransitions": 0,
    }
    made = await api.made("leases", lease("a", **spec))
    assert made["spec"] == spec


async def test_a_lease_lasts_longer_than_nothing(api: Api) -> None:
    status = (await api.post(api.at("leases"), lease("a", leaseDurationSeconds=0))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.leaseDurationSeconds"
    assert status["details"]["causes"][0]["message"] == "Invalid value: 0: must be greater than 0"


async def test_only_one_of_two_takes_a_lease(api: Api) -> None:
    made = await api.made("leases", lease("a"))
    codes = []
    for name in ("one", "two"):
        body = {**made, "spec": {"holderIdentity": name}}
        codes.append((await api.put(api.at("leases", "a"), body)).status)
    assert codes == [200, 409]
    assert (await api.read("leases", "a"))["spec"]["holderIdentity"] == "one"


async def test_a_token_is_made_for_a_service_account(api: Api) -> None:
    (await api.post(api.at("serviceaccounts"), {"metadata": {"name": "robot"}})).ok(201)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    made = (await api.post(api.at("serviceaccounts", "robot", "token"), request)).ok(201)
    assert made["kind"] == "TokenRequest"
    assert made["spec"]["expirationSeconds"] == 3600
    assert made["status"]["expirationTimestamp"].endswith("Z")
    claims = made["status"]["token"].split(".")[1]
    inside = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert inside["sub"] == f"system:serviceaccount:{api.namespace}:robot"
    headers = {"Authorization": f"Bearer {made['status']['token']}"}
    assert (await api.call("GET", "/api", headers=headers)).status == 200


async def test_a_token_that_is_bound_to_a_secret_dies_with_it(api: Api) -> None:
    (await api.post(api.at("serviceaccounts"), {"metadata": {"name": "bound"}})).ok(201)
    (await api.post(api.at("secrets"), {"metadata": {"name": "slot"}})).ok(201)
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "slot"}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600, "boundObjectRef": reference},
    }

    async def made() -> str:
        answer = (await api.post(api.at("serviceaccounts", "bound", "token"), request)).ok(201)
        return str(answer["status"]["token"])

    async def is_good(token: str) -> bool:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = (await api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)).ok(201)
        return bool(answer["status"].get("authenticated"))

    # One for each look: an API server remembers for ten seconds that a token was good.
    tokens = [await made() for _ in range(20)]
    assert await is_good(tokens.pop())
    (await api.delete(api.at("secrets", "slot"))).ok()
    while await is_good(last := tokens.pop()):
        await asyncio.sleep(0.05)
    (await api.post(api.at("secrets"), {"metadata": {"name": "slot"}})).ok(201)
    assert not await is_good(last)  # the name alone is not enough
    reference["name"] = "nothing"
    (await api.post(api.at("serviceaccounts", "bound", "token"), request)).refused(404, "NotFound")


async def test_a_token_for_nobody_is_not_made(api: Api) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    status = (await api.post(api.at("serviceaccounts", "nobody", "token"), request)).refused(404, "NotFound")
    assert status["message"] == 'serviceaccounts "nobody" not found'


async def test_a_node_has_a_status_of_its_own_and_no_namespace(api: Api) -> None:
    name = f"node-{random.token_hex(4)}"
    made = (await api.post("/api/v1/nodes", {"metadata": {"name": name}})).ok(201)
    assert "namespace" not in made["metadata"]
    capacity = {"status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}
    written = (await api.patch(f"/api/v1/nodes/{name}/status", capacity)).ok()
    assert written["status"]["capacity"] == {"cpu": "4", "memory": "8Gi"}
    again = (await api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})).ok()
    assert again["spec"]["unschedulable"] is True
    (await api.delete(f"/api/v1/nodes/{name}")).ok()
    (await api.get(f"/api/v1/nodes/{name}")).refused(404, "NotFound")


async def test_rules_for_access_are_stored(api: Api) -> None:
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}]
    made = await api.made("roles", {"metadata": {"name": "reader"}, "rules": rules})
    assert made["rules"] == rules
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": api.namespace}],
    }
    assert (await api.made("rolebindings", binding))["subjects"] == binding["subjects"]

"""Names, labels, generation and what cannot be changed once it is set."""

from typing import Any

import pytest

from tests.contract.objects import configmap, job, lease, pod
from tests.contract.wire import Api


async def test_a_name_is_generated_from_its_prefix(api: Api) -> None:
    names = set()
    for _ in range(3):
        made = await api.made("configmaps", {"metadata": {"generateName": "run-"}})
        assert made["metadata"]["generateName"] == "run-"
        names.add(made["metadata"]["name"])
    assert len(names) == 3
    assert all(len(name) == len("run-") + 5 and name.startswith("run-") for name in names)


async def test_a_long_prefix_is_cut_so_that_the_name_stays_a_label(api: Api) -> None:
    made = await api.made("configmaps", {"metadata": {"generateName": "a" * 70}})
    assert len(made["metadata"]["name"]) == 63


async def test_a_name_wins_over_a_prefix(api: Api) -> None:
    made = await api.made("configmaps", {"metadata": {"name": "mine", "generateName": "run-"}})
    assert made["metadata"]["name"] == "mine"


async def test_an_object_needs_a_name(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), {"metadata": {}})).refused(422, "Invalid")
    assert status["message"] == (
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )
    assert status["details"] == {
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


async def test_a_name_must_be_a_subdomain(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), configmap("Not_A_Name"))).refused(422, "Invalid")
    assert status["message"] == (
        f'ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": {_SUBDOMAIN}'
    )
    assert status["details"]["name"] == "Not_A_Name"


_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


async def test_a_bad_label_value_is_named(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), configmap("a", labels={"ok": "no way"}))).refused(422, "Invalid")
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": f'Invalid value: "no way": {_LABEL_VALUE}',
            "field": "metadata.labels",
        }
    ]


async def test_a_bad_annotation_key_is_named(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), configmap("a", annotations={"a b": "c"}))).refused(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["metadata.annotations"]


async def test_a_finalizer_must_be_qualified_only_by_its_form(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), configmap("a", finalizers=["not/a/name"]))).refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"metadata.finalizers"}


async def test_the_generation_counts_changes_of_the_spec_only(api: Api) -> None:
    made = await api.made("jobs", job("a", suspend=True))
    assert made["metadata"]["generation"] == 1
    path = api.at("jobs", "a")
    labelled = (await api.patch(path, {"metadata": {"labels": {"x": "y"}}})).ok()
    assert labelled["metadata"]["generation"] == 1
    written = (await api.patch(f"{path}/status", {"status": {"active": 1}})).ok()
    assert written["metadata"]["generation"] == 1
    changed = (await api.patch(path, {"spec": {"parallelism": 3}})).ok()
    assert changed["metadata"]["generation"] == 2
    same = (await api.patch(path, {"spec": {"parallelism": 3}})).ok()
    assert same["metadata"]["generation"] == 2
    assert same["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    "change",
    [{"creationTimestamp": "2001-01-01T00:00:00Z"}, {"generation": 40}, {"selfLink": "/elsewhere"}],
    ids=lambda change: next(iter(change)),
)
async def test_what_the_server_keeps_is_not_changed_by_a_client(api: Api, change: dict[str, Any]) -> None:
    made = await api.made("jobs", job("a"))
    changed = (await api.patch(api.at("jobs", "a"), {"metadata": change})).ok()
    for unimportant in ("managedFields", "resourceVersion"):
        made["metadata"].pop(unimportant, None)
        changed["metadata"].pop(unimportant, None)
    assert changed["metadata"] == made["metadata"]


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("deletionTimestamp", "2001-01-01T00:00:00Z", 422),
        ("deletionGracePeriodSeconds", 3, 422),
        ("uid", "11111111-2222-3333-4444-555555555555", 422),
        ("name", "b", 400),
        ("namespace", "elsewhere", 400),
    ],
)
async def test_a_patch_that_would_change_who_an_object_is_is_refused(
    api: Api, key: str, value: str | int, code: int
) -> None:
    await api.made("jobs", job("a"))
    status = (await api.patch(api.at("jobs", "a"), {"metadata": {key: value}})).refused(
        code, {422: "Invalid", 400: "BadRequest"}[code]
    )
    if code == 422:
        cause = status["details"]["causes"][0]
        assert (cause["field"], cause["reason"]) == (f"metadata.{key}", "FieldValueInvalid")
        assert cause["message"].endswith("field is immutable")


async def test_the_status_is_not_written_through_the_object(api: Api) -> None:
    made = await api.made("jobs", {**job("a"), "status": {"active": 5}})
    assert made["status"] == {}
    put = (await api.put(api.at("jobs", "a"), {**made, "status": {"active": 3}})).ok()
    assert put["status"] == {}


async def test_the_spec_is_not_written_through_the_status(api: Api) -> None:
    made = await api.made("jobs", job("a"))
    sent = {**made, "spec": {**made["spec"], "parallelism": 7}, "status": {"active": 2}}
    sent["metadata"] = {**made["metadata"], "labels": {**made["metadata"]["labels"], "through": "status"}}
    put = (await api.put(api.at("jobs", "a", "status"), sent)).ok()
    assert put["spec"]["parallelism"] == 1
    assert put["status"] == {"active": 2}
    assert put["metadata"]["labels"]["through"] == "status"
    assert put["metadata"]["generation"] == 1
    assert (await api.get(api.at("jobs", "a", "status"))).ok() == put


async def test_the_status_of_a_pod_is_isolated_too(api: Api) -> None:
    made = await api.made("pods", {**pod("a"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"
    put = (await api.patch(api.at("pods", "a", "status"), {"status": {"phase": "Running"}})).ok()
    assert put["status"]["phase"] == "Running"


async def test_a_resource_without_status_has_no_status_subresource(api: Api) -> None:
    await api.made("leases", lease("a"))
    (await api.get(api.at("leases", "a", "status"))).refused(404, "NotFound")


async def test_an_immutable_configmap_stays_as_it_is(api: Api) -> None:
    await api.made("configmaps", {**configmap("a"), "immutable": True})
    status = (await api.patch(api.at("configmaps", "a"), {"data": {"new": "x"}})).refused(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["data"]
    assert status["details"]["causes"][0]["message"] == "Forbidden: field is immutable when `immutable` is set"
    (await api.patch(api.at("configmaps", "a"), {"metadata": {"labels": {"x": "y"}}})).ok()


async def test_an_owner_reference_needs_a_uid(api: Api) -> None:
    refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": ""}]
    status = (await api.post(api.at("configmaps"), configmap("a", ownerReferences=refs))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.ownerReferences.uid"


async def test_an_object_has_one_controller_at_most(api: Api) -> None:
    refs = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"uid-{name}", "controller": True}
        for name in ("o", "p")
    ]
    status = (await api.post(api.at("configmaps"), configmap("a", ownerReferences=refs))).refused(422, "Invalid")
    assert "Only one reference can have Controller set to true" in status["message"]

"""Server-side apply: who owns a field, what a conflict says, and what goes when an applier stops naming it."""

from typing import Any

import pytest

from tests.contract.objects import configmap, job, widget, widgets
from tests.contract.wire import Api, Object


def applied(name: str, data: dict[str, str], **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data}


def managers(thing: Object) -> dict[str, Object]:
    """managedFields by "manager operation [subresource]"."""
    return {
        " ".join(filter(None, (entry["manager"], entry["operation"], entry.get("subresource")))): entry["fieldsV1"]
        for entry in thing["metadata"]["managedFields"]
    }


async def test_applying_what_is_not_there_creates_it(api: Api) -> None:
    made = (await api.apply(api.at("configmaps", "a"), applied("a", {"x": "1"}), "alice")).ok(201)
    assert made["data"] == {"x": "1"}
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "alice",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": made["metadata"]["managedFields"][0]["time"],
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]


async def test_applying_the_same_again_writes_nothing(api: Api) -> None:
    first = (await api.apply(api.at("configmaps", "a"), applied("a", {"x": "1"}), "alice")).ok(201)
    second = (await api.apply(api.at("configmaps", "a"), applied("a", {"x": "1"}), "alice")).ok()
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_what_an_applier_no_longer_names_is_removed(api: Api) -> None:
    path = api.at("configmaps", "a")
    (await api.apply(path, applied("a", {"x": "1", "y": "2"}, labels={"l": "1"}), "alice")).ok(201)
    second = (await api.apply(path, applied("a", {"y": "2"}), "alice")).ok()
    assert second["data"] == {"y": "2"}
    assert "labels" not in second["metadata"]


async def test_what_another_owns_too_is_not_removed(api: Api) -> None:
    path = api.at("configmaps", "a")
    (await api.apply(path, applied("a", {"x": "1", "y": "2"}), "alice")).ok(201)
    (await api.apply(path, applied("a", {"x": "1"}), "bob")).ok()
    left = (await api.apply(path, applied("a", {"y": "2"}), "alice")).ok()
    assert left["data"] == {"x": "1", "y": "2"}
    assert managers(left) == {
        "alice Apply": {"f:data": {"f:y": {}}},
        "bob Apply": {"f:data": {"f:x": {}}},
    }


async def test_a_field_that_another_applier_owns_conflicts(api: Api) -> None:
    path = api.at("configmaps", "a")
    (await api.apply(path, applied("a", {"x": "1"}), "alice")).ok(201)
    status = (await api.apply(path, applied("a", {"x": "2"}), "bob")).refused(409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "alice": .data.x'
    assert status["details"] == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".data.x"}]
    }
    assert (await api.read("configmaps", "a"))["data"] == {"x": "1"}


async def test_a_field_that_was_written_by_an_update_conflicts(api: Api) -> None:
    await api.made("configmaps", configmap("a", {"x": "1", "y": "1"}), fieldManager="carol")
    answer = await api.apply(api.at("configmaps", "a"), applied("a", {"x": "2", "y": "2"}), "bob")
    status = answer.refused(409, "Conflict")
    assert status["message"] == (
        'Apply failed with 2 conflicts: conflicts with "carol" using v1:\n- .data.x\n- .data.y'
    )
    assert len(status["details"]["causes"]) == 2


async def test_a_forced_apply_takes_the_field_over(api: Api) -> None:
    path = api.at("configmaps", "a")
    (await api.apply(path, applied("a", {"x": "1", "y": "1"}), "alice")).ok(201)
    taken = (await api.apply(path, applied("a", {"x": "2"}), "bob", force="true")).ok()
    assert taken["data"] == {"x": "2", "y": "1"}
    assert managers(taken) == {
        "alice Apply": {"f:data": {"f:y": {}}},
        "bob Apply": {"f:data": {"f:x": {}}},
    }


async def test_the_same_value_is_shared_without_conflict(api: Api) -> None:
    path = api.at("configmaps", "a")
    (await api.apply(path, applied("a", {"x": "1"}), "alice")).ok(201)
    shared = (await api.apply(path, applied("a", {"x": "1"}), "bob")).ok()
    assert managers(shared) == {
        "alice Apply": {"f:data": {"f:x": {}}},
        "bob Apply": {"f:data": {"f:x": {}}},
    }


async def test_an_update_takes_ownership_of_what_it_changes(api: Api) -> None:
    path = api.at("configmaps", "a")
    (await api.apply(path, applied("a", {"x": "1", "y": "1"}), "alice")).ok(201)
    changed = (await api.patch(path, {"data": {"x": "2"}}, fieldManager="dave")).ok()
    assert managers(changed) == {
        "alice Apply": {"f:data": {"f:y": {}}},
        "dave Update": {"f:data": {"f:x": {}}},
    }


async def test_an_apply_needs_a_manager(api: Api) -> None:
    answer = await api.patch(api.at("configmaps", "a"), applied("a", {"x": "1"}), "apply")
    status = answer.refused(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["fieldManager"]
    assert status["details"]["causes"][0]["message"] == "Required value: is required for apply patch"


async def test_force_is_for_apply_only(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    answer = await api.patch(api.at("configmaps", "a"), {"data": {"x": "1"}}, force="true")
    status = answer.refused(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["force"]


async def test_an_applied_body_must_not_carry_managed_fields(api: Api) -> None:
    body = applied("a", {"x": "1"}, managedFields=[{"manager": "x", "operation": "Apply", "apiVersion": "v1"}])
    status = (await api.apply(api.at("configmaps", "a"), body, "alice")).refused(400, "BadRequest")
    assert status["message"] == "metadata.managedFields must be nil"


async def test_an_apply_with_an_older_version_conflicts(api: Api) -> None:
    path = api.at("configmaps", "a")
    first = (await api.apply(path, applied("a", {"x": "1"}), "alice")).ok(201)
    (await api.apply(path, applied("a", {"x": "2"}), "alice")).ok()
    stale = applied("a", {"x": "3"}, resourceVersion=first["metadata"]["resourceVersion"])
    (await api.apply(path, stale, "alice")).refused(409, "Conflict")


async def test_an_apply_that_names_a_uid_does_not_create(api: Api) -> None:
    body = applied("a", {"x": "1"}, uid="11111111-2222-3333-4444-555555555555")
    (await api.apply(api.at("configmaps", "a"), body, "alice")).refused(409, "Conflict")


async def test_an_applied_body_may_be_yaml(api: Api) -> None:
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'yes'\n"
    made = (await api.patch(api.at("configmaps", "a"), body, "apply", fieldManager="alice")).ok(201)
    assert made["data"] == {"x": "yes"}


async def test_an_applied_body_must_name_its_kind(api: Api) -> None:
    answer = await api.apply(api.at("configmaps", "a"), {"metadata": {"name": "a"}, "data": {"x": "1"}}, "alice")
    answer.refused(400, "BadRequest")


async def test_managed_fields_can_be_wiped(api: Api) -> None:
    await api.made("configmaps", configmap("a"), fieldManager="carol")
    path = api.at("configmaps", "a")
    wiped = (await api.patch(path, {"metadata": {"managedFields": [{}]}}, fieldManager="carol")).ok()
    assert "managedFields" not in wiped["metadata"]
    status = (await api.apply(path, applied("a", {"k": "other"}), "alice")).refused(409, "Conflict")
    assert status["message"] == ('Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k')


async def test_a_manager_is_named_after_its_client_when_it_does_not_say(api: Api) -> None:
    headers = {"User-Agent": "mytool/1.2 (linux)"}
    made = (await api.call("POST", api.at("configmaps"), configmap("a"), headers=headers)).ok(201)
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["mytool"]
    assert made["metadata"]["managedFields"][0]["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}


async def test_the_status_has_owners_of_its_own(api: Api) -> None:
    await api.made("jobs", job("a"), fieldManager="carol")
    status = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "status": {"active": 1}}
    written = (await api.apply(api.at("jobs", "a", "status"), status, "alice")).ok()
    assert written["status"] == {"active": 1}
    assert managers(written)["alice Apply status"] == {"f:status": {"f:active": {}}}
    spec = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "status": {"active": 9}}
    unchanged = (await api.apply(api.at("jobs", "a"), spec, "bob")).ok()
    assert unchanged["status"] == {"active": 1}


async def test_containers_are_owned_by_name(api: Api) -> None:
    body = job("a", suspend=True)
    made = (await api.apply(api.at("jobs", "a"), body, "alice")).ok(201)
    fields = managers(made)["alice Apply"]["f:spec"]
    assert fields["f:template"]["f:spec"]["f:containers"] == {
        'k:{"name":"main"}': {".": {}, "f:image": {}, "f:name": {}}
    }
    other = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/app:2"}]}}},
    }
    status = (await api.apply(api.at("jobs", "a"), other, "bob")).refused(409, "Conflict")
    assert [cause["field"] for cause in status["details"]["causes"]] == [
        '.spec.template.spec.containers[name="main"].image'
    ]


@pytest.mark.usefixtures("widget_crd")
async def test_custom_resources_are_applied_too(api: Api) -> None:
    path = widgets(api.namespace, "a")
    made = (await api.apply(path, widget("a", note="mine"), "alice")).ok(201)
    assert managers(made) == {"alice Apply": {"f:spec": {"f:note": {}, "f:size": {}}}}
    status = (await api.apply(path, widget("a", size=2), "bob")).refused(409, "Conflict")
    assert [cause["field"] for cause in status["details"]["causes"]] == [".spec.size"]
    left = (await api.apply(path, widget("a"), "alice")).ok()
    assert "note" not in left["spec"]

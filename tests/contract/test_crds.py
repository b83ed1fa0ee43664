"""Custom resources: defined, served, checked, and gone with their definition."""

import secrets

import pytest

from tests.contract.conftest import establish
from tests.contract.objects import WIDGETS, crd, widget, widgets
from tests.contract.wire import Api, Object

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def group() -> str:
    return f"{secrets.token_hex(4)}.example.com"


def named(thing: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in thing["status"]["conditions"]}


async def test_a_definition_is_accepted_established_served_and_gone(api: Api) -> None:
    where = group()
    definition = crd(where, "gadgets", "Gadget", schema=ANYTHING)
    await establish(api, definition)
    stored = (await api.get(f"{CRDS}/gadgets.{where}")).ok()
    assert named(stored).items() >= {"NamesAccepted": "True", "Established": "True"}.items()
    assert stored["status"]["acceptedNames"] == definition["spec"]["names"]
    assert stored["status"]["storedVersions"] == ["v1"]
    assert stored["spec"]["conversion"] == {"strategy": "None"}

    path = f"/apis/{where}/v1/namespaces/{api.namespace}/gadgets"
    body = {"apiVersion": f"{where}/v1", "kind": "Gadget", "metadata": {"name": "a"}, "what": {"ever": [1, "two"]}}
    made = (await api.post(path, body)).ok(201)
    assert made["what"] == {"ever": [1, "two"]}
    listed = (await api.get(path)).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("GadgetList", f"{where}/v1")
    assert listed["items"][0]["kind"] == "Gadget", "items of a custom list do repeat their kind"

    (await api.delete(f"{CRDS}/gadgets.{where}")).ok()
    async with api.watch(CRDS, fieldSelector=f"metadata.name=gadgets.{where}", timeoutSeconds=60) as stream:
        found = (await api.get(CRDS, fieldSelector=f"metadata.name=gadgets.{where}")).ok()
        if found["items"]:
            await stream.until(lambda kind, _: kind == "DELETED")
    while (await api.get(path)).status != 404:
        pass


async def test_a_definition_without_a_schema_is_refused(api: Api) -> None:
    where = group()
    definition = crd(where, "gadgets", "Gadget", schema=ANYTHING)
    del definition["spec"]["versions"][0]["schema"]
    status = (await api.post(CRDS, definition)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.versions[0].schema.openAPIV3Schema"
    assert status["details"]["causes"][0]["message"] == "Required value"


async def test_the_name_of_a_definition_is_made_of_its_parts(api: Api) -> None:
    definition = crd(group(), "gadgets", "Gadget", schema=ANYTHING)
    definition["metadata"]["name"] = "gadgets.elsewhere.example.com"
    status = (await api.post(CRDS, definition)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    assert 'must be spec.names.plural+"."+spec.group' in status["message"]


async def test_a_definition_stores_exactly_one_version(api: Api) -> None:
    definition = crd(group(), "gadgets", "Gadget", schema=ANYTHING)
    definition["spec"]["versions"][0]["storage"] = False
    status = (await api.post(CRDS, definition)).refused(422, "Invalid")
    assert "must have exactly one version marked as storage version" in status["message"]


@pytest.mark.usefixtures("widget_crd")
async def test_a_custom_object_gets_its_defaults_and_loses_what_nobody_knows(api: Api) -> None:
    body = widget("a", free={"any": {"thing": 1}}, unknown="x")
    answer = await api.post(widgets(api.namespace), body)
    made = answer.ok(201)
    assert made["spec"] == {"size": 1, "colour": "red", "free": {"any": {"thing": 1}}}
    assert answer.warnings == ['unknown field "spec.unknown"']
    assert made["metadata"]["generation"] == 1
    assert "status" not in made
    strict = await api.post(widgets(api.namespace), {**body, "metadata": {"name": "b"}}, fieldValidation="Strict")
    status = strict.refused(400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.unknown"' in status["message"]


@pytest.mark.usefixtures("widget_crd")
@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        (
            {"size": "big"},
            ['spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'],
        ),
        ({"size": 0}, ["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"]),
        ({"size": 101}, ["spec.size: Invalid value: 101: spec.size in body should be less than or equal to 100"]),
        ({"colour": "green"}, ['spec.colour: Unsupported value: "green": supported values: "red", "blue"']),
        ({"note": "far too long"}, ["spec.note: Too long: may not be more than 10 bytes"]),
        (
            {"tags": ["a", 2]},
            ['spec.tags[1]: Invalid value: "integer": spec.tags[1] in body must be of type string: "integer"'],
        ),
    ],
    ids=lambda value: "-".join(str(each) for each in value.values()) if isinstance(value, dict) else "",
)
async def test_a_custom_object_that_breaks_its_schema_is_refused(api: Api, spec: Object, errors: list[str]) -> None:
    status = (await api.post(widgets(api.namespace), widget("a", **spec))).refused(422, "Invalid")
    assert [f"{cause['field']}: {cause['message']}" for cause in status["details"]["causes"]] == errors
    assert status["message"].startswith(f'Widget.{WIDGETS} "a" is invalid: ')
    assert status["details"]["group"] == WIDGETS


@pytest.mark.usefixtures("widget_crd")
async def test_a_custom_object_without_a_required_field_is_refused(api: Api) -> None:
    body = widget("a")
    del body["spec"]["size"]
    status = (await api.post(widgets(api.namespace), body)).refused(422, "Invalid")
    assert [f"{cause['field']}: {cause['message']}" for cause in status["details"]["causes"]] == [
        "spec.size: Required value"
    ]


@pytest.mark.usefixtures("widget_crd")
async def test_a_null_is_dropped_unless_it_is_allowed(api: Api) -> None:
    made = (await api.post(widgets(api.namespace), widget("a", note=None, colour=None))).ok(201)
    assert made["spec"] == {"size": 1, "note": None, "colour": "red"}


@pytest.mark.usefixtures("widget_crd")
async def test_the_status_of_a_custom_object_is_isolated(api: Api) -> None:
    path = widgets(api.namespace)
    made = (await api.post(path, {**widget("a"), "status": {"phase": "New"}})).ok(201)
    assert "status" not in made
    sent = {**made, "spec": {"size": 9}, "status": {"phase": "Ready"}}
    written = (await api.put(widgets(api.namespace, "a", "status"), sent)).ok()
    assert (written["spec"]["size"], written["status"], written["metadata"]["generation"]) == (1, {"phase": "Ready"}, 1)
    changed = (await api.patch(widgets(api.namespace, "a"), {"spec": {"size": 3}, "status": {"phase": "Old"}})).ok()
    assert (changed["spec"]["size"], changed["status"], changed["metadata"]["generation"]) == (3, {"phase": "Ready"}, 2)
    labelled = (await api.patch(widgets(api.namespace, "a"), {"metadata": {"labels": {"x": "y"}}})).ok()
    assert labelled["metadata"]["generation"] == 2


@pytest.mark.usefixtures("widget_crd")
async def test_an_update_of_a_custom_object_must_say_which_version_it_read(api: Api) -> None:
    made = (await api.post(widgets(api.namespace), widget("a"))).ok(201)
    status = (await api.put(widgets(api.namespace, "a"), widget("a", size=2))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.resourceVersion"
    assert status["details"]["causes"][0]["message"] == "Invalid value: 0: must be specified for an update"
    changed = {**made, "spec": {"size": 2}}
    (await api.put(widgets(api.namespace, "a"), changed)).ok()
    (await api.put(widgets(api.namespace, "a"), changed)).refused(409, "Conflict")


@pytest.mark.usefixtures("widget_crd")
async def test_a_custom_object_must_name_its_kind(api: Api) -> None:
    body = widget("a")
    del body["kind"]
    (await api.post(widgets(api.namespace), body)).refused(400, "BadRequest")
    wrong = await api.post(widgets(api.namespace), {**widget("a"), "kind": "Gadget"})
    status = wrong.refused(422, "Invalid")
    assert status["message"] == f'Gadget.{WIDGETS} "a" is invalid: kind: Invalid value: "Gadget": must be Widget'


@pytest.mark.usefixtures("widget_crd")
async def test_custom_objects_are_watched(api: Api) -> None:
    path = widgets(api.namespace)
    start = (await api.get(path)).ok()["metadata"]["resourceVersion"]
    async with api.watch(path, resourceVersion=start, labelSelector="x=y") as stream:
        (await api.post(path, widget("a"))).ok(201)
        (await api.patch(widgets(api.namespace, "a"), {"metadata": {"labels": {"x": "y"}}})).ok()
        (await api.delete(widgets(api.namespace, "a"))).ok()
        assert await stream.take(2) == [("ADDED", "a"), ("DELETED", "a")]


@pytest.mark.usefixtures("widget_crd")
async def test_custom_objects_are_not_found_by_their_own_name(api: Api) -> None:
    status = (await api.get(widgets(api.namespace, "nope"))).refused(404, "NotFound")
    assert status["message"] == f'widgets.{WIDGETS} "nope" not found'
    assert status["details"] == {"name": "nope", "group": WIDGETS, "kind": "widgets"}


async def test_a_changed_definition_is_served_as_changed(api: Api) -> None:
    where = group()
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    await establish(api, crd(where, "gadgets", "Gadget", schema=schema))
    path = f"/apis/{where}/v1/namespaces/{api.namespace}/gadgets"
    body: Object = {"apiVersion": f"{where}/v1", "kind": "Gadget", "metadata": {"name": "one"}, "spec": {"b": "x"}}
    assert "b" not in (await api.post(path, body)).ok(201)["spec"]
    add = [
        {
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b",
            "value": {"type": "string"},
        }
    ]
    (await api.patch(f"{CRDS}/gadgets.{where}", add, "json")).ok()
    body["metadata"]["name"] = "two"
    # The new schema reaches the path that serves it a moment after the write.
    while "b" not in (made := (await api.post(path, body, dryRun="All")).ok(201))["spec"]:
        pass
    assert made["spec"] == {"b": "x"}

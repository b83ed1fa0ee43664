"""What a request must look like: paths, methods, media types, bodies, dry runs, unknown fields."""

import pytest

from tests.contract.objects import configmap, job, pod
from tests.contract.wire import Api, Wire


@pytest.mark.parametrize(
    "path",
    [
        "/apis/nobody.example.com/v1/things",
        "/apis/batch/v9/jobs",
        "/apis/batch/v1/namespaces/default/robots",
        "/api/v1/robots",
        "/api/v9",
    ],
)
async def test_a_path_that_nobody_serves_is_not_found(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert answer.status == 404
    assert answer.text == "404 page not found\n" or answer.body["reason"] == "NotFound"


async def test_a_subresource_that_is_not_there_is_not_found(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    status = (await api.get(api.at("configmaps", "a", "status"))).refused(404, "NotFound")
    assert status["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "name"), [("POST", "a"), ("PUT", None), ("PATCH", None)], ids=["POST to one", "PUT all", "PATCH all"]
)
async def test_a_method_that_a_path_does_not_have_is_refused(api: Api, method: str, name: str | None) -> None:
    await api.made("configmaps", configmap("a"))
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    answer = await api.call(method, api.at("configmaps", name), configmap("a"), headers=headers)
    status = answer.refused(405, "MethodNotAllowed")
    assert status["message"] == "the server does not allow this method on the requested resource"
    assert status["details"] == {}


async def test_a_body_in_an_unknown_format_is_refused(api: Api) -> None:
    headers = {"Content-Type": "text/plain"}
    answer = await api.call("POST", api.at("configmaps"), "hello", headers=headers)
    status = answer.refused(415, "UnsupportedMediaType")
    assert status["message"].startswith(
        "the body of the request was in an unknown format - accepted media types include: application/json"
    )


async def test_a_patch_must_say_which_kind_of_patch_it_is(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    headers = {"Content-Type": "application/json"}
    answer = await api.call("PATCH", api.at("configmaps", "a"), {"data": {"x": "y"}}, headers=headers)
    status = answer.refused(415, "UnsupportedMediaType")
    assert status["message"] == "415: Unsupported Media Type"


async def test_an_answer_in_an_unknown_format_cannot_be_had(api: Api) -> None:
    answer = await api.get(api.at("configmaps"), accept="text/html")
    status = answer.refused(406, "NotAcceptable")
    assert status["message"].startswith("406: Not Acceptable\n\nAvailable representations: application/json")


async def test_json_is_answered_to_whoever_takes_anything(api: Api) -> None:
    for accept in ("*/*", "text/html, application/json;q=0.5", "application/json;charset=utf-8"):
        answer = await api.get(api.at("configmaps"), accept=accept)
        assert answer.ok()["kind"] == "ConfigMapList"
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body", ['{"metadata": ', "{'a': 1}", "[]", '"text"', ""], ids=["cut", "quotes", "list", "text", "empty"]
)
async def test_a_body_that_is_no_object_is_refused(api: Api, body: str) -> None:
    status = (await api.post(api.at("configmaps"), body)).refused(400, "BadRequest")
    assert status["message"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": {"x": 1}}, "cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        ({"metadata": {"name": ["a"]}}, "cannot unmarshal array into Go struct field ObjectMeta.metadata.name"),
    ],
    ids=["value", "name"],
)
async def test_a_value_of_the_wrong_type_is_refused(api: Api, change: dict[str, object], words: str) -> None:
    status = (await api.post(api.at("configmaps"), {**configmap("a"), **change})).refused(400, "BadRequest")
    assert status["message"].startswith('ConfigMap in version "v1" cannot be handled as a ConfigMap: json: ')
    assert words in status["message"]


async def test_a_number_where_a_jobs_text_belongs_is_refused(api: Api) -> None:
    answer = await api.post(api.at("jobs"), job("a", parallelism="three"))
    status = answer.refused(400, "BadRequest")
    assert status["message"].startswith('Job in version "v1" cannot be handled as a Job: json: ')


async def test_yaml_is_understood(api: Api) -> None:
    headers = {"Content-Type": "application/yaml"}
    body = "metadata:\n  name: a\ndata:\n  x: 'yes'\n"
    made = (await api.call("POST", api.at("configmaps"), body, headers=headers)).ok(201)
    assert made["data"] == {"x": "yes"}


async def test_a_dry_run_answers_as_if_and_writes_nothing(api: Api) -> None:
    made = await api.made("configmaps", configmap("a"), dryRun="All")
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    (await api.get(api.at("configmaps", "a"))).refused(404, "NotFound")
    real = await api.made("configmaps", configmap("a"))
    path = api.at("configmaps", "a")
    patched = (await api.patch(path, {"data": {"x": "1"}}, dryRun="All")).ok()
    assert patched["data"]["x"] == "1"
    (await api.put(path, configmap("a", {"y": "1"}), dryRun="All")).ok()
    (await api.delete(path, dryRun="All")).ok()
    (await api.delete(api.at("configmaps"), dryRun="All")).ok()
    (await api.apply(path, {**configmap("a", {"z": "1"})}, "alice", dryRun="All")).ok()
    assert await api.read("configmaps", "a") == real


async def test_a_dry_run_is_refused_as_the_real_run_would_be(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    (await api.post(api.at("configmaps"), configmap("a"), dryRun="All")).refused(409, "AlreadyExists")
    (await api.post(api.at("jobs"), job("a", parallelism=-1), dryRun="All")).refused(422, "Invalid")


async def test_an_unknown_dry_run_is_refused(api: Api) -> None:
    status = (await api.post(api.at("configmaps"), configmap("a"), dryRun="Some")).refused(422, "Invalid")
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueNotSupported",
            "message": 'Unsupported value: ["Some"]: supported values: "All"',
            "field": "dryRun",
        }
    ]


async def test_an_unknown_field_is_warned_of_and_dropped(api: Api) -> None:
    body = job("a", paralelism=3)
    body["spec"]["template"]["spec"]["containers"][0]["imgae"] = "x"
    answer = await api.post(api.at("jobs"), body)
    made = answer.ok(201)
    assert sorted(answer.warnings) == [
        'unknown field "spec.paralelism"',
        'unknown field "spec.template.spec.containers[0].imgae"',
    ]
    assert "paralelism" not in made["spec"]


async def test_an_unknown_field_is_refused_when_that_is_asked_for(api: Api) -> None:
    answer = await api.post(api.at("jobs"), job("a", paralelism=3), fieldValidation="Strict")
    status = answer.refused(400, "BadRequest")
    assert status["message"] == (
        'Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.paralelism"'
    )


async def test_an_unknown_field_is_dropped_in_silence_when_that_is_asked_for(api: Api) -> None:
    answer = await api.post(api.at("jobs"), job("a", paralelism=3), fieldValidation="Ignore")
    assert "paralelism" not in answer.ok(201)["spec"]
    assert answer.warnings == []


async def test_a_field_given_twice_is_warned_of(api: Api) -> None:
    body = '{"metadata": {"name": "a"}, "data": {"x": "1"}, "data": {"y": "2"}}'
    answer = await api.post(api.at("configmaps"), body)
    answer.ok(201)
    assert answer.warnings == ['duplicate field "data"']
    strict = await api.post(api.at("configmaps"), body.replace('"a"', '"b"'), fieldValidation="Strict")
    assert 'strict decoding error: duplicate field "data"' in strict.refused(400, "BadRequest")["message"]


async def test_an_unknown_field_in_a_patch_is_warned_of_too(api: Api) -> None:
    await api.made("jobs", job("a"))
    answer = await api.patch(api.at("jobs", "a"), {"spec": {"paralelism": 1}})
    answer.ok()
    assert answer.warnings == ['unknown field "spec.paralelism"']
    strict = await api.patch(api.at("jobs", "a"), {"spec": {"paralelism": 1}}, fieldValidation="Strict")
    assert 'unknown field "spec.paralelism"' in strict.refused(422, "Invalid")["message"]


async def test_an_unknown_way_of_validating_is_refused(api: Api) -> None:
    status = (await api.post(api.at("jobs"), job("a"), fieldValidation="Loose")).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "fieldValidation"


async def test_a_wrong_token_is_not_let_in(api: Api) -> None:
    stranger = {**api.wire.kubeconfig, "users": [{"name": "stranger", "user": {"token": "wrong"}}]}
    async with Wire(stranger) as theirs:
        status = (await Api(theirs, api.namespace).get(api.at("configmaps"))).refused(401, "Unauthorized")
    assert status["message"] == "Unauthorized"


async def test_health_is_told_in_plain_text(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.get(path)
        assert (answer.status, answer.text) == (200, "ok")


async def test_only_metadata_is_sent_to_whoever_asks_for_only_that(api: Api) -> None:
    await api.made("pods", pod("a"))
    partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    one = (await api.get(api.at("pods", "a"), accept=partial)).ok()
    assert set(one) == {"kind", "apiVersion", "metadata"}
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    every = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = (await api.get(api.at("pods"), accept=every)).ok()
    assert listed["kind"] == "PartialObjectMetadataList"
    assert "spec" not in listed["items"][0]


async def test_a_list_of_things_cannot_be_created_at_once(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMapList", "items": [configmap("a")]}
    (await api.post(api.at("configmaps"), body)).refused(400, "BadRequest")

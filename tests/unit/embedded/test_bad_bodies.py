"""Whatever a client sends, it gets an answer that blames the request, and the server goes on."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from clusters.embedded import ApiServer
from clusters.embedded.errors import StatusError

JUNK: tuple[Any, ...] = (None, 0, -1, 1.5, True, "", "x", [], {}, [None], [{}], {"a": None}, [1, "a"], {"": ""}, 2**62)
CONTAINER = {"name": "main", "image": "x", "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "1"}}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}},
}
NAMES = {"plural": "things", "kind": "Thing"}
VERSION = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
COLUMN = {"name": "N", "type": "integer", "jsonPath": ".spec.n"}
DEFINITION = {
    "group": "example.com",
    "scope": "Namespaced",
    "names": NAMES,
    "versions": [{**VERSION, "subresources": {"status": {}}, "additionalPrinterColumns": [COLUMN]}],
}
RULE = {"apiGroups": ["x"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["y"]}
HOOK = {"name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None", "rules": [RULE]}
KINDS: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces/default/pods": {"spec": TEMPLATE["spec"]},
    "/api/v1/namespaces/default/configmaps": {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}},
    "/api/v1/nodes": {"status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "1"}}},
    "/apis/batch/v1/namespaces/default/jobs": {"spec": {"completions": 2, "template": TEMPLATE}},
    "/apis/batch/v1/namespaces/default/cronjobs": {
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}
    },
    "/apis/example.com/v1/namespaces/default/things": {
        "spec": {"n": 1},
        "apiVersion": "example.com/v1",
        "kind": "Thing",
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {"spec": DEFINITION},
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": {
        "webhooks": [{**HOOK, "admissionReviewVersions": ["v1"]}]
    },
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {"spec": {"resourceAttributes": {"verb": "get"}}},
}
PATCHES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def spoiled(value: Any, rng: random.Random) -> Any:
    """The value with parts of it replaced by junk, left out or misspelt."""
    if rng.random() < 0.08:
        return copy.deepcopy(rng.choice(JUNK))
    if isinstance(value, dict):
        kept = {key: spoiled(each, rng) for key, each in value.items() if rng.random() > 0.05}
        if rng.random() < 0.05:
            kept[rng.choice(("spec", "status", "labels", "finalizers", "name", "$patch"))] = rng.choice(JUNK)
        return kept
    return [spoiled(each, rng) for each in value] if isinstance(value, list) else value


def writes(path: str, obj: dict[str, Any], rng: random.Random) -> Iterator[tuple[str, str, Any, str]]:
    """A spoiled creation, a good one, then spoiled changes of all kinds."""
    yield "POST", path, spoiled(obj, rng), "application/json"
    yield "POST", path, obj, "application/json"
    if "name" not in obj["metadata"]:
        return
    for place in (f"{path}/{obj['metadata']['name']}", f"{path}/{obj['metadata']['name']}/status"):
        yield "PUT", place, spoiled(obj, rng), "application/json"
        for kind in PATCHES:
            yield "PATCH", place, spoiled(obj, rng), kind
        step = {"op": rng.choice(("add", "remove", "replace")), "path": rng.choice(("/spec", "/metadata", ""))}
        yield "PATCH", place, [{**step, "value": rng.choice(JUNK)}], "application/json-patch+json"
    yield (
        "DELETE",
        f"{path}/{obj['metadata']['name']}",
        spoiled({"propagationPolicy": "Background"}, rng),
        "application/json",
    )


async def outcome(server: ApiServer, method: str, place: str, body: Any, kind: str) -> tuple[int, str]:
    """What comes of a request: its code, and the message if it is refused."""
    try:
        await server.call(method, place, body, content_type=kind, query={"fieldManager": "me"})
    except StatusError as error:
        return error.code, error.message
    return 200, ""


@pytest.mark.parametrize("path", KINDS, ids=lambda path: path.rpartition("/")[2])
async def test_no_body_makes_the_server_fail(path: str) -> None:
    rng = random.Random(path)
    server = ApiServer("token", b"key")
    await server.start()
    try:
        definition = {"metadata": {"name": "things.example.com"}, "spec": DEFINITION}
        await server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for number in range(40):
            obj = {"metadata": {"name": f"x{number}", "labels": {"a": "b"}}, **copy.deepcopy(KINDS[path])}
            if "reviews" in path:
                obj["metadata"] = {}
            for method, place, body, kind in writes(path, obj, rng):
                code, message = await outcome(server, method, place, body, kind)
                # An apply of unknown fields is answered with 500 by a real server as well.
                fine = code < 500 or message.startswith("failed to create typed patch object")
                assert fine, (method, place, orjson.dumps(body), message)
        await server.call("GET", "/api/v1/namespaces")
    finally:
        await server.stop()

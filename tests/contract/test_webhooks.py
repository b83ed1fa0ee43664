"""Admission webhooks: called over HTTPS, for what their rules and selectors say, and what happens when they fail."""

import asyncio
import base64
import contextlib
import http.server
import json
import secrets
import socketserver
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme

from tests.contract.objects import configmap, job
from tests.contract.wire import Api, Object

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
Decide = Callable[[Object], Object]


@dataclass
class Hook:
    """A webhook server of one test: what it was asked, and how it answers."""

    decide: Decide
    url: str = ""
    authority: str = ""
    asked: list[Object] = field(default_factory=list)

    def answer(self, review: Object) -> Object:
        self.asked.append(review["request"])
        response = {"uid": review["request"]["uid"], "allowed": True, **self.decide(review["request"])}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

    def about(self, name: str) -> list[Object]:
        """What it was asked about objects of this name."""
        return [each for each in self.asked if each["name"] == name]


@contextlib.asynccontextmanager
async def listening(decide: Decide) -> AsyncIterator[Hook]:
    """The hook's HTTPS server, in threads; it closes each connection after its answer, so that none is left behind."""
    hook = Hook(decide)

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 5  # an API server may open a connection that it does not use

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(hook.answer(review)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server has
            """Silence."""

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = False  # closing the server waits for its threads

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that hangs up in the middle is no news."""

    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    hook.authority = base64.b64encode(authority.cert_pem.bytes()).decode()
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    hook.url = f"https://127.0.0.1:{server.server_address[1]}/admit"
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(server.serve_forever, poll_interval=0.05))
        try:
            yield hook
        finally:
            await asyncio.to_thread(server.shutdown)
            await asyncio.to_thread(server.server_close)


@contextlib.asynccontextmanager
async def registered(api: Api, kind: str, hook: Hook, **settings: Any) -> AsyncIterator[None]:
    """The webhook is registered for ConfigMaps of this test's namespace, and known to be called."""
    plural = f"{kind}webhookconfigurations"
    name = f"contract-{secrets.token_hex(4)}.example.com"
    webhook = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 20,
        "clientConfig": {"url": hook.url, "caBundle": hook.authority},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
        **settings,
    }
    (await api.post(f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "webhooks": [webhook]})).ok(201)
    try:
        yield
    finally:
        (await api.delete(f"{ADMISSION}/{plural}/{name}")).ok()


async def called(api: Api, hook: Hook, **more: Any) -> None:
    """Returns when the server calls the hook: it learns of a new configuration a moment after the write."""
    number = 0
    while not hook.asked:
        number += 1
        await api.post(api.at("configmaps"), configmap(f"probe-{number}", **more), dryRun="All")
    hook.asked.clear()


def patch(*operations: Object) -> Object:
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


async def test_a_mutating_webhook_changes_what_is_stored(api: Api) -> None:
    def decide(request: Object) -> Object:
        return patch({"op": "add", "path": "/data/added", "value": request["name"]})

    async with listening(decide) as hook, registered(api, "mutating", hook):
        await called(api, hook)
        made = await api.made("configmaps", configmap("a"))
        assert made["data"] == {"k": "v", "added": "a"}
        assert await api.read("configmaps", "a") == made


async def test_a_webhook_is_asked_with_all_that_it_may_need(api: Api) -> None:
    async with listening(lambda _: {}) as hook, registered(api, "validating", hook):
        await called(api, hook)
        await api.made("configmaps", configmap("a", {"x": "1"}), fieldManager="alice")
        (await api.patch(api.at("configmaps", "a"), {"data": {"x": "2"}}, dryRun="All")).ok()
        (await api.delete(api.at("configmaps", "a"))).ok()
        create, update, delete = hook.about("a")
    assert create["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert create["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (create["operation"], create["namespace"], create["dryRun"]) == ("CREATE", api.namespace, False)
    assert create["oldObject"] is None
    assert create["object"]["data"] == {"x": "1"}
    assert create["options"]["fieldManager"] == "alice"
    assert create["userInfo"]["username"]
    assert (update["operation"], update["dryRun"]) == ("UPDATE", True)
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"x": "1"}, {"x": "2"})
    assert (delete["operation"], delete["object"]) == ("DELETE", None)
    assert delete["oldObject"]["data"] == {"x": "1"}


async def test_a_validating_webhook_refuses_in_its_own_words(api: Api) -> None:
    def decide(request: Object) -> Object:
        if request["name"] == "bad":
            return {"allowed": False, "status": {"code": 403, "message": "no bad names here"}}
        if request["name"] == "odd":
            return {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": "odd"}}
        return {"warnings": ["this is a warning"]}

    async with listening(decide) as hook, registered(api, "validating", hook):
        await called(api, hook)
        good = await api.post(api.at("configmaps"), configmap("good"))
        good.ok(201)
        assert good.warnings == ["this is a warning"]
        bad = (await api.post(api.at("configmaps"), configmap("bad"))).refused(403, None)
        assert bad["message"].endswith("denied the request: no bad names here")
        assert bad["message"].startswith('admission webhook "contract-')
        odd = (await api.post(api.at("configmaps"), configmap("odd"))).refused(422, "Invalid")
        assert odd["message"].endswith("denied the request: odd")
        (await api.get(api.at("configmaps", "bad"))).refused(404, "NotFound")


async def test_mutations_are_seen_by_validating_webhooks(api: Api) -> None:
    def mutate(_: Object) -> Object:
        return patch({"op": "add", "path": "/data/added", "value": "yes"})

    async with (
        listening(mutate) as first,
        listening(lambda _: {}) as second,
        registered(api, "mutating", first),
        registered(api, "validating", second),
    ):
        await called(api, first)
        await called(api, second)
        await api.made("configmaps", configmap("a"))
        assert second.about("a")[0]["object"]["data"]["added"] == "yes"


async def test_what_a_webhook_made_of_a_job_is_checked(api: Api) -> None:
    def decide(request: Object) -> Object:
        if request["resource"]["resource"] == "configmaps":
            return {}
        value = -1 if request["name"] == "bad" else 7
        return patch({"op": "add", "path": "/spec/parallelism", "value": value})

    rules = [
        {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]},
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
    ]
    async with listening(decide) as hook, registered(api, "mutating", hook, rules=rules):
        await called(api, hook)
        assert (await api.made("jobs", job("good")))["spec"]["parallelism"] == 7
        (await api.post(api.at("jobs"), job("bad"))).refused(422, "Invalid")


@pytest.mark.parametrize(("policy", "code"), [("Fail", 500), ("Ignore", 201)])
async def test_a_webhook_that_cannot_be_reached_fails_or_is_ignored(api: Api, policy: str, code: int) -> None:
    # Registered while it listens, so that we see when the server has taken notice; then it goes away.
    async with contextlib.AsyncExitStack() as stack:
        hook = await stack.enter_async_context(listening(lambda _: {}))
        async with registered(api, "validating", hook, failurePolicy=policy):
            await called(api, hook)
            await stack.aclose()
            answer = await api.post(api.at("configmaps"), configmap("a"))
            assert answer.status == code, answer.text
            if policy == "Fail":
                status = answer.refused(500, "InternalError")
                assert status["message"].startswith("Internal error occurred: failed calling webhook")


async def test_a_webhook_whose_certificate_is_not_trusted_is_not_believed(api: Api) -> None:
    async with listening(lambda _: {}) as hook, listening(lambda _: {}) as good:
        stranger = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
        client = {"url": hook.url, "caBundle": stranger}
        async with registered(api, "validating", hook, clientConfig=client), registered(api, "validating", good):
            while (answer := await api.post(api.at("configmaps"), configmap("a"), dryRun="All")).status == 201:
                pass
            status = answer.refused(500, "InternalError")
            assert "failed calling webhook" in status["message"]
            assert hook.asked == []


async def test_a_webhook_is_called_for_the_objects_that_its_selector_chooses(api: Api) -> None:
    selector = {"matchExpressions": [{"key": "colour", "operator": "In", "values": ["red"]}]}
    async with listening(lambda _: {}) as hook, registered(api, "validating", hook, objectSelector=selector):
        await called(api, hook, labels={"colour": "red"})
        await api.made("configmaps", configmap("plain"))
        await api.made("configmaps", configmap("red", labels={"colour": "red"}))
        (await api.patch(api.at("configmaps", "red"), {"metadata": {"labels": {"colour": "blue"}}})).ok()
        assert [(each["name"], each["operation"]) for each in hook.asked] == [("red", "CREATE"), ("red", "UPDATE")]


async def test_a_webhook_is_called_for_the_operations_of_its_rules(api: Api) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"]}]
    async with listening(lambda _: {}) as hook, registered(api, "validating", hook, rules=rules):
        await api.made("configmaps", configmap("probe"))
        while not hook.asked:
            (await api.patch(api.at("configmaps", "probe"), {"data": {"x": secrets.token_hex(4)}})).ok()
        hook.asked.clear()
        await api.made("configmaps", configmap("a"))
        (await api.patch(api.at("configmaps", "a"), {"data": {"x": "1"}})).ok()
        (await api.delete(api.at("configmaps", "a"))).ok()
        assert [each["operation"] for each in hook.asked] == ["UPDATE"]


async def test_a_webhook_configuration_must_say_where_and_what(api: Api) -> None:
    webhook = {
        "name": "incomplete.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "http://127.0.0.1:1/"},
    }
    body = {"metadata": {"name": "incomplete"}, "webhooks": [webhook]}
    status = (await api.post(f"{ADMISSION}/validatingwebhookconfigurations", body)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "webhooks[0].clientConfig.url"
    assert "'https' is the only allowed URL scheme" in status["message"]


async def test_a_webhook_configuration_gets_its_defaults(api: Api) -> None:
    name = f"contract-{secrets.token_hex(4)}.example.com"
    webhook = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"never": "there"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    }
    path = f"{ADMISSION}/mutatingwebhookconfigurations"
    made = (await api.post(path, {"metadata": {"name": name}, "webhooks": [webhook]})).ok(201)
    stored = made["webhooks"][0]
    defaults = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, "objectSelector": {}}
    assert stored.items() >= (defaults | {"reinvocationPolicy": "Never"}).items()
    assert stored["rules"][0]["scope"] == "*"
    (await api.delete(f"{path}/{name}")).ok()

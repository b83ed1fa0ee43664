"""Admission webhooks: others are asked over HTTPS before a write is kept.

Mutating webhooks are asked one after the other, in the order of their configurations' names, and each sees what the one
before it made; validating ones are asked at once. A webhook that cannot be asked, or answers nonsense, refuses or lets
pass as its `failurePolicy` says. Not done: reinvocation, `matchConditions` (CEL), services without an address. Webhooks
never see changes of webhook configurations, so that a broken one can always be removed.
"""

import asyncio
import base64
import ssl
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from clusters.embedded import errors
from clusters.embedded.admission import Operation
from clusters.embedded.context import Context
from clusters.embedded.kinds import Kind, Kinds
from clusters.embedded.patches import PatchError, json_patch
from clusters.embedded.store import Event, Object
from multimirror.batch import selector_matches

_GROUP: Final = "admissionregistration.k8s.io"
_MUTATING: Final = "mutatingwebhookconfigurations"
_VALIDATING: Final = "validatingwebhookconfigurations"


class RefusedError(Exception):
    """The webhook could not be asked, or its answer could not be understood."""


@dataclass(slots=True, eq=False)
class Hook:
    """One configured webhook."""

    config: dict[str, Any]
    context: ssl.SSLContext | None = None

    @property
    def name(self) -> str:
        """Its name, unique in its configuration."""
        return str(self.config["name"])

    @property
    def url(self) -> str:
        """Where it is asked."""
        client = self.config["clientConfig"]
        if "url" in client:
            return str(client["url"])
        service = client["service"]
        host = f"{service['name']}.{service['namespace']}.svc"
        return f"https://{host}:{service.get('port', 443)}{service.get('path', '')}"

    def wants(self, ctx: Context, operation: str) -> bool:
        """Whether its rules name such a write."""
        kind = ctx.kind
        resource = f"{kind.plural}/{ctx.subresource}" if ctx.subresource else kind.plural
        scope = "Namespaced" if kind.namespaced else "Cluster"
        return any(
            _matches(rule.get("operations"), operation)
            and _matches(rule.get("apiGroups"), kind.group)
            and _matches(rule.get("apiVersions"), kind.version)
            and _matches_resource(rule.get("resources") or (), resource)
            and rule.get("scope", "*") in {"*", scope}
            for rule in self.config.get("rules") or ()
        )

    def tls(self) -> ssl.SSLContext:
        """Trusts the configured authority, or the system's."""
        if self.context is None:
            bundle = self.config["clientConfig"].get("caBundle")
            pem = base64.b64decode(bundle).decode() if bundle else None
            self.context = ssl.create_default_context(cadata=pem)
        return self.context


def _matches(allowed: Iterable[str] | None, value: str) -> bool:
    return any(each in {"*", value} for each in allowed or ())


def _matches_resource(allowed: Iterable[str], resource: str) -> bool:
    plural, _, subresource = resource.partition("/")
    for each in allowed:
        wanted, slash, sub = each.partition("/")
        if each == "*/*" or (wanted in {"*", plural} and (sub in {"*", subresource} if slash else not subresource)):
            return True
    return False


class Webhooks:
    """Asks the webhooks that are configured."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._hooks: dict[str, list[Hook]] = {}
        self._session: aiohttp.ClientSession | None = None
        for plural in (_MUTATING, _VALIDATING):
            self._kind(_GROUP, plural).table.subscribers.append(self._changed)
        self._changed()
        self._namespaces = self._kind("", "namespaces").table

    def _kind(self, group: str, plural: str) -> Kind:
        kind = self._kinds.stored(group, plural)
        assert kind is not None, f"{plural} are built in"
        return kind

    def _changed(self, _event: Event | None = None) -> None:
        for plural in (_MUTATING, _VALIDATING):
            stored = (item.decode() for item in self._kind(_GROUP, plural).table.scan())
            self._hooks[plural] = [Hook(config) for obj in stored for config in obj.get("webhooks") or ()]

    async def close(self) -> None:
        """Let go of connections."""
        if self._session:
            await self._session.close()
            self._session = None

    def concern(self, ctx: Context, operation: str) -> bool:
        """Whether any of them may want to see such a write."""
        if not self._hooks[_MUTATING] and not self._hooks[_VALIDATING]:
            return False
        if ctx.kind.group == _GROUP:
            return False
        return any(hook.wants(ctx, operation) for hooks in self._hooks.values() for hook in hooks)

    async def mutate(self, operation: Operation) -> Object:
        """The object as they would have it; the same one if none changed it."""
        assert operation.obj is not None
        obj = operation.obj
        for hook in self._concerned(_MUTATING, operation):
            answer = await self._ask(hook, Operation(operation.name, operation.ctx, obj, operation.old))
            if answer and answer.get("patch"):
                obj = self._patched(hook, obj, answer)
        return obj

    def _patched(self, hook: Hook, obj: Object, answer: dict[str, Any]) -> Object:
        try:
            patched = json_patch(obj, orjson.loads(base64.b64decode(answer["patch"])))
        except (PatchError, ValueError) as error:
            raise errors.internal(f"webhook {hook.name!r} sent a patch that does not apply: {error}") from error
        if not isinstance(patched, dict):
            raise errors.internal(f"webhook {hook.name!r} sent a patch that leaves no object")
        return patched

    async def validate(self, operation: Operation) -> None:
        """Raises StatusError if one of them refuses."""
        hooks = self._concerned(_VALIDATING, operation)
        if not hooks:
            return
        results = await asyncio.gather(*(self._ask(hook, operation) for hook in hooks), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _concerned(self, plural: str, operation: Operation) -> list[Hook]:
        labels = [
            (obj.get("metadata") or {}).get("labels") or {} for obj in (operation.obj, operation.old) if obj is not None
        ]
        namespace = self._namespace_labels(operation)
        found = []
        for hook in self._hooks[plural]:
            if not hook.wants(operation.ctx, operation.name):
                continue
            if namespace is not None and not selector_matches(hook.config.get("namespaceSelector") or {}, namespace):
                continue
            chosen = hook.config.get("objectSelector") or {}
            if any(selector_matches(chosen, each) for each in labels):
                found.append(hook)
        return found

    def _namespace_labels(self, operation: Operation) -> dict[str, str] | None:
        ctx = operation.ctx
        if ctx.kind.resource == "namespaces":
            obj = operation.obj or operation.old or {}
            return dict(obj.get("metadata", {}).get("labels") or {})
        if not ctx.kind.namespaced:
            return None
        item = self._namespaces.get(ctx.namespace or "")
        return dict(item.labels) if item else {}

    async def _ask(self, hook: Hook, operation: Operation) -> dict[str, Any] | None:
        """The answer of a webhook; None if it could not be asked and that does not matter."""
        if operation.ctx.dry_run and hook.config.get("sideEffects") not in {"None", "NoneOnDryRun"}:
            raise errors.bad_request(f"admission webhook {_quoted(hook.name)} does not support dry run")
        review = _review(operation)
        try:
            answer = await self._post(hook, review)
        except RefusedError as error:
            if hook.config.get("failurePolicy") == "Ignore":
                return None
            text = f"failed calling webhook {_quoted(hook.name)}: failed to call webhook: {error}"
            raise errors.internal(text) from error
        operation.ctx.warnings += answer.get("warnings") or []
        if not answer.get("allowed"):
            raise _denied(hook, answer.get("status") or {})
        return answer

    async def _post(self, hook: Hook, review: dict[str, Any]) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        seconds = hook.config.get("timeoutSeconds", 10)
        url = f"{hook.url}?timeout={seconds}s"
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.post(url, json=review, ssl=hook.tls(), allow_redirects=False) as response,
            ):
                body = await response.read()
        except TimeoutError:
            raise RefusedError(f'Post "{url}": context deadline exceeded') from None
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise RefusedError(f'Post "{url}": {error}') from error
        if response.status != 200:
            raise RefusedError(f"an error on the server ({body.decode(errors='replace')!r}) has prevented the request")
        try:
            answer = orjson.loads(body)["response"]
            if answer["uid"] != review["request"]["uid"]:
                raise RefusedError(f"expected response.uid={review['request']['uid']!r}, got {answer['uid']!r}")
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError(f"the answer is no AdmissionReview: {error}") from error
        return dict(answer)


def _review(operation: Operation) -> dict[str, Any]:
    ctx = operation.ctx
    kind = ctx.kind
    named = {"group": kind.group, "version": kind.version}
    obj = operation.obj or operation.old or {}
    request: dict[str, Any] = {
        "uid": str(uuid.uuid4()),
        "kind": {**named, "kind": kind.kind},
        "resource": {**named, "resource": kind.plural},
        "requestKind": {**named, "kind": kind.kind},
        "requestResource": {**named, "resource": kind.plural},
        "name": obj.get("metadata", {}).get("name", ""),
        "operation": operation.name,
        "userInfo": ctx.request.user.info,
        "object": operation.obj,
        "oldObject": operation.old,
        "dryRun": ctx.dry_run,
        "options": {"kind": _OPTIONS[operation.name], "apiVersion": "meta.k8s.io/v1"},
    }
    if manager := ctx.request.query.get("fieldManager"):
        request["options"]["fieldManager"] = manager
    if ctx.namespace:
        request["namespace"] = ctx.namespace
    elif kind.resource == "namespaces":
        request["namespace"] = request["name"]
    if ctx.subresource:
        request["subResource"] = request["requestSubResource"] = ctx.subresource
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


def _denied(hook: Hook, status: dict[str, Any]) -> errors.StatusError:
    text = f"admission webhook {_quoted(hook.name)} denied the request"
    if status.get("message"):
        text += f": {status['message']}"
    elif status.get("reason"):
        text += f": {status['reason']}"
    else:
        text += " without explanation"
    code = status.get("code") or 400
    return errors.StatusError(max(code, 400), status.get("reason", ""), text, status.get("details"))


def _quoted(name: str) -> str:
    return f'"{name}"'

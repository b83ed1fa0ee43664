"""Questions about identity and permission, and tokens for service accounts.

RBAC is stored and not enforced, so every question about permission is answered with yes, and says why.
"""

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, Final

from clusters.embedded import errors
from clusters.embedded.authentication import AUDIENCE, Authenticator
from clusters.embedded.bodies import parse_shaped
from clusters.embedded.context import Context
from clusters.embedded.http import Answer, Response
from clusters.embedded.routing import Router
from clusters.embedded.schemas import Struct, builtin
from multimirror.batch.errors import invalid

_ALLOWED: Final = {"allowed": True, "reason": "this API server stores RBAC rules and does not enforce them"}
_ACCESS: Final = ("selfsubjectaccessreviews", "subjectaccessreviews", "localsubjectaccessreviews")
_ALL: Final = {"verbs": ["*"]}


class Reviews:
    """Answers them."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def register(self, router: Router) -> None:
        """Take over the endpoints."""
        for plural in _ACCESS:
            router.subresources["POST", f"{plural}.authorization.k8s.io", ""] = self._access
        router.subresources["POST", "selfsubjectrulesreviews.authorization.k8s.io", ""] = self._rules
        router.subresources["POST", "selfsubjectreviews.authentication.k8s.io", ""] = self._self
        router.subresources["POST", "tokenreviews.authentication.k8s.io", ""] = self._token
        router.subresources["POST", "serviceaccounts", "token"] = self._issue

    def _answer(self, ctx: Context, status: dict[str, Any]) -> Response:
        body = parse_shaped(ctx.request, _shape(ctx))
        metadata = {"creationTimestamp": None, **(body.get("metadata") or {})}
        answer = {"kind": ctx.kind.kind, "apiVersion": ctx.kind.api_version, "metadata": metadata}
        return Response.json(201, {**answer, "spec": body.get("spec") or {}, "status": status})

    def _access(self, ctx: Context) -> Answer | Awaitable[Answer]:
        return self._answer(ctx, dict(_ALLOWED))

    def _rules(self, ctx: Context) -> Answer | Awaitable[Answer]:
        resources = [{**_ALL, "apiGroups": ["*"], "resources": ["*"]}]
        others = [{**_ALL, "nonResourceURLs": ["*"]}]
        status = {"resourceRules": resources, "nonResourceRules": others, "incomplete": False}
        return self._answer(ctx, status)

    def _self(self, ctx: Context) -> Answer | Awaitable[Answer]:
        response = self._answer(ctx, {"userInfo": ctx.request.user.info})
        body = response.decode()
        del body["spec"]
        return Response.json(201, body)

    def _token(self, ctx: Context) -> Answer | Awaitable[Answer]:
        token = (parse_shaped(ctx.request, _shape(ctx)).get("spec") or {}).get("token", "")
        user = self._authenticator.user_of(token)
        if user is None:
            return self._answer(ctx, {"user": {}, "error": "invalid bearer token"})
        return self._answer(ctx, {"authenticated": True, "user": user.info, "audiences": [AUDIENCE]})

    def _issue(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """A token that authenticates as the service account."""
        account = ctx.item().decode()
        shape = builtin().struct("io.k8s.api.authentication.v1.TokenRequest")
        body = parse_shaped(ctx.request, shape) if ctx.request.body else {}
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or 3600
        if seconds < 600:
            problem = invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            raise errors.invalid("authentication.k8s.io", "TokenRequest", "", [problem])
        audiences = spec.get("audiences") or [AUDIENCE]
        assert ctx.namespace is not None
        assert ctx.name is not None
        uid = account["metadata"]["uid"]
        reference = spec.get("boundObjectRef")
        secret = self._bound(ctx.namespace, reference) if reference else None
        token, expires = self._authenticator.issue(ctx.namespace, ctx.name, uid, seconds, audiences, secret=secret)
        moment = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        answer = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": ctx.name, "namespace": ctx.namespace, "creationTimestamp": None},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference},
            "status": {"token": token, "expirationTimestamp": moment},
        }
        return Response.json(201, answer)

    def _bound(self, namespace: str, reference: dict[str, str]) -> dict[str, str]:
        """To a Secret: the only kind that anybody has asked for."""
        name = reference.get("name", "")
        uid = self._authenticator.uid_of("secrets", namespace, name) if reference.get("kind") == "Secret" else None
        if uid is None:
            raise errors.not_found("", "secrets", name)
        if reference.get("uid", uid) != uid:
            message = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record"
            raise errors.conflict("", "serviceaccounts", name, message)
        return {"name": name, "uid": uid}


def _shape(ctx: Context) -> Struct:
    assert isinstance(ctx.kind.shape, Struct)
    return ctx.kind.shape

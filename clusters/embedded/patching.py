"""Patches: from the request's media type to a function that makes the new object out of the old one."""

from collections.abc import Callable
from typing import Any, Final

from clusters.embedded import errors
from clusters.embedded.bodies import (
    check_address,
    check_type,
    media_type,
    parse_json,
    parse_yaml,
    shaped,
    undeclared_fields,
)
from clusters.embedded.context import Context
from clusters.embedded.fields import Applier, Ownership
from clusters.embedded.patches import PatchError, json_patch, merge_patch
from clusters.embedded.store import Object
from clusters.embedded.strategic import strategic_patch
from multimirror.batch.errors import forbidden, required

STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class Patcher:
    """Makes makers."""

    def __init__(self, ownership: Ownership) -> None:
        self._applier = Applier(ownership)

    def applies(self, ctx: Context) -> bool:
        """Whether the patch is an apply, which may create the object and keeps ownership itself."""
        return media_type(ctx.request) == APPLY_PATCH

    def maker(self, ctx: Context) -> Callable[[Object | None], Object]:
        """The function that makes the new object."""
        body = ctx.request.body
        if "force" in ctx.request.query and not self.applies(ctx):
            problem = forbidden("force", "may not be specified for non-apply patch")
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", [problem])
        match media_type(ctx.request):
            case "application/json-patch+json":
                operations = _checked(parse_json(body), list)
                return lambda old: _patched(lambda: json_patch(old, operations))
            case "application/merge-patch+json":
                patch = _checked(parse_json(body), dict)
                return lambda old: _patched(lambda: merge_patch(old, patch))
            case "application/strategic-merge-patch+json" if not ctx.kind.custom:
                patch = _checked(parse_json(body), dict)
                shape = ctx.kind.shape
                return lambda old: _patched(lambda: strategic_patch(old, patch, shape))
            case "application/apply-patch+yaml":
                return self._apply_maker(ctx)
        if media_type(ctx.request) == STRATEGIC_PATCH:
            raise errors.unsupported_media_type(
                ("application/json-patch+json", "application/merge-patch+json", APPLY_PATCH)
            )
        raise errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")

    def _apply_maker(self, ctx: Context) -> Callable[[Object | None], Object]:
        query = ctx.request.query
        if not query.get("fieldManager"):
            problem = required("fieldManager", "is required for apply patch")
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", [problem])
        wanted = parse_yaml(ctx.request.body)
        if not isinstance(wanted, dict):
            raise errors.bad_request("the body of an apply patch must be one object")
        for key in ("apiVersion", "kind"):
            if not wanted.get(key):
                raise errors.bad_request(f"invalid object type: the applied object must have its {key}")
        if not isinstance(wanted.get("metadata", {}), dict):
            raise errors.bad_request("metadata must be an object")
        check_type(wanted, ctx.kind)
        if (wanted.get("metadata") or {}).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        if unknown := undeclared_fields(wanted, ctx.kind):
            raise errors.StatusError(500, "", _undeclared(ctx, wanted, unknown))
        wanted = shaped(wanted, ctx.kind, ctx.request, ctx.warnings, fill=False)
        check_address(wanted, ctx.kind, ctx.namespace, ctx.name)
        force = ctx.request.flag("force")
        return lambda old: self._applier.apply(ctx, old, wanted, force=force)


def _undeclared(ctx: Context, wanted: Object, unknown: list[str]) -> str:
    metadata, kind = wanted.get("metadata") or {}, ctx.kind
    which = (
        f"({metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.group}/{kind.version}, Kind={kind.kind})"
    )
    texts = [f".{field}: field not declared in schema" for field in unknown]
    listed = texts[0] if len(texts) == 1 else "errors:\n" + "\n".join(f"  {text}" for text in texts)
    return f"failed to create typed patch object {which}: {listed}"


def _checked(patch: Any, kind: type) -> Any:
    if not isinstance(patch, kind):
        raise errors.bad_request(f"error decoding patch: it must be a JSON {'array' if kind is list else 'object'}")
    return patch


def _patched(make: Callable[[], Any]) -> Object:
    try:
        made = make()
    except PatchError as error:
        raise errors.StatusError(
            422, "Invalid", "the server rejected our request due to an error in our request", {}
        ) from error
    if not isinstance(made, dict):
        raise errors.bad_request("the patch leaves no object")
    return made

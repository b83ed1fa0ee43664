"""Patches: from the request's media type to a function that makes the new object out of the old one."""

from collections.abc import Callable
from typing import Any, Final

from clusters.embedded import errors
from clusters.embedded.bodies import check_address, check_type, media_type, parse_json, parse_yaml, shaped
from clusters.embedded.context import Context
from clusters.embedded.fields import Applier, Ownership
from clusters.embedded.patches import PatchError, json_patch, merge_patch
from clusters.embedded.store import Object
from clusters.embedded.strategic import strategic_patch
from multimirror.batch.errors import required

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
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
        match media_type(ctx.request):
            case "application/json-patch+json":
                operations = parse_json(body)
                return lambda old: _patched(lambda: json_patch(old, operations))
            case "application/merge-patch+json":
                patch = parse_json(body)
                return lambda old: _patched(lambda: merge_patch(old, patch))
            case "application/strategic-merge-patch+json" if not ctx.kind.custom:
                patch = parse_json(body)
                shape = ctx.kind.shape
                return lambda old: _patched(lambda: strategic_patch(old, patch, shape))
            case "application/apply-patch+yaml":
                return self._apply_maker(ctx)
        accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
        if not ctx.kind.custom:
            accepted.insert(2, STRATEGIC_PATCH)
        raise errors.unsupported_media_type(accepted)

    def _apply_maker(self, ctx: Context) -> Callable[[Object | None], Object]:
        query = ctx.request.query
        if not query.get("fieldManager"):
            problem = required("fieldManager", "is required for apply patch")
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", [problem])
        wanted = parse_yaml(ctx.request.body)
        if not isinstance(wanted, dict):
            raise errors.bad_request("the body of an apply patch must be one object")
        check_type(wanted, ctx.kind)
        if (wanted.get("metadata") or {}).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        wanted = shaped(wanted, ctx.kind, ctx.request, ctx.warnings, fill=False)
        check_address(wanted, ctx.kind, ctx.namespace, ctx.name)
        force = ctx.request.flag("force")
        return lambda old: self._applier.apply(ctx, old, wanted, force=force)


def _patched(make: Callable[[], Any]) -> Object:
    try:
        made = make()
    except PatchError as error:
        raise errors.StatusError(
            422, "Invalid", "the server rejected our request due to an error in our request", {}
        ) from error
    if not isinstance(made, dict) or not isinstance(made.get("metadata"), dict):
        raise errors.bad_request("the patch leaves no object")
    return made

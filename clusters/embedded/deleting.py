"""Deleting: at once, or after finalizers, a grace period or dependents.

A deletion either removes the object or marks it (`deletionTimestamp`); a marked object goes when its last finalizer
goes. Propagation policies become the finalizers `orphan` and `foregroundDeletion`, which the garbage collector works
off.
"""

from collections.abc import Awaitable
from typing import Any, Final

import orjson

from clusters.embedded import errors, metadata
from clusters.embedded.admission import Admission, Operation
from clusters.embedded.bodies import parse_shaped
from clusters.embedded.context import Clock, Context, as_served
from clusters.embedded.http import Answer, Response
from clusters.embedded.kinds import Kind
from clusters.embedded.schemas import builtin
from clusters.embedded.selecting import Selection
from clusters.embedded.store import Item, Object
from multimirror.batch.errors import invalid, not_supported

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_FINALIZERS: Final = {"Orphan": (ORPHAN,), "Foreground": (FOREGROUND,), "Background": ()}

_OPTIONS: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"

Options = dict[str, Any]


class Deleter:
    """The verbs that delete."""

    def __init__(self, clock: Clock, admission: Admission) -> None:
        self._clock, self._admission = clock, admission

    def delete(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """DELETE of one object."""
        options = delete_options(ctx)
        item = ctx.item()
        if self._admission.awaits(ctx, "DELETE"):
            return self._delete_awaiting(ctx, item, options)
        return self.delete_item(ctx, item, options)

    async def _delete_awaiting(self, ctx: Context, item: Item, options: Options) -> Answer:
        await self._admission.validate(Operation("DELETE", ctx, None, item.decode()))
        return self.delete_item(ctx, ctx.item(), options)

    def delete_collection(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """DELETE of all objects that a selector matches; answers with the list of them."""
        options = delete_options(ctx)
        selection = Selection.parse(ctx)
        items = [item for item in selection.scan(ctx) if selection.matches(item)]
        if self._admission.awaits(ctx, "DELETE"):
            return self._delete_collection_awaiting(ctx, items, options)
        return self._delete_all(ctx, items, options)

    async def _delete_collection_awaiting(self, ctx: Context, items: list[Item], options: Options) -> Answer:
        for item in items:
            await self._admission.validate(Operation("DELETE", _of(ctx, item), None, item.decode()))
        return self._delete_all(ctx, items, options)

    def _delete_all(self, ctx: Context, items: list[Item], options: Options) -> Answer:
        kind = ctx.kind
        for item in items:
            current = kind.table.get(item.key)
            if current is not None:
                self.delete_item(_of(ctx, item), current, options)
        header: dict[str, Any] = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
        header["metadata"] = {"resourceVersion": str(kind.table.version)}
        return Response.json(200, {**header, "items": [orjson.Fragment(as_served(kind, item)) for item in items]})

    def delete_item(self, ctx: Context, item: Item, options: Options) -> Answer:
        """Delete a stored object, or mark it."""
        kind = ctx.kind
        obj = item.decode()
        if why := kind.strategy.why_undeletable(obj):
            raise errors.forbidden(kind.group, kind.plural, ctx.name or "", why)
        check_preconditions(kind, obj, options)
        if not options.get("propagationPolicy") and options.get("orphanDependents") is None:
            if kind.strategy.deletion_warning:
                ctx.warnings.append(kind.strategy.deletion_warning)
        marked = self._marked(kind, obj, options)
        if marked is None:
            gone = as_served(kind, item) if ctx.dry_run else as_served(kind, kind.table.remove(item.key))
            if kind.strategy.returns_deleted:
                return ctx.respond(200, gone)
            return ctx.respond(200, orjson.dumps(_success(kind, obj)))
        if marked == obj:
            return ctx.respond(200, as_served(kind, item))
        if ctx.dry_run:
            return ctx.respond(200, orjson.dumps(marked))
        status = 202 if options.get("orphanDependents") is False else 200
        return ctx.respond(status, as_served(kind, kind.table.put(item.key, metadata.ordered(marked))))

    def _marked(self, kind: Kind, obj: Object, options: Options) -> Object | None:
        """The object marked for deletion; None when it can go now."""
        grace = kind.strategy.grace_period(obj, options.get("gracePeriodSeconds"))
        finalizers = self._finalizers(kind, obj, options)
        meta = dict(obj["metadata"])
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        first = "deletionTimestamp" not in meta
        if not finalizers and not grace and kind.strategy.can_go(obj):
            return None
        if first or (grace or 0) < meta.get("deletionGracePeriodSeconds", 0):
            meta["deletionTimestamp"] = self._clock.now(grace or 0)
            meta["deletionGracePeriodSeconds"] = grace or 0
            if first and meta.get("generation"):
                meta["generation"] += 1
        marked = {**obj, "metadata": meta}
        kind.strategy.mark_deleted(marked)
        return marked

    def _finalizers(self, kind: Kind, obj: Object, options: Options) -> list[str]:
        current: list[str] = obj["metadata"].get("finalizers") or []
        policy = options.get("propagationPolicy")
        if not policy and options.get("orphanDependents") is not None:
            policy = "Orphan" if options["orphanDependents"] else "Background"
        if not policy:
            if ORPHAN in current or FOREGROUND in current:
                return current
            policy = kind.strategy.default_propagation
        rest = [each for each in current if each not in {ORPHAN, FOREGROUND}]
        if "deletionTimestamp" not in obj["metadata"]:
            rest += [each for each in kind.strategy.finalizers_on_deletion if each not in rest]
        return [*rest, *_FINALIZERS[policy]]

    def is_over(self, kind: Kind, obj: Object) -> bool:
        """Whether a marked object has nothing left to wait for."""
        meta = obj["metadata"]
        if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
            return False
        return kind.strategy.can_go(obj)


def delete_options(ctx: Context) -> Options:
    """DeleteOptions from the body, or from the query."""
    options: Options = {}
    if ctx.request.body:
        options = parse_shaped(ctx.request, builtin().struct(_OPTIONS))
        if options.get("kind") not in {None, "", "DeleteOptions"}:
            raise errors.bad_request(f"decoded object cannot be converted to DeleteOptions: {options.get('kind')}")
    query = ctx.request.query
    if "propagationPolicy" in query:
        options.setdefault("propagationPolicy", query["propagationPolicy"])
    if "gracePeriodSeconds" in query:
        options.setdefault("gracePeriodSeconds", _seconds(query["gracePeriodSeconds"]))
    if "orphanDependents" in query:
        options.setdefault("orphanDependents", ctx.request.flag("orphanDependents"))
    if options.get("dryRun"):
        query["dryRun"] = options["dryRun"][0]
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _FINALIZERS:
        problem = not_supported("propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil"))
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [problem])
    if policy and options.get("orphanDependents") is not None:
        problem = invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [problem])
    return options


def _seconds(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def check_preconditions(kind: Kind, obj: Object, options: Options) -> None:
    """The uid and resourceVersion that the client expects."""
    expected = options.get("preconditions") or {}
    for key, name, happened in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        wanted, found = expected.get(key), obj["metadata"][key]
        if wanted is not None and wanted != found:
            why = (
                f"the {name} in the precondition ({wanted}) does not match the {name} in record ({found}). "
                f"The object might have been {happened}"
            )
            raise errors.conflict(kind.group, kind.kind, obj["metadata"]["name"], why)


def _success(kind: Kind, obj: Object) -> Object:
    details = {"name": obj["metadata"]["name"], "group": kind.group, "kind": kind.plural, "uid": obj["metadata"]["uid"]}
    details = {key: value for key, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _of(ctx: Context, item: Item) -> Context:
    namespace, _, name = item.key.rpartition("/")
    return Context(ctx.request, ctx.kind, namespace or None, name, warnings=ctx.warnings)

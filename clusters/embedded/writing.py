"""Creating and changing objects: POST, PUT and PATCH, on the main resource and on its status.

Each write is: read the stored object, make the new one, let admission change it, fill in and check it, let admission
refuse it, keep it. Without webhooks nothing is awaited in between, so reading and keeping are one step. With webhooks
the object may change while they think: a write that named a version then fails with a conflict, any other starts again.
"""

import copy
from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from clusters.embedded import errors
from clusters.embedded.admission import Admission, Operation
from clusters.embedded.bodies import (
    check_address,
    check_duplicates,
    check_named,
    check_type,
    parse_body,
    shaped,
    shaped_patch,
)
from clusters.embedded.context import Clock, Context, as_served
from clusters.embedded.deleting import Deleter
from clusters.embedded.fields import Ownership, keep_entries
from clusters.embedded.http import Answer
from clusters.embedded.metadata import generate_name, ordered, prepare_create, prepare_update
from clusters.embedded.patching import Patcher
from clusters.embedded.store import Item, Object
from multimirror.batch.errors import invalid

Maker = Callable[[Object], Object]
_RETRIES: Final = 5
_NAMES: Final = 8


class Writer:
    """The verbs that change objects."""

    def __init__(self, clock: Clock, admission: Admission, deleter: Deleter) -> None:
        self._clock, self._admission, self._deleter = clock, admission, deleter
        self._ownership = Ownership(clock)
        self._patcher = Patcher(self._ownership)

    # --- create

    def create(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """POST."""
        obj = parse_body(ctx.request, ctx.body_shape)
        check_duplicates(ctx.request, obj, ctx.kind, ctx.warnings)
        check_type(obj, ctx.kind)
        return self.create_object(ctx, obj)

    def create_object(self, ctx: Context, obj: Object, manage: bool = True) -> Answer | Awaitable[Answer]:
        """Keep a new object, however it was made."""
        obj = shaped(obj, ctx.kind, ctx.request, ctx.warnings)
        check_address(obj, ctx.kind, ctx.namespace, ctx.name)
        if obj["metadata"].get("resourceVersion", "") not in {"", "0"}:
            raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self._admission.check_create(ctx, obj)
        if self._admission.awaits(ctx, "CREATE"):
            return self._create_awaiting(ctx, obj, manage)
        return self._keep_new(ctx, self._new(ctx, obj, manage))

    async def _create_awaiting(self, ctx: Context, obj: Object, manage: bool) -> Answer:
        shown = ctx.kind.strategy.default(copy.deepcopy(obj))
        wanted = await self._admission.mutate(Operation("CREATE", ctx, shown, None))
        if wanted is not shown:
            obj = shaped(wanted, ctx.kind, ctx.request, ctx.warnings)
        obj = self._new(ctx, obj, manage)
        await self._admission.validate(Operation("CREATE", ctx, obj, None))
        return self._keep_new(ctx, obj)

    def _new(self, ctx: Context, obj: Object, manage: bool) -> Object:
        kind, strategy = ctx.kind, ctx.kind.strategy
        meta = obj["metadata"]
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._free_name(ctx, meta["generateName"])
        prepare_create(obj, uid=self._clock.uid(), now=self._clock.now(), generation=strategy.counts_generation)
        if strategy.has_status and strategy.wipes_status and obj.pop("status", None) is not None and not kind.custom:
            obj["status"] = {}
        if manage:
            # The client owns what it sent and the defaults that follow from it, not what the server adds.
            defaulted = strategy.default(obj)
            self._ownership.record(ctx, defaulted, None)
            keep_entries(obj["metadata"], defaulted["metadata"].get("managedFields") or [])
        obj = strategy.prepare_create(obj)
        problems = strategy.problems(obj, kind.namespaced)
        if problems:
            raise errors.invalid(kind.group, kind.kind, obj["metadata"].get("name", ""), problems)
        ctx.warnings += strategy.warnings(obj, None)
        return ordered(obj)

    def _free_name(self, ctx: Context, base: str) -> str:
        """A generated name that is not taken: five letters collide sooner than one thinks."""
        for _ in range(_NAMES):
            name = generate_name(base)
            if ctx.kind.table.get(ctx.kind.key(ctx.namespace, name)) is None:
                break
        return name

    def _keep_new(self, ctx: Context, obj: Object) -> Answer:
        kind = ctx.kind
        name = obj["metadata"]["name"]
        key = kind.key(ctx.namespace, name)
        taken = kind.table.get(key)
        if taken is not None:
            if b'"deletionTimestamp"' in taken.data and taken.decode()["metadata"].get("deletionTimestamp"):
                raise errors.being_deleted(kind.group, kind.plural, name)
            raise errors.already_exists(kind.group, kind.plural, name)
        if ctx.dry_run:
            return ctx.respond(201, _encoded(obj))
        obj["apiVersion"] = kind.stored_version
        return ctx.respond(201, as_served(kind, kind.table.put(key, obj)))

    # --- update

    def update(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """PUT."""
        body = parse_body(ctx.request, ctx.body_shape)
        check_duplicates(ctx.request, body, ctx.kind, ctx.warnings)
        check_type(body, ctx.kind)
        if ctx.kind.table.get(ctx.key) is None and ctx.kind.strategy.create_on_update and not ctx.subresource:
            (body.get("metadata") or {}).pop("resourceVersion", None)
            return self.create_object(ctx, body)
        new = shaped(body, ctx.kind, ctx.request, ctx.warnings)
        check_named(new, ctx.name)
        check_address(new, ctx.kind, ctx.namespace, ctx.name)
        version = new["metadata"].get("resourceVersion", "")
        if version in {"", "0"} and not ctx.kind.strategy.unconditional_update:
            ctx.item()
            problem = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(ctx.kind.group, ctx.kind.kind, ctx.name or "", [problem])
        return self.change(ctx, lambda _: copy.deepcopy(new))

    def patch(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """PATCH."""
        make = self._patcher.maker(ctx)
        applies = self._patcher.applies(ctx)
        if applies and not ctx.subresource and ctx.kind.table.get(ctx.key) is None:
            made = make(None)
            if uid := made["metadata"].get("uid"):
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise errors.conflict(ctx.kind.group, ctx.kind.plural, ctx.name or "", why)
            return self.create_object(ctx, made, manage=False)

        def patched(old: Object) -> Object:
            new = make(old)
            check_named(new, ctx.name)
            shape = shaped if applies else shaped_patch
            new = shape(new, ctx.kind, ctx.request, ctx.warnings)
            check_address(new, ctx.kind, ctx.namespace, ctx.name)
            return new

        return self.change(ctx, patched, manage=not applies)

    def finalize(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """PUT of a namespace's `finalize`: which finalizers of its spec are left."""
        left = (parse_body(ctx.request, ctx.body_shape).get("spec") or {}).get("finalizers") or []
        return self.change(ctx, lambda old: {**copy.deepcopy(old), "spec": {"finalizers": left} if left else {}})

    def change(self, ctx: Context, make: Maker, manage: bool = True) -> Answer | Awaitable[Answer]:
        """Change the stored object into what `make` makes of it; what it makes shares nothing with what it is given."""
        if self._admission.awaits(ctx, "UPDATE"):
            return self._change_awaiting(ctx, make, manage)
        item = ctx.item()
        old = item.decode()
        new = self._changed(ctx, make(old), old, manage)
        self._check(ctx, new, old)
        return self._keep(ctx, item, new, old)

    async def _change_awaiting(self, ctx: Context, make: Maker, manage: bool) -> Answer:
        for _ in range(_RETRIES):
            item = ctx.item()
            old = item.decode()
            new = self._changed(ctx, make(old), old, manage)
            new = await self._admission.mutate(Operation("UPDATE", ctx, new, old))
            new = self._changed(ctx, shaped(new, ctx.kind, ctx.request, ctx.warnings), old, manage)
            self._check(ctx, new, old)
            await self._admission.validate(Operation("UPDATE", ctx, new, old))
            if ctx.kind.table.get(ctx.key) is item:
                return self._keep(ctx, item, new, old)
        raise errors.conflict(ctx.kind.group, ctx.kind.plural, ctx.name or "", errors.MODIFIED)

    def _changed(self, ctx: Context, new: Object, old: Object, manage: bool) -> Object:
        kind, strategy = ctx.kind, ctx.kind.strategy
        asked = new["metadata"].get("resourceVersion") or "0"
        if asked not in {"0", old["metadata"]["resourceVersion"]}:
            raise errors.conflict(kind.group, kind.plural, ctx.name or "", errors.MODIFIED)
        uid = new["metadata"].get("uid") or old["metadata"]["uid"]
        if uid != old["metadata"]["uid"] and ctx.request.method == "PUT":
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}"
            raise errors.conflict(kind.group, kind.plural, ctx.name or "", why)
        new["kind"], new["apiVersion"] = kind.kind, kind.api_version
        prepare_update(new, old)
        sent = new["metadata"].pop("managedFields", None)  # a large part of an object, and no rule's concern
        if ctx.subresource == "status":
            new = strategy.prepare_status(new, old)
        elif not ctx.subresource:
            new = strategy.prepare_update(new, old)
        if manage:
            self._ownership.record(ctx, new, old, sent)
        else:
            keep_entries(new["metadata"], sent or [])
        return ordered(new)

    def _check(self, ctx: Context, new: Object, old: Object) -> None:
        strategy = ctx.kind.strategy
        self._admission.check_update(ctx, new, old)
        if ctx.subresource:
            problems = strategy.status_problems(new, old)
        else:
            problems = strategy.update_problems(new, old)
            ctx.warnings += strategy.warnings(new, old)
        if problems:
            raise errors.invalid(ctx.kind.group, ctx.kind.kind, ctx.name or "", problems)

    def _keep(self, ctx: Context, item: Item, new: Object, old: Object) -> Answer:
        kind = ctx.kind
        new["apiVersion"] = old["apiVersion"]
        if new == old:
            return ctx.respond(200, as_served(kind, item))
        if ctx.dry_run:
            return ctx.respond(200, _encoded({**new, "apiVersion": kind.api_version}))
        new["apiVersion"] = kind.stored_version
        if self._deleter.is_over(kind, new):
            return ctx.respond(200, as_served(kind, kind.table.remove(ctx.key, new)))
        return ctx.respond(200, as_served(kind, kind.table.put(ctx.key, new)))


def _encoded(obj: Object) -> bytes:
    return orjson.dumps(obj)

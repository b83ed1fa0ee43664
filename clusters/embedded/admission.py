"""Admission: what is allowed in, beyond each kind's own rules.

Built in: nothing is created in a namespace that is missing or going away. Webhooks, when configured, are asked by way
of `Webhooks`; only then does a write have to await anything.
"""

from dataclasses import dataclass
from typing import Protocol

from clusters.embedded import errors
from clusters.embedded.context import Clock, Context
from clusters.embedded.store import Object, Table


@dataclass(slots=True)
class Operation:
    """A write that asks to be admitted."""

    name: str
    """CREATE, UPDATE or DELETE."""
    ctx: Context
    obj: Object | None
    old: Object | None


class Hooks(Protocol):
    """Those who are asked over the network."""

    def concern(self, ctx: Context, operation: str) -> bool:
        """Whether any of them wants to see such a write."""

    async def mutate(self, operation: Operation) -> Object:
        """The object as they would have it."""

    async def validate(self, operation: Operation) -> None:
        """Raises StatusError if one of them refuses."""


class Admission:
    """Asked before every write."""

    def __init__(self, clock: Clock, namespaces: Table, hooks: Hooks) -> None:
        self._clock, self._namespaces, self._hooks = clock, namespaces, hooks

    def awaits(self, ctx: Context, operation: str) -> bool:
        """Whether a write must be awaited, because webhooks want to see it."""
        return self._hooks.concern(ctx, operation)

    def check_create(self, ctx: Context, obj: Object) -> None:
        """A new object needs a living namespace."""
        if not ctx.kind.namespaced:
            return
        namespace = ctx.namespace or ""
        item = self._namespaces.get(namespace)
        if item is None:
            raise errors.not_found("", "namespaces", namespace)
        if item.fields.get("status.phase") == "Terminating":
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
            raise errors.forbidden(ctx.kind.group, ctx.kind.plural, name, why, [cause])

    async def mutate(self, operation: Operation) -> Object:
        """The object as the webhooks would have it."""
        return await self._hooks.mutate(operation)

    async def validate(self, operation: Operation) -> None:
        """Raises StatusError if a webhook refuses."""
        await self._hooks.validate(operation)

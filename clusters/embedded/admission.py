"""Admission: what is allowed in, beyond each kind's own rules.

Built in: nothing is created in a namespace that is missing or going away, no pod without its service account, no
PodGroup without its Workload, and a gang keeps its size. Webhooks, when configured, are asked by way of `Webhooks`;
only then does a write have to await anything.
"""

from dataclasses import dataclass
from typing import Protocol

from clusters.embedded import errors
from clusters.embedded.context import Context
from clusters.embedded.kinds import Kinds
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

    def __init__(self, kinds: Kinds, hooks: Hooks) -> None:
        self._hooks = hooks
        self._namespaces = _table(kinds, "", "namespaces")
        self._accounts = _table(kinds, "", "serviceaccounts")
        self._workloads = _table(kinds, "scheduling.k8s.io", "workloads")
        self._groups = _table(kinds, "scheduling.k8s.io", "podgroups")

    def awaits(self, ctx: Context, operation: str) -> bool:
        """Whether a write must be awaited, because webhooks want to see it."""
        return self._hooks.concern(ctx, operation)

    def check_create(self, ctx: Context, obj: Object) -> None:
        """A new object needs a living namespace, and what it refers to."""
        if not ctx.kind.namespaced:
            return
        self._check_namespace(ctx, obj)
        if ctx.kind.resource == "pods":
            self._check_account(ctx, obj)
        elif ctx.kind.resource == "podgroups.scheduling.k8s.io":
            self._check_workload(ctx, obj)

    def check_update(self, ctx: Context, new: Object, old: Object) -> None:
        """A Job whose pods are scheduled as a gang keeps its size."""
        if ctx.kind.resource != "jobs.batch" or ctx.subresource:
            return
        if new["spec"].get("parallelism") == old["spec"].get("parallelism"):
            return
        group = self._gang_of(ctx, old)
        if group:
            why = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{group}"'
            raise errors.forbidden(ctx.kind.group, ctx.kind.plural, ctx.name or "", why)

    def _check_namespace(self, ctx: Context, obj: Object) -> None:
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
            raise errors.forbidden(ctx.kind.group, ctx.kind.plural, _name(obj), why, [cause])

    def _check_account(self, ctx: Context, obj: Object) -> None:
        """A pod's account must be there; the default one counts as there before its controller made it."""
        account = (obj.get("spec") or {}).get("serviceAccountName") or "default"
        if account != "default" and self._accounts.get(f"{ctx.namespace}/{account}") is None:
            why = f'error looking up service account {ctx.namespace}/{account}: serviceaccount "{account}" not found'
            raise errors.forbidden("", "pods", _name(obj), why)

    def _check_workload(self, ctx: Context, obj: Object) -> None:
        reference = ((obj.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload") or {}
        name, template = reference.get("workloadName"), reference.get("podGroupTemplateName")
        if not name:
            return
        item = self._workloads.get(f"{ctx.namespace}/{name}")
        workload = item.decode() if item else {}
        why = ""
        if not workload:
            why = f'Workload "{name}" not found'
        elif workload["metadata"].get("deletionTimestamp"):
            why = f'Workload "{name}" is being deleted'
        elif template not in {each.get("name") for each in workload["spec"].get("podGroupTemplates") or ()}:
            why = f'PodGroupTemplate "{template}" not found in Workload "{name}"'
        if why:
            raise errors.forbidden(ctx.kind.group, ctx.kind.plural, _name(obj), f"PodGroup rejected: {why}")

    def _gang_of(self, ctx: Context, job: Object) -> str:
        named = job["spec"]["template"].get("spec", {}).get("schedulingGroup", {}).get("podGroupName")
        if named:
            item = self._groups.get(f"{ctx.namespace}/{named}")
            groups = [item.decode()] if item else []
        else:
            uid = job["metadata"]["uid"]
            found = (item.decode() for item in self._groups.scan(f"{ctx.namespace}/"))
            groups = [group for group in found if _controller_uid(group) == uid]
        return next(
            (str(g["metadata"]["name"]) for g in groups if g["spec"].get("schedulingPolicy", {}).get("gang")), ""
        )

    async def mutate(self, operation: Operation) -> Object:
        """The object as the webhooks would have it."""
        return await self._hooks.mutate(operation)

    async def validate(self, operation: Operation) -> None:
        """Raises StatusError if a webhook refuses."""
        await self._hooks.validate(operation)


def _table(kinds: Kinds, group: str, plural: str) -> Table:
    kind = kinds.stored(group, plural)
    assert kind is not None, f"{plural} are built in"
    return kind.table


def _name(obj: Object) -> str:
    return str(obj["metadata"].get("name") or obj["metadata"].get("generateName", ""))


def _controller_uid(obj: Object) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")

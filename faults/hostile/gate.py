"""Admission of a simulated management cluster: the real decision about new Jobs, and the policies in a table.

An embedded API server knows webhooks, and neither CEL nor RBAC; a simulation has no sockets to ask a webhook over. So
`decide`, which the webhook answers with, is called in its place; and what the policies of every installation refuse
(multimirror.admission.placement, copy_labels) and what tenants have no right to is refused here, for everybody but the
administrator, as whom the dispatcher comes. What the real policies do is tested with real ones (tests/security).
"""

from typing import Any, Final

from clusters.embedded import errors
from clusters.embedded.admission import Operation
from clusters.embedded.authentication import ADMINISTRATOR
from clusters.embedded.context import Context
from clusters.embedded.kinds import Kinds
from clusters.embedded.patches import json_patch
from clusters.embedded.store import Object
from multimirror.admission import Patch, Refusal, decide
from multimirror.api import (
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    GROUP,
    MANAGED_BY,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    PLACEMENT_ANNOTATIONS,
    QUEUE_LABEL,
    SIGNATURE_LABEL,
)

Json = dict[str, Any]
_COPY_LABELS: Final = (ORIGIN_LABEL, ORIGIN_UID_LABEL, ATTEMPT_LABEL, SIGNATURE_LABEL)


class Gate:
    """Asked before each write of a Job."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds

    def concern(self, ctx: Context, operation: str) -> bool:
        """New Jobs, and what tenants do to them."""
        if ctx.kind.resource != "jobs.batch" or operation == "DELETE":
            return False
        return operation == "CREATE" or ctx.request.user != ADMINISTRATOR

    async def mutate(self, operation: Operation) -> Object:
        """As the webhook would have it."""
        assert operation.obj is not None
        if operation.name != "CREATE":
            return operation.obj
        verdict = decide(operation.obj, self._namespace(operation.ctx.namespace or ""), self._queues())
        if isinstance(verdict, Refusal):
            raise _forbidden(operation, verdict.message)
        if isinstance(verdict, Patch):
            patched = json_patch(operation.obj, list(verdict.operations))
            assert isinstance(patched, dict)
            return patched
        return operation.obj

    async def validate(self, operation: Operation) -> None:
        """As the policies, and the rights of tenants, would have it."""
        if operation.ctx.request.user == ADMINISTRATOR:
            return
        if operation.ctx.subresource:
            raise _forbidden(operation, "tenants have no right to write a status")
        why = refused(operation.obj or {}, operation.old)
        if why:
            raise _forbidden(operation, why)

    def _namespace(self, name: str) -> Json:
        kind = self._kinds.stored("", "namespaces")
        item = kind.table.get(name) if kind is not None else None
        return item.decode() if item is not None else {"metadata": {"name": name}}

    def _queues(self) -> dict[str, Json]:
        kind = self._kinds.stored(GROUP, "mirrorqueues")
        found = [item.decode() for item in kind.table.scan()] if kind is not None else []
        return {queue["metadata"]["name"]: queue for queue in found}


def refused(new: Json, old: Json | None) -> str | None:
    """Why the policies do not let somebody who is no dispatcher do this; None: they do."""
    annotations, labels = _of(new, "annotations"), _of(new, "labels")
    before, labelled = _of(old, "annotations"), _of(old, "labels")
    if any(labels.get(key) != labelled.get(key) for key in _COPY_LABELS):
        return "the labels of copies are kept for copies"
    if new["spec"].get("managedBy") != MANAGED_BY:
        return None
    if any(annotations.get(key) != before.get(key) for key in PLACEMENT_ANNOTATIONS):
        return "where a Job is, is written by multimirror alone"
    if old is None:
        return None if labels.get(QUEUE_LABEL) else "managed by multimirror, and in no queue"
    queue, requeued = labels.get(QUEUE_LABEL), labels.get(QUEUE_LABEL) != labelled.get(QUEUE_LABEL)
    placed = bool(before.get(CLUSTER_ANNOTATION))
    if requeued and (placed or not queue):
        return "a Job on a cluster stays in its queue"
    if placed and new["spec"]["template"] != old["spec"]["template"]:
        return "the template of a Job on a cluster cannot be changed"
    return None


def _of(obj: Json | None, field: str) -> dict[str, str]:
    return ((obj or {}).get("metadata") or {}).get(field) or {}


def _forbidden(operation: Operation, why: str) -> errors.StatusError:
    ctx = operation.ctx
    return errors.forbidden(ctx.kind.group, ctx.kind.plural, ctx.name or "", why)

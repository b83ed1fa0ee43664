"""Carrying out what was decided: thin, and safe to repeat.

Every write names exactly the object that the decision was about (uid, and resourceVersion where the whole object
counted), so that one that comes late, or twice, meets a Conflict and not somebody else's object.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    CLUSTER_ANNOTATION,
    CLUSTER_NAMESPACE_ANNOTATION,
    COPY_UID_ANNOTATION,
    ORIGIN_LABEL,
    RESERVED_ANNOTATION,
)
from multimirror.api.placement import Copy, admitted_queue_of, cluster_of, origin_uid
from multimirror.batch import Json
from multimirror.kinds import CopyOptions, Kind, Ref, ref_of
from multimirror.kube import Client, RequeueAfter, key_of
from multimirror.kube.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from multimirror.kube.patch import merge_patch
from multimirror.reconcile import metrics
from multimirror.reconcile.actions import (
    CreateCopy,
    DeleteCopy,
    PatchStatus,
    RejectStatus,
    Reserve,
    SyncCopy,
    Unassign,
    WorkerAction,
)
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.metrics import DispatchTimer
from multimirror.reconcile.originals import Originals
from multimirror.reconcile.state import ObservedState
from multimirror.reconcile.wholes import WholeOriginals
from multimirror.scheduling.announcements import Announcements
from multimirror.workers import Session, Worker

_log = structlog.get_logger(__name__)
_SOON: Final = RequeueAfter(0.05)
_LATER: Final = RequeueAfter(2.0)
_TAKEN_AWAY: Final = dict.fromkeys(
    (
        CLUSTER_ANNOTATION,
        CLUSTER_NAMESPACE_ANNOTATION,
        ADMITTED_QUEUE_ANNOTATION,
        RESERVED_ANNOTATION,
        COPY_UID_ANNOTATION,
    )
)
_ASK_AGAIN_SECONDS: Final = 300.0
"""For a status that breaks a rule: mostly it always will, unless it is the rule of a policy that is put right."""


class ManagementExecutor:
    """Writes to the management cluster."""

    def __init__(self, client: Client, originals: Originals, memory: Memory, announcements: Announcements) -> None:
        self._client, self._originals, self._memory, self._announcements = client, originals, memory, announcements

    async def patch_status(self, kind: Kind, obj: Json, action: PatchStatus) -> RequeueAfter | None:
        """Write the status, unless the server has already said that it does not want it."""
        ref, worker = ref_of(kind, obj), action.worker or ""
        notes, now = self._memory.of(ref), asyncio.get_running_loop().time()
        if notes.rejected_status == action.status and now < notes.rejected_until:
            return RequeueAfter(notes.rejected_until - now)
        changed_at, notes.changed_at = notes.changed_at, None
        body = {"metadata": _exactly(obj), "status": merge_patch(obj.get("status") or {}, action.status)}
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        try:
            answer = await self._client.patch(kind.resource, name, body, namespace, subresource="status")
        except (Conflict, NotFound):
            notes.changed_at = changed_at
            raise  # our cache is behind, for who knows how long: back off
        except (Invalid, Forbidden, BadRequest) as error:
            if notes.rejected_status != action.status:
                notes.rejected_status, notes.rejected_until = action.status, 0.0
                metrics.STATUS_REFUSED.labels(worker, "server").inc()
                words = f"the API server refuses the status from worker {worker}: {error.message}"
                self._announcements.tell(kind, obj, "StatusRefused", words)
            if not isinstance(error, Invalid):
                notes.changed_at = changed_at
                raise  # a right that is missing, or somebody's policy: may be put right at any time, so back off
            notes.rejected_until = now + _ASK_AGAIN_SECONDS
            return RequeueAfter(_ASK_AGAIN_SECONDS)
        self._originals.writes(ref).wrote(answer)
        outcome = kind.outcome({"status": action.status})
        if outcome.finished:
            _log.info("finished", ref=str(ref), object=key_of(obj), cluster=worker, success=outcome.success)
        metrics.MIRRORED.labels(worker).inc()
        if changed_at is not None:
            metrics.MIRROR_SECONDS.labels(worker).observe(asyncio.get_running_loop().time() - changed_at)
        return None

    async def unassign(self, kind: Kind, obj: Json, action: Unassign) -> RequeueAfter | None:
        """Suspend it and take its worker away."""
        metadata, worker = obj["metadata"], cluster_of(obj) or ""
        body = {"metadata": {**_exactly(obj), "annotations": _TAKEN_AWAY}, **kind.suspension(suspend=True)}
        answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        ref = ref_of(kind, obj)
        self._originals.writes(ref).wrote(answer)
        metrics.UNASSIGNED.labels(worker, action.reason).inc()
        self._announcements.tell(kind, obj, action.reason, action.message)
        _log.info("unassigned", ref=str(ref), object=key_of(obj), cluster=worker, reason=action.reason)
        return None

    async def reserve(self, kind: Kind, obj: Json, action: Reserve) -> None:
        """Write down what is counted for it, and in which queue."""
        metadata = obj["metadata"]
        queue = admitted_queue_of(obj) or self._originals.queue_of(obj)
        written = {RESERVED_ANNOTATION: str(action.reserved), ADMITTED_QUEUE_ANNOTATION: queue}
        body = {"metadata": {**_exactly(obj), "annotations": written}}
        answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        ref = ref_of(kind, obj)
        self._originals.writes(ref).wrote(answer)
        _log.info("reserved", ref=str(ref), object=key_of(obj), pods=sum(action.reserved.counts.values()))

    def reject_status(self, kind: Kind, obj: Json, action: RejectStatus) -> None:
        """What the worker says breaks the rules: say so, once."""
        notes, words = self._memory.of(ref_of(kind, obj)), str(action.rejection)
        if notes.rejected_status != {"rejected": words}:
            notes.rejected_status = {"rejected": words}
            metrics.STATUS_REFUSED.labels(action.worker, "rules").inc()
            message = f"the status from worker {action.worker} breaks the rules: {words}"
            self._announcements.tell(kind, obj, "StatusRefused", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What writing to any worker needs."""

    origin: str
    """The identity of the management cluster, on every copy."""
    memory: Memory
    originals: Originals
    announcements: Announcements
    wholes: WholeOriginals
    timer: DispatchTimer
    refusal_seconds: float
    clock: Callable[[], float]


class WorkerExecutor:
    """Writes to one worker, in one session."""

    def __init__(self, worker: Worker, session: Session, context: WorkerContext) -> None:
        self._worker, self._name, self._session, self._context = worker, worker.name, session, context

    async def execute(self, ref: Ref, state: ObservedState, action: WorkerAction) -> RequeueAfter | None:
        if isinstance(action, DeleteCopy):
            await self._delete(state.kind, ref, action)
            return None
        assert state.original is not None, "without it there is nothing to do but to delete"
        if isinstance(action, SyncCopy):
            return await self._sync(state.kind, state.original, action)
        return await self._create(state.kind, state.original, action)

    async def _create(self, kind: Kind, obj: Json, action: CreateCopy) -> RequeueAfter | None:
        """Make the copy; when something of that name is there already, find out whose it is."""
        ref, namespace, name = ref_of(kind, obj), action.namespace, self._name_of(obj)
        writes = self._session.writes(namespace, kind.resource)
        if not writes.settled(f"{namespace}/{name}"):
            await writes.seen(f"{namespace}/{name}")
            return RequeueAfter(0.01)  # what is to be done is another question now
        whole = await self._context.wholes.take(kind, obj)
        if whole is None:
            return _SOON  # it is another one than was decided on, as our cache will show
        options = CopyOptions(origin=self._context.origin, attempt=action.attempt, name=name, namespace=namespace)
        copy = kind.make_copy(whole, options)
        try:
            answer = await self._session.writer.create(kind.resource, copy, namespace)
        except AlreadyExists:
            return await self._there_already(kind, obj, copy, action)
        except NotFound:
            return self._refused(ref, f"it has no namespace {namespace}")
        except (Forbidden, Invalid, BadRequest) as error:
            return self._refused(ref, error.message)
        writes.wrote(answer)
        metrics.CREATED.labels(self._name).inc()
        self._context.timer.copy_created(ref.uid, action.attempt, self._name, asyncio.get_running_loop().time())
        _log.info("copy created", ref=str(ref), object=key_of(obj), cluster=self._name, attempt=action.attempt)
        return None

    async def _there_already(self, kind: Kind, obj: Json, copy: Json, action: CreateCopy) -> RequeueAfter | None:
        """A name that is taken: by our own call whose answer was lost, by an older copy, or by somebody else."""
        metadata, ref = copy["metadata"], ref_of(kind, obj)
        try:
            found = await self._session.client.get(kind.resource, metadata["name"], metadata["namespace"])
        except NotFound:
            return _SOON
        labels = found["metadata"].get("labels") or {}
        if labels.get(ORIGIN_LABEL) != self._context.origin:
            return self._refused(ref, f"a {kind.resource.kind} named {metadata['name']} that is not ours is there")
        owner = Ref(ref.kind, origin_uid(found))
        if owner != ref:
            if self._context.originals.get(owner) is not None:
                return self._refused(
                    ref, f"the copy of another {kind.resource.kind} is there under the name {metadata['name']}"
                )
            return _LATER  # the copy of an object that is gone: it is on its way out
        there = Copy(self._name, found)
        if there.attempt != action.attempt and not there.terminating:
            stale = DeleteCopy(self._name, metadata["namespace"], metadata["name"], there.uid, "stale")
            await self._delete(kind, ref, stale)
            return _SOON
        if there.terminating:
            return _LATER
        self._session.writes(metadata["namespace"], kind.resource).wrote(found)
        return _LATER  # our cache will show it before that

    async def _delete(self, kind: Kind, ref: Ref, action: DeleteCopy) -> None:
        """Delete exactly that copy of the object, and with it its pods."""
        try:
            answer = await self._session.writer.delete(
                kind.resource, action.name, action.namespace, propagation="Background", uid=action.uid
            )
        except (NotFound, Conflict):
            return
        gone = {"metadata": {"namespace": action.namespace, "name": action.name, "uid": action.uid}}
        writes = self._session.writes(action.namespace, kind.resource)
        if answer.get("kind") == "Status":
            writes.deleted(gone)
        else:
            writes.wrote(answer)
        metrics.DELETED.labels(self._name, action.why).inc()
        _log.info("copy deleted", ref=str(ref), object=key_of(gone), cluster=self._name, why=action.why)

    async def _sync(self, kind: Kind, obj: Json, action: SyncCopy) -> RequeueAfter | None:
        """Bring the copy in step. A worker that changes it back is told on, once, and not fought."""
        ref = ref_of(kind, obj)
        notes = self._context.memory.of(ref)
        wanted = {"of": action.uid, **action.patch}
        if notes.rejected_patch == wanted:
            return None
        body = {"metadata": {"uid": action.uid}, **action.patch}
        try:
            answer = await self._session.writer.patch(kind.resource, action.name, body, action.namespace)
        except (Conflict, NotFound):
            return None
        except (Forbidden, Invalid, BadRequest) as error:
            told, notes.rejected_patch = notes.rejected_patch is not None, wanted
            if not told:
                self._not_changed(kind, obj, f"worker {self._name} refuses the change: {error.message}")
            # A fence that is not renewed ends the copy: what was refused may be granted before it is too late.
            return _LATER if action.renews else None
        self._session.writes(action.namespace, kind.resource).wrote(answer)
        notes.rejected_patch = None
        if action.renews:
            metrics.RENEWED.labels(self._name).inc()
        _log.info("copy changed", ref=str(ref), object=key_of(obj), cluster=self._name, to=action.patch)
        undone = _undone(action.patch, answer)
        if undone:
            notes.rejected_patch = wanted
            self._not_changed(kind, obj, f"worker {self._name} changes {', '.join(undone)} back")
        return None

    def _not_changed(self, kind: Kind, obj: Json, message: str) -> None:
        self._context.announcements.tell(kind, obj, "CopyNotChanged", message)

    def _refused(self, ref: Ref, why: str) -> RequeueAfter | None:
        self._context.memory.refuse(ref, self._name, why, self._context.clock() + self._context.refusal_seconds)
        metrics.REFUSED.labels(self._name).inc()
        _log.info("copy refused", ref=str(ref), cluster=self._name, why=why)
        return None  # what is to be done about it is decided at once

    def _name_of(self, obj: Json) -> str:
        """Another name, for a copy in the cluster of the original."""
        name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
        if not self._worker.state.is_management:
            return str(name)
        return f"{name[:52]}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


def _undone(patch: Json, answer: Json) -> list[str]:
    """The fields that the answer does not have as they were written."""
    fields: list[str] = []
    for key, value in patch.items():
        found = answer.get(key)
        if isinstance(value, dict) and isinstance(found, dict):
            fields += _undone(value, found)
        elif (found or None) != (value or None):
            fields.append(key)
    return sorted(fields)


def _exactly(obj: Json) -> Json:
    metadata = obj["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}

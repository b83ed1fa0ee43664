"""Carrying out what was decided: thin, and safe to repeat.

Every write names exactly the object that the decision was about (uid, and resourceVersion where the whole object
counted), so that one that comes late, or twice, meets a Conflict and not somebody else's Job.
"""

import asyncio
import hashlib
import time
from typing import Literal

import structlog

from multimirror.api import CLUSTER_ANNOTATION, ORIGIN_LABEL
from multimirror.api.placement import Copy, lease_of, origin_uid
from multimirror.batch import Json, is_finished, phase
from multimirror.kinds.job.copy import make_copy
from multimirror.kube import Client, EventRecorder, RequeueAfter, key_of
from multimirror.kube.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from multimirror.kube.resources import JOBS
from multimirror.reconcile import metrics
from multimirror.reconcile.actions import CreateCopy, DeleteCopy, PatchStatus, Refuse, SyncCopy, Unassign, Warn
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.originals import Originals
from multimirror.workers import Session, Worker

_log = structlog.get_logger(__name__)
_SOON = RequeueAfter(0.05)
_LATER = RequeueAfter(2.0)
_ASK_AGAIN = 300.0
"""For a status that breaks a rule: mostly it always will, unless it is the rule of a policy that is put right."""


class ManagementActor:
    """Writes to the management cluster."""

    def __init__(self, client: Client, originals: Originals, memory: Memory, events: EventRecorder) -> None:
        self._client, self._originals, self._memory, self._events = client, originals, memory, events

    async def patch_status(self, job: Json, action: PatchStatus) -> RequeueAfter | None:
        """Write the status, unless the server has already said that it does not want it."""
        uid, worker = job["metadata"]["uid"], action.worker or ""
        notes, now = self._memory.of(uid), asyncio.get_running_loop().time()
        if notes.unwanted == action.status and now < notes.unwanted_until:
            return RequeueAfter(notes.unwanted_until - now)
        heard, notes.heard = notes.heard, None
        body = {"metadata": _exactly(job), "status": changes(job.get("status") or {}, action.status)}
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        try:
            answer = await self._client.patch(JOBS, name, body, namespace, subresource="status")
        except (Conflict, NotFound):
            notes.heard = heard
            raise  # our cache is behind, for who knows how long: back off
        except (Invalid, Forbidden, BadRequest) as error:
            if notes.unwanted != action.status:
                notes.unwanted, notes.unwanted_until = action.status, 0.0
                metrics.STATUS_REFUSED.labels(worker, "server").inc()
                words = f"the API server refuses the status from worker {worker}: {error.message}"
                self.tell(job, "StatusRefused", words)
            if not isinstance(error, Invalid):
                notes.heard = heard
                raise  # a right that is missing, or somebody's policy: may be put right any moment, so back off
            notes.unwanted_until = now + _ASK_AGAIN
            return RequeueAfter(_ASK_AGAIN)
        self._originals.writes.wrote(answer)
        if is_finished(action.status):
            _log.info("finished", uid=uid, job=key_of(job), cluster=worker, phase=str(phase(action.status)))
        metrics.MIRRORED.labels(worker).inc()
        if heard is not None:
            metrics.MIRROR_SECONDS.labels(worker).observe(asyncio.get_running_loop().time() - heard)
        return None

    async def unassign(self, job: Json, action: Unassign) -> RequeueAfter | None:
        """Suspend it and take its worker away."""
        metadata = job["metadata"]
        worker = (metadata.get("annotations") or {}).get(CLUSTER_ANNOTATION, "")
        body = {
            "metadata": {**_exactly(job), "annotations": {CLUSTER_ANNOTATION: None}},
            "spec": {"suspend": True},
        }
        answer = await self._client.patch(JOBS, metadata["name"], body, metadata["namespace"])
        self._originals.writes.wrote(answer)
        metrics.UNASSIGNED.labels(worker, action.reason).inc()
        self.tell(job, action.reason, action.message)
        _log.info("unassigned", uid=metadata["uid"], job=key_of(job), cluster=worker, reason=action.reason)
        return None

    def warn(self, job: Json, action: Warn) -> None:
        """Say it, unless it was said last time."""
        notes = self._memory.of(job["metadata"]["uid"])
        if notes.told != action.message:
            notes.told = action.message
            self.tell(job, action.reason, action.message, action.kind)

    def refuse(self, job: Json, action: Refuse) -> None:
        """What the worker says breaks the rules: say so, once."""
        notes = self._memory.of(job["metadata"]["uid"])
        words = str(action.refusal)
        if notes.unwanted != {"refused": words}:
            notes.unwanted = {"refused": words}
            metrics.STATUS_REFUSED.labels(action.worker, "rules").inc()
            self.tell(job, "StatusRefused", f"the status from worker {action.worker} breaks the rules: {words}")

    def tell(self, job: Json, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Warning") -> None:
        """Tell the Job's user."""
        self._events.event({"apiVersion": JOBS.api_version, "kind": JOBS.kind, **job}, reason, message, type=kind)


class WorkerActor:
    """Writes to one worker."""

    def __init__(
        self,
        worker: Worker,
        *,
        origin: str,
        memory: Memory,
        originals: Originals,
        management: ManagementActor,
        refusal_seconds: float,
    ) -> None:
        self._worker, self._origin, self._memory, self._originals = worker, origin, memory, originals
        self._management, self._refusal_seconds = management, refusal_seconds

    async def create(self, session: Session, job: Json, action: CreateCopy, namespace: str) -> RequeueAfter | None:
        """Make the copy; when something of that name is there already, find out whose it is."""
        uid = job["metadata"]["uid"]
        name = copy_name(job) if self._worker.state.is_management else None
        copy = make_copy(job, origin=self._origin, attempt=action.attempt, name=name, namespace=namespace)
        if action.deadline is not None:
            copy["spec"]["activeDeadlineSeconds"] = action.deadline
        started = asyncio.get_running_loop().time()
        try:
            answer = await session.writer.create(JOBS, copy, namespace)
        except AlreadyExists:
            return await self._there_already(session, job, copy, action)
        except NotFound:
            return self._refused(uid, f"it has no namespace {namespace}")
        except (Forbidden, Invalid, BadRequest) as error:
            return self._refused(uid, error.message)
        session.writes(namespace).wrote(answer)
        metrics.CREATED.labels(self._worker.name).inc()
        metrics.DISPATCH_SECONDS.labels(self._worker.name).observe(asyncio.get_running_loop().time() - started)
        _log.info("copy made", uid=uid, job=key_of(job), cluster=self._worker.name, attempt=action.attempt)
        return None

    async def _there_already(self, session: Session, job: Json, copy: Json, action: CreateCopy) -> RequeueAfter | None:
        """A name that is taken: by our own call whose answer was lost, by an older copy, or by somebody else."""
        metadata, uid = copy["metadata"], job["metadata"]["uid"]
        try:
            found = await session.client.get(JOBS, metadata["name"], metadata["namespace"])
        except NotFound:
            return _SOON
        labels = found["metadata"].get("labels") or {}
        if labels.get(ORIGIN_LABEL) != self._origin:
            return self._refused(uid, f"a Job named {metadata['name']} that is not ours is there")
        owner = origin_uid(found)
        if owner != uid:
            if self._originals.get(owner) is not None:
                return self._refused(uid, f"the copy of another Job is there under the name {metadata['name']}")
            return _LATER  # the copy of a Job that is gone: it is on its way out
        there = Copy(self._worker.name, found)
        if there.attempt != action.attempt and not there.terminating:
            stale = DeleteCopy(self._worker.name, metadata["namespace"], metadata["name"], there.uid, "stale")
            await self.delete(session, uid, stale)
            return _SOON
        if there.terminating:
            return _LATER
        session.writes(metadata["namespace"]).wrote(found)
        return _LATER  # our cache will tell of it before that

    async def delete(self, session: Session, uid: str, action: DeleteCopy) -> None:
        """Delete exactly that copy of the Job with this uid, and with it its pods."""
        try:
            answer = await session.writer.delete(
                JOBS, action.name, action.namespace, propagation="Background", uid=action.uid
            )
        except (NotFound, Conflict):
            return
        gone = {"metadata": {"namespace": action.namespace, "name": action.name, "uid": action.uid}}
        if answer.get("kind") == "Status":
            session.writes(action.namespace).deleted(gone)
        else:
            session.writes(action.namespace).wrote(answer)
        metrics.DELETED.labels(self._worker.name, action.why).inc()
        _log.info("copy deleted", uid=uid, job=key_of(gone), cluster=self._worker.name, why=action.why)

    async def sync(self, session: Session, job: Json, action: SyncCopy) -> None:
        """Bring the copy in step. A worker that changes it back is told on, once, and not fought."""
        notes = self._memory.of(job["metadata"]["uid"])
        wish = {"of": action.uid, **action.spec}
        if notes.stubborn == wish:
            return
        body = {"metadata": {"uid": action.uid}, "spec": action.spec}
        try:
            answer = await session.writer.patch(JOBS, action.name, body, action.namespace)
        except (Conflict, NotFound):
            return
        except (Forbidden, Invalid, BadRequest) as error:
            notes.stubborn = wish
            self._management.tell(
                job, "CopyNotChanged", f"worker {self._worker.name} refuses the change: {error.message}"
            )
            return
        session.writes(action.namespace).wrote(answer)
        if lease_of(job) is not None and "activeDeadlineSeconds" in action.spec:
            metrics.RENEWED.labels(self._worker.name).inc()
        _log.info(
            "copy changed", uid=job["metadata"]["uid"], job=key_of(job), cluster=self._worker.name, to=action.spec
        )
        if any((answer["spec"].get(key) or None) != (value or None) for key, value in action.spec.items()):
            notes.stubborn = wish
            fields = ", ".join(sorted(action.spec))
            self._management.tell(job, "CopyNotChanged", f"worker {self._worker.name} changes {fields} back")

    def _refused(self, uid: str, why: str) -> RequeueAfter | None:
        self._memory.refuse(uid, self._worker.name, why, time.time() + self._refusal_seconds)
        metrics.REFUSED.labels(self._worker.name).inc()
        _log.info("copy refused", uid=uid, cluster=self._worker.name, why=why)
        return None


def copy_name(job: Json) -> str:
    """Another name, for a copy in the cluster of the original."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    return f"{name[:52]}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


def changes(before: Json, after: Json) -> Json:
    """The merge patch from one object to the other: what is not there any more has to be said, at every depth."""
    patch: Json = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if old != value:
            patch[key] = changes(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return patch


def _exactly(job: Json) -> Json:
    metadata = job["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}

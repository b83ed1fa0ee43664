"""Carrying out what was decided: thin, and safe to repeat.

Every write names exactly the object that the decision was about (uid, and resourceVersion where the whole object
counted), so that one that comes late, or twice, meets a Conflict and not somebody else's object.

What a worker answers is as little to be trusted as what it sends: an answer is read like anything else from there
(workers/reading.py), and something under the name of a copy is ours only by its signature, and by its uid where we know
that. Whoever else has the name keeps it: the worker cannot take the object, which goes elsewhere or says why it waits.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from multimirror.api import ADMITTED_QUEUE_ANNOTATION, COPY_UID_ANNOTATION, RESERVED_ANNOTATION
from multimirror.api.ownership import Signer
from multimirror.api.placement import Copy, admitted_queue_of, attempt_of, cluster_of, copy_uid_of, exactly, origin_uid
from multimirror.batch import Json
from multimirror.batch.labels import CONTROLLER_UID_LABEL
from multimirror.kinds import CopyOptions, Kind, Ref, ref_of
from multimirror.kinds.preempted import Preemption, preemption_patch, resumption_patch, unassignment_patch
from multimirror.kinds.reserved import Reserved
from multimirror.kube import ApiError, Client, RequeueAfter, key_of
from multimirror.kube.errors import AlreadyExists, BadAnswer, BadRequest, Conflict, Forbidden, Invalid, NotFound
from multimirror.kube.patch import merge_patch
from multimirror.kube.resources import PODS
from multimirror.reconcile import metrics
from multimirror.reconcile.actions import (
    Annotate,
    AskPods,
    AskStopping,
    CreateCopy,
    DeleteCopy,
    PatchStatus,
    Preempt,
    RejectStatus,
    Reserve,
    SyncCopy,
    Unassign,
    WorkerAction,
)
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.metrics import DispatchTimer
from multimirror.reconcile.originals import Originals
from multimirror.reconcile.pacing import Pacer, job_bucket
from multimirror.reconcile.starting import words_of
from multimirror.reconcile.state import ObservedState, StoppingPods
from multimirror.reconcile.wholes import WholeOriginals
from multimirror.scheduling.announcements import Announcements
from multimirror.workers import Session, Worker
from multimirror.workers.reading import has_sound_metadata

_log = structlog.get_logger(__name__)
_SOON: Final = RequeueAfter(0.05)
_LATER: Final = RequeueAfter(2.0)
_NAME_TAKEN_SECONDS: Final = 30.0
"""For so long a name is waited for that something on its way out still has."""
_LONGEST_REASON: Final = 300
"""Characters of what a worker says that its users read."""
_WRITES_OF_A_MOVE: Final = 3
"""Away, to the next worker, and what the copy there says first."""
_PODS_ASKED: Final = 20
"""Pods that are not ready mostly say the same."""
_ASK_SECONDS: Final = 5.0
_ASK_AGAIN_SECONDS: Final = 300.0
"""For a status that breaks a rule: mostly it always will, unless it is the rule of a policy that is put right."""


class ManagementExecutor:
    """Writes to the management cluster."""

    def __init__(
        self,
        client: Client,
        originals: Originals,
        memory: Memory,
        announcements: Announcements,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._originals, self._memory, self._announcements = client, originals, memory, announcements
        self._clock = clock
        self._pacer = Pacer()

    async def patch_status(self, kind: Kind, obj: Json, action: PatchStatus) -> RequeueAfter | None:
        """Write the status, unless the server has already said that it does not want it."""
        ref, worker = ref_of(kind, obj), action.worker or ""
        notes, now = self._memory.of(ref), asyncio.get_running_loop().time()
        wanted = _but_for_times(action.status)
        if notes.rejected_status == wanted and now < notes.rejected_until:
            return RequeueAfter(notes.rejected_until - now)
        finished = kind.outcome({"status": action.status}).finished
        if (wait := self._paced(kind, obj, worker, can_wait=not finished)) is not None:
            return wait
        changed_at, notes.changed_at = notes.changed_at, None
        metadata = exactly(obj)
        along: Json = {COPY_UID_ANNOTATION: action.copy_uid} if action.copy_uid is not None else {}
        if action.reserved is not None:
            along |= self._counted(obj, action.reserved)
        along |= action.annotations
        if along:
            metadata["annotations"] = along
        body = {"metadata": metadata, "status": merge_patch(obj.get("status") or {}, action.status)}
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        try:
            answer = await self._client.patch(kind.resource, name, body, namespace, subresource="status")
        except (Conflict, NotFound):
            notes.changed_at = changed_at
            raise  # our cache is behind, for who knows how long: back off
        except (Invalid, Forbidden, BadRequest) as error:
            if notes.rejected_status != wanted:
                notes.rejected_status, notes.rejected_until = wanted, 0.0
                metrics.STATUS_REFUSED.labels(worker, "server").inc()
                whose = f"from worker {worker}" if worker else "of a Job that waits"
                words = f"the API server refuses the status {whose}: {error.message}"
                self._announcements.tell(kind, obj, "StatusRefused", words)
            if not isinstance(error, Invalid):
                notes.changed_at = changed_at
                raise  # a right that is missing, or somebody's policy: may be put right at any time, so back off
            notes.rejected_until = now + _ASK_AGAIN_SECONDS
            return RequeueAfter(_ASK_AGAIN_SECONDS)
        self._originals.writes(ref).wrote(answer)
        if finished:
            success = kind.outcome({"status": action.status}).success
            _log.info("finished", ref=str(ref), object=key_of(obj), cluster=worker, success=success)
        metrics.MIRRORED.labels(worker).inc()
        if changed_at is not None:
            metrics.MIRROR_SECONDS.labels(worker).observe(asyncio.get_running_loop().time() - changed_at)
        return None

    def _paced(
        self, kind: Kind, obj: Json, worker: str, *, writes: int = 1, can_wait: bool = True
    ) -> RequeueAfter | None:
        """Pay for a write that a worker brings about; or when to come again, where there is nothing to pay with."""
        notes, now = self._memory.of(ref_of(kind, obj)), asyncio.get_running_loop().time()
        if notes.pace is None:
            notes.pace = job_bucket(now)
        wait = self._pacer.wait(notes.pace, worker, now) if can_wait else 0.0
        if wait > 0:
            metrics.PACED.labels(worker).inc()
            return RequeueAfter(wait)
        self._pacer.pay(notes.pace, worker, kind.size_of(obj), now, writes=writes)
        return None

    async def unassign(self, kind: Kind, obj: Json, action: Unassign) -> RequeueAfter | None:
        """Suspend it and take its worker away."""
        worker = cluster_of(obj) or ""
        if (wait := self._paced(kind, obj, worker, writes=_WRITES_OF_A_MOVE)) is not None:
            return wait
        await self._patch(kind, obj, unassignment_patch(kind, obj))
        ref = ref_of(kind, obj)
        metrics.UNASSIGNED.labels(worker, action.reason).inc()
        self._announcements.tell(kind, obj, action.reason, action.message, action.type)
        _log.info("unassigned", ref=str(ref), object=key_of(obj), cluster=worker, reason=action.reason)
        return None

    async def preempt(self, kind: Kind, obj: Json, action: Preempt) -> RequeueAfter | None:
        """Mark it, and say why."""
        worker, not_started = cluster_of(obj) or "", action.why is Preemption.NOT_STARTED
        if not_started and (wait := self._paced(kind, obj, worker)) is not None:
            return wait  # the others are no worker's doing
        patch = preemption_patch(kind, obj, action.why, now=self._clock(), along=action.annotations)
        await self._patch(kind, obj, patch)
        if not_started:
            self._announcements.tell(kind, obj, "NotStarted", action.message)
        else:
            self._announcements.tell(kind, obj, "Preempted", action.message, "Normal")
        _log.info("preempted", ref=str(ref_of(kind, obj)), object=key_of(obj), cluster=worker, why=action.why)
        return None

    async def note_resumed(self, kind: Kind, obj: Json) -> None:
        """Its user has resumed it."""
        await self._patch(kind, obj, resumption_patch(obj))

    async def annotate(self, kind: Kind, obj: Json, action: Annotate) -> None:
        """Write these down."""
        await self._patch(kind, obj, {"metadata": {**exactly(obj), "annotations": dict(action.annotations)}})

    async def reserve(self, kind: Kind, obj: Json, action: Reserve) -> None:
        """Write down what is counted for it, and in which queue."""
        await self._patch(kind, obj, {"metadata": {**exactly(obj), "annotations": self._counted(obj, action.reserved)}})
        ref = ref_of(kind, obj)
        _log.info("reserved", ref=str(ref), object=key_of(obj), pods=sum(action.reserved.counts.values()))

    def _counted(self, obj: Json, reserved: Reserved) -> Json:
        queue = admitted_queue_of(obj) or self._originals.queue_of(obj)
        return {RESERVED_ANNOTATION: str(reserved), ADMITTED_QUEUE_ANNOTATION: queue}

    async def _patch(self, kind: Kind, obj: Json, body: Json) -> None:
        metadata = obj["metadata"]
        answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        self._originals.writes(ref_of(kind, obj)).wrote(answer)

    def reject_status(self, kind: Kind, obj: Json, action: RejectStatus) -> None:
        """What the worker says breaks the rules: say so, once."""
        notes, words = self._memory.of(ref_of(kind, obj)), str(action.rejection)
        if notes.rejected_status != {"rejected": words} and self._paced(kind, obj, action.worker) is None:
            notes.rejected_status = {"rejected": words}
            metrics.STATUS_REFUSED.labels(action.worker, "rules").inc()
            message = f"the status from worker {action.worker} breaks the rules: {words}"
            self._announcements.tell(kind, obj, "StatusRefused", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What writing to any worker needs."""

    signer: Signer
    """Signs every copy, and knows ours again."""
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
        if isinstance(action, AskPods):
            self._context.memory.of(ref).pods_said = action.attempt, await self._ask_pods(action)
            return None
        if isinstance(action, AskStopping):
            await self._ask_stopping(ref, action)
            return None
        return await self._create(state.kind, state.original, action)

    async def _ask_stopping(self, ref: Ref, action: AskStopping) -> None:
        """Whether there is one; where we may not know, or it does not answer, there is none that we have seen."""
        notes, selector = self._context.memory.of(ref), f"{CONTROLLER_UID_LABEL}={action.uid}"
        known = notes.stopping if notes.stopping is not None and notes.stopping.copy == action.uid else None
        there, seen = False, known is not None and known.seen
        pages = self._session.client.pages(
            PODS, action.namespace, label_selector=selector, limit=1, timeout=_ASK_SECONDS
        )
        try:
            async for page in pages:
                there = bool(page.items)
                break
        except ApiError as error:
            _log.info("whether pods are still there is not known", cluster=self._name, error=str(error))
            seen = False
        seen = seen or there
        notes.stopping = StoppingPods(action.uid, self._context.clock(), there=there, seen=seen)

    async def _ask_pods(self, action: AskPods) -> str:
        """What some of its pods say; nothing where we may not know, or it does not answer soon."""
        selector = f"{CONTROLLER_UID_LABEL}={action.uid}"
        client = self._session.client
        try:
            pages = client.pages(
                PODS, action.namespace, label_selector=selector, limit=_PODS_ASKED, timeout=_ASK_SECONDS
            )
            async for page in pages:
                return words_of(page.items)
        except ApiError as error:
            _log.info("what pods say is not known", cluster=self._name, error=str(error))
        return ""

    async def _create(self, kind: Kind, obj: Json, action: CreateCopy) -> RequeueAfter | None:
        """Make the copy; when something of that name is there already, find out whose it is."""
        ref, namespace, name = ref_of(kind, obj), action.namespace, self._name_of(obj)
        writes = self._session.writes(namespace, kind.resource)
        if not writes.settled(f"{namespace}/{name}"):
            await writes.seen(f"{namespace}/{name}")
            return RequeueAfter(0.01)  # what is to be done is another question now
        notes = self._context.memory.of(ref)
        attempt, since = notes.made_last or (0, 0.0)
        if attempt == action.attempt and (early := since + _LATER.seconds - self._context.clock()) > 0:
            return RequeueAfter(early)  # a worker that forgets what it confirms is not asked in a loop
        whole = await self._context.wholes.take(kind, obj)
        if whole is None:
            return _SOON  # it is another one than was decided on, as our cache will show
        copy = self._signed_copy(kind, whole, action, name)
        notes.asked = action.attempt
        try:
            answer = await self._session.writer.create(kind.resource, copy, namespace)
        except AlreadyExists:
            return await self._there_already(kind, obj, copy, action)
        except NotFound:
            return self._refused(ref, f"it has no namespace {namespace}")
        except (Forbidden, Invalid, BadRequest) as error:
            return self._refused(ref, error.message)
        if not self._is_signed(kind, answer):
            # Somebody changes what we create. It would be nobody's, so it must not stay.
            made = DeleteCopy(self._name, namespace, name, answer["metadata"]["uid"], "stale")
            await self._delete(kind, ref, made)
            return self._refused(ref, "it changes the labels or the place of what is created there")
        notes.note_copy(action.attempt, answer["metadata"]["uid"])
        notes.made_last = action.attempt, self._context.clock()
        notes.taken_since = None
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
        except NotFound:  # it may just have gone; where that happens again and again, somebody lies
            return self._taken(ref, "it says that the name is taken, and that nothing of that name is there", _SOON)
        name, there = metadata["name"], Copy(self._name, found)
        if not self._is_signed(kind, found):
            return self._refused(ref, f"a {kind.resource.kind} named {name} that is not ours is there")
        owner = Ref(ref.kind, origin_uid(found))
        if owner != ref:
            if self._context.originals.get(owner) is not None:
                return self._refused(ref, f"the copy of another {kind.resource.kind} is there under the name {name}")
            return self._taken(ref, f"the copy of a {kind.resource.kind} that is gone is still there", _LATER)
        if self._known_uid(ref, obj, there.attempt) not in {None, there.uid}:
            return self._refused(ref, f"a {kind.resource.kind} named {name} took the place of ours there")
        if there.terminating:
            return self._taken(ref, "an earlier copy of it is there, being deleted", _LATER)
        if there.attempt != action.attempt:
            await self._delete(kind, ref, DeleteCopy(self._name, there.namespace, name, there.uid, "stale"))
            return self._taken(ref, "an earlier copy of it is there, and cannot be deleted", _SOON)
        notes = self._context.memory.of(ref)
        notes.note_copy(action.attempt, there.uid)
        notes.made_last = action.attempt, self._context.clock()
        self._session.writes(there.namespace, kind.resource).wrote(found)
        return _LATER  # our cache will show it before that

    def _taken(self, ref: Ref, why: str, again: RequeueAfter) -> RequeueAfter | None:
        """Its name is not free yet: wait a while, not for ever. `again`: for the first time; then it is not so soon."""
        notes, now = self._context.memory.of(ref), self._context.clock()
        if notes.taken_since is None:
            notes.taken_since = now
            return again
        if now - notes.taken_since < _NAME_TAKEN_SECONDS:
            return _LATER
        notes.taken_since = None
        return self._refused(ref, why)

    def _known_uid(self, ref: Ref, obj: Json, attempt: int) -> str | None:
        known = self._context.memory.of(ref).made.get(attempt)
        return copy_uid_of(obj) if known is None and attempt == attempt_of(obj) else known

    def _signed_copy(self, kind: Kind, obj: Json, action: CreateCopy, name: str) -> Json:
        signer, attempt, namespace = self._context.signer, action.attempt, action.namespace
        signature = signer.sign(
            kind.resource,
            cluster=self._session.facts.identity,
            namespace=namespace,
            name=name,
            uid=obj["metadata"]["uid"],
            attempt=str(attempt),
        )
        options = CopyOptions(
            origin=signer.origin, attempt=attempt, name=name, namespace=namespace, signature=signature
        )
        return kind.make_copy(obj, options)

    def _is_signed(self, kind: Kind, answer: Json) -> bool:
        return self._session.is_ours(kind.resource, self._sound(answer))

    def _sound(self, answer: Json) -> Json:
        if not has_sound_metadata(answer):
            raise BadAnswer("it answered a write with something that is no such object", cluster=self._name)
        return answer

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
            writes.wrote(self._sound(answer))
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
        self._session.writes(action.namespace, kind.resource).wrote(self._sound(answer))
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
        why = "".join(each if each.isprintable() else " " for each in why[:_LONGEST_REASON])
        self._context.memory.of(ref).asked = None
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


def _but_for_times(status: Json) -> Json:
    """By which a status that was refused is known again: what we say of a Job that waits is said anew at each try."""
    times = {"lastProbeTime", "lastTransitionTime"}
    conditions = [{k: v for k, v in each.items() if k not in times} for each in status.get("conditions") or ()]
    return {**status, "conditions": conditions}


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

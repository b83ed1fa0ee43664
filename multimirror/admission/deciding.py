"""What happens to a Job at its creation: it is made ours, it is refused in words, or it is left alone.

Pure, and idempotent: what it made of a Job it leaves as it is, so that the server may ask twice.

Ours becomes a Job that names a queue, or that says nothing in a namespace with a default queue. In such a namespace
these stay what they are: a Job that names its manager (be it Kubernetes' own: that is how one opts out), a Job that a
controller other than a CronJob made (JobSet's and its like are parts of a whole that is elsewhere), and a copy that
came from a management cluster, which may be this one.

Every Job of ours is created suspended. One that its user created suspended is held as well (an annotation says so)
until its user resumes it; when we are asked a second time, it names us as its manager, and its suspension is ours.
A placement noted on a new Job (`kubectl get -o yaml | kubectl create`) is some other Job's, and is removed where the
Job becomes ours. Where it does not, nobody would remove it: it is refused, as is a Job that names us as its manager
and no queue, by which it would be nobody's. (The API server asks us about few such Jobs; the others are for the policy
in placement.py, which says the same.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from multimirror.api import (
    DEFAULT_QUEUE_LABEL,
    HOLD_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    PLACEMENT_ANNOTATIONS,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    MirrorQueueSpec,
    SpecError,
    allowed_clusters,
    check_preemptible,
    priority_of,
)
from multimirror.batch import Json
from multimirror.kinds import JOB, Kind

Queues = Mapping[str, Json]
"""All MirrorQueues, by name."""
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Patch:
    """The Job becomes ours by these operations (RFC 6902)."""

    operations: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The Job is not created; the message tells its user why, and what to do."""

    message: str


Verdict = Patch | Refusal | None
"""None: the Job is left as it is."""


def decide(job: Json, namespace: Json, queues: Queues, *, manager: str = MANAGED_BY, kind: Kind = JOB) -> Verdict:
    """What to do with a new object of that kind, given its Namespace and the queues that there are."""
    labels = job["metadata"].get("labels") or {}
    if QUEUE_LABEL in labels:
        queue = labels[QUEUE_LABEL]
        refusal = _contradiction(job, queue, manager, kind)
    else:
        queue = default_queue(namespace)
        if queue is None or _has_its_own_way(job, manager, kind):
            stray = _stray(job, manager, kind)
            return Refusal(stray) if stray else None
        refusal = None
    refusal = refusal or _unusable(queue, namespace, queues) or _unreadable(job) or _too_urgent(job, queue, queues)
    if refusal:
        return Refusal(refusal)
    operations = tuple(_operations(job, queue, manager, kind))
    return Patch(operations) if operations else None


def may_be_stale(verdict: Verdict, job: Json, namespace: Json) -> bool:
    """Whether a newer look at namespace and queues could change the verdict into one that cannot be given later.

    A Job that was refused because a queue is new to us would fail for no reason; one that was left alone because we do
    not see its namespace's label yet would run here for ever: managedBy is immutable.
    """
    if isinstance(verdict, Refusal):
        return True
    named = QUEUE_LABEL in (job["metadata"].get("labels") or {})
    return verdict is None and not named and default_queue(namespace) is None


def default_queue(namespace: Json) -> str | None:
    """The queue that a namespace names for its Jobs."""
    labels: dict[str, str] = namespace.get("metadata", {}).get("labels") or {}
    return labels.get(DEFAULT_QUEUE_LABEL) or None


def _has_its_own_way(job: Json, manager: str, kind: Kind) -> bool:
    metadata = job["metadata"]
    if ORIGIN_LABEL in (metadata.get("labels") or {}):
        return True
    if kind.managed_by(job) not in (None, manager):
        return True
    owners: Iterable[Json] = metadata.get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") != "CronJob" for owner in owners)


def _stray(job: Json, manager: str, kind: Kind) -> str | None:
    """What must not be on a Job that does not become ours."""
    if kind.managed_by(job) == manager:
        field = ".".join(kind.managed_by_path)
        return (
            f"{field} is {manager}, which places {kind.resource.kind}s by queue and quota, and the "
            f"{kind.resource.kind} names no queue: add the label {QUEUE_LABEL}, or remove {field}"
        )
    noted = [key for key in PLACEMENT_ANNOTATIONS if key in (job["metadata"].get("annotations") or {})]
    if noted:
        return (
            f"metadata.annotations[{noted[0]}] is written by multimirror alone, "
            f"which places {kind.resource.kind}s by queue and quota: remove it"
        )
    return None


def _contradiction(job: Json, queue: str, manager: str, kind: Kind) -> str | None:
    if not queue:
        return f"the label {QUEUE_LABEL} is empty: name a queue, or remove the label"
    other, field = kind.managed_by(job), ".".join(kind.managed_by_path)
    if other not in (None, manager):
        return (
            f"{field} is {other!r}, but {kind.resource.kind}s in a queue are managed by {manager!r}: "
            f"remove {field} (it will be set), or remove the label {QUEUE_LABEL}"
        )
    if ORIGIN_LABEL in job["metadata"]["labels"]:  # the other labels of copies are for the policy in copy_labels.py
        return f"the label {ORIGIN_LABEL} is kept for copies that multimirror makes: remove it"
    return None


def _unusable(queue: str, namespace: Json, queues: Queues) -> str | None:
    name = namespace["metadata"]["name"]
    if queue not in queues:
        return f"there is no MirrorQueue {queue!r}; {_choices(namespace, queues)}"
    try:
        spec = MirrorQueueSpec.read(queues[queue])
    except SpecError as error:
        return f"MirrorQueue {queue!r} cannot be used until it is put right: {error}"
    if not spec.admits(namespace["metadata"].get("labels")):
        return (
            f"MirrorQueue {queue!r} may not be used from namespace {name!r}, "
            f"whose labels do not match its spec.namespaceSelector; {_choices(namespace, queues)}"
        )
    return None


def _choices(namespace: Json, queues: Queues) -> str:
    """The queues that would do; others are nobody's business here."""
    name = namespace["metadata"]["name"]
    usable = sorted(queue for queue in queues if _may_use(queue, namespace, queues))
    if not usable:
        return f"namespace {name!r} may use no queue that exists"
    more = f" and {len(usable) - _SHOWN} more" if len(usable) > _SHOWN else ""
    return f"namespace {name!r} may use {', '.join(usable[:_SHOWN])}{more}"


def _may_use(queue: str, namespace: Json, queues: Queues) -> bool:
    try:
        return MirrorQueueSpec.read(queues[queue]).admits(namespace["metadata"].get("labels"))
    except SpecError:
        return False


def _unreadable(job: Json) -> str | None:
    try:
        priority_of(job)
        allowed_clusters(job)
        check_preemptible(job)
    except SpecError as error:
        return str(error)
    return None


def _too_urgent(job: Json, queue: str, queues: Queues) -> str | None:
    priority, most = priority_of(job), MirrorQueueSpec.read(queues[queue]).max_priority
    if most is None or priority <= most:
        return None
    return f"the label {PRIORITY_LABEL} is {priority}, and MirrorQueue {queue!r} allows up to {most} (maxPriority)"


def _operations(job: Json, queue: str, manager: str, kind: Kind) -> Iterable[Json]:
    metadata, suspended = job["metadata"], kind.is_suspended(job)
    labels = metadata.get("labels")
    if not labels:
        yield _add("/metadata/labels", {QUEUE_LABEL: queue})
    elif QUEUE_LABEL not in labels:
        yield _add(f"/metadata/labels/{_escaped(QUEUE_LABEL)}", queue)
    annotations = metadata.get("annotations")
    if kind.managed_by(job) is None:
        yield _add("/" + "/".join(kind.managed_by_path), manager)
        if suspended and HOLD_ANNOTATION not in (annotations or {}):
            if annotations:
                yield _add(f"/metadata/annotations/{_escaped(HOLD_ANNOTATION)}", "true")
            else:
                yield _add("/metadata/annotations", {HOLD_ANNOTATION: "true"})
    if not suspended:
        yield _add("/" + "/".join(kind.suspend_path), value=True)
    for key in PLACEMENT_ANNOTATIONS:
        if key in (annotations or {}):
            yield {"op": "remove", "path": f"/metadata/annotations/{_escaped(key)}"}


def _add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")

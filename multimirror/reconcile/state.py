"""What is known around one object when something is decided about it: plain values, put together from the caches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from multimirror.api import Hold, MirrorQueueSpec, Start
from multimirror.api.placement import Copy
from multimirror.batch import Json
from multimirror.kinds.kind import Kind
from multimirror.workers.state import Contact

LostPolicy = Literal["Redispatch", "Wait", "Fail"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a queue says about objects that run."""

    lost_after: float = 300.0
    when_lost: LostPolicy = "Redispatch"
    retention: float = 0.0
    grace: float = 30.0
    """How much longer than its fence, and its pods' time to stop, a fenced object waits before it moves."""
    drains: bool = False
    """What runs is taken back."""
    start: Start | None = None
    """How soon its pods have to be ready."""


def policy_of(queue: MirrorQueueSpec | None) -> Policy:
    """The defaults where there is no such queue any more."""
    queue = queue or MirrorQueueSpec()
    lost = queue.on_worker_lost
    policy = Policy(
        lost_after=lost.after,
        when_lost=lost.action.value,
        retention=queue.retention,
        drains=queue.hold is Hold.DRAIN,
        start=queue.start,
    )
    return replace(policy, grace=queue.fence.grace) if queue.fence is not None else policy


class StoppingPods(NamedTuple):
    """What a worker said of the pods of a copy that was suspended."""

    copy: str
    """Its uid."""
    at: float
    there: bool
    """Some are."""
    seen: bool
    """Some were, this time or before."""


@dataclass(frozen=True, slots=True)
class ObservedState:
    """All that is known around one object."""

    kind: Kind
    original: Json | None
    copies: Sequence[Copy] = ()
    """Ours, by proof: signed, and of the present attempt only the one that the original knows by its uid."""
    policy: Policy = field(default_factory=Policy)
    contact: Contact = field(default_factory=lambda: Contact(connected=False))
    """With the object's own worker, as to the namespace of its copy there."""
    contacts: Mapping[tuple[str, str], Contact] = field(default_factory=dict)
    """With those that hold copies, by worker and namespace: one may be out of reach, and the other not."""
    namespace: str | None = None
    """Where on its worker the copy belongs; None where the worker takes nothing from the object's namespace any more,
    or maps it to another one than when the object was assigned."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Workers that would not take the copy of the current attempt, or of an earlier one not long ago, and why."""
    last_seen_status: Json | None = None
    """The status of the current attempt's copy when it was last seen, if it was finished and has vanished."""
    rejected_patch: Json | None = None
    """The change of a copy that its worker would not take, or changed back; `of` is the copy's uid."""
    pods_said: str | None = None
    """What pods of the current attempt's copy said that were not ready; None: nobody has asked them."""
    asked: bool = False
    """The worker was asked for the current attempt's copy, did not refuse it, and has not shown it yet."""
    stopping: StoppingPods | None = None
    """What the worker said of pods that stop; None: nobody has asked."""
    blocked_since: float | None = None
    """Since when copies of earlier attempts have been seen, while the present one has none yet."""
    kept_for: str | None = None
    """The object for which room, or quota, is kept that this one uses; None: there is none, or nobody had to ask."""
    waits: bool = False
    """The scheduler has looked at it, and it does not go now."""
    now: float = 0.0

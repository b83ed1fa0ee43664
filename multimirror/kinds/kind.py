"""What a mirrored kind has to say about itself: everything else in the house knows kinds only through this.

A kind is a stateless object of pure functions on raw JSON. It says who manages an object, whether it is held and how to
hold it, how far it has come, which pods it asks for, what its copy looks like, what of the copy's status is written
onto the original, which fields are kept in step, and whether a copy that is cut off ends by itself (the fence).

To add one: a module here, an entry in `registry.KINDS`, and the rights (docs/decisions/0146).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from multimirror.api.placement import Copy, hold_requested
from multimirror.batch import FieldError, Json
from multimirror.kinds.pod_sets import PodSet
from multimirror.kube.resource import Object, Resource


class Ref(NamedTuple):
    """One object of a mirrored kind, for as long as it lives. What work queues, usage and memory are keyed by."""

    kind: str
    """As `Resource.name` writes it: jobs.batch."""
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.uid}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far an object has come, by its status."""

    ending: bool = False
    """Its end is announced, or there: it must never be started again."""
    finished: bool = False
    success: bool | None = None
    """How it ends; None while it is not known, and for kinds that never end."""
    finished_at: str | None = None


RUNNING = Outcome()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """What a copy is made for."""

    origin: str
    """The identity of the management cluster."""
    attempt: int
    name: str
    namespace: str
    signature: str
    """What shows that we made it (api/ownership.py)."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """No acceptable status could be made of what the worker says; these rules stand against it."""

    errors: Sequence[FieldError]

    def __str__(self) -> str:
        return "; ".join(str(error) for error in self.errors)


@dataclass(frozen=True, slots=True)
class InStep:
    """The merge patch that brings a copy in step with its original; empty where it is."""

    patch: Json = field(default_factory=dict)
    again_in: float | None = None
    """In how many seconds time alone may change the answer."""
    renews: bool = False
    """The patch pushes the fence forward."""


class Kind(Protocol):
    """One mirrored kind. Nothing here changes what it is given."""

    @property
    def resource(self) -> Resource: ...

    def trim(self, obj: Object) -> Object:
        """Of an original: what the cache keeps. Everything here but `make_copy` works on that."""

    def read_copy(self, obj: Object) -> Object | None:
        """Of a copy, as a worker sent it: what is kept, with nothing in it that the kind could stumble over; None: it
        cannot be read. Its metadata are sound (workers/reading.py). May change `obj`, which nobody has seen yet."""

    def managed_by(self, obj: Json) -> str | None: ...

    @property
    def managed_by_path(self) -> Sequence[str]:
        """Where admission writes it."""

    @property
    def suspend_path(self) -> Sequence[str]:
        """Where admission writes True."""

    def run_by_others(self, obj: Json, *, attempt: int) -> bool:
        """Some other controller works on it, although managedBy names us."""

    def is_suspended(self, obj: Json) -> bool: ...

    def suspension(self, *, suspend: bool) -> Json:
        """The merge patch that suspends an object, or resumes it."""

    def outcome(self, obj: Json) -> Outcome: ...

    def has_started(self, obj: Json) -> bool:
        """Pods may have run in the attempt that its status is about."""

    def may_run(self, obj: Json) -> bool:
        """Of a copy: pods of it may be there, or be started."""

    def pod_sets(self, obj: Json) -> Sequence[PodSet]: ...

    def pod_counts(self, obj: Json) -> Mapping[str, int]:
        """How many pods run at once, by pod set. Of an original or of a copy."""

    def pods_needed(self, original: Json, copy: Json) -> Mapping[str, int]:
        """By pod set, how many it still needs at once, as far as its copy says that it has come."""

    def pods_held(self, copy: Json) -> Mapping[str, int]:
        """By pod set, how many a copy has: those that it may still start, and those that are there still."""

    def pods_up(self, obj: Json) -> tuple[int, int]:
        """How many pods are ready, or have succeeded, and how many are to be there at once. Of an original or of a
        copy."""

    def pods_there(self, obj: Json) -> int:
        """How many pods run, or are on their way out. Of an original or of a copy."""

    def awaited_since(self, copy: Json) -> float | None:
        """Since when a copy's pods are on their way, by its worker's clock (seconds since the epoch); None while it is
        suspended."""

    def is_resuming(self, copy: Json) -> bool:
        """A copy was resumed, and has not noticed: what it says of itself is of the time before. It is not suspended
        again before it has, or that would be taken for what it says of the second suspension."""

    def has_stopped(self, copy: Json) -> bool:
        """A copy that was suspended has noticed, and no pod of it is left; as far as it says, see `counts_stopping`."""

    def is_stopping(self, copy: Json) -> bool:
        """A copy was suspended, and what it says of itself is final, but for pods that are on their way out."""

    def counts_stopping(self, copy: Json) -> bool:
        """A copy says how many of its pods are on their way out. Where it does not, they are waited for."""

    def suspended_at(self, copy: Json) -> float | None:
        """When a copy that was suspended noticed, by its worker's clock (seconds since the epoch); None: it has not."""

    def stop_seconds(self, obj: Json) -> float:
        """How long its pods may take to stop, by their own account. Of an original."""

    def deadline_of(self, obj: Json) -> int | None:
        """After so many seconds its user wants it ended; None: it may take its time. Of an original."""

    def run_seconds(self, obj: Json) -> float | None:
        """After so many seconds on a worker no pod of it is left, whatever happens; None: nobody knows. Of an
        original."""

    def template_of(self, obj: Json) -> str:
        """A digest of all that its pods are made of."""

    def size_of(self, obj: Json) -> int:
        """What its user wrote, in bytes (api/limits.py)."""

    def problem_of(self, obj: Json) -> str:
        """Why it cannot be placed, whatever happens; in words."""

    def make_copy(self, original: Json, options: CopyOptions) -> Json:
        """From the whole original, not from what the cache keeps. No larger than what was granted to it."""

    def mirror(self, original: Json, observed: object) -> Json | Rejection | None:
        """The status to write onto the original for what a worker says; None where there is nothing to write."""

    def waiting_status(self, original: Json, now: str, *, reword: bool = False) -> Json:
        """To be mirrored: it waits for a worker, or for its user to resume it. `reword`: where its status says that
        already, it says what it waits for as well."""

    def shows_that_it_waits(self, original: Json) -> bool:
        """Its status is the reworded `waiting_status` already."""

    def ended_status(self, original: Json, now: str, *, reason: str = "", message: str = "") -> Json:
        """To be mirrored: it has ended as it had announced, else failed for this reason."""

    def in_step(self, original: Json, copy: Copy, *, clock: float, may_renew: bool) -> InStep:
        """No larger than what was granted. `clock`: the worker's own. `may_renew`: the fence may be pushed forward."""

    @property
    def can_be_fenced(self) -> bool: ...

    def fence_expired(self, original: Json, status: Json) -> bool:
        """The copy with this status was ended by its fence, and not by its user's own doing."""

    def safe_after(self, original: Json, grace: float) -> float:
        """How many seconds after the last contact no pod of it runs on the worker any more; 0 without a fence."""


class Kinds:
    """The kinds that a dispatcher mirrors, by the name of their resource."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._by_name: Mapping[str, Kind] = {kind.resource.name: kind for kind in kinds}

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_name.values())

    def of(self, ref: Ref) -> Kind:
        return self._by_name[ref.kind]

    def find(self, group: str, plural: str) -> Kind | None:
        return self._by_name.get(f"{plural}.{group}" if group else plural)


def ref_of(kind: Kind, obj: Json) -> Ref:
    return Ref(kind.resource.name, obj["metadata"]["uid"])


def is_held(kind: Kind, obj: Json) -> bool:
    """Its user does not want it to be placed; whoever resumes it wants it to."""
    return hold_requested(obj) and kind.is_suspended(obj)

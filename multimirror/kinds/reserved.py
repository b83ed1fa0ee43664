"""What is counted for an object that has a worker: its pods by pod set, and what one of each asks for.

Written down with the assignment (the annotation multimirror.dev/reserved), and from then on the only thing that counts:
not what the object says, for its user may change that, but what its copy was made of, or may grow to. It changes in
four ways. It grows when the scheduler has found room for more pods, before the copy does. It shrinks when the copy
has shown that it did. Pods whose work is done are given back: they are not counted any more, and the copy keeps its
size. It is written anew with the next assignment. With it goes the digest of the template that the
pods were counted from: an object whose template is another one now is counted anew, as another attempt. Unless nobody
has changed its spec since, as its generation tells: then an API server only writes the same template otherwise (a newer
one knows a new default), and the new digest is written down. So does whether it may be stopped for others: one that may
not was placed on its queue's own quota, and nobody gets that for what he has borrowed by a label that he adds later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import orjson

from multimirror.api.jobs import is_preemptible
from multimirror.api.names import RESERVED_ANNOTATION
from multimirror.batch import Json
from multimirror.batch.caching import TextCache
from multimirror.batch.quantities import QuantityError, quantity
from multimirror.kinds.pod_sets import Amounts, PodSet, amount_text, nanos, pod_requests

RESOURCES_LIMIT: Final = 63
"""Resources that one template may name. One that names more is not placed: nothing that counts is left out."""
RESERVED_LIMIT: Final = 32 * 1024
"""Characters of the annotation: more than so many resources with the longest names need."""
_COUNT_LIMIT: Final = 2**31


@dataclass(frozen=True, slots=True)
class ReservedPods:
    """The pods of one pod set."""

    name: str
    count: int
    requests: Amounts
    """Of one pod."""
    given_back: int = 0
    """So many more were granted, and have nothing left to do."""


class _Counted(Protocol):
    """What is asked of a kind here."""

    def template_of(self, obj: Json) -> str: ...
    def deadline_of(self, obj: Json) -> int | None: ...
    def pod_sets(self, obj: Json) -> Sequence[PodSet]: ...


class _Assigned(_Counted, Protocol):
    def is_suspended(self, obj: Json) -> bool: ...


@dataclass(frozen=True, slots=True)
class Reserved:
    """What is counted for one object."""

    template: str
    """The digest of what its pods are made of."""
    pod_sets: tuple[ReservedPods, ...]
    generation: int = 0
    """Of the object, when it had been assigned; 0: not known."""
    preemptible: bool = True
    """Whether it may be stopped for others, as it said then."""
    deadline: int | None = None
    """The furthest deadline of its copy, in seconds; None: it said none, or nobody wrote it down."""

    @property
    def counts(self) -> dict[str, int]:
        """Pods that are counted, by pod set."""
        return {pods.name: pods.count for pods in self.pod_sets}

    @property
    def granted(self) -> dict[str, int]:
        """The most that its copy may be made for, by pod set."""
        return {pods.name: pods.count + pods.given_back for pods in self.pod_sets}

    @property
    def requests(self) -> dict[str, int]:
        """What they ask for together, with the number of pods as a resource of its own."""
        found: dict[str, int] = {}
        number = 0
        for pods in self.pod_sets:
            number += pods.count
            for name, amount in pods.requests.items():
                found[name] = found.get(name, 0) + amount * pods.count
        return found | {"pods": nanos(number)}

    def resized(self, counts: Mapping[str, int]) -> "Reserved":
        """With other numbers of pods granted, and counted; sets that are not named stay as they are."""
        sets = (
            replace(pods, count=counts[pods.name], given_back=0) if pods.name in counts else pods
            for pods in self.pod_sets
        )
        return replace(self, pod_sets=tuple(sets))

    def giving_back(self, counts: Mapping[str, int]) -> "Reserved":
        """As many granted as before, and only so many of them counted: never more than now."""
        sets = []
        for pods in self.pod_sets:
            count = min(pods.count, counts.get(pods.name, pods.count))
            sets.append(replace(pods, count=count, given_back=pods.given_back + pods.count - count))
        return replace(self, pod_sets=tuple(sets))

    def __str__(self) -> str:
        """As the annotation has it."""
        sets = [
            {
                "name": pods.name,
                "count": pods.count,
                "requests": {name: amount_text(amount) for name, amount in sorted(pods.requests.items())},
                **({"givenBack": pods.given_back} if pods.given_back else {}),
            }
            for pods in self.pod_sets
        ]
        written = {"template": self.template, "generation": self.generation, "podSets": sets}
        if not self.preemptible:
            written["preemptible"] = False
        if self.deadline is not None:
            written["deadline"] = self.deadline
        return orjson.dumps(written).decode()


def reserved_for(kind: _Counted, obj: Json) -> Reserved:
    """What an object asks for, as it is now: to be written down when it gets a worker."""
    sets = (ReservedPods(each.name, each.count, pod_requests(each.spec)) for each in kind.pod_sets(obj))
    return Reserved(kind.template_of(obj), tuple(sets), preemptible=is_preemptible(obj), deadline=kind.deadline_of(obj))


def reserved_by_assignment(kind: _Assigned, obj: Json) -> Reserved:
    """The same, with the generation that the object will have when it is assigned, and resumed by that."""
    generation = obj["metadata"].get("generation", 0)
    after = generation + kind.is_suspended(obj) if generation else 0
    return replace(reserved_for(kind, obj), generation=after)


def reserved_of(obj: Json) -> Reserved | None:
    """What was written down; None where there is nothing, or nothing that can be read."""
    text = (obj["metadata"].get("annotations") or {}).get(RESERVED_ANNOTATION)
    if not isinstance(text, str) or not text or len(text) > RESERVED_LIMIT:
        return None
    return _readable(text)


def _read(text: str) -> Reserved | None:
    try:
        return _parsed(orjson.loads(text))
    except (QuantityError, KeyError, TypeError, ValueError, AttributeError):
        return None


_readable = TextCache(_read, characters=2 * 1024 * 1024, entries=8192)


def _parsed(found: Any) -> Reserved:
    sets = []
    for each in found["podSets"]:
        count, given_back = each["count"], each.get("givenBack", 0)
        if not _is_count(count) or not _is_count(given_back):
            raise ValueError(count)
        requests = {str(name): nanos(quantity(amount)) for name, amount in each["requests"].items()}
        if any(amount < 0 for amount in requests.values()):
            raise ValueError(requests)
        sets.append(ReservedPods(str(each["name"]), count, requests, given_back))
    generation, deadline = found.get("generation", 0), found.get("deadline")
    return Reserved(
        str(found["template"]),
        tuple(sets),
        generation if isinstance(generation, int) else 0,
        preemptible=found.get("preemptible") is not False,
        deadline=deadline if isinstance(deadline, int) and deadline > 0 else None,
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _COUNT_LIMIT

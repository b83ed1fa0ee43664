"""What one pod needs of a node: its requests, and which nodes it may go to. Pods of equal shape have the same places.

A shape is what a node is asked for: requests, nodeSelector, required node affinity, tolerations. Topology spread,
affinity to other pods, volumes and claims to devices are not in it. Shapes are shared: thousands of Jobs have a
handful, and equal ones are one object as long as anybody remembers it.

What a user writes has a bound (`PLACEMENT_LIMIT`, `MOST_CONDITIONS`): every shape is compared with every node. A
template that says more about its nodes than that has no shape, and where it goes is decided by sums alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import orjson

from multimirror.batch import Json
from multimirror.kinds.pod_sets import PodSet, nanos, pod_requests

PLACEMENT_LIMIT: Final = 4096
"""Bytes of what a template says about its nodes, as JSON."""
MOST_CONDITIONS: Final = 32
"""Requirements and tolerations: each is looked at for each node, and nobody has a reason for more."""
_MOST_SHAPES: Final = 4096
ONE_POD: Final = nanos(1)

Requirement = tuple[bool, str, str, frozenset[str]]
"""Of a node's field instead of a label; key, operator, values."""
Term = tuple[Requirement, ...]
"""All of them; a term without any matches nothing."""


class Toleration(NamedTuple):
    key: str
    operator: str
    value: str
    effect: str


class PodShape:
    """Equal ones are equal; the hash is made once, for a pass asks for it thousands of times."""

    __slots__ = ("_hash", "asked", "selector", "terms", "tolerations")

    def __init__(
        self,
        asked: tuple[tuple[str, int], ...],
        selector: tuple[tuple[str, str], ...] = (),
        terms: tuple[Term, ...] | None = None,
        tolerations: tuple[Toleration, ...] = (),
    ) -> None:
        """`terms`: one of them; None: it does not say."""
        self.asked, self.selector, self.terms, self.tolerations = asked, selector, terms, tolerations
        self._hash = hash((asked, selector, terms, tolerations))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, PodShape)
            and self._hash == other._hash
            and self.asked == other.asked
            and self.selector == other.selector
            and self.terms == other.terms
            and self.tolerations == other.tolerations
        )

    def __repr__(self) -> str:
        return f"PodShape({dict(self.asked)}, {dict(self.selector)}, {self.terms}, {self.tolerations})"


Gang = tuple[tuple[PodShape, int], ...]
"""So many pods of each shape, that have to run at once. Empty: not known."""


class Shaped(Protocol):
    """What is asked of a kind here."""

    def template_of(self, obj: Json) -> str: ...
    def pod_sets(self, obj: Json) -> Sequence[PodSet]: ...


_shared: dict[PodShape, PodShape] = {}
_by_template: dict[str, tuple[tuple[str, PodShape], ...]] = {}


def gang_of(kind: Shaped, obj: Json, counts: Mapping[str, int] | None = None) -> Gang:
    """The pods of an object. `counts`: so many of each pod set instead of what it asks for."""
    pod_sets = kind.pod_sets(obj)
    template = kind.template_of(obj)
    shapes = _by_template.get(template)
    if shapes is None:
        found = [(each.name, shape_of(each.spec)) for each in pod_sets]
        shapes = tuple((name, shape) for name, shape in found if shape is not None)
        if len(shapes) < len(found):
            shapes = ()
        if len(_by_template) >= _MOST_SHAPES:
            _by_template.clear()
        _by_template[template] = shapes
    if counts is None:
        counts = {each.name: each.count for each in pod_sets}
    return tuple((shape, counts.get(name, 0)) for name, shape in shapes if counts.get(name, 0) > 0)


def added(gang: Gang, more: Gang) -> Gang:
    """One that has grown."""
    counts = dict(gang)
    for shape, count in more:
        counts[shape] = counts.get(shape, 0) + count
    return tuple(counts.items())


def shape_of(spec: Json) -> PodShape | None:
    """Of one pod; None where it says more about its nodes than is kept of it."""
    placement = placement_of(spec)
    if placement is None:
        return None
    requests = {**pod_requests(spec), "pods": ONE_POD}
    affinity = placement.get("affinity")
    shape = PodShape(
        tuple(sorted((name, amount) for name, amount in requests.items() if amount > 0)),
        tuple(sorted((placement.get("nodeSelector") or {}).items())),
        _terms(affinity) if affinity is not None else None,
        tuple(_toleration(each) for each in placement.get("tolerations") or ()),
    )
    if len(_shared) >= _MOST_SHAPES:
        _shared.clear()
    return _shared.setdefault(shape, shape)


def placement_of(spec: Json) -> Json | None:
    """Of what a pod says, all that is about its nodes: what caches keep of it. None: it is too large to be kept."""
    found: Json = {}
    if spec.get("nodeSelector"):
        found["nodeSelector"] = spec["nodeSelector"]
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is not None:
        found["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
    if spec.get("tolerations"):
        found["tolerations"] = [
            {key: each[key] for key in ("key", "operator", "value", "effect") if each.get(key)}
            for each in spec["tolerations"]
        ]
    if found and (len(orjson.dumps(found)) > PLACEMENT_LIMIT or _conditions(found) > MOST_CONDITIONS):
        return None
    return None if spec.get(TOO_LARGE) else found


TOO_LARGE: Final = "placementTooLarge"
"""In the place of what a trimmed template said about its nodes. No pod of the API has such a field."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _conditions(placement: Json) -> int:
    affinity = placement.get("affinity")
    terms = _terms(affinity) if affinity is not None else ()
    return sum(max(1, len(term)) for term in terms) + len(placement.get("tolerations") or ())


def _terms(affinity: Json) -> tuple[Term, ...]:
    terms = affinity["nodeAffinity"][_REQUIRED].get("nodeSelectorTerms") or ()
    return tuple(
        (
            *_requirements(term.get("matchExpressions") or (), of_a_field=False),
            *_requirements(term.get("matchFields") or (), of_a_field=True),
        )
        for term in terms
    )


def _requirements(expressions: Iterable[Json], *, of_a_field: bool) -> Iterable[Requirement]:
    for each in expressions:
        yield of_a_field, each.get("key") or "", each.get("operator") or "", frozenset(each.get("values") or ())


def _toleration(found: Json) -> Toleration:
    return Toleration(
        found.get("key") or "", found.get("operator") or "Equal", found.get("value") or "", found.get("effect") or ""
    )

"""Cohort: a group of queues, or of such groups, in a tree.

A cohort that MirrorQueues only name needs no object, and is the root of a tree of its own. An object is for what a name
cannot say: a parent, a weight among its siblings, a pool of its own, limits at its border. A parent, too, may be a name
without an object. Cohorts that are each other's parents make no tree; their queues place nothing until that is put
right, and the condition Ready of each of them says so (reason Cycle).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Self

from multimirror.api import schema
from multimirror.api.quotas import Quota, cohort_quota_schema, read_cohort_quota, sharing_rules
from multimirror.api.reading import Fields, read_spec
from multimirror.api.schema import Schema, rule
from multimirror.batch import Json

DEFAULT_WEIGHT: Final = 1
SHORTEST_HALF_LIFE: Final = 60
LONGEST_HALF_LIFE: Final = 8760 * 3600
_ITSELF: Final = "must not be the cohort itself: name another one, or take it out"


@dataclass(frozen=True, slots=True)
class CohortSpec:
    """What a Cohort asks for. The default is what a cohort has that is only named."""

    parent: str | None = None
    weight: Fraction = Fraction(DEFAULT_WEIGHT)
    quota: Quota = field(default_factory=Quota)
    half_life: int | None = None
    """In so many seconds half of what its members used before is forgotten; None: as the cohort above it says, and
    without one only what is used now counts."""

    @classmethod
    def read(cls, obj: Json) -> Self:
        """The spec of a Cohort. Raises SpecError."""
        spec = read_spec(obj, "Cohort")
        parent = spec.label_name("parent")
        if parent is not None and parent == (obj.get("metadata") or {}).get("name"):
            raise spec.error("parent", _ITSELF)
        return cls(
            parent=parent,
            weight=spec.weight("weight", DEFAULT_WEIGHT),
            quota=read_cohort_quota(spec.part("quota"), parent),
            half_life=_half_life(spec) if "halfLife" in spec else None,
        )


def _half_life(spec: Fields) -> int:
    return int(spec.seconds("halfLife", None, minimum=SHORTEST_HALF_LIFE, maximum=LONGEST_HALF_LIFE))


def cycle_above(name: str, cohorts: Mapping[str, CohortSpec]) -> tuple[str, ...]:
    """The cohorts that are each other's parents, where the way up from this one leads into such; () where it ends."""
    way = upwards(name, cohorts)
    last = cohorts.get(way[-1])
    if last is None or last.parent is None:
        return ()
    return way[way.index(last.parent) :]


def upwards(name: str, cohorts: Mapping[str, CohortSpec]) -> tuple[str, ...]:
    """It, its parent, and so on, each once."""
    way: dict[str, None] = {}
    at: str | None = name
    while at is not None and at not in way:
        way[at] = None
        at = cohorts[at].parent if at in cohorts else None
    return tuple(way)


def spec_schema() -> Schema:
    """The schema of spec."""
    spec = schema.struct(
        "Where the cohort stands in its tree, and what it has of its own.",
        {
            "parent": schema.text(
                "The cohort that it belongs to, and shares with. It needs no object. Without it: this is the root.",
                pattern=schema.DNS_LABEL,
                limit=63,
            ),
            "weight": schema.weight(
                "Its part of what is left over in its parent, relative to the parent's other cohorts and queues: a "
                'number such as 2 or "0.5". 0: only what nobody else wants.',
                DEFAULT_WEIGHT,
            ),
            "quota": cohort_quota_schema(),
            "halfLife": _half_life_schema(),
        },
    )
    return schema.ruled(spec, *sharing_rules("parent"))


def _half_life_schema() -> Schema:
    short = rule(f"duration(self) >= duration('{SHORTEST_HALF_LIFE}s')", f"must be at least {SHORTEST_HALF_LIFE}s")
    hours = LONGEST_HALF_LIFE // 3600
    long = rule(f"duration(self) <= duration('{hours}h')", f"must be at most {hours}h")
    return schema.duration(
        "Lets what was used before count in the order of the queues and cohorts in it: in this time half of it is "
        "forgotten, such as 24h. Who had everything for so long stands where one stands that borrows everything now. "
        "Nobody is stopped because of it. It holds for the cohorts below, too, unless they set their own. Without it: "
        "only what is used now counts.",
        short,
        long,
    )


def past_use_schema() -> Schema:
    """In the status of queues and cohorts. Whoever leads next goes on from it."""
    part = r"^(0(\.[0-9]{1,9})?|1)$"
    return schema.struct(
        "What it used before, where a cohort above it has a halfLife. Written together with other numbers, and when it "
        "has changed much: what it is now follows from it.",
        {
            "value": schema.text(
                "Of all that its cohort could give, from 0 to 1; what was used long ago counts less.", pattern=part
            ),
            "using": schema.text("What it uses since then, of the same.", pattern=part),
            "at": schema.timestamp("When it was that."),
        },
    )


def status_schema() -> Schema:
    """The schema of status."""
    return schema.struct(
        "How the cohort is doing. Written by multimirror.",
        {
            "observedGeneration": schema.generation("The generation of the spec that this status answers."),
            "conditions": schema.conditions("Ready: its queues may place Jobs. With the reason why not."),
            "own": schema.quantities("What it and its members have of their own."),
            "used": schema.quantities("What the Jobs of its queues ask for that were given to a cluster."),
            "borrowed": schema.quantities("What its members together have from the rest of the tree."),
            "lent": schema.quantities("What the rest of the tree has of theirs."),
            "queues": schema.whole("How many MirrorQueues are in it and below it."),
            "pastUse": past_use_schema(),
        },
    )


def object_rules() -> list[Schema]:
    """What holds for a Cohort as a whole."""
    return [
        rule(
            "!self.metadata.name.contains('.')",
            "the name must be lower case letters, digits and '-', such as research, for queues to name it",
        ),
        rule(
            "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
            f"spec.parent {_ITSELF}",
            fieldPath=".spec.parent",
        ),
    ]


def printer_columns() -> list[Json]:
    """What `kubectl get` shows."""
    return [
        {"name": "Parent", "type": "string", "jsonPath": ".spec.parent", "description": "The cohort that it is in"},
        {
            "name": "Ready",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
            "description": "Whether its queues may place Jobs",
        },
        {"name": "Queues", "type": "integer", "jsonPath": ".status.queues", "description": "MirrorQueues in it"},
        {"name": "Used", "type": "string", "jsonPath": ".status.used", "description": "What its queues use"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Own", "type": "string", "jsonPath": ".status.own", "priority": 1},
        {"name": "Borrowed", "type": "string", "jsonPath": ".status.borrowed", "priority": 1},
        {"name": "Lent", "type": "string", "jsonPath": ".status.lent", "priority": 1},
        {"name": "Weight", "type": "string", "jsonPath": ".spec.weight", "priority": 1},
        {
            "name": "Reason",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="Ready")].message',
            "description": "Why it is, or is not, ready",
            "priority": 1,
        },
    ]

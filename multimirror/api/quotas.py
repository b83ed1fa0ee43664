"""The quota of a MirrorQueue or a Cohort: what it has of its own, and what of it may change hands.

Own amounts, what may be borrowed on top of them, and what of them others may use. Borrowing and lending need somebody
on the other side: a queue's cohort, or a cohort's parent. A limit without one is refused, because whoever wrote it
expects it to do something.

A queue lends only what it has, so `lend` names resources of its own quota. A cohort's `lend` bounds what all of its
members together give to the rest of the tree, and may name any. `borrow` may name any: who has none of a resource may
still be lent some.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from multimirror.api import schema
from multimirror.api.reading import Fields
from multimirror.api.schema import Schema, rule

_LISTED: Final = "lend may only name resources that quota.resources names: a queue lends what is its own"


@dataclass(frozen=True, slots=True)
class Quota:
    """What a queue or a cohort has. Without a cohort: the most that the queue's Jobs may have running at a time.

    `jobs` None, or a resource that is not named in `resources`: no limit. A resource that is not named in `borrow` or
    `lend`: as much as there is.
    """

    jobs: int | None = None
    resources: Mapping[str, Decimal] = field(default_factory=dict)
    borrow: Mapping[str, Decimal] = field(default_factory=dict)
    lend: Mapping[str, Decimal] = field(default_factory=dict)


def read_queue_quota(fields: Fields, cohort: str | None) -> Quota:
    """The quota of a MirrorQueue. Raises SpecError."""
    quota = _read(fields, cohort, "spec.cohort")
    for name in quota.lend:
        if name not in quota.resources:
            raise fields.error(f"lend[{name}]", _LISTED)
    return quota


def read_cohort_quota(fields: Fields, parent: str | None) -> Quota:
    """The quota of a Cohort, which has none of Jobs. Raises SpecError."""
    if "jobs" in fields:
        raise fields.error("jobs", "only a MirrorQueue has a quota of Jobs; take it out")
    return _read(fields, parent, "spec.parent")


def _read(fields: Fields, other: str | None, other_field: str) -> Quota:
    for limit in ("borrow", "lend"):
        if other is None and fields.quantities(limit):
            raise fields.error(limit, alone(limit, other_field))
    return Quota(
        jobs=fields.optional_number("jobs", minimum=0),
        resources=fields.quantities("resources"),
        borrow=fields.quantities("borrow"),
        lend=fields.quantities("lend"),
    )


def alone(limit: str, other_field: str) -> str:
    """Why a limit cannot be, in words."""
    whom = "nobody to borrow from" if limit == "borrow" else "nobody to lend to"
    return f"needs {other_field}: without one there is {whom}"


def sharing_rules(other: str) -> list[Schema]:
    """The rules of a spec whose quota is shared through its field `other`."""
    return [
        rule(
            f"has(self.{other}) || !has(self.quota) || !has(self.quota.{limit}) || size(self.quota.{limit}) == 0",
            f"quota.{limit} {alone(limit, f'spec.{other}')}",
            fieldPath=f".quota.{limit}",
        )
        for limit in ("borrow", "lend")
    ]


def queue_quota_schema() -> Schema:
    """The schema of a MirrorQueue's quota."""
    quota = schema.struct(
        "What its Jobs may have running at a time, over all clusters. Other Jobs wait.",
        {
            "jobs": schema.whole("Jobs. 0 holds the queue. Never borrowed or lent."),
            "resources": schema.quantities(
                "Its own amounts of cpu, memory and any other resource: the requests of a Job's pods times "
                "parallelism. Without a cohort they are the limit; in one, others use what is left over of them, until "
                "it is needed here. A resource that is not named is not limited."
            ),
            "borrow": schema.quantities(
                "The most of a resource on top of its own, out of what its cohort leaves over. 0: never. A resource "
                "that is not named: no limit. Needs a cohort."
            ),
            "lend": schema.quantities(
                "The most of its own that others of the cohort may use. 0: nothing. A resource that is not named: all "
                "of it. Needs a cohort."
            ),
        },
    )
    listed = "!has(self.lend) || self.lend.all(name, has(self.resources) && name in self.resources)"
    return schema.ruled(quota, rule(listed, _LISTED, fieldPath=".lend"))


def cohort_quota_schema() -> Schema:
    """The schema of a Cohort's quota."""
    return schema.struct(
        "What it adds to what its queues and cohorts have, and what goes across its border.",
        {
            "resources": schema.quantities(
                "Amounts of its own, on top of what its members have: a pool that all of them may borrow from."
            ),
            "borrow": schema.quantities(
                "The most of a resource that its members together take from the rest of the tree. 0: nothing. A "
                "resource that is not named: no limit. Needs a parent."
            ),
            "lend": schema.quantities(
                "The most of a resource that its members together leave to the rest of the tree. 0: nothing. A "
                "resource that is not named: all that is left over. Needs a parent."
            ),
        },
    )

"""What is told of Cohorts: whether their trees are trees, how many queues are in them, and what these have together."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from multimirror.api import CohortSpec, MirrorQueueSpec, SpecError
from multimirror.api.cohorts import cycle_above, upwards
from multimirror.batch import Json
from multimirror.observe.sharing import QuotaView


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortView:
    """One Cohort."""

    name: str
    generation: int = 1
    problem: str = ""
    """Why its spec cannot be read."""
    cycle: tuple[str, ...] = ()
    """The cohorts that are each other's parents, of which it is one, or under which it is."""
    queues: int = 0
    quota: QuotaView | None = None
    """None: not counted yet, or it is in no tree."""


def cohort_view(
    cohort: Json, cohorts: Mapping[str, CohortSpec], queues: Mapping[str, int], quota: QuotaView | None = None
) -> CohortView:
    """`cohorts`: those that can be read. `queues`: how many are in each (queues_by_cohort)."""
    name = cohort["metadata"]["name"]
    return CohortView(
        name=name,
        generation=cohort["metadata"].get("generation", 1),
        problem=_problem(cohort) if name not in cohorts else "",
        cycle=cycle_above(name, cohorts),
        queues=queues.get(name, 0),
        quota=quota,
    )


def queues_by_cohort(queues: Iterable[MirrorQueueSpec], cohorts: Mapping[str, CohortSpec]) -> Mapping[str, int]:
    """How many queues each cohort has, and the cohorts below it."""
    named = Counter(queue.cohort for queue in queues if queue.cohort is not None)
    found: Counter[str] = Counter()
    for name, number in named.items():
        for each in upwards(name, cohorts):
            found[each] += number
    return found


def _problem(cohort: Json) -> str:
    """Why the spec cannot be read; nothing where it can, and the cache of specs is about to say so."""
    try:
        CohortSpec.read(cohort)
    except SpecError as error:
        return str(error)
    return ""

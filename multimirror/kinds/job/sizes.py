"""How many pods of a Job run at once, and how many its copy may have.

A copy never has more than is reserved for its Job: whoever raises parallelism waits until the scheduler has found room
for the difference. An elastic Indexed Job changes completions together with parallelism, and the API takes the one only
with the other: while it waits to grow, its copy keeps its own completions.
"""

from multimirror.batch import Json
from multimirror.batch.status_rules import is_indexed


def pods_of(spec: Json) -> int:
    """The most that run at once."""
    pods: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    return pods if completions is None else min(pods, completions)


def size_within(spec: Json, most: int | None) -> Json:
    """What a new copy is made with: all completions, and no more pods at once than that."""
    return {} if most is None or pods_of(spec) <= most else {"parallelism": most}


def size_in_step(spec: Json, most: int) -> Json:
    """The fields of a copy's spec that say how large it is, as they should be."""
    if pods_of(spec) > most:
        return {"parallelism": most}
    size: Json = {"parallelism": spec.get("parallelism", 1)}
    if is_indexed(spec):
        size["completions"] = spec.get("completions")
    return size


def pods_held(copy: Json) -> int:
    """What a copy has: the pods that it may start, and those that are there and have not gone yet."""
    return max(pods_of(copy["spec"]), pods_there(copy))


def pods_there(copy: Json) -> int:
    """Those that run, or are on their way out."""
    status = copy.get("status") or {}
    return sum(value for value in (status.get("active"), status.get("terminating")) if isinstance(value, int))


def pods_uncounted(copy: Json) -> bool:
    """Some have ended, and stand in no counter yet: what the copy says of itself may still change."""
    return any(((copy.get("status") or {}).get("uncountedTerminatedPods") or {}).values())

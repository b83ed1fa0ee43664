"""How many pods of a Job run at once, how many its copy may have, and how many it still needs.

A copy never has more than was granted to its Job: whoever raises parallelism waits until the scheduler has found room
for the difference. An elastic Indexed Job changes completions together with parallelism, and the API takes the one only
with the other: while it waits to grow, its copy keeps its own completions.

Towards its end a Job needs fewer: its controller starts no pods for completions that it has. What is done is what the
copy says: an original may show successes of earlier attempts, whose work its copy does again.
"""

from typing import Final

from multimirror.batch import Json
from multimirror.batch.indexes import IndexFormatError, IndexSet
from multimirror.batch.status_rules import is_indexed

_MAX_INT32: Final = 2**31 - 1


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


def pods_left(spec: Json, status: Json) -> int:
    """How many pods at once a Job of this size still needs, when this is done of it.

    As the Job controller does it: no more than there are completions left; without completions the first success means
    that nothing is left for new pods.
    """
    pods = pods_of(spec)
    completions: int | None = spec.get("completions")
    succeeded = _count(status, "succeeded")
    if completions is None:
        return 0 if succeeded else pods
    # Every index that is done has a pod that succeeded or failed: mostly the lists need not be read.
    if not is_indexed(spec) or completions - succeeded - _count(status, "failed") >= pods:
        return max(0, min(pods, completions - succeeded))
    done = _indexes(status.get("completedIndexes"), completions)
    if spec.get("backoffLimitPerIndex") is not None:
        done |= _indexes(status.get("failedIndexes"), completions)
    return max(0, min(pods, completions - len(done)))


def pods_held(copy: Json) -> int:
    """What a copy has: the pods that it may still start, and those that are there and have not gone yet."""
    return max(pods_left(copy["spec"], copy.get("status") or {}), pods_there(copy))


def pods_there(copy: Json) -> int:
    """Those that run, or are on their way out."""
    status = copy.get("status") or {}
    return _count(status, "active") + _count(status, "terminating")


def pods_uncounted(copy: Json) -> bool:
    """Some have ended, and stand in no counter yet: what the copy says of itself may still change."""
    return any(((copy.get("status") or {}).get("uncountedTerminatedPods") or {}).values())


def pods_up(job: Json) -> int:
    """Those that are ready, or have succeeded."""
    status = job.get("status") or {}
    return _count(status, "ready") + _count(status, "succeeded")


def _count(status: Json, key: str) -> int:
    value = status.get(key)
    return max(0, value) if isinstance(value, int) else 0


def _indexes(text: object, completions: int) -> IndexSet:
    """What cannot be read is not done."""
    if not isinstance(text, str):
        return IndexSet.of(())
    try:
        return IndexSet.parse(text, _MAX_INT32).below(completions)
    except IndexFormatError:
        return IndexSet.of(())

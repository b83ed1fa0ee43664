"""How much a Job asks for: the requests of its pod, times the pods that run at once.

As the scheduler counts a pod: the sum of its containers (restartable init containers with them), but no less than the
largest init container, plus the overhead; or what the pod itself asks for, where it says so.
"""

from collections.abc import Mapping
from decimal import Decimal

from multimirror.batch import Json
from multimirror.batch.quantities import QuantityError, quantity

Amounts = Mapping[str, Decimal]


def amounts(resources: Json | None) -> dict[str, Decimal]:
    """A map of quantities; what cannot be read is left out (the API server lets no such thing in)."""
    read: dict[str, Decimal] = {}
    for name, value in (resources or {}).items():
        try:
            read[name] = quantity(value)
        except QuantityError:
            continue
    return read


def pod_requests(spec: Json) -> dict[str, Decimal]:
    """What one pod of this spec asks for."""
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        _add(total, _requests(container))
    restartable: dict[str, Decimal] = {}
    largest: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(restartable, _requests(container))
            continue
        alone = dict(restartable)
        _add(alone, _requests(container))
        for name, value in alone.items():
            largest[name] = max(value, largest.get(name, Decimal(0)))
    _add(total, restartable)
    for name, value in largest.items():
        total[name] = max(value, total.get(name, Decimal(0)))
    total |= amounts((spec.get("resources") or {}).get("requests"))
    _add(total, amounts(spec.get("overhead")))
    return total


def job_requests(job: Json) -> dict[str, Decimal]:
    """What the Job asks for while it runs."""
    spec = job["spec"]
    pods = spec.get("parallelism", 1)
    if spec.get("completions") is not None:
        pods = min(pods, spec["completions"])
    requests = pod_requests(spec["template"]["spec"])
    return {name: value * pods for name, value in requests.items()} | {"pods": Decimal(pods)}


def _requests(container: Json) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    return amounts(resources.get("limits")) | amounts(resources.get("requests"))


def _add(total: dict[str, Decimal], more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, Decimal(0)) + value

"""How much pods ask for: the requests of a template, times the pods that run at once.

As the scheduler counts a pod: the sum of its containers (restartable init containers with them), but no less than the
largest init container, plus the overhead; or what the pod itself asks for, where it says so. A limit without a request
is one.

Amounts are whole numbers of billionths. The API server knows nothing finer, so they are exact, and adding up and
comparing them costs a tenth of what it costs with Decimals.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from multimirror.batch import Json
from multimirror.batch.caching import TextCache
from multimirror.batch.quantities import QuantityError, quantity

Amounts = Mapping[str, int]
"""By resource, in billionths."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """The pods of one template that run at once."""

    name: str
    count: int
    spec: Json
    """Of one pod."""


def nanos(value: Decimal | int) -> int:
    """A quantity as a whole number of billionths."""
    return int(Decimal(value).scaleb(9))


def amounts_of(quantities: Mapping[str, Decimal]) -> dict[str, int]:
    """Quantities that were read before, as amounts."""
    return {name: nanos(value) for name, value in quantities.items()}


def quantities_of(amounts: Amounts) -> dict[str, Decimal]:
    """And back."""
    return {name: Decimal(value).scaleb(-9) for name, value in amounts.items()}


def total(pod_sets: Iterable[PodSet]) -> dict[str, int]:
    """What all of them ask for together, with the number of pods as a resource of its own."""
    found: dict[str, int] = {}
    pods = 0
    for pod_set in pod_sets:
        pods += pod_set.count
        _add(found, {name: value * pod_set.count for name, value in pod_requests(pod_set.spec).items()})
    return found | {"pods": nanos(pods)}


def pod_requests(spec: Json) -> dict[str, int]:
    """What one pod of this spec asks for."""
    found: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(found, _requests(container))
    restartable: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(restartable, _requests(container))
            continue
        alone = dict(restartable)
        _add(alone, _requests(container))
        for name, value in alone.items():
            largest[name] = max(value, largest.get(name, 0))
    _add(found, restartable)
    for name, value in largest.items():
        found[name] = max(value, found.get(name, 0))
    of_the_pod = spec.get("resources") or {}
    # Of a limit alone the API server makes a request when the pod is created, unless containers ask for that resource.
    found = _read(of_the_pod.get("limits")) | found | _read(of_the_pod.get("requests"))
    _add(found, _read(spec.get("overhead")))
    return found


def _requests(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    return _read(resources.get("limits")) | _read(resources.get("requests"))


def _read(resources: Json | None) -> dict[str, int]:
    """What cannot be read is left out: the API server lets no such thing in."""
    found: dict[str, int] = {}
    for name, value in (resources or {}).items():
        amount = _amount(value) if isinstance(value, str) else _amount_of(value)
        if amount is not None:
            found[name] = amount
    return found


def _amount_of(value: object) -> int | None:
    try:
        return nanos(quantity(value))
    except QuantityError:
        return None


_amount = TextCache(_amount_of, characters=64 * 1024)  # every Job of a template asks for the same


def amount_text(amount: int) -> str:
    """As a quantity, in plain digits."""
    return f"{Decimal(amount).scaleb(-9).normalize():f}"


def _add(found: dict[str, int], more: Amounts) -> None:
    for name, value in more.items():
        found[name] = found.get(name, 0) + value

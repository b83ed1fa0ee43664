"""What the nodes of a worker have to give, kept up to date node by node: a change costs the same with 10 and 10,000."""

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from multimirror.batch import Json
from multimirror.batch.quantities import QuantityError, quantity

_MOST_RESOURCES: Final = 256
"""Different ones, of all nodes together: what else a worker may name is nothing that a Job asks for."""
_NANO = -9  # quantities are whole billionths: sums of whole numbers never drift


class Capacity:
    """The sum over the nodes that can take pods."""

    def __init__(self) -> None:
        self._nodes: dict[str, Mapping[str, int]] = {}
        self._total: Counter[str] = Counter()
        self._named: Counter[str] = Counter()  # how many nodes speak of it: a resource that nobody has is not 0

    def put(self, node: Json) -> bool:
        """A node that is new, or has changed. Whether that changes the sum."""
        return self._replace(node["metadata"]["name"], allocatable(node))

    def remove(self, name: str) -> bool:
        """A node that is gone. Whether that changes the sum."""
        return self._replace(name, {})

    def total(self) -> dict[str, Decimal] | None:
        """By resource; None when there is nothing."""
        return {name: Decimal(self._total[name]).scaleb(_NANO) for name in self._named} or None

    def _replace(self, name: str, amounts: Mapping[str, int]) -> bool:
        before = self._nodes.get(name, {})
        if len(self._named) + len(amounts) > _MOST_RESOURCES:
            new = [resource for resource in amounts if resource not in self._named]
            excess = new[max(0, _MOST_RESOURCES - len(self._named)) :]
            amounts = {resource: amount for resource, amount in amounts.items() if resource not in excess}
        if amounts == before:
            return False
        self._total.subtract(before)
        self._named.subtract(before.keys())
        self._total.update(amounts)
        self._named.update(amounts.keys())
        for resource in [each for each in before if not self._named[each]]:
            del self._named[resource], self._total[resource]
        if amounts:
            self._nodes[name] = amounts
        else:
            del self._nodes[name]
        return True


def allocatable(node: Json) -> dict[str, int]:
    """What pods may use of it; nothing of one that takes none."""
    if (node.get("spec") or {}).get("unschedulable") or not _is_ready(node):
        return {}
    amounts = {}
    for name, value in ((node.get("status") or {}).get("allocatable") or {}).items():
        try:
            amount = int(quantity(value).scaleb(-_NANO))
        except QuantityError:
            continue
        if amount >= 0:  # a worker says what it likes; nobody has less than nothing
            amounts[name] = amount
    return amounts


def _is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each.get("status") == "True" for each in conditions if each.get("type") == "Ready")

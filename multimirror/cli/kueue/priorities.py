"""Priority classes, made into the numbers that Jobs of ours carry.

Only which of two is higher counts, so classes below 0 are lifted by shifting all of them; then Jobs without a class,
which Kueue takes for 0, need a number too. Kubernetes' own PriorityClasses matter where a Job has no class of Kueue's.
They are for all pods of a cluster, and often there is one far below 0 for pods that only keep room: they follow the
shift, but never cause one, and what is out of bounds counts as the nearest number that is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from multimirror.cli.kueue.findings import Findings
from multimirror.cli.kueue.objects import PriorityClass

HIGHEST: Final = 999_999_999
_SYSTEM: Final = "system-"


@dataclass(frozen=True, slots=True)
class PriorityRow:
    """A class, and the number that its Jobs need."""

    kind: str
    name: str
    value: int
    number: int


@dataclass(frozen=True, slots=True)
class Priorities:
    """What Jobs of each class need; `without` is for Jobs of no class."""

    rows: tuple[PriorityRow, ...] = ()
    without: int = 0

    @property
    def highest(self) -> int | None:
        """For maxPriority; None where nobody is above anybody."""
        numbers = [self.without, *(row.number for row in self.rows)]
        return max(numbers) if self.rows and max(numbers) > 0 else None


def priorities(classes: Sequence[PriorityClass], findings: Findings) -> Priorities:
    """The numbers for these classes."""
    ours = [each for each in classes if each.kind != "PriorityClass"]
    pods = [each for each in classes if each.kind == "PriorityClass" and not each.name.startswith(_SYSTEM)]
    default = next((each for each in pods if each.is_default), None)
    shift = -min([0, *(each.value for each in ours)])
    if shift:
        text = f"is below 0, so all priorities are {shift} higher here; Jobs without a class need one as well"
        lowest = min(ours, key=lambda each: (each.value, each.name))
        findings.changed(f"WorkloadPriorityClass {lowest.name}", "value", text)
    rows = []
    for each in (*ours, *pods):
        number = min(max(each.value + shift, 0), HIGHEST)
        if number != each.value + shift:
            text = f"is {each.value}, and counts as {number}: priorities are from 0 to {HIGHEST}"
            findings.changed(f"{each.kind} {each.name}", "value", text)
        rows.append(PriorityRow(each.kind, each.name, each.value, number))
    without = min(max((default.value if default is not None else 0) + shift, 0), HIGHEST)
    return Priorities(tuple(rows), without)

"""What `kubectl get` shows of each kind: columns and cells, as Kubernetes 1.36 has them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from clusters.embedded.kinds import Kind
from clusters.embedded.store import Object

Cells = Callable[[Object, float], list[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; priority 1 is shown with `-o wide` only."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Printer:
    """A kind's columns and how to fill them."""

    columns: tuple[Column, ...]
    cells: Cells


NAME: Final = Column("Name", format="name", description="The object's name, unique among its kind in its namespace.")
_PLAIN: Final = Printer(
    (NAME, Column("Created At", "date", description="When the object was created.")),
    lambda obj, _now: [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp")],
)


def printer_for(kind: Kind) -> Printer:
    """The printer of a kind."""
    return _PLAIN

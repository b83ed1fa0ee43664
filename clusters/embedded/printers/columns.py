"""The parts that printers are made of: columns, ages, lists of names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.embedded.store import Object

Cells = Callable[[Object, float], list[Any]]

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"


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
AGE: Final = Column("Age", description="How long ago the object was created.")
CONTAINERS: Final = (
    Column("Containers", description="The names of the containers.", priority=1),
    Column("Images", description="The images of the containers.", priority=1),
    Column("Selector", description="How its pods are found.", priority=1),
)


def seconds(timestamp: str) -> float:
    """A timestamp as seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def age(timestamp: str | None, now: float) -> str:
    """How long ago that was, for people."""
    return human_duration(now - seconds(timestamp)) if timestamp else UNKNOWN


def age_of(obj: Object, now: float) -> str:
    """How old an object is."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def human_duration(length: float) -> str:
    """A duration in two units at most, as kubectl shows it."""
    whole = int(length)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 2920:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, one: str, small: int, other: str) -> str:
    return f"{large}{one}{small}{other}" if small else f"{large}{one}"


def container_cells(pod_spec: Mapping[str, Any]) -> list[str]:
    """Names and images of containers."""
    containers = pod_spec.get("containers") or ()
    return [",".join(each.get(key, "") for each in containers) for key in ("name", "image")]


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A label selector on one line."""
    if not selector:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or ():
        values = ",".join(sorted(each.get("values") or ()))
        match each["operator"]:
            case "In":
                parts.append(f"{each['key']} in ({values})")
            case "NotIn":
                parts.append(f"{each['key']} notin ({values})")
            case "Exists":
                parts.append(each["key"])
            case _:
                parts.append(f"!{each['key']}")
    return ",".join(parts) or NONE


def is_true(obj: Object, condition: str) -> bool:
    """Whether a condition holds."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(each.get("type") == condition and each.get("status") == "True" for each in conditions)

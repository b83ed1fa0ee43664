"""Custom resources in tables: the columns of their definitions."""

import json
from typing import Any, Final

from clusters.embedded.custom.jsonpath import find
from clusters.embedded.printers.columns import NAME, Column, Printer, age
from clusters.embedded.store import Object

_DEFAULT: Final = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


def custom_printer(definitions: tuple[Any, ...]) -> Printer:
    """The printer that `additionalPrinterColumns` describe."""
    chosen = definitions or _DEFAULT
    columns = tuple(
        Column(
            each["name"],
            each.get("type", "string"),
            each.get("format", ""),
            each.get("description", "") or f"The value at {each['jsonPath']}.",
            each.get("priority", 0),
        )
        for each in chosen
    )

    def cells(obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], *(_cell(obj, each, now) for each in chosen)]

    return Printer((NAME, *columns), cells)


def _cell(obj: Object, column: dict[str, Any], now: float) -> Any:
    found = find(obj, column["jsonPath"])
    if not found or found[0] is None:
        return None
    value = found[0]
    match column.get("type"):
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case "integer":
            return int(value) if isinstance(value, int | float) else None
        case "number":
            return float(value) if isinstance(value, int | float) else None
        case "boolean":
            return value if isinstance(value, bool) else None
    if isinstance(value, str):
        return value
    return " ".join(map(str, found)) if len(found) > 1 else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)

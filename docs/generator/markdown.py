"""Tables and texts that come out the same every time."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar inside a cell does not end it."""
    lines = [titles, ["---"] * len(titles), *([_cell(value) for value in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(text: str) -> str:
    """As code, unless it is empty."""
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]  # outside of code it would be HTML
    return "`".join(parts)

"""The report: one Markdown page that says where and when, then the ratios with their ranges, then every figure."""

from collections.abc import Iterable, Sequence

from bench.frame.checking import Range
from bench.frame.results import Figure, Result, Table, text_of


def markdown(result: Result, ranges: Sequence[Range], plots: Sequence[str] = ()) -> str:
    """The whole page."""
    lines = ["# Benchmark", "", *_about(result), "", "## Ratios and their ranges", "", *_ratios(result, ranges)]
    lines += [line for name in plots for line in ("", f"![{name}]({name}.svg)")]
    for part in result.seconds:
        lines += ["", f"## {part}", "", *_figures(result, part)]
        for table in result.tables:
            if table.part == part:
                lines += ["", f"{table.title}:", "", *_table(table)]
    return "\n".join(lines) + "\n"


def _about(result: Result) -> Iterable[str]:
    about = result.about
    machine = about.get("machine", {})
    yield f"{about.get('at', '')}, commit {about.get('commit') or 'unknown'}."
    yield ""
    yield f"Machine: {', '.join(f'{key} {value}' for key, value in machine.items())}."
    yield ""
    yield f"Versions: {', '.join(f'{key} {value}' for key, value in about.get('versions', {}).items())}."
    yield ""
    took = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in result.seconds.items())
    yield f"Took {took}."


def _ratios(result: Result, ranges: Sequence[Range]) -> Iterable[str]:
    yield "| part | figure | size | value | range | |"
    yield "|---|---|---:|---:|---|---|"
    for each in ranges:
        value = result.find(each.part, each.figure, each.size)
        if value is not None:
            verdict = "ok" if each.holds(value) else "**out of range**"
            yield f"| {each.part} | {each.figure} | {each.size:,} | {text_of(value, 'ratio')} | {each} | {verdict} |"


def _figures(result: Result, part: str) -> Iterable[str]:
    """One row for each figure, one column for each size."""
    figures = [figure for figure in result.figures if figure.part == part]
    sizes = sorted({figure.size for figure in figures})
    rows: dict[tuple[str, str], dict[int, Figure]] = {}
    for figure in figures:
        rows.setdefault((figure.name, figure.unit), {})[figure.size] = figure
    unit = result.units.get(part, "")
    yield f"| | unit | {' | '.join(f'{size:,} {unit}' for size in sizes)} |"
    yield f"|---|---|{'---:|' * len(sizes)}"
    for (name, of), by_size in rows.items():
        values = (text_of(by_size[size].value, "ratio") if size in by_size else "" for size in sizes)
        yield f"| {name} | {of} | {' | '.join(values)} |"


def _table(table: Table) -> Iterable[str]:
    yield f"| {' | '.join(table.head)} |"
    yield f"|{'---|' * len(table.head)}"
    for row in table.rows:
        yield f"| {' | '.join(cell if isinstance(cell, str) else text_of(cell, 'ratio') for cell in row)} |"

"""Plots of a result, each as SVG and PNG: what things cost against how many there are. Needs the extra `bench`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from bench.frame.results import Result

_SIZE: Final = (6.4, 3.8)


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture: figures of a part against its sizes, as lines; or with a single size, as bars."""

    name: str
    part: str
    title: str
    y: str
    figures: Sequence[tuple[str, str]]
    """The name of a figure, and how it is called in the picture."""


PLOTS: Final = (
    Plot(
        "full-life",
        "full-life",
        "Jobs a second, N at once over two workers",
        "Jobs/s",
        (
            ("direct, to Complete", "directly on the workers"),
            ("through us, to mirrored Complete", "through multimirror"),
            ("bare writes of the management cluster", "bare writes of the management cluster"),
        ),
    ),
    Plot(
        "cpu",
        "full-life",
        "CPU time for a Job over all processes",
        "ms",
        (
            ("all CPU time for a Job, direct", "directly on the workers"),
            ("all CPU time for a Job, through us", "through multimirror"),
            ("our CPU time for a Job", "of that, the dispatcher"),
        ),
    ),
    Plot(
        "latency",
        "latency",
        "How late copies and mirrored changes come",
        "ms",
        tuple(
            (f"{what}, {label}", f"{what.replace(', ', ' ')} {label}")
            for what in ("dispatch, idle", "mirror, idle", "dispatch, under load", "mirror, under load")
            for label in ("p50", "p99")
        ),
    ),
    Plot(
        "scale-cost",
        "scale",
        "CPU time of the dispatcher for 1,000 Jobs, against live Jobs",
        "s",
        (("CPU seconds for 1,000 Jobs", "full lives"),),
    ),
    Plot(
        "scale-memory", "scale", "Memory against live Jobs", "MB", (("memory of the dispatcher", "of the dispatcher"),)
    ),
    Plot(
        "scale-restart",
        "scale",
        "Restart against live Jobs",
        "s",
        (
            ("restart, until every Job was looked at", "until every Job was looked at"),
            ("restart, CPU seconds", "CPU seconds"),
        ),
    ),
    Plot(
        "workers",
        "workers",
        "Dispatch latency against workers",
        "ms",
        tuple((f"dispatch, {label}", label) for label in ("p50", "p90", "p99")),
    ),
    Plot(
        "workers-cost",
        "workers",
        "CPU time of the dispatcher for a Job, against workers",
        "ms",
        (("our CPU time for a Job", "a full life"),),
    ),
)


def draw(result: Result, directory: Path) -> list[str]:
    """Write the pictures that there are figures for; gives their names."""
    drawn = []
    # No dates and no random ids: the same result gives the same files.
    with mpl.rc_context({"svg.hashsalt": "multimirror", "svg.fonttype": "none", "font.size": 9}):
        for plot in PLOTS:
            series = _series(result, plot)
            if series:
                canvas = _picture(plot, series, result.units.get(plot.part, ""))
                canvas.savefig(directory / f"{plot.name}.svg", metadata={"Date": None})
                canvas.savefig(directory / f"{plot.name}.png", dpi=100, metadata={"Software": None})
                drawn.append(plot.name)
    return drawn


def _series(result: Result, plot: Plot) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for name, label in plot.figures:
        points = sorted((f.size, f.value) for f in result.figures if (f.part, f.name) == (plot.part, name))
        if points:
            found[label] = points
    return found


def _picture(plot: Plot, series: dict[str, list[tuple[int, float]]], unit: str) -> Canvas:
    canvas = Canvas(figsize=_SIZE, layout="constrained")
    axes = canvas.subplots()
    draw_into: Callable[..., None] = _lines if any(len(points) > 1 for points in series.values()) else _bars
    draw_into(axes, series, unit, plot.y)
    axes.set_title(plot.title)
    return canvas


def _lines(axes: Any, series: dict[str, list[tuple[int, float]]], unit: str, y: str) -> None:
    for label, points in series.items():
        axes.plot([size for size, _ in points], [value for _, value in points], marker="o", label=label)
    sizes = sorted({size for points in series.values() for size, _ in points})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_xlabel(unit)
    axes.set_ylabel(y)
    axes.set_ylim(0, 1.1 * axes.dataLim.ymax)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()


def _bars(axes: Any, series: dict[str, list[tuple[int, float]]], unit: str, y: str) -> None:
    labels = list(series)
    values = [points[0][1] for points in series.values()]
    bars = axes.barh(labels, values)
    axes.bar_label(bars, fmt="{:,.0f}", padding=2)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel(f"{y} ({series[labels[0]][0][0]:,} {unit})")

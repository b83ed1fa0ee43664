"""What a run found: figures, each with its size, its unit and the part that it belongs to; kept as one JSON file.

A figure with the unit `ratio` compares two things of the same run. Only those are checked against ranges: a time
depends on the machine, a ratio hardly does.
"""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Self

RATIO: Final = "ratio"
FILE: Final = "result.json"
_LIBRARIES: Final = ("aiohttp", "httptools", "orjson", "prometheus-client", "structlog", "uvloop")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number."""

    part: str
    name: str
    size: int
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers that are looked at, not checked: where CPU time and requests go."""

    part: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str | float]]


@dataclass(slots=True)
class Result:
    """One run, of some parts or of all."""

    about: dict[str, Any] = field(default_factory=dict)
    """When, where, and of what."""
    units: dict[str, str] = field(default_factory=dict)
    """What the sizes of each part count."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each part took."""
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def find(self, part: str, name: str, size: int) -> float | None:
        """The value of a figure."""
        return next((f.value for f in self.figures if (f.part, f.name, f.size) == (part, name, size)), None)

    def replace(self, other: "Result") -> None:
        """Take over the parts of a newer run."""
        parts = other.seconds.keys()
        self.figures = [figure for figure in self.figures if figure.part not in parts] + other.figures
        self.tables = [table for table in self.tables if table.part not in parts] + other.tables
        self.seconds |= other.seconds
        self.units |= other.units
        before, after = self.about.get("commit", ""), other.about.get("commit", "")
        commit = before if before == after else f"{before}; {', '.join(parts)}: {after}"
        self.about = {**other.about, **self.about, "commit": commit}

    def save(self, directory: Path) -> None:
        """As a file there."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """A file, or the directory that it is in."""
        read = json.loads((path / FILE if path.is_dir() else path).read_text())
        figures = [Figure(**figure) for figure in read["figures"]]
        tables = [Table(**table) for table in read["tables"]]
        return cls(read["about"], read["units"], read["seconds"], figures, tables)


class Recorder:
    """Where a part puts what it found; everything is told at once, too."""

    def __init__(self, part: str, say: Callable[[str], None]) -> None:
        self.part, self.say = part, say
        self.figures: list[Figure] = []
        self.tables: list[Table] = []

    def figure(self, name: str, size: int, value: float, unit: str) -> None:
        """One number."""
        self.figures.append(Figure(self.part, name, size, value, unit))
        self.say(f"{name} ({size:,}): {text_of(value, unit)}")

    def ratio(self, name: str, size: int, value: float) -> None:
        """One that is checked."""
        self.figure(name, size, value, RATIO)

    def percentiles(self, name: str, size: int, seconds: Sequence[float]) -> None:
        """p50, p90, p99 and the worst, in milliseconds."""
        for percent in (50, 90, 99, 100):
            label = "max" if percent == 100 else f"p{percent}"
            self.figure(f"{name}, {label}", size, percentile(seconds, percent) * 1000, "ms")

    def table(self, title: str, head: Sequence[str], rows: Iterable[Sequence[str | float]]) -> None:
        """Something to look at."""
        self.tables.append(Table(self.part, title, list(head), [list(row) for row in rows]))


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that is not less than that many percent of all."""
    if not values:
        raise ValueError("nothing was measured")
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * percent // 100) - 1)]


def text_of(value: float, unit: str) -> str:
    """For people: three digits that matter."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 or value == 0 else 4
    return f"{value:,.{digits}f}" + ("" if unit == RATIO else f" {unit}")


def about(versions: dict[str, str]) -> dict[str, Any]:
    """The machine, the versions and the commit of this run."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short=12", "HEAD")
        + ("+changes" if _git("status", "--porcelain", "-uno") else ""),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
            "system": f"{platform.system()} {platform.release()}",
        },
        "versions": {
            "python": platform.python_version(),
            "multimirror": metadata.version("multimirror"),
            **versions,
            **{name: metadata.version(name) for name in _LIBRARIES},
        },
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(*arguments: str) -> str:
    try:
        found = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()

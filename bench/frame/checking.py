"""The range check: ratios against the ranges of `bench/ranges.toml`, and two runs against each other. Never a time.

A range without its figure fails when its part was measured at that size, or when all sizes of that part that the ranges
name are missing; parts that were not run are told and left.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.frame.results import RATIO, Result, text_of

FILE: Final = Path(__file__).parent.parent / "ranges.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Where a figure has to be, and how far two runs may be apart."""

    part: str
    figure: str
    size: int
    at_least: float | None = None
    at_most: float | None = None
    agree: float
    """The larger of two runs is at most so many times the smaller."""
    why: str = ""

    def __str__(self) -> str:
        bounds = [
            *([f"≥ {self.at_least:g}"] if self.at_least is not None else []),
            *([f"≤ {self.at_most:g}"] if self.at_most is not None else []),
        ]
        return ", ".join(bounds)

    def holds(self, value: float) -> bool:
        """Whether the value is inside."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def agrees(self, one: float, other: float) -> bool:
        """Whether two runs are near each other."""
        low, high = sorted((one, other))
        return high <= low * self.agree or high == low


def ranges(file: Path = FILE) -> list[Range]:
    """What is asked for; raises ValueError that names what is wrong with the file."""
    read = tomllib.loads(file.read_text())
    found = []
    for number, entry in enumerate(read.get("range", ()), 1):
        try:
            each = Range(**entry)
        except TypeError as error:
            raise ValueError(f"{file.name}: range {number}: {error}") from None
        if each.at_least is None and each.at_most is None:
            raise ValueError(f"{file.name}: range {number}: give at_least, at_most, or both")
        found.append(each)
    return found


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check."""

    text: str
    ok: bool


def check(asked: Sequence[Range], result: Result, before: Result | None = None) -> list[Finding]:
    """Every range against the result, and against the run before where there is one."""
    findings = []
    for each in asked:
        if each.part not in result.seconds:
            findings.append(Finding(f"{_name(each)}: not measured, {each.part} was not run", ok=True))
            continue
        figure = next(
            (f for f in result.figures if (f.part, f.name, f.size) == (each.part, each.figure, each.size)), None
        )
        if figure is None:
            findings.append(Finding(f"{_name(each)}: was not measured, though {each.part} was run", ok=False))
            continue
        if figure.unit != RATIO:
            findings.append(Finding(f"{_name(each)}: is in {figure.unit}; only ratios can be checked", ok=False))
            continue
        told = f"{_name(each)}: {text_of(figure.value, RATIO)} (asked for: {each})"
        findings.append(Finding(told, each.holds(figure.value)))
        earlier = before.find(each.part, each.figure, each.size) if before is not None else None
        if earlier is not None:
            told = f"{_name(each)}: {text_of(figure.value, RATIO)} and {text_of(earlier, RATIO)} in two runs"
            told += f" (at most {each.agree:g} times apart)"
            findings.append(Finding(told, each.agrees(figure.value, earlier)))
    return findings


def kept(directory: Path) -> list[Path]:
    """The results there, newest first."""
    return sorted((found.parent for found in directory.glob("*/result.json")), reverse=True)


def _name(each: Range) -> str:
    return f"{each.part}, {each.figure} ({each.size:,})"

"""Durations as Go, and people, write them: `1h30m`, `1.5s`, `250ms`. One parser for specs, flags and schedules.

What is no duration is refused in Go's words, for any text at all, and so is what is longer than Go can count (292
years).
"""

import re
from collections.abc import Collection
from datetime import timedelta
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
GO_UNITS: Final = frozenset(_NANOSECONDS) - {"d"}
COMMAND_UNITS: Final = frozenset(_NANOSECONDS)
"""On our own command line days are understood too."""
WHOLE_PATTERN: Final = r"^([0-9]+(h|m|s))+$"
"""What the fields of our API take."""

_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_MOST: Final = 1 << 63
_DIGITS: Final = 19


class DurationError(ValueError):
    """The text is no duration."""


def parse_duration(text: str, units: Collection[str] = GO_UNITS) -> timedelta:
    """A duration in these units; it may have a sign. Raises DurationError."""
    body = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if body == "0":
        return timedelta()
    if not body:
        raise DurationError(f'time: invalid duration "{text}"')
    nanoseconds, position = 0, 0
    while position < len(body):
        match = _PART.match(body, position)
        assert match is not None, "every part of the pattern is optional"
        nanoseconds += _part(match, text, units)
        if nanoseconds >= _MOST:
            raise DurationError(f'time: invalid duration "{text}"')
        position = match.end()
    return timedelta(microseconds=nanoseconds // 1000) * (-1 if text.startswith("-") else 1)


def _part(match: re.Match[str], text: str, units: Collection[str]) -> int:
    whole, fraction, unit = match.groups(default="")
    if not whole and not fraction:
        raise DurationError(f'time: invalid duration "{text}"')
    if not unit:
        raise DurationError(f'time: missing unit in duration "{text}"')
    if unit not in units:
        raise DurationError(f'time: unknown unit "{unit}" in duration "{text}"')
    whole, fraction = whole.lstrip("0"), fraction[:_DIGITS]
    if len(whole) > _DIGITS:
        raise DurationError(f'time: invalid duration "{text}"')
    scale: int = 10 ** len(fraction)
    return int(whole or 0) * _NANOSECONDS[unit] + int(fraction or 0) * _NANOSECONDS[unit] // scale


def whole_seconds(text: str) -> float:
    """The seconds that `1h30m` or `45s` stand for, as the fields of our API take them. Raises DurationError."""
    if not re.fullmatch(WHOLE_PATTERN, text):
        raise DurationError(f"{text!r} is no duration: write whole hours, minutes and seconds, such as 1h30m or 45s")
    return parse_duration(text).total_seconds()

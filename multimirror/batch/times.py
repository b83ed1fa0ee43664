"""Timestamps as the API writes them: compared by instant, printed in UTC with whole seconds.

Nearly every timestamp on the wire has the canonical form `2026-01-01T00:00:00Z`, where the order of the strings is the
order of the instants; only other forms (offsets, fractions) are parsed.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_CANONICAL_LENGTH: Final = len("2026-01-01T00:00:00Z")
_USUAL_LENGTH: Final = 40  # with nanoseconds and an offset; what is longer is not worth to be remembered
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


def canonical(text: str) -> str:
    """The timestamp in UTC with whole seconds, as the server stores and prints it. Raises ValueError if it is none."""
    return _canonical(text) if len(text) <= _USUAL_LENGTH else format_time(_parse(text)[0])


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return format_time(_parse(text)[0])


def same_instant(one: str | None, other: str | None) -> bool:
    if one == other:
        return True
    if one is None or other is None or (_is_canonical(one) and _is_canonical(other)):
        return False
    return _parse(one) == _parse(other)


def earlier(one: str, other: str) -> bool:
    """Whether the first is strictly before the second."""
    if _is_canonical(one) and _is_canonical(other):
        return one < other
    return _parse(one) < _parse(other)


def format_time(time: datetime) -> str:
    """An instant as the API writes it."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def _is_canonical(text: str) -> bool:
    return len(text) == _CANONICAL_LENGTH and text[19] == "Z"


def _parse(text: str) -> tuple[datetime, str]:
    """The instant's whole second in UTC, and its fraction as digits that order like numbers."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 timestamp: {text!r}")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        time = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if match[8]:
            offset = timedelta(hours=int(match[9]), minutes=int(match[10]))
            time += -offset if match[8] == "+" else offset
    except (ValueError, OverflowError) as error:
        raise ValueError(f"not an RFC 3339 timestamp: {text!r}") from error
    return time, (match[7] or "").rstrip("0")


def utc_datetime(seconds: float) -> datetime:
    """The instant so many seconds after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


def seconds_of(text: object, otherwise: float) -> float:
    """The instant that the API wrote, in seconds since the epoch."""
    if isinstance(text, str):
        try:
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            return otherwise
    return otherwise

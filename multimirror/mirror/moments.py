"""Seconds since the epoch, as the clock gives them, and moments as the API writes them."""

from datetime import UTC, datetime


def moment(seconds: float) -> datetime:
    """The instant."""
    return datetime.fromtimestamp(seconds, UTC)


def seconds_of(text: object, otherwise: float) -> float:
    """The instant that the API wrote, in seconds."""
    if isinstance(text, str):
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            return otherwise
    return otherwise

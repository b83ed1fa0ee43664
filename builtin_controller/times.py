"""Instants as seconds since the epoch, and as the API writes them (UTC, whole seconds, cut off and not rounded)."""

from datetime import UTC, datetime


def parse_time(text: str | None) -> float | None:
    """An API timestamp in seconds; None for none, and for what is not a timestamp."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def format_time(seconds: float) -> str:
    """Seconds as an API timestamp."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

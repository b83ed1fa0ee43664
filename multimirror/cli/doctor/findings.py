"""What a check says: all is well, or what is not, and the remedy. For `doctor`, and for `run --check`."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

MANAGEMENT: Final = "management"
"""The subject of findings about the management cluster."""
ASK: Final = "Ask again with an account that may, to know."


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, and will not for long, or not for everybody; or it could not be looked at."""
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of one check."""

    level: Level
    check: str
    subject: str
    message: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        return {key: str(value) for key, value in asdict(self).items()}


def ok(check: str, subject: str, message: str) -> Finding:
    return Finding(Level.OK, check, subject, message)


def warning(check: str, subject: str, message: str, remedy: str) -> Finding:
    return Finding(Level.WARNING, check, subject, message, remedy)


def fault(check: str, subject: str, message: str, remedy: str) -> Finding:
    return Finding(Level.FAULT, check, subject, message, remedy)


def unreadable(check: str, what: str) -> Finding:
    """The person who asks may not read something of the management cluster."""
    return warning(check, MANAGEMENT, f"you may not read {what}: not checked", ASK)

"""What a check says: all is well, or what is not, and the remedy."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

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
        """For programs."""
        return {key: str(value) for key, value in asdict(self).items()}


def ok(check: str, subject: str, message: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, check, subject, message)


def warning(check: str, subject: str, message: str, remedy: str) -> Finding:
    """Not well, and not broken."""
    return Finding(Level.WARNING, check, subject, message, remedy)


def fault(check: str, subject: str, message: str, remedy: str) -> Finding:
    """Broken."""
    return Finding(Level.FAULT, check, subject, message, remedy)

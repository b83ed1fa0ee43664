"""What a person must know of a translation: what was left out, what means something else now, and what else is so."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of a field of Kueue's."""

    LEFT_OUT = "left out"
    CHANGED = "changed"
    """Taken over, but it means something else here."""
    NOTE = "note"
    """Nothing was lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One of them: about which object and field, what is so, and what to do instead."""

    outcome: Outcome
    about: str
    """Kind and name, such as `ClusterQueue team-a`."""
    field: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        where = f"{self.about}, {self.field}" if self.field else self.about
        text = f"{where}: {self.text}."
        before = "Instead" if self.outcome is Outcome.LEFT_OUT else "If that is not wanted"
        return f"{text} {before}: {self.remedy}." if self.remedy else text


class Findings:
    """Findings, as they are made."""

    def __init__(self) -> None:
        self._found: list[Finding] = []

    def left_out(self, about: str, field: str, text: str, remedy: str) -> None:
        self._found.append(Finding(Outcome.LEFT_OUT, about, field, text, remedy))

    def changed(self, about: str, field: str, text: str, remedy: str = "") -> None:
        self._found.append(Finding(Outcome.CHANGED, about, field, text, remedy))

    def note(self, about: str, field: str, text: str) -> None:
        self._found.append(Finding(Outcome.NOTE, about, field, text))

    def all(self) -> tuple[Finding, ...]:
        """Each once, in the order in which they were made."""
        return tuple(dict.fromkeys(self._found))

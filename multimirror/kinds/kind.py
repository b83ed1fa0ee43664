"""What every mirrored kind has in common: how an object is named across our rooms."""

from typing import NamedTuple


class Ref(NamedTuple):
    """One object of a mirrored kind, for as long as it lives. What work queues, usage and memory are keyed by."""

    kind: str
    """As `Resource.name` writes it: jobs.batch."""
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.uid}"

"""Which WorkerCluster is which cluster. Two names for one cluster would fight over the same copies.

A cluster is what the uid of its kube-system says, which a hostile one can say as well. So the first to show an identity
keeps it: it stands in the status of its WorkerCluster from then on, and no other gets it, in whatever order they come
after a restart. It is free again when that WorkerCluster is gone, or itself shows another identity: a cluster that was
installed anew, or two that have changed places.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

NO_ONE: Final = ""


class Claim(NamedTuple):
    """What became of it."""

    holder: str
    """Whose identity it is instead; empty: it is granted."""
    displaced: tuple[str, ...] = ()
    """Who has to give it up, because it was never written down as theirs."""


class Identities:
    """Who claimed what in this process, beside what was written down."""

    def __init__(self, recorded: Callable[[], Mapping[str, str]], rank: Callable[[str], object]) -> None:
        """`recorded`: by WorkerCluster, of all that exist ("" where there is none yet). Of two with the same, the one
        with the lower `rank` keeps it."""
        self._recorded, self._rank = recorded, rank
        self._claimed: dict[str, str] = {}
        self._shown: dict[str, str] = {}

    def claim(self, worker: str, identity: str) -> Claim:
        """A worker shows this identity."""
        self._shown[worker] = identity
        recorded = self._recorded()
        displaced = []
        for other in recorded:
            if other == worker or self._identity_of(other, recorded) != identity:
                continue
            if not self._outranks(worker, other, identity, recorded):
                self._claimed.pop(worker, None)
                return Claim(other)
            displaced.append(other)
        for other in displaced:
            self._claimed.pop(other, None)
        self._claimed[worker] = identity
        return Claim(NO_ONE, tuple(displaced))

    def usurpers(self, worker: str, identity: str) -> list[str]:
        """Who claimed what was written down for that worker now."""
        recorded = self._recorded()
        return [
            other
            for other, claimed in self._claimed.items()
            if other != worker and claimed == identity and recorded.get(other) != identity
        ]

    def forget(self, worker: str) -> None:
        """It is gone."""
        self._claimed.pop(worker, None)
        self._shown.pop(worker, None)

    def _identity_of(self, worker: str, recorded: Mapping[str, str]) -> str:
        """What it has, unless it was seen since then to be another cluster."""
        identity = self._claimed.get(worker) or recorded[worker]
        return identity if self._shown.get(worker, identity) == identity else NO_ONE

    def _outranks(self, worker: str, other: str, identity: str, recorded: Mapping[str, str]) -> bool:
        own, others = recorded.get(worker) == identity, recorded[other] == identity
        return own and (not others or self._rank(worker) < self._rank(other))  # type: ignore[operator]

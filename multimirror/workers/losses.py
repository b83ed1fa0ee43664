"""Since when a worker, or our copies in one of its namespaces, are out of reach. The only place that knows.

The first moment counts until there is contact again: being lost once more, for another reason, sets no clock back.
What others reached until now, and we did not, was not lost: from `begin` on it is us who work, and what we lost before
that counts from then; or from the moment at which those who worked before us wrote down that it was lost.

How often and for how long a worker was lost before is remembered for a while: one that comes back for a moment only to
be lost again is not waited for anew each time (reconcile/decide.py).
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

Scope = TypeVar("Scope")
Outage = tuple[float, float]
"""From when until when a worker was lost."""
_MOST_OUTAGES: Final = 16


class Losses(Generic[Scope]):
    """Timestamps by worker, and by worker and scope: which copies it is about, None for the whole worker."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, dict[Scope | None, float]] = {}
        self._begun: dict[str, float] = {}
        self._outages: dict[str, tuple[Outage, ...]] = {}  # that are over, the latest last

    def lost(self, worker: str, scope: Scope | None = None, *, since: float | None = None) -> None:
        """It is out of reach, since now or since then; unless it was before."""
        self._since.setdefault(worker, {}).setdefault(scope, self._clock() if since is None else since)

    def found(self, worker: str, scope: Scope | None = None) -> None:
        """There is contact."""
        since = self.since(worker, scope)
        self._since.get(worker, {}).pop(scope, None)
        if scope is None and since is not None:
            self._outages[worker] = (*self.outages(worker), (since, self._clock()))[-_MOST_OUTAGES:]

    def since(self, worker: str, scope: Scope | None = None) -> float | None:
        """None: it is not lost."""
        since = self._since.get(worker, {}).get(scope)
        return None if since is None else max(since, self._begun.get(worker, since))

    def outages(self, worker: str) -> tuple[Outage, ...]:
        """Those of the whole worker that are over, the latest last."""
        return self._outages.get(worker, ())

    def scopes(self, worker: str) -> set[Scope]:
        """What of it is lost."""
        return {scope for scope in self._since.get(worker, ()) if scope is not None}

    def begin(self, worker: str, disconnected_at: float | None) -> None:
        """From now on it is us who work; it was lost then, according to those before us (None: not lost)."""
        self._outages.pop(worker, None)  # it was lost to us, and not to those who worked
        now = self._clock()
        self._begun[worker] = now if disconnected_at is None else min(now, disconnected_at)

    def forget(self, worker: str) -> None:
        """It is known no more: of its namespaces nothing is to be said, and as a whole it is lost."""
        self._since[worker] = {scope: since for scope, since in self._since.get(worker, {}).items() if scope is None}
        self.lost(worker)

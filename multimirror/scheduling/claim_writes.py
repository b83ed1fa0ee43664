"""Claims that are decided, and not seen in the cache yet: each is written down once.

A claim counts in the pass that makes it, whether it is written or not; it is written so that the next passes, and
whoever leads next, keep it where it is. One that cannot be written is decided again.
"""

from dataclasses import dataclass

from multimirror.api import CLAIM_ANNOTATION
from multimirror.api.placement import Claim, exactly
from multimirror.batch import Json
from multimirror.kinds import Ref
from multimirror.kube.informer import is_older
from multimirror.scheduling.candidates import Candidate


@dataclass(slots=True)
class PendingClaim:
    candidate: Candidate
    claim: Claim
    written: str | None = None
    """The resourceVersion that the object has since."""

    def patch(self, obj: Json) -> Json:
        """For exactly this object."""
        return {"metadata": {**exactly(obj), "annotations": {CLAIM_ANNOTATION: str(self.claim)}}}


class ClaimWrites:
    def __init__(self) -> None:
        self._pending: dict[Ref, PendingClaim] = {}

    @property
    def pending(self) -> list[tuple[Candidate, Claim]]:
        """Those that the cache does not show yet."""
        return [(each.candidate, each.claim) for each in self._pending.values()]

    def decide(self, candidate: Candidate, claim: Claim) -> bool:
        """Whether that has to be written."""
        if candidate.claim == claim or candidate.ref in self._pending:
            return False
        self._pending[candidate.ref] = PendingClaim(candidate, claim)
        return True

    def get(self, ref: Ref) -> PendingClaim | None:
        """The one that has to be written."""
        pending = self._pending.get(ref)
        return pending if pending is not None and pending.written is None else None

    def written(self, ref: Ref, version: str) -> None:
        if ref in self._pending:
            self._pending[ref].written = version

    def observe(self, candidate: Candidate) -> None:
        """It waits, as it is now."""
        pending = self._pending.get(candidate.ref)
        if pending is not None and pending.written is not None and not is_older(candidate.version, pending.written):
            del self._pending[candidate.ref]

    def drop(self, ref: Ref) -> None:
        self._pending.pop(ref, None)

"""Admission webhooks: others are asked over HTTPS before a write is kept."""

from clusters.embedded.admission import Operation
from clusters.embedded.context import Clock, Context
from clusters.embedded.kinds import Kinds
from clusters.embedded.store import Object


class Webhooks:
    """Asks the webhooks that are configured."""

    def __init__(self, kinds: Kinds, clock: Clock) -> None:
        self._kinds, self._clock = kinds, clock

    def concern(self, ctx: Context, operation: str) -> bool:
        """Whether any of them wants to see such a write."""
        return False

    async def mutate(self, operation: Operation) -> Object:
        """The object as they would have it."""
        assert operation.obj is not None
        return operation.obj

    async def validate(self, operation: Operation) -> None:
        """Raises StatusError if one of them refuses."""

    async def close(self) -> None:
        """Let go of connections."""

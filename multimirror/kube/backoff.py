"""How long to wait before trying again: exponential, capped, with jitter.

One policy for requests, watches, queue keys and leases. The jitter is "equal": half of the wait is certain, so that
nothing spins, and half is random, so that a thousand clients that failed together do not come back together.
"""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """`delay()` grows with each call, until `reset()`."""

    initial: float = 0.2
    maximum: float = 30.0
    factor: float = 2.0
    chance: random.Random = field(default_factory=lambda: random.Random(), repr=False)  # noqa: S311, PLW0108 - no secret; looked up late, so that simulations can seed it
    attempts: int = 0

    def delay(self) -> float:
        """Seconds to wait before the next try."""
        wait = ceiling(self.attempts, initial=self.initial, maximum=self.maximum, factor=self.factor)
        self.attempts += 1
        return wait * (0.5 + self.chance.random() / 2)

    def reset(self) -> None:
        """It worked: start small again."""
        self.attempts = 0


def ceiling(attempts: int, *, initial: float, maximum: float, factor: float = 2.0) -> float:
    """The longest wait after that many failed tries."""
    return min(maximum, initial * factor ** min(attempts, 64))

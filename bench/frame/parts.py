"""A part of the bench: it can be run alone, at any size, and says beforehand how long it will take."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.frame.results import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is measured, and with which sizes unless others are asked for."""

    name: str
    about: str
    unit: str
    """What the sizes count."""
    sizes: tuple[int, ...]
    fleet: Literal["local", "embedded"]
    """What it needs: real control planes, or none but Python."""
    seconds: Callable[[Sequence[int]], float]
    """How long it takes, about, on two cores."""
    measure: Callable[[Recorder, Sequence[int]], Awaitable[None]]

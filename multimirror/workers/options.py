"""How workers are reached, and how it is noticed that they are not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from multimirror.kube.write_guard import WriteGuard
from multimirror.workers.followed import Followed
from multimirror.workers.reading import MadeByUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """How often a worker is asked whether it is there, and when it is lost."""

    period: float = 4.0
    timeout: float = 4.0
    """How many seconds an answer may take."""
    failure_threshold: int = 2
    """So many in a row that failed, and it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The same for all workers."""

    origin: str
    """The identity of the management cluster: whose copies are ours."""
    made_by_us: MadeByUs
    """Which of the objects with our labels we have made."""
    secret_namespace: str
    directory: Path | None = None
    """Where kubeconfigs in files may be; None: nowhere."""
    concurrency: int = 16
    """Calls in flight to each worker. Heartbeats have a connection of their own, and do not wait behind them."""
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    guard: WriteGuard | None = None
    """Asked before each write."""
    plain_http: bool = False
    """Also without TLS: for clusters inside this process."""
    also_followed: tuple[Followed, ...] = ()
    """What is kept track of there besides the copies of Jobs."""
    known_copies: Callable[[str], int] = lambda _: 0
    """How many objects a worker has of us, as far as their originals say: so much more it may send and show."""
    parsing: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)
    """Large kubeconfigs are read one after the other: a hundred threads would keep everybody else waiting."""

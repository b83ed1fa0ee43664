"""A fleet: one management cluster and N worker clusters, the same to its user whatever the clusters are made of.

    async with open_fleet("embedded", FleetOptions(workers=3)) as fleet:
        fleet.management.kubeconfig, fleet.workers["worker-1"].kubeconfig

Entering the context returns when every API server answers; leaving it stops and removes everything that was made.
The kinds are imported only when asked for, so that one kind's needs (binaries, Docker) never get in another's way.
"""

import abc
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

Kubeconfig = dict[str, Any]


class Cluster(Protocol):
    """One running cluster, as its users see it."""

    @property
    def name(self) -> str:
        """`management`, or `worker-1`, `worker-2`, ..."""

    @property
    def kubeconfig(self) -> Kubeconfig:
        """An administrator's kubeconfig: self-contained (certificates inline), usable from this host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """What every kind of fleet understands."""

    workers: int = 2
    nodes: bool = True
    """Simulated nodes take the pods of every cluster through their life."""
    data_dir: Path | None = None
    """Where state is kept and found again; without it nothing outlives the fleet."""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)


class Fleet(abc.ABC):
    """One management cluster and N workers. An async context manager: up inside, gone outside."""

    management: Cluster
    workers: dict[str, Cluster]

    def __init__(self, options: FleetOptions) -> None:
        self.options = options

    @abc.abstractmethod
    async def start(self) -> None:
        """Bring everything up; on return every API server answers."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Stop and remove everything that `start` made, however far it came."""

    def clusters(self) -> list[Cluster]:
        """All of them, management first."""
        return [self.management, *self.workers.values()]

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


_KINDS: Final = {
    "embedded": ("clusters.embedded", "EmbeddedFleet"),
    "local": ("clusters.local", "LocalFleet"),
    "kind": ("clusters.kind", "KindFleet"),
}


def open_fleet(kind: str = "embedded", options: FleetOptions | None = None) -> Fleet:
    """A fleet of that kind, not yet started: use it as `async with`."""
    try:
        module, name = _KINDS[kind]
    except KeyError:
        raise ValueError(f"unknown kind of fleet {kind!r}: choose one of {', '.join(_KINDS)}") from None
    fleet: Fleet = getattr(importlib.import_module(module), name)(options or FleetOptions())
    return fleet


def unavailable(kind: str) -> str | None:
    """Why no fleet of that kind can be opened on this machine, and what would help; None when it can."""
    module = importlib.import_module(_KINDS[kind][0])
    check: Callable[[], str | None] = getattr(module, "unavailable", lambda: None)
    return check()

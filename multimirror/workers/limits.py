"""How much a worker may send and show, which grows with what *we* have there.

    traffic     128 MiB at once and 64 MiB a minute for whoever has nothing of ours; each copy explains 1 MiB at once
                and 4 MiB a minute more (a Job with thousands of pods changes twice a second), up to 600 MiB a minute:
                more than that is nobody's work, and would be a noticeable part of ours
    inventory   512 MiB at once and 128 MiB a minute for its nodes and namespaces: ten thousand nodes, listed twice
    copies      10,000 objects and 32 MiB besides twice those that we know of; each of them 32 KiB
    nodes       30,000 and 48 MiB; with their labels, where room is counted node by node, 192 MiB
    pods        200,000 and 256 MiB, where we may see them; 2 GiB at once and 512 MiB a minute: the largest clusters
                have 150,000, listed once, and then a thousand changes a second
    namespaces  30,000 and 24 MiB

Copies whose originals are gone are not known, and counted in the 10,000. When thousands of originals go at once their
copies take minutes to follow, and a worker is not to pay for that: what we knew of is forgotten little by little, by
ten a second. What a cache takes is counted in memory, after
trimming, not in bytes on the wire: a megabyte of brackets becomes twenty in memory.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from multimirror.kube.budget import KIB, MIB, Allowance, Budget, CacheBudget, CacheLimits
from multimirror.kube.errors import OverBudget

_BURST, _BURST_PER_COPY = 128 * MIB, MIB
_PER_MINUTE, _PER_MINUTE_PER_COPY, _MOST_PER_MINUTE = 64 * MIB, 4 * MIB, 600 * MIB
_LARGEST_BURST: Final = 4096 * MIB
_INVENTORY: Final = Allowance(512 * MIB, 128 * MIB)
_COPIES, _COPIES_WEIGHT, _COPY_WEIGHT = 10_000, 32 * MIB, 32 * KIB
_NODES: Final = CacheLimits(30_000, 48 * MIB)
_LABELLED_NODES: Final = CacheLimits(30_000, 192 * MIB)
_PODS: Final = CacheLimits(200_000, 256 * MIB)
_POD_TRAFFIC: Final = Allowance(2048 * MIB, 512 * MIB)
_NAMESPACES: Final = CacheLimits(30_000, 24 * MIB)
_ASK_EVERY: Final = 1.0
_FORGOTTEN_PER_SECOND: Final = 10.0


class WorkerBudget:
    """What one worker may send, over all its sessions."""

    def __init__(self, worker: str, known: Callable[[], int], on_breach: Callable[[OverBudget], None]) -> None:
        """`known`: how many of our objects are there, as far as their originals say."""
        self.traffic: Final = Budget(worker, self._allowance, on_breach)
        self.inventory: Final = Budget(worker, lambda: _INVENTORY, on_breach)
        self.pod_traffic: Final = Budget(worker, lambda: _POD_TRAFFIC, on_breach)
        self._known = known
        self._count = 0.0
        self._asked = float("-inf")

    def copies(self) -> CacheBudget:
        """For one session."""
        return CacheBudget("objects with our labels", self._copies, self.traffic.breach)

    def nodes(self, *, labelled: bool = False) -> CacheBudget:
        limits = _LABELLED_NODES if labelled else _NODES
        return CacheBudget("nodes", lambda: limits, self.traffic.breach)

    def pods(self) -> CacheBudget:
        return CacheBudget("pods", lambda: _PODS, self.traffic.breach)

    def namespaces(self) -> CacheBudget:
        return CacheBudget("namespaces", lambda: _NAMESPACES, self.traffic.breach)

    def _copies(self) -> CacheLimits:
        known = 2 * self._copies_known()
        return CacheLimits(_COPIES + known, _COPIES_WEIGHT + _COPY_WEIGHT * known)

    def _allowance(self) -> Allowance:
        known = self._copies_known()
        return Allowance(
            min(_BURST + known * _BURST_PER_COPY, _LARGEST_BURST),
            min(_PER_MINUTE + known * _PER_MINUTE_PER_COPY, _MOST_PER_MINUTE),
        )

    def _copies_known(self) -> int:
        """Asked now and then: to count them for each event would cost more than the event."""
        now = asyncio.get_running_loop().time()
        if now >= self._asked + _ASK_EVERY:
            forgotten = _FORGOTTEN_PER_SECOND * (now - self._asked)
            self._count, self._asked = max(float(self._known()), self._count - forgotten), now
        return int(self._count)

"""Who holds what: the Jobs that are assigned and not finished, counted by queue, namespace and worker.

An assignment that was just sent counts at once (`assume`) and until the cache shows it, so that two placements in a row
never count on the same room. Rebuilt from the cache alone after a restart: nothing here is a record.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from multimirror.kinds.pod_sets import Amounts


@dataclass(frozen=True, slots=True)
class Holding:
    """What one assigned Job holds."""

    queue: str
    namespace: str
    worker: str
    requests: Amounts


@dataclass(slots=True)
class Use:
    """A sum of holdings."""

    jobs: int = 0
    resources: dict[str, Decimal] = field(default_factory=dict)

    def add(self, requests: Amounts, sign: int = 1) -> None:
        """One Job more, or less."""
        self.jobs += sign
        for name, value in requests.items():
            self.resources[name] = self.resources.get(name, Decimal(0)) + sign * value

    def of(self, name: str) -> Decimal:
        """How much of one resource."""
        return self.resources.get(name, Decimal(0))


class Ledger:
    """The sums, kept up to date Job by Job."""

    def __init__(self) -> None:
        self._holdings: dict[str, Holding] = {}
        self._queues: dict[str, Use] = {}
        self._workers: dict[str, Use] = {}
        self._namespaces: dict[str, Counter[str]] = {}
        self._spread: dict[str, Counter[str]] = {}
        self._turns: dict[str, dict[str, int]] = {}
        self._turn = 0

    def put(self, uid: str, holding: Holding | None) -> bool:
        """This Job holds that now (None: nothing). Whether it is a change."""
        before = self._holdings.get(uid)
        if before == holding:
            return False
        if before is not None:
            del self._holdings[uid]
            self._count(before, -1)
        elif holding is not None:
            self._turn += 1
            self._turns.setdefault(holding.queue, {})[holding.namespace] = self._turn
        if holding is not None:
            self._holdings[uid] = holding
            self._count(holding, 1)
        return True

    def holding(self, uid: str) -> Holding | None:
        """What this Job holds."""
        return self._holdings.get(uid)

    def queue(self, name: str) -> Use:
        """What the Jobs of a queue hold. Not to be changed by the caller."""
        return self._queues.get(name) or Use()

    def worker(self, name: str) -> Use:
        """What is held on a worker. Not to be changed by the caller."""
        return self._workers.get(name) or Use()

    def namespaces(self, queue: str) -> Counter[str]:
        """How many Jobs each namespace holds in a queue."""
        return self._namespaces.get(queue) or Counter()

    def turns(self, queue: str) -> Mapping[str, int]:
        """When each namespace of a queue was last given something: the larger, the later."""
        return self._turns.setdefault(queue, {})

    def spread(self, queue: str) -> Counter[str]:
        """How many Jobs of a queue each worker has."""
        return self._spread.get(queue) or Counter()

    def on(self, worker: str) -> list[str]:
        """The Jobs on a worker, by uid."""
        return [uid for uid, holding in self._holdings.items() if holding.worker == worker]

    def _count(self, holding: Holding, sign: int) -> None:
        self._queues.setdefault(holding.queue, Use()).add(holding.requests, sign)
        self._workers.setdefault(holding.worker, Use()).add(holding.requests, sign)
        self._namespaces.setdefault(holding.queue, Counter())[holding.namespace] += sign
        self._spread.setdefault(holding.queue, Counter())[holding.worker] += sign

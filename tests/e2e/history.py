"""Everything that was written about Jobs, on every cluster of a stage, and what must hold of it (faults.invariants).

Each version of each Job and pod is recorded as its cluster tells it. After every test the promises that hold at any
moment are checked on the record: I1, I2, I3, I5, and I4 for Jobs that have ended. What asks for proxies or for a fleet
at rest (I6 to I10) is checked in every run of the fault suite; the tests themselves look at it where it is their point.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from faults import Record, Rules, Witness, check
from faults.invariants import ALWAYS
from faults.record import JOBS, MANAGEMENT, PODS
from faults.statuses import finished_jobs_agree_with_their_copies
from multimirror.kube import Client

Json = dict[str, Any]


class History:
    """Records while its context is open."""

    def __init__(self, management: Client, workers: dict[str, Client], namespace: str) -> None:
        self._clients = {MANAGEMENT: management, **workers}
        self.record = Record()
        self._witness = Witness(self.record, dict.fromkeys(self._clients, (JOBS, PODS)), namespace)
        self._stack = contextlib.AsyncExitStack()
        self.two_may_live = False
        """The test's policy allows a second copy while the first cannot be reached."""

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._witness)
        for cluster, client in self._clients.items():
            await self._witness.follow(cluster, client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def events(self) -> list[tuple[str, str, str, Json]]:
        """Cluster, type of event, kind and object, as they were told."""
        return [(seen.cluster, seen.type, seen.kind, seen.object) for seen in self.record.seen]

    def jobs(self, cluster: str) -> list[tuple[str, Json]]:
        """Every version of every Job of a cluster: type of event, object."""
        return [(seen.type, seen.object) for seen in self.record.changes("Job", cluster)]

    async def check(self) -> None:
        """Raise when a promise was broken."""
        await asyncio.sleep(0.1)  # what was written last is still being told
        waived = {"I1": "the older copy cannot be reached"} if self.two_may_live else {}
        found = check(self.record, Rules(waived=waived), [*ALWAYS.values(), finished_jobs_agree_with_their_copies])
        assert not found, "\n".join(map(str, found))

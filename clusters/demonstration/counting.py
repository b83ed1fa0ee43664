"""What became of the Jobs: the invariants' checker, on a record of every change on every cluster.

The record is made by watches of its own, straight from the API servers, and knows nothing of what is shown.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from clusters.fleet import Fleet
from faults.invariants import at_rest, check
from faults.plan import Fault
from faults.record import MANAGEMENT, Record, Struck, Watcher
from faults.rules import Rules, Violation
from faults.statuses import end_of
from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION
from multimirror.batch import Json
from multimirror.kube import Client, Connection
from multimirror.kube.resources import EVENTS, JOBS, PODS

INVARIANTS: Final = 7  # I1 to I7; the others ask what was requested, and nobody stands in between here
_TWICE: Final = ("I1", "I2")  # two copies at once; a pod of a Job that had ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The numbers of the last screen."""

    jobs: int
    done: int
    failed: int
    moved: int
    lost: int
    twice: int
    places: Counter[str]
    changes: int
    broken: Sequence[Violation]
    """Promises that were not kept."""


@dataclass(slots=True)
class Ledger:
    """A record, and what is promised of it."""

    rules: Rules
    record: Record = field(default_factory=Record)

    def expect(self, ends: Mapping[str, str]) -> None:
        """Jobs are going to be created; this is how each of them must end."""
        self.rules = replace(self.rules, ends={**self.rules.ends, **ends})

    def cut_off(self, worker: str, since: float) -> None:
        """The dispatcher could not reach it, from then (the loop's clock) until now."""
        now = asyncio.get_running_loop().time()
        fault = Fault(kind="partition", link=f"{self.rules.dispatcher}/{worker}", seconds=now - since)
        self.record.struck.append(Struck(since, fault, now))

    async def rest(self, seconds: float) -> None:
        """Until what was written last has been told, or the time is up: then the count will say what is missing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while at_rest(self.record, self.rules):  # noqa: ASYNC110 - the record tells nobody that it grows
                    await asyncio.sleep(0.1)

    def count(self) -> Count:
        """Now."""
        jobs = [job for job in self.record.last("Job", MANAGEMENT).values() if self.rules.labels.is_original(job)]
        ends = Counter(end_of(job, self.rules).partition(" ")[0] for job in jobs)
        broken = check(self.record, self.rules)
        gone = self.rules.ends.keys() - {job["metadata"]["name"] for job in jobs}
        return Count(
            jobs=len(jobs) + len(gone),
            done=ends["Complete"],
            failed=ends["Failed"],
            moved=sum(1 for job in jobs if _annotation(job, ATTEMPT_ANNOTATION) not in ("", "1")),
            lost=len(jobs) + len(gone) - ends["Complete"] - ends["Failed"],
            twice=len({violation.text for violation in broken if violation.invariant in _TWICE}),
            places=Counter(_annotation(job, CLUSTER_ANNOTATION) for job in jobs),
            changes=len(self.record.seen),
            broken=broken,
        )


@contextlib.asynccontextmanager
async def recorded(fleet: Fleet, namespace: str, ledger: Ledger) -> AsyncIterator[None]:
    """Everything that happens in that namespace of the fleet is in the record."""
    kinds = dict.fromkeys(fleet.workers, (JOBS, PODS)) | {MANAGEMENT: (JOBS, EVENTS)}
    async with contextlib.AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(Watcher(ledger.record, kinds, namespace))
        for cluster in fleet.clusters():
            connection = Connection.from_kubeconfig(cluster.kubeconfig, name=cluster.name)
            client = await stack.enter_async_context(Client(connection, user_agent="demo"))
            await watcher.follow(cluster.name, client)
        yield


def _annotation(job: Json, name: str) -> str:
    return str((job["metadata"].get("annotations") or {}).get(name, ""))

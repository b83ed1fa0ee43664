"""Why others are stopped for a Job, and why nobody is: in words, made when they are read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from multimirror.api import Preempts
from multimirror.batch.times import format_time, utc_datetime
from multimirror.scheduling.filters import text
from multimirror.scheduling.preempting import Awaited
from multimirror.scheduling.quota import Node, QuotaUsage
from multimirror.scheduling.running import RunningJob, RunningSnapshot
from multimirror.scheduling.victims import NobodyToStop, Preemption, Protected, Standing, Victim

_NAMED: Final = 5
"""Jobs in one sentence."""
_TRIED: Final = 3
"""Workers in one sentence."""


@dataclass(frozen=True, slots=True)
class Stops:
    """These are stopped for it."""

    found: Preemption

    def __str__(self) -> str:
        found, where = self.found, f" on worker {self.found.worker}" if self.found.worker is not None else ""
        names = _names([each.job.name for each in found.victims])
        freed = ", ".join(
            f"{text(sum(each.job.requests.get(name, 0) for each in found.victims))} {name}" for name in found.contended
        )
        more = [(worker, number) for worker, number in found.tried if number > len(found.victims)]
        others = "".join(f"; {worker} would have needed {number}" for worker, number in more[:_TRIED])
        return f"stops {names} to run{where} ({freed}), the fewest that make room{others}"


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """Those are being stopped for it."""

    awaited: Awaited

    def __str__(self) -> str:
        leaving, gone = self.awaited.leaving, self.awaited.gone
        where = f" to run on worker {self.awaited.worker}" if self.awaited.worker is not None else ""
        since = format_time(utc_datetime(self.awaited.since))
        if not leaving:
            return f"{_jobs(len(gone))} stopped for it, and it goes first{where}: it waits for the room to be free"
        still = f"{_jobs(len(leaving), being=True)} stopped for it{where}, since {since}"
        return f"{still}: {_names([*(_still(job) for job in leaving), *(f'{name} (gone)' for name in gone)])}"


@dataclass(frozen=True, slots=True)
class RoomOnItsWay:
    """It will fit when those are gone who are being stopped, if not for it."""

    why: object

    def __str__(self) -> str:
        return f"{self.why}. It will fit when the Jobs that are being stopped are gone"


@dataclass(frozen=True, slots=True)
class Nobody:
    """Nobody may be stopped for it, though it asks for no more than is its queue's own.

    `usage` and `running` are as they were then."""

    why: object
    found: NobodyToStop
    usage: QuotaUsage
    running: RunningSnapshot
    queue: Node

    def __str__(self) -> str:
        if not self.lacking:
            return f"{self.why}. Nobody may be stopped for it"
        where = f" on worker {self.worker}" if self.worker is not None else ""
        having = [(node, has) for node in self._others() if (has := self._has(node)) > 0]
        having.sort(key=lambda each: (-each[1], each[0].name))
        cut = "; not all of them could be looked at" if self.found.cut else ""
        told = [self._keeps(node, has) for node, has in having[:_TRIED]]
        if len(having) > _TRIED:
            told.append(f"and {len(having) - _TRIED} more")
        return f"{self.why}. Nobody may be stopped for it{where}: {'; '.join(told)}{cut}"

    @property
    def worker(self) -> str | None:
        return self.found.room[0] if self.found.room is not None else None

    @property
    def lacking(self) -> str:
        """Of this resource there is too little."""
        if self.found.room is not None:
            return self.found.room[1]
        return self.found.short[0].resource if self.found.short else ""

    def _others(self) -> Iterator[Node]:
        return (node for node in self.usage.tree.queues.values() if node.root is self.queue.root)

    def _has(self, node: Node) -> int:
        """What a queue has of it, there."""
        if self.worker is None:
            return self.usage.used(node, self.lacking) if node is not self.queue else 0
        return sum(job.requests.get(self.lacking, 0) for job in self.running.of(node.name, self.worker))

    def _keeps(self, node: Node, has: int) -> str:
        name, quota = self.lacking, node.quotas.get(self.lacking)
        said = f"queue {node.name} has {text(has)} {name}" + (" there" if self.worker is not None else "")
        if node is self.queue:
            return f"{said} itself"
        if quota is None:
            return f"{said}, which no quota limits"
        used, own = text(self.usage.used(node, name)), text(quota.subtree)
        if self.usage.over(node, name) <= 0:
            return f"{said}, all of it within its own quota ({used} of {own} used)"
        return f"{said}, and uses {used} of its {own}, but none of its Jobs that would help may be stopped"


@dataclass(frozen=True, slots=True)
class NotYet:
    """Somebody could be stopped for it, but has not run long enough."""

    found: Protected
    now: float

    def __str__(self) -> str:
        jobs, until = self.found.jobs, self.found.until
        first, names = jobs[0], _names([job.name for job in jobs])
        who = "" if len(jobs) == 1 else f" {first.name}"
        ran, least = _span(max(0.0, self.now - first.placed)), _span(until - first.placed)
        ran_of = f"has run {ran} of the {least} that minRuntime of queue {first.queue} gives it"
        again = f"again in {_span(max(0.0, until - self.now))}, at {format_time(utc_datetime(until))}"
        return f"{names} could make room, but{who} {ran_of}; {again}"


@dataclass(frozen=True, slots=True)
class Stopped:
    """To the victim: why."""

    victim: Victim
    by: str
    """Namespace and name."""
    priority: int

    def __str__(self) -> str:
        job, compared = self.victim.job, self.victim.compared
        where = f"stopped on worker {job.worker}"
        if compared is None:
            return (
                f"{where} for {self.by} (priority {self.priority}, this one {job.priority}) in the same queue. It "
                "waits again, in its old place"
            )
        resource, taker, giver = compared.resource, compared.taker, compared.giver
        if self.victim.reason is Preempts.RECLAIM:
            why = f"to give {_called(taker)} its own quota back (Reclaim)"
        else:
            shares = f"{compared.taker_share} and {compared.giver_share}"
            why = f"for {_called(taker)}, which has less of what is shared (FairShare; afterwards {shares})"
        uses = f"{_uses(taker)} {resource} and needs {text(compared.asked)}, {_uses(giver)}"
        return f"{where} {why}: {uses}. It made room for {self.by}, and waits again, in its old place"


def _uses(standing: Standing) -> str:
    return f"{_called(standing)} uses {text(standing.used)} of its {text(standing.own)}"


def _called(standing: Standing) -> str:
    return f"{'queue' if standing.is_queue else 'cohort'} {standing.name}"


def _still(job: RunningJob) -> str:
    """What is known of one that is being stopped."""
    if not job.stopping:  # none is there, or it was not seen yet how many are
        return job.name
    pods = "1 pod" if job.stopping == 1 else f"{job.stopping} pods"
    return f"{job.name} ({pods} still there)"


def _span(seconds: float) -> str:
    """Whole seconds, or minutes where that is as exact as anybody wants."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _jobs(number: int, *, being: bool = False) -> str:
    one, many = ("is being", "are being") if being else ("was", "were")
    return f"1 Job {one}" if number == 1 else f"{number} Jobs {many}"


def _names(names: list[str]) -> str:
    shown = names[:_NAMED]
    if len(names) > _NAMED:
        return f"{', '.join(shown)} and {len(names) - _NAMED} more"
    return " and ".join(([", ".join(shown[:-1])] if shown[:-1] else []) + shown[-1:])

"""Why others are stopped for a Job, and why nobody is: in words, made when they are read."""

from dataclasses import dataclass
from typing import Final

from multimirror.api import Preempts
from multimirror.batch.times import format_time, utc_datetime
from multimirror.scheduling.filters import text
from multimirror.scheduling.preempting import Awaited
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
            return f"{_jobs(gone)} stopped for it, and it goes first{where}: it waits for the room to be free"
        still = f"{_jobs(len(leaving), being=True)} stopped for it{where}, since {since}"
        return f"{still}: {_names([job.name for job in leaving])}" + (f"; {gone} gone already" if gone else "")


@dataclass(frozen=True, slots=True)
class RoomOnItsWay:
    """It will fit when those are gone who are being stopped, if not for it."""

    why: object

    def __str__(self) -> str:
        return f"{self.why}. It will fit when the Jobs that are being stopped are gone"


@dataclass(frozen=True, slots=True)
class Nobody:
    """Nobody may be stopped for it, though it asks for no more than is its queue's own."""

    why: object
    found: NobodyToStop

    def __str__(self) -> str:
        cut = " that were looked at" if self.found.cut else ""
        return f"{self.why}. Nobody may be stopped for it: all others{cut} are within their own quota, or protected"


@dataclass(frozen=True, slots=True)
class NotYet:
    """Somebody could be stopped for it, but has not run long enough."""

    found: Protected
    now: float

    def __str__(self) -> str:
        jobs, seconds = self.found.jobs, max(0.0, self.found.until - self.now)
        could = "could make room, but has" if len(jobs) == 1 else "could make room, but have"
        names = _names([job.name for job in jobs])
        return f"{names} {could} not run as long as minRuntime of the queue says; again in {seconds:.0f} s"


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


def _jobs(number: int, *, being: bool = False) -> str:
    one, many = ("is being", "are being") if being else ("was", "were")
    return f"1 Job {one}" if number == 1 else f"{number} Jobs {many}"


def _names(names: list[str]) -> str:
    shown = names[:_NAMED]
    if len(names) > _NAMED:
        return f"{', '.join(shown)} and {len(names) - _NAMED} more"
    return " and ".join(([", ".join(shown[:-1])] if shown[:-1] else []) + shown[-1:])

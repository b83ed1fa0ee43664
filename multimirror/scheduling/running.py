"""The Jobs that run, in the order in which they would be stopped.

In a queue: lowest priority first, then the one that was placed last, for it loses least, then by uid. They are kept in
this order as they come and go, by queue, and by queue and worker. A search looks at the first `MOST_CANDIDATES` of a
queue. Snapshots cost a shallow copy of a table: a line is copied when it is changed while one may still show it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from multimirror.kinds.pod_sets import Amounts

MOST_CANDIDATES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A Job that has a worker, as one that could be stopped."""

    uid: str
    queue: str
    requests: Amounts
    priority: int = 0
    placed: float = 0.0
    """When it was given to its worker, in seconds."""
    worker: str = ""
    pods: int = 1
    preemptible: bool = True
    ends: float | None = None
    """Then it is gone at the latest, whatever happens; None: nobody knows."""
    name: str = field(default="", compare=False)
    """Namespace and name, for people."""
    stopping: int | None = field(default=None, compare=False)
    """Of one that is being stopped: how many of its pods are still there, for people."""


VictimOrder = tuple[int, float, str]


def victim_order(job: RunningJob) -> VictimOrder:
    """Of two Jobs of a queue, the one with the smaller is stopped first."""
    return job.priority, -job.placed, job.uid


class _Line:
    __slots__ = ("jobs", "owner")

    def __init__(self, owner: object, jobs: Iterable[RunningJob] = ()) -> None:
        self.owner, self.jobs = owner, list(jobs)


_Place = tuple[str, str | None]
"""A queue, and a worker; None: all of them."""


@dataclass(frozen=True, slots=True)
class RunningSnapshot:
    """What ran at one moment."""

    lines: Mapping[_Place, _Line]

    def of(self, queue: str, worker: str | None = None) -> Sequence[RunningJob]:
        """Those of a queue, or of a queue on one worker, in the order in which they would be stopped."""
        line = self.lines.get((queue, worker))
        return line.jobs if line is not None else ()


class RunningJobs:
    """All that run."""

    def __init__(self, jobs: Iterable[RunningJob] = ()) -> None:
        self._owner = object()
        self._lines: dict[_Place, _Line] = {}
        self._jobs: dict[str, RunningJob] = {}
        for job in jobs:
            self.put(job)

    def put(self, job: RunningJob) -> None:
        """This one runs, as it is now."""
        self.remove(job.uid)
        self._jobs[job.uid] = job
        for place in _places(job):
            insort(self._own(place).jobs, job, key=victim_order)

    def remove(self, uid: str) -> RunningJob | None:
        """This one runs no longer. Gives it, if it did."""
        job = self._jobs.pop(uid, None)
        if job is None:
            return None
        for place in _places(job):
            line = self._own(place)
            del line.jobs[bisect_left(line.jobs, victim_order(job), key=victim_order)]
            if not line.jobs:
                del self._lines[place]
        return job

    def get(self, uid: str) -> RunningJob | None:
        return self._jobs.get(uid)

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[RunningJob]:
        return iter(tuple(self._jobs.values()))

    def snapshot(self) -> RunningSnapshot:
        """What runs now; who comes or goes later does not change it."""
        self._owner = object()
        return RunningSnapshot(dict(self._lines))

    def _own(self, place: _Place) -> _Line:
        line = self._lines.get(place)
        if line is None or line.owner is not self._owner:
            line = self._lines[place] = _Line(self._owner, line.jobs if line is not None else ())
        return line


def _places(job: RunningJob) -> tuple[_Place, _Place]:
    return (job.queue, None), (job.queue, job.worker)
